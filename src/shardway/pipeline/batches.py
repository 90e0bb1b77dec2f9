"""Read a batch once for several outputs, and order its rows as they are in the stream."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn
from pyspark.storagelevel import StorageLevel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame


@contextmanager
def read_once(batch: DataFrame) -> Iterator[DataFrame]:
    """Keep a batch while it is written to several outputs, so that the stream is read for it once.

    Use it inside of ``foreachBatch``. Without it every output reads the stream again, and runs the steps again.
    The rows lie in the executors' memory, and on their disks where that is too small, until the block ends (a batch
    that is cached already stays so)::

        def write(batch, batch_id):
            with read_once(batch) as rows:
                good, dead = split(rows)
                orders.write(good, batch_id)
                dead_letters.write(dead, batch_id)
    """
    if batch.storageLevel != StorageLevel.NONE:  # the code that cached it frees it: perhaps a block around this one
        yield batch
        return
    kept = batch.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield kept
    finally:
        kept.unpersist()


def position_order() -> list[Column]:
    """Return what to sort by to have the records of one partition key in the order in which they were written.

    Sequence numbers are decimal text of different lengths: the longer is the larger. A shard's children go on with
    larger ones (AWS API reference, PutRecord: they grow over time for one partition key), so this holds across splits.
    """
    sequence = fn.col("sequence_number")
    return [fn.length(sequence), sequence, fn.col("sub_sequence_number")]


def sort_by_key(batch: DataFrame, key: str = "partition_key", *, first: list[str] | None = None) -> DataFrame:
    """Return a batch whose rows of one key lie together, in one partition, in the order in which they were written.

    ``first`` names columns to sort by before the key (one that the output is partitioned by). Give it a batch inside
    of ``foreachBatch``, or a batch read: Spark does not sort a stream.
    """
    by = [fn.col(name) for name in (*(first or []), key)]
    return batch.repartition(fn.col(key)).sortWithinPartitions(*by, *position_order())
