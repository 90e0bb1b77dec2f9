"""Several outputs from one read of a batch."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.storagelevel import StorageLevel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame


@contextmanager
def read_once(batch: DataFrame) -> Iterator[DataFrame]:
    """Keep a batch while it is written to several outputs, so that the stream is read for it once.

    For use inside of ``foreachBatch``. Without this every output reads the stream again, and runs the steps again.
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
