"""The store of a job's state: RocksDB for a new checkpoint directory, in bounded memory.

Spark's own store keeps every key in the heap of its Java, twice, and copies its table in each batch: a window of
millions of keys needs gigabytes. RocksDB keeps keys on the local disk. With changelog checkpoints each batch stores
what it changed and nothing else.

Spark writes the store's class into the log of offsets with the first batch, and takes it from there at each start. So a
checkpoint directory keeps the store that it began with, whatever is set here, and these settings are for new ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipeline.job.model import Job

_STATE = "spark.sql.streaming.stateStore."
ROCKSDB_MEMORY_MB_MAX = 512
"""Of block cache and write buffers, for all partitions in one Java process; indexes and filters are in the cache."""

STATE_SETTINGS = {
    f"{_STATE}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STATE}rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STATE}rocksdb.boundedMemoryUsage": "true",
    f"{_STATE}rocksdb.maxMemoryUsageMB": str(ROCKSDB_MEMORY_MB_MAX),
}
"""What a job with a state sets where neither its file nor ``spark-submit`` nor Spark's own files say otherwise."""


def has_state(job: Job) -> bool:
    """True for a job that removes repeats, by keys or by stamps."""
    return job.deduplicate is not None or (job.stamps is not None and job.stamps.within is not None)


def set_state_store(spark: SparkSession, job: Job) -> None:
    """Gives the session the settings of above that are not given."""
    if not has_state(job):
        return
    given = spark.conf.getAll
    for name, value in STATE_SETTINGS.items():
        if name not in given:
            spark.conf.set(name, value)


def told_not_stored(checkpoint: str, what: str) -> str:
    """What is said of a state that cannot be written. ``what``: how Spark found out."""
    return (
        f"the state of the de-duplication, in {checkpoint}/state, cannot be stored: {what}. The disk may be full, or "
        "its storage out of reach. Nothing of this batch is in place: the next start does it again"
    )


def told_unread(checkpoint: str, what: str) -> str:
    """What is said of a state that cannot be read. ``what``: how Spark found out."""
    return (
        f"the state of the de-duplication, in {checkpoint}/state, cannot be read: {what}. Its storage cannot be "
        "reached, or a file of it was removed, cut off or never copied. Nothing of this batch is in place, and its "
        "records are in the stream. Put back the files, or a copy of the whole checkpoint directory; or give the job a "
        "new checkpoint directory, and a startingPosition where the old one ended (with an applicationName it is "
        "known): keys that came before that are not known then, so repeats of them are kept"
    )
