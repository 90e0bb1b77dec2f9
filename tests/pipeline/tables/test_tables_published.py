"""The versions of Spark for which a table's format has no package: the package registry is asked whether it has one.

The test fails on the day on which one is published. Then `TABLE_PACKAGES` of `pipeline/job/session/packages.py` gets
it. `tests/pipeline/job/test_job_tables.py` then names the pages that say which PySpark to install for tables.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pyspark
import pytest

from scripts import pyspark_matrix
from shardway.pipeline.job.session.packages import TABLE_PACKAGES
from tests.pipeline.tables.table_packages import SCALA

pytestmark = pytest.mark.slow

SETTINGS = (
    '<ivysettings><property name="ivy.maven.lookup.sources" value="false"/>'
    '<property name="ivy.maven.lookup.javadoc" value="false"/><settings defaultResolver="public"/>'
    '<resolvers><ibiblio name="public" m2compatible="true"/></resolvers></ivysettings>'
)
NEWEST = "latest.integration"
ASK_S_MAX = 100.0


class NoAnswerError(Exception):
    """The registry cannot be asked."""


def published(package: str, folder: Path) -> str | None:
    """The version that the registry has of `group:artifact:version`; None where it says that it has none.

    Ivy, which is in PySpark, asks. It fetches the description and no jar. Raises NoAnswerError.
    """
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None:
        raise NoAnswerError("there is no Java to ask with")
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    (folder / "ivy.xml").write_text(SETTINGS, encoding="utf-8")
    group, artifact, version = package.split(":")
    try:
        done = subprocess.run(
            [java, "-cp", str(ivy), "org.apache.ivy.Main", "-settings", "ivy.xml", "-cache", "cache", "-notransitive",
             "-types", "none", "-dependency", group, artifact, version],
            cwd=folder, capture_output=True, text=True, timeout=ASK_S_MAX, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoAnswerError(f"Ivy does not end: {error}") from error
    said = done.stdout + done.stderr
    if done.returncode == 0:
        found = re.search(rf"found {re.escape(group)}#{re.escape(artifact)};(\S+) in public", said)
        assert found is not None, said
        return found[1]
    return None


def versions() -> list[str]:
    """The minor versions of PySpark that the project allows, the newest last."""
    return [version.rpartition(".")[0] for version in pyspark_matrix.VERSIONS]


@pytest.mark.parametrize("name", TABLE_PACKAGES)
def test_no_package_is_published_for_a_spark_that_is_said_to_have_none(name: str, tmp_path: Path) -> None:
    by_spark = TABLE_PACKAGES[name]
    known, package = list(by_spark.items())[-1]
    package = package.format(scala=SCALA)
    try:
        there = published(package, tmp_path)
        if there is None:  # Ivy says the same of a registry that it does not reach.
            raise NoAnswerError(f"it does not find {package}, which is there")
        without = [one for one in versions() if one not in by_spark]
        assert without, f"{name} has a package for each Spark: this test has nothing to ask, and can go"
        group, artifact, _ = package.split(":")
        asked = {one: f"{group}:{artifact.replace(known, one)}" for one in without}
        found = {one: published(f"{asked[one]}:{NEWEST}", tmp_path) for one in without}
    except NoAnswerError as error:
        pytest.skip(f"the package registry does not answer: {error}")
    assert there == package.rpartition(":")[2]
    assert {one: f"{asked[one]}:{version}" for one, version in found.items() if version is not None} == {}
