"""A Python with the newest PySpark that a table's format supports, and the format's package."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from scripts import pyspark_matrix
from shardway.pipeline.job.session.packages import TABLE_PACKAGES

ROOT = Path(__file__).resolve().parents[3]
SCALA = "2.13"
WAIT_S = 2400.0
UNRESOLVED = "unresolved dependency"


class Newest(NamedTuple):
    """What a format is tested with."""

    format: str
    spark: str
    package: str
    python: Path

    def environment(self) -> dict[str, str]:
        """For processes of this Python."""
        python = str(self.python)
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        source = {"PYTHONPATH": path, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
        others = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "VIRTUAL_ENV")}
        return {**others, **source, "SPARK_LOCAL_IP": "127.0.0.1"}


def newest(name: str) -> Newest:
    """Of a format; skips the test where PySpark of that version cannot be had."""
    by_spark = TABLE_PACKAGES[name]
    short = max(by_spark, key=lambda one: [int(part) for part in one.split(".")])
    version = next(one for one in pyspark_matrix.VERSIONS if one.startswith(f"{short}."))
    try:
        python = pyspark_matrix.environment(version)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"PySpark {version}, the newest that {name} supports, cannot be had here: {error}")
    return Newest(name, version, by_spark[short].format(scala=SCALA), python)
