"""A row's place in the stream, and the order that follows from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

POSITION = ("stream", "shard_id", "sequence_number", "sub_sequence_number")
"""The columns that together name one user record of one stream."""


def position_order() -> list[Column]:
    """What to sort by to have the records of one partition key in the order in which they were written.

    Sequence numbers are decimal text of different lengths: the longer is the larger. A shard's children go on with
    larger ones (AWS API reference, PutRecord: they grow over time for one partition key), so this holds across splits.
    """
    sequence = fn.col("sequence_number")
    return [fn.length(sequence), sequence, fn.col("sub_sequence_number")]


def sort_by_key(batch: DataFrame, key: str = "partition_key", *, first: list[str] | None = None) -> DataFrame:
    """A batch whose rows of one key lie together, in one partition, in the order in which they were written.

    ``first`` names columns to sort by before the key (one that the output is partitioned by). For a batch inside of
    ``foreachBatch``, or a batch read: Spark does not sort a stream.
    """
    by = [fn.col(name) for name in (*(first or []), key)]
    return batch.repartition(fn.col(key)).sortWithinPartitions(*by, *position_order())
