"""Rehearse the windows of a job over no rows: each key and each aggregate by itself, so that a fault has its place."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql import functions as fn

from shardway.pipeline.decode import REASON
from shardway.pipeline.job.batch import windows
from shardway.pipeline.job.batch.expectations import Expectations

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from shardway.pipeline.job.file.lines import KeyPath
    from shardway.pipeline.job.file.model import Job


class Attempt(Protocol):
    """Calls a step, and keeps its fault for a place of the file; then the result is None."""

    def __call__(self, step: Callable[[], Any], path: KeyPath) -> Any:
        """Return what the step returns."""


def rehearse_windows(good: DataFrame, job: Job, attempt: Attempt) -> DataFrame | None:
    """Return the windows of a batch without rows; None where something is wrong, which ``attempt`` has kept."""
    window = job.window
    assert window is not None
    found = [attempt(partial(windows.check_time, good, window), ("window", "time"))]
    for number, key in enumerate(window.keys):
        found.append(attempt(partial(good.select, fn.col(key)), ("window", "keys", number)))
    if any(one is None for one in found):
        return None
    timed = windows.timed_of(good, window)
    names = windows.columns_with(window, "made")
    if attempt(partial(windows.grouped, timed, window, ["count(*)"], names), ("window", "keys")) is None:
        return None
    for name, sql in window.aggregates.items():
        step = partial(windows.grouped, timed, window, [sql], names)
        found.append(attempt(step, ("window", "aggregates", name)))
    if any(one is None for one in found):
        return None
    decoded = good.withColumn(REASON, fn.lit(None))
    made: DataFrame | None = attempt(partial(windows.windows_of, decoded, job, Expectations(())), ("window",))
    return made
