"""Check what a job file says of windows, which needs no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.pipeline.job.file.ddl import name_parts
from shardway.pipeline.job.file.faults import Fault
from shardway.pipeline.job.file.model import span_ms
from shardway.pipeline.job.file.one_batch import parts_of_one_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shardway.pipeline.job.file.lines import KeyPath
    from shardway.pipeline.job.file.model import Deduplicate, Job, Window


START, END = "window_start", "window_end"
"""The columns that say which window a row is of."""
_REPLACEMENTS = {
    "DISTINCT": "a stream keeps no set of all values: approx_count_distinct(...) counts them nearly, and "
    "collect_set(...) collects them where they are few",
    "a window function": "a window function compares rows, and an aggregate makes one of them",
    "GROUP BY": "rows are grouped by keys and time: give an expression alone, such as count(*)",
}


def window_faults(job: Job, unknown_column: Callable[[str], str]) -> list[Fault]:
    """Return what is wrong with the windows of a job. ``unknown_column`` says what is wrong with a column's name; an
    empty text where nothing is.
    """
    window = job.window
    if window is None:
        return []
    faults = []
    if span_ms(window.length) == 0:
        faults.append(Fault(("window", "length"), "must be longer than 0"))
    for number, key in enumerate(window.keys):
        what = unknown_column(key)
        faults += [Fault(("window", "keys", number), what)] if what else []
    what = unknown_column(window.time)
    faults += [Fault(("window", "time"), what)] if what else []
    faults += [*_name_faults(window), *_expression_faults(window), *_duplicates(job, window)]
    for number, sink in enumerate(job.sinks):
        if sink.key is not None:
            what = "has no meaning: a row of a window is of many records, so it has no position to sort by"
            faults.append(Fault(("sinks", number, "key"), what))
    return faults


def window_columns(window: Window) -> list[str]:
    """Return the names of the columns of a window's rows, in order."""
    return [START, END, *(key_column(key) for key in window.keys), *window.aggregates]


def key_column(key: str) -> str:
    """Return the name that a key has among the columns of a window's rows: its last part."""
    return (name_parts(key) or [key])[-1]


def _name_faults(window: Window) -> Iterator[Fault]:
    """Yield the names that two columns would have. Names that differ by case only are one column to Spark."""
    taken = {START: "the time at which a window begins", END: "the time at which a window ends"}
    named: list[tuple[KeyPath, str]] = [(("window", "keys", at), key_column(key)) for at, key in enumerate(window.keys)]
    named += [(("window", "aggregates", name), name) for name in window.aggregates]
    for path, name in named:
        if not name.strip():
            yield Fault(path, "has no name for its column")
        elif name.lower() in taken:
            yield Fault(path, f"would make a second column {name}: one has {taken[name.lower()]}")
        taken.setdefault(name.lower(), Fault(path, "").place)


def _expression_faults(window: Window) -> Iterator[Fault]:
    if not window.aggregates:
        yield Fault(("window", "aggregates"), 'is empty: give it columns, as in {orders = "count(*)"}')
    for name, sql in window.aggregates.items():
        path = ("window", "aggregates", name)
        if not sql.strip():
            yield Fault(path, "is empty")
        for part in parts_of_one_batch(sql):
            yield Fault(path, f"has {part}: {_REPLACEMENTS[part]}")


def _duplicates(job: Job, window: Window) -> Iterator[Fault]:
    """Yield the ways to remove duplicates that cannot stand before windows: Spark has one watermark in a query."""
    if job.stamps is not None and job.stamps.window is not None:
        yield Fault(
            ("stamps", "window"),
            "cannot be used beside [window], because a query has one watermark: remove duplicates with [deduplicate]",
        )
    asked: Deduplicate | None = job.deduplicate
    if asked is None:
        return
    if asked.exact:
        yield Fault(("deduplicate", "exact"), "cannot be used beside [window]: leave it out")
    if asked.time != window.time:
        what = f"must be that of [window], {window.time}, because a query has one watermark"
        yield Fault(("deduplicate", "time"), what)
    if span_ms(asked.window) != span_ms(window.late_by):
        what = f'must be the window of [deduplicate], "{asked.window}", because a query has one watermark'
        yield Fault(("window", "late_by"), what)
