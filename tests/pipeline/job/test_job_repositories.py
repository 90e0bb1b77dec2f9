"""A job's packages come from the repository where the user's Maven folder has only parts of them."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pyspark
import pytest

from shardway.pipeline.job.session.packages import OPTIONS, TABLE_PACKAGES
from shardway.pipeline.job.session.repositories import IVY_SETTINGS, MIRROR, REPOSITORIES, with_repositories

PACKAGE = "org.example:lib:1.0"
NEEDED = "dep"
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>org.example</groupId><artifactId>{name}</artifactId><version>1.0</version><dependencies>{needs}</dependencies>
</project>"""
NEEDS = "<dependency><groupId>org.example</groupId><artifactId>dep</artifactId><version>1.0</version></dependency>"
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
NOT_THERE = "org.example.NotThere"
"""A program that is in no package: Spark looks for it when it has fetched them all."""


def publish(repository: Path, name: str, *, jar: bool) -> None:
    folder = repository / "org" / "example" / name / "1.0"
    folder.mkdir(parents=True)
    (folder / f"{name}-1.0.pom").write_text(POM.format(name=name, needs=NEEDS if name == "lib" else ""))
    if jar:
        with zipfile.ZipFile(folder / f"{name}-1.0.jar", "w") as file:
            file.writestr("name.txt", name)


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A whole repository, in the place of the public ones."""
    for name in ("lib", NEEDED):
        publish(tmp_path / "public", name, jar=True)
    monkeypatch.setenv(MIRROR, (tmp_path / "public").as_uri() + "/")
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    return tmp_path / "public"


def settings_of(home: Path, **more: str) -> dict[str, str]:
    return {"spark.jars.packages": PACKAGE, OPTIONS: f"-Duser.home={home}", "spark.master": "local[1]", **more}


def fetched(settings: dict[str, str], home: Path) -> tuple[list[str], str]:
    """The jars that Spark put in place, and what it said."""
    given = [argument for name, value in settings.items() for argument in ("--conf", f"{name}={value}")]
    anything = next((SUBMIT.parents[1] / "jars").glob("ivy-*.jar"))
    done = subprocess.run(
        [str(SUBMIT), *given, "--class", NOT_THERE, str(anything)],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    jars = [path.name for path in (home / ".ivy2.5.2" / "jars").glob("*.jar")] if NOT_THERE in said else []
    return sorted(jars), said


@pytest.mark.spark
@pytest.mark.parametrize("parts", [["lib"], ["dep"]])
def test_a_jar_that_the_maven_folder_lacks_comes_from_the_repository(
    mirror: Path, tmp_path: Path, parts: list[str]
) -> None:
    home = tmp_path / "home"
    for name in parts:
        publish(home / ".m2" / "repository", name, jar=False)
    jars, said = fetched(with_repositories(settings_of(home)), home)
    assert jars == ["org.example_dep-1.0.jar", "org.example_lib-1.0.jar"], said


@pytest.mark.spark
def test_a_whole_maven_folder_is_enough(mirror: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name in ("lib", NEEDED):
        publish(home / ".m2" / "repository", name, jar=True)
    mirror.rename(tmp_path / "out-of-reach")
    jars, said = fetched(with_repositories(settings_of(home)), home)
    assert jars == ["org.example_dep-1.0.jar", "org.example_lib-1.0.jar"], said


@pytest.mark.spark
def test_a_jar_comes_from_a_repository_of_the_job(
    mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    publish(home / ".m2" / "repository", "lib", jar=False)
    monkeypatch.setenv(MIRROR, (tmp_path / "nothing").as_uri() + "/")
    settings = settings_of(home, **{REPOSITORIES: mirror.as_uri() + "/"})
    jars, said = fetched(with_repositories(settings), home)
    assert jars == ["org.example_dep-1.0.jar", "org.example_lib-1.0.jar"], said


def test_spark_keeps_its_own_places_where_they_are_not_all_known(
    mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    settings = settings_of(home)
    assert with_repositories(settings) == settings, "there is no Maven folder"
    (home / ".m2" / "repository").mkdir(parents=True)
    assert Path(with_repositories(settings)[IVY_SETTINGS]).is_file()
    named = {**settings, IVY_SETTINGS: "own.xml"}
    assert with_repositories(named) == named
    assert IVY_SETTINGS not in with_repositories({**settings, "spark.jars.packages": ""})
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--conf {IVY_SETTINGS}=own.xml pyspark-shell")
    assert with_repositories(settings) == settings
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS")
    monkeypatch.delenv(MIRROR)
    assert with_repositories(settings) == settings, "a package of another group may be in Spark's second repository"
    for by_spark in TABLE_PACKAGES.values():
        public = {**settings, "spark.jars.packages": ",".join(by_spark.values())}
        text = Path(with_repositories(public)[IVY_SETTINGS]).read_text(encoding="utf-8")
        assert os.fspath(home / ".m2" / "repository") in text
