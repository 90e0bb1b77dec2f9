"""Ask Spark what it makes of a path: which file system has it, and where it lies there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from shardway.pipeline.locations import identity
from shardway.pipeline.py4j_error import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def identity_in(spark: SparkSession, path: str) -> str:
    """Return the ``identity`` of what this Spark makes of the path: one without a scheme may be of another file
    system.
    """
    return identity(qualified(spark, path))


def qualified(spark: Any, path: str) -> str:
    """Return the path with its file system and from its root, as Spark's writers take it; where Spark cannot tell, the
    path as it is.
    """
    try:
        found = spark._jvm.org.apache.hadoop.fs.Path(path)
        return str(found.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).makeQualified(found))
    except (Py4JError, AttributeError, TypeError, PySparkException):  # a Connect session; no such file system
        return path
