"""Lay rows out in files: by the hour, few files, and a plan that keeps what it observes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, SparkSession


HOUR = "hour"
"""The column that the folder is partitioned by, ``yyyy-MM-dd-HH`` in UTC: text, as any reader finds it in the path."""
ARRIVAL = "approximate_arrival_timestamp"
_ADAPTIVE = "spark.sql.adaptive.enabled"
_LEFT_OUT = "spark.sql.adaptive.optimizer.excludedRules"
_EMPTY = "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"
"""Spark's rule that takes a step with all that lies before it out of a plan, once it turns out that no row reaches it.
"""
_SECONDS_PER_HOUR = 3600


def hour_of(time: Column) -> Column:
    """Return ``yyyy-MM-dd-HH`` in UTC, whatever the session's time zone is."""
    hours = fn.floor(fn.unix_micros(time) / (_SECONDS_PER_HOUR * 1_000_000))
    day = fn.date_add(fn.lit("1970-01-01").cast("date"), fn.floor(hours / 24).cast("int"))
    return fn.concat_ws("-", day.cast("string"), fn.lpad(fn.pmod(hours, fn.lit(24)).cast("string"), 2, "0"))


@contextmanager
def few_files(spark: SparkSession) -> Iterator[None]:
    """Let Spark choose the number of partitions, and so of files, by their size.

    It does by default, but not in the session of a query with state, where every batch would be written in
    ``spark.sql.shuffle.partitions`` files per hour. What the query itself does is planned before this, and must be
    planned as before in the next batch. So only an output that finds the setting switched off switches it on, and off
    again: of two outputs that are written at the same time, none takes the other's value for the query's.
    """
    before = str(spark.conf.get(_ADAPTIVE))
    if before.lower() == "true":
        yield
        return
    spark.conf.set(_ADAPTIVE, "true")
    try:
        yield
    finally:
        spark.conf.set(_ADAPTIVE, before)


@contextmanager
def with_what_is_observed(spark: SparkSession) -> Iterator[None]:
    """Let a write report what was observed of its rows also where none of them is left behind a shuffle.

    Spark's adaptive execution puts an empty relation in place of a plan then, and gives an observation of that plan an
    empty row; before Spark 4.1 it gives none at all, and what waits for it waits for ever.
    """
    before = spark.conf.get(_LEFT_OUT, None)
    names = [] if before is None else [name.strip() for name in before.split(",") if name.strip()]
    if _EMPTY in names:
        yield
        return
    spark.conf.set(_LEFT_OUT, ",".join([*names, _EMPTY]))
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_LEFT_OUT)
        else:
            spark.conf.set(_LEFT_OUT, before)
