"""What a job file says wrong of windows: each fault with its line, its field and what to write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.pipeline.job import JobFileError, load_job
from shardway.pipeline.job.file.ddl import name_parts
from shardway.pipeline.job.file.model import Window, span_ms
from shardway.pipeline.job.file.window_rules import key_column
from shardway.pipeline.job.run.window_note import differences, note_of
from tests.pipeline.job.job_files import GOOD

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Write = Callable[[str], Path]

LENGTH, LATE_BY = 'length = "1 minute"\n', 'late_by = "10 seconds"\n'
KEYS = 'keys = ["value.order_id"]\n'
COUNTS = 'aggregates = { orders = "count(*)", total = "sum(value.amount)" }\n'
WINDOW = "\n[window]\n" + LENGTH + LATE_BY + KEYS + COUNTS
DUPLICATES = '\n[deduplicate]\nkeys = ["value.order_id"]\nwindow = "10 seconds"\n'


def faults(path: Path) -> list[str]:
    with pytest.raises(JobFileError) as caught:
        load_job(path, {})
    return [fault.removeprefix(f"{path}:").split(": ", 1)[1] for fault in caught.value.faults]


def test_windows_are_read(write_job: Write) -> None:
    window = load_job(write_job(GOOD + WINDOW), {}).job.window
    assert window is not None
    assert (window.length, window.late_by, window.keys) == ("1 minute", "10 seconds", ("value.order_id",))
    assert window.aggregates == {"orders": "count(*)", "total": "sum(value.amount)"}
    assert window.time == "approximate_arrival_timestamp"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (WINDOW.replace(LATE_BY, ""), 'window: late_by is missing, as in late_by = "10 seconds"'),
        (WINDOW.replace(LENGTH, ""), 'window: length is missing, as in length = "1 minute"'),
        (WINDOW.replace(COUNTS, ""), "window: aggregates is missing"),
        (WINDOW.replace(COUNTS, "aggregates = {}\n"), 'is empty: give it columns, as in {orders = "count(*)"}'),
        (WINDOW.replace(COUNTS, 'aggregates = "count(*)"\n'), "window.aggregates: must be a table, not text"),
        (WINDOW.replace(COUNTS, "aggregates = { n = 1 }\n"), "n: must be an SQL expression as text, not a number"),
        (WINDOW.replace(COUNTS, 'aggregates = { n = " " }\n'), "window.aggregates.n: is empty"),
        (WINDOW.replace(COUNTS, 'aggregates = { "" = "count(*)" }\n'), "has no name for its column"),
        (WINDOW.replace("1 minute", "0 minutes"), "window.length: must be longer than 0"),
        (WINDOW.replace("1 minute", "a minute"), "window.length: must be a time span like"),
        (WINDOW.replace("value.order_id", "value.order"), "value has no field order: did you mean order_id?"),
        (WINDOW.replace("value.order_id", "customer"), "window.keys[0]: there is no column customer"),
        (WINDOW + 'time = "value.at"\n', "window.time: value has no field at"),
        (WINDOW.replace("orders =", "Order_ID ="), "would make a second column Order_ID: one has window.keys[0]"),
        (WINDOW.replace("orders =", "window_end ="), "window_end: one has the time at which a window ends"),
        (WINDOW.replace("count(*)", "count(DISTINCT value.order_id)"), "has DISTINCT: a stream keeps no set"),
        (WINDOW.replace("count(*)", "sum(1) OVER ()"), "has a window function: a window function compares rows"),
        (WINDOW.replace(KEYS, 'key = ["value.order_id"]\n'), "window.key: there is no key here: did you mean keys?"),
        (WINDOW + DUPLICATES.replace("10 sec", "11 sec"), 'late_by: must be the window of [deduplicate], "11 seconds"'),
        (WINDOW + DUPLICATES + "exact = true\n", "deduplicate.exact: cannot be used beside [window]"),
        (WINDOW + '[stamps]\nwindow = "1 hour"\n', "stamps.window: cannot be used beside [window]"),
    ],
)
def test_each_fault_says_what_to_do(write_job: Write, text: str, told: str) -> None:
    found = faults(write_job(GOOD + text))
    assert [told in fault for fault in found] == [True], found


def test_a_time_of_another_column_than_the_duplicates_is_refused(write_job: Write) -> None:
    text = GOOD.replace("amount DEC", "at TIMESTAMP, amount DEC") + WINDOW + 'time = "value.at"\n' + DUPLICATES
    assert ["deduplicate.time: must be that of [window], value.at" in fault for fault in faults(write_job(text))] == [
        True
    ]


def test_sinks_know_the_columns_of_windows(write_job: Write) -> None:
    good = GOOD.replace('path = "lake/orders"', 'path = "lake/orders"\npartition_by = ["hour", "order_id", "total"]')
    assert load_job(write_job(good + WINDOW), {}).job.sinks
    bad = good.replace('"total"', '"amount", "partition_key"') + WINDOW
    assert [fault.split(": ")[1].split(" (")[0] for fault in faults(write_job(bad))] == [
        "there is no column amount",
        "there is no column partition_key",
    ]
    (fault,) = faults(write_job(GOOD.replace("[[sinks]]", '[[sinks]]\nkey = "order_id"') + WINDOW))
    assert "sinks[0].key: has no meaning: a row of a window is of many records" in fault


def test_a_field_may_have_the_name_of_a_column_of_the_source(write_job: Write) -> None:
    text = GOOD.replace("order_id STRING", "stream STRING, `a.b` STRING, order_id STRING") + WINDOW
    keys = 'keys = ["value.stream", "value.`a.b`"]\n'
    assert load_job(write_job(text.replace(KEYS, keys)), {}).job.window
    (fault,) = faults(write_job(text.replace(KEYS, 'keys = ["value.a.b"]\n')))
    assert "value has no field a.b" in fault


@given(st.lists(st.text(min_size=1), min_size=1))
def test_the_parts_of_a_quoted_name_are_those_that_were_quoted(names: list[str]) -> None:
    quoted = ".".join("`" + name.replace("`", "``") + "`" for name in names)
    assert name_parts(quoted) == names
    assert key_column(quoted) == names[-1]


@given(st.text())
def test_any_text_has_parts_and_no_text_a_strange_length(text: str) -> None:
    assert all(part in text.replace("``", "`") for part in name_parts(text))
    assert span_ms(text) >= 0


@pytest.mark.parametrize(("span", "ms"), [("10 seconds", 10_000), (" 1minute ", 60_000), ("2 days", 172_800_000)])
def test_a_span_has_its_milliseconds(span: str, ms: int) -> None:
    assert span_ms(span) == ms


def test_a_note_is_compared_with_the_windows(write_job: Write) -> None:
    def window(text: str) -> Window | None:
        return load_job(write_job(GOOD + text), {}).job.window

    first = window(WINDOW)
    assert first is not None
    note = note_of(first)
    other_words = WINDOW.replace("count(*)", " count(*)  ").replace("1 minute", "60 seconds").replace("10 sec", "1 sec")
    assert differences(note, window(other_words)) == []
    assert differences(note, window(WINDOW.replace("1 m", "2 m"))) == ["length was 60000, and is 120000"]
    assert differences(note, None) == ["it began with [window], and the job has none"]
    assert differences(None, first) == ["it began without [window]"]
    assert differences(None, None) == []


@given(st.binary())
def test_a_damaged_note_is_another_one(written: bytes) -> None:
    window = Window(length="1 minute", late_by="1 second", aggregates={"n": "count(*)"})
    assert len(differences(written, window)) == 4
