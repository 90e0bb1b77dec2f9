"""Find the packages that Spark needs for a format.

This module knows the coordinates of packages, and finds out whether this machine's Spark is given one. A package is
for one version of Spark (its first two numbers) and of Scala. The newest package that was published for each, and that
our tests run with, is written down here; the name of a later one can be seen from these.
"""

from __future__ import annotations

import os
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.pipeline.job.file.model import Scalar


TABLE_PACKAGES: dict[str, dict[str, str]] = {
    "delta": {
        "4.0": "io.delta:delta-spark_4.0_{scala}:4.4.0",
        "4.1": "io.delta:delta-spark_4.1_{scala}:4.4.0",
        "4.2": "io.delta:delta-spark_4.2_{scala}:4.4.0",
    },
    "iceberg": {
        "4.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_{scala}:1.11.0",
        "4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_{scala}:1.12.0",
    },
}
"""The coordinates of the packages for tables, by format and by the version of Spark."""
_OWN_PACKAGES = {
    "avro": "org.apache.spark:spark-avro_{scala}:{version}",
    "protobuf": "org.apache.spark:spark-protobuf_{scala}:{version}",
    "kafka": "org.apache.spark:spark-sql-kafka-0-10_{scala}:{version}",
}
"""Spark's own packages, of Spark's own version."""
OPTIONS = "spark.driver.extraJavaOptions"
"""The setting with the options of Spark's Java."""
HOW = 'as "spark.jars.packages" under [spark] or with spark-submit --packages'
_JAR_SETTINGS = ("spark.jars.packages", "spark.jars", "spark.driver.extraClassPath")
_FOR_SPARK = {
    "delta": re.compile(r"delta-spark_(\d+\.\d+)_"),
    "iceberg": re.compile(r"iceberg-spark-runtime-(\d+\.\d+)_"),
}
_PACKAGE_NAMES = {"delta": "delta-spark", "iceberg": "iceberg-spark-runtime"}


class Spark(NamedTuple):
    """The versions of a Spark that its packages depend on."""

    version: str
    scala: str

    @property
    def short(self) -> str:
        """The first two numbers of Spark's version."""
        return ".".join(self.version.split(".")[:2])


def hint(name: str, spark: Spark) -> str:
    """Return the end of a sentence that says which package Spark needs for a format; empty for a format that is not
    known here.
    """
    if name in TABLE_PACKAGES:
        by_spark = TABLE_PACKAGES[name]
        if spark.short in by_spark:
            return f"give it {by_spark[spark.short].format(scala=spark.scala)}, {HOW}"
        newest = _newest(by_spark)
        package = by_spark[newest].format(scala=spark.scala)
        return f"none is known for Spark {spark.short}; the newest is for Spark {newest}: {package}, {HOW}"
    if name in _OWN_PACKAGES:
        return f"give it {_OWN_PACKAGES[name].format(scala=spark.scala, version=spark.version)}, {HOW}"
    return ""


def _newest(by_spark: Mapping[str, str]) -> str:
    return max(by_spark, key=_number)


def _number(short: str) -> list[int]:
    return [int(part) for part in short.split(".")]


def unpublished(name: str, settings: Mapping[str, Scalar], spark: Spark | None = None) -> str:
    """Return what is wrong where there is no package of a table's format for this machine's Spark; empty where there is
    one, where one that is named here says that it is for this Spark, and where Spark runs elsewhere.
    """
    spark = local_versions() if spark is None else spark
    by_spark = TABLE_PACKAGES[name]
    if spark is None or spark.short in by_spark or _is_elsewhere(settings):
        return ""
    given = " ".join([*(str(settings.get(one, "")) for one in _JAR_SETTINGS), *options_given_here()])
    found = _FOR_SPARK[name].search(given)
    if found is not None and found[1] == spark.short:
        return ""
    newest = _newest(by_spark)
    versions = ", ".join(sorted(by_spark, key=_number))
    above = f"{newest.split('.')[0]}.{int(newest.split('.')[1]) + 1}"
    return (
        f"{name} has no package for Spark {spark.short}, only for {versions}: "
        f'pip install "pyspark<{above}", then name {by_spark[newest].format(scala=spark.scala)} {HOW}'
    )


def _is_elsewhere(settings: Mapping[str, Scalar]) -> bool:
    """True where the job runs on a Spark that has its packages from elsewhere: under spark-submit, or on a cluster."""
    master = str(settings.get("spark.master", "local"))
    return "PYSPARK_GATEWAY_PORT" in os.environ or not master.startswith("local")


def missing(name: str, settings: Mapping[str, Scalar], spark: Spark | None = None) -> str:
    """Return what is wrong with the package of a table's format, as far as can be told without Spark; empty where
    nothing is.

    The function looks at the job's settings, ``PYSPARK_SUBMIT_ARGS``, Spark's folder of jars and its file of defaults.
    A cluster may have the package elsewhere: so the text is a note, and no fault.
    """
    spark = local_versions() if spark is None else spark
    if spark is None:
        return "Spark needs its package; which one it is depends on the version of PySpark, and none is installed here"
    given = " ".join([*(str(settings.get(name, "")) for name in _JAR_SETTINGS), *options_given_here()])
    if _PACKAGE_NAMES[name] not in given:
        return f"Spark needs its package, which is not named here: {hint(name, spark)}"
    found = _FOR_SPARK[name].search(given)
    if found is not None and found[1] != spark.short:
        return f"its package here is for Spark {found[1]}, and this is Spark {spark.version}: {hint(name, spark)}"
    return ""


def packages_named(settings: Mapping[str, Scalar]) -> list[str]:
    """Return the packages that Spark fetches when it starts: those of the job, of spark-submit's arguments and of
    Spark's defaults.
    """
    named = str(settings.get("spark.jars.packages", ""))
    for text in options_given_here():
        found = re.findall(r"(?:--packages[ =]|spark\.jars\.packages[ =]+)['\"]?([^\s'\"]+)", text)
        named = ",".join([named, *found])
    return list(dict.fromkeys(one.strip() for one in named.split(",") if one.strip()))


def local_versions() -> Spark | None:
    """Return the versions of the Spark that ``shardway run`` starts on this machine; None where PySpark is not
    installed.
    """
    try:
        pyspark = import_module("pyspark")  # a cluster has it on Python's path, where nothing says that it is installed
    except ModuleNotFoundError:
        return None
    names = [path.name for path in _jars().glob("scala-library-*.jar")]
    scala = re.search(r"scala-library-(\d+\.\d+)", " ".join(names))
    return Spark(pyspark.__version__, scala[1] if scala else "2.13")


def spark_home() -> Path:
    """Return the folder of the Spark that ``shardway run`` starts on this machine."""
    given = os.environ.get("SPARK_HOME")
    if given:
        return Path(given)
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def _jars() -> Path:
    return spark_home() / "jars"


def options_given_here() -> list[str]:
    """Return the texts that give options to every Spark of this machine: spark-submit's arguments, the names of Spark's
    jars, and its file of defaults.
    """
    found = [os.environ.get("PYSPARK_SUBMIT_ARGS", "")]
    found += [path.name for path in _jars().glob("*.jar")]
    defaults = Path(os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf") / "spark-defaults.conf"
    try:
        found.append(defaults.read_text("utf-8", errors="replace"))
    except OSError:
        found.append("")
    return found
