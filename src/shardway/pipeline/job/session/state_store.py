"""Choose the store of a job's state, and say what became of a state that cannot be read or stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shardway.pipeline.job.file.model import Job


_STATE = "spark.sql.streaming.stateStore."
ROCKSDB_MEMORY_MB_MAX = 512
"""Megabytes of block cache and write buffers for all partitions in one Java process; indexes and filters are in the
cache.
"""
STATE_SETTINGS = {
    f"{_STATE}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STATE}rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STATE}rocksdb.boundedMemoryUsage": "true",
    f"{_STATE}rocksdb.maxMemoryUsageMB": str(ROCKSDB_MEMORY_MB_MAX),
}
"""The settings of a job with a state, where neither its file nor ``spark-submit`` nor Spark's files say otherwise."""


def has_state(job: Job) -> bool:
    """True for a job that has windows, or removes duplicates, by keys or by stamps."""
    by_stamps = job.stamps is not None and job.stamps.window is not None
    return job.window is not None or job.deduplicate is not None or by_stamps


def set_state_store(spark: SparkSession, job: Job) -> None:
    """Give the session those of ``STATE_SETTINGS`` that are not given."""
    if not has_state(job):
        return
    given = spark.conf.getAll
    for name, value in STATE_SETTINGS.items():
        if name not in given:
            spark.conf.set(name, value)


def told_not_stored(job: Job, what: str) -> str:
    """Return the message on a state that cannot be written. ``what``: how Spark found out."""
    return (
        f"the state of the {_owner(job)}, in {job.checkpoint}/state, cannot be stored: {what}. The disk may be full, "
        "or its storage out of reach. Nothing of this batch is in place: the next start does it again"
    )


def told_unread(job: Job, what: str) -> str:
    """Return the message on a state that cannot be read. ``what``: how Spark found out."""
    lost = "keys that came before that are not known then, so duplicates of them are kept"
    if job.window is not None:
        lost = "windows that were open then lack what came before that, so begin before the oldest of them"
    return (
        f"the state of the {_owner(job)}, in {job.checkpoint}/state, cannot be read: {what}. Its storage cannot be "
        "reached, or a file of it was removed, cut off or never copied. Nothing of this batch is in place, and its "
        "records are in the stream. Put back the files, or a copy of the whole checkpoint directory; or give the job a "
        "new checkpoint directory, and a startingPosition where the old one ended (with an applicationName it is "
        f"known): {lost}"
    )


def _owner(job: Job) -> str:
    return "de-duplication" if job.window is None else "windows"
