"""The exact de-duplication: what is removed follows from times alone. Rows come out as they went in."""

from __future__ import annotations

import datetime as dt
import decimal
import warnings
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.errors import OptionError, ShardwayError
from shardway.pipeline import decode_json, deduplicate
from shardway.pipeline.exact_deduplication import BucketKeys, micros_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id STRING, n INT"
MINUTE = 60.0


def exactly(times: Sequence[tuple[Any, float]], window: float) -> list[bool]:
    """The promise, spelled out: (key, time) in the order of times."""
    kept: dict[Any, float] = {}
    chosen = []
    for key, at in times:
        chosen.append(key not in kept or at - kept[key] > window)
        if chosen[-1]:
            kept[key] = at
    return chosen


# --- the state --------------------------------------------------------------------------------------------------------


@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 60)), max_size=60),
    ends=st.lists(st.integers(0, 60), max_size=6),
    window=st.integers(0, 20),
)
def test_batches_may_end_anywhere(rows: list[tuple[int, int, int]], ends: list[int], window: int) -> None:
    rows = sorted(rows, key=lambda row: row[2])
    kept, chosen, begin = BucketKeys(), [], 0
    for end in [*sorted(ends), len(rows)]:
        chosen += kept.choose(rows[begin:end], window)
        begin, kept = max(begin, end), BucketKeys.read(kept.write())
    assert chosen == exactly([((high, low), at) for high, low, at in rows], window)


def test_a_late_row_is_compared_with_what_is_known_and_else_kept() -> None:
    kept = BucketKeys()
    assert kept.choose([(1, 1, 1_000)], 10) == [True]
    assert kept.choose([(1, 1, 992), (1, 1, 900), (2, 2, 5)], 10) == [False, True, True]
    assert kept.choose([(1, 1, 1_005)], 10) == [False], "the newest row that was kept is what counts"


def test_rows_without_a_time_are_kept_and_leave_nothing() -> None:
    kept = BucketKeys()
    assert kept.choose([(1, 1, None), (1, 1, None)], 10) == [True, True]
    assert kept.write() == BucketKeys().write()


def test_keys_that_no_longer_matter_are_forgotten() -> None:
    kept = BucketKeys()
    kept.choose([(number, number, number) for number in range(1_000)], 10)
    assert len(kept.write()) == len(BucketKeys().write()) + 24 * 21


def test_a_state_of_a_later_version_is_refused() -> None:
    assert BucketKeys.read(b"").write() == BucketKeys().write()
    with pytest.raises(ShardwayError, match="a state of version 2 is not known here"):
        BucketKeys.read(b"\x02" + bytes(40))


def test_spans() -> None:
    assert micros_of("10 minutes") == micros_of("600 seconds") == 600 * 10**6
    assert micros_of("1 hour 30 Minutes") == 5_400 * 10**6
    for wrong in ("", "soon", "10", "1 month", "1 hour and a bit"):
        with pytest.raises(OptionError, match="is no number of seconds"):
            micros_of(wrong)


# --- in Spark ---------------------------------------------------------------------------------------------------------


class Run:
    """Runs a query over what the stream holds, in its checkpoint directory, and keeps what it put out."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = str(folder / "checkpoint")
        self.rows: list[Any] = []

    def all_there_is(self, frame: DataFrame) -> None:
        def keep(batch: DataFrame, _: int) -> None:
            self.rows += batch.collect()

        query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", self.checkpoint).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    @property
    def values(self) -> list[tuple[str, int]]:
        return sorted((str(row.value.id), row.value.n) for row in self.rows if row.value)


def order(written: Any, name: str, n: int, *, at_s: float = 0.0) -> dict[str, Any]:
    record: dict[str, Any] = written.record(f'{{"id":"{name}","n":{n}}}', at_s=at_s)
    return record


def unique(stream: Any) -> DataFrame:
    return deduplicate(decode_json(stream.load(), SCHEMA), "value.id", window="10 minutes", exact=True)


AT_MINUTES = (0, 3, 10, 11, 15, 21, 22, 40)
KEPT = [0, 11, 22, 40]


@pytest.mark.parametrize("ends", [(8,), (1, 2, 3, 4, 5, 6, 7, 8), (4, 8)])
def test_the_outcome_does_not_depend_on_where_batches_end(
    stream: Any, written: Any, tmp_path: Path, ends: tuple[int, ...]
) -> None:
    """Eight rows of each of many keys: in one batch (a backlog), in one each, and over a restart in between."""
    run, begin = Run(tmp_path), 0
    for end in ends:
        stream.add(
            [order(written, f"id-{n}", at, at_s=MINUTE * at) for at in AT_MINUTES[begin:end] for n in range(300)]
        )
        begin = end
        if end == 4:
            run.all_there_is(unique(stream))
    run.all_there_is(unique(stream))
    assert run.values == sorted((f"id-{n}", at) for n in range(300) for at in KEPT)


def test_a_batch_read_has_the_same_outcome(frame: Callable[..., DataFrame], written: Any) -> None:
    records = [order(written, "a", at, at_s=MINUTE * at) for at in AT_MINUTES]
    decoded = decode_json(frame(records[::-1]), SCHEMA)
    rows = deduplicate(decoded, "value.id", window="10 minutes", exact=True).collect()
    assert sorted(row.value.n for row in rows) == KEPT
    # Without it a batch read is one window: later duplicates may be removed, and here all are.
    assert [row.value.n for row in deduplicate(decoded, "value.id", window="10 minutes").collect()] == [0]


@pytest.mark.parametrize("streamed", [False, True])
def test_pandas_3_is_taken_without_a_warning(
    frame: Callable[..., DataFrame], stream: Any, written: Any, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    monkeypatch.setattr(pd, "__version__", "3.0.0")
    decoded = decode_json(stream.load() if streamed else frame([order(written, "a", 1)]), SCHEMA)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert deduplicate(decoded, "value.id", window="10 minutes", exact=True).columns == decoded.columns


def test_of_equal_times_the_first_by_position_stays(stream: Any, written: Any, tmp_path: Path) -> None:
    run = Run(tmp_path)
    stream.add([order(written, f"id-{n % 50}", n) for n in range(2_000)])
    run.all_there_is(unique(stream))
    assert run.values == sorted((f"id-{n}", n) for n in range(50))


def test_rows_that_stand_alone_pass(stream: Any, written: Any, tmp_path: Path) -> None:
    run = Run(tmp_path)
    stream.add([order(written, "a", 1, at_s=86_400)])
    stream.add(
        [written.record("broken"), written.record("broken"), written.record('{"n":1}'), written.record('{"n":1}')]
    )
    stream.add([order(written, "a", 2, at_s=86_401)])
    run.all_there_is(unique(stream))
    assert run.values == [("None", 1), ("None", 1), ("a", 1)]
    assert [bytes(row.data) for row in run.rows if row.reason] == [b"broken", b"broken"]


def test_values_of_every_type_come_out_as_they_went_in(spark: SparkSession, frame: Any, written: Any) -> None:
    utc = dt.UTC
    values = [
        (2**62 + 1, None, decimal.Decimal("12345678901234567890.123456789012345678"), float("inf"), True,
         dt.date(1582, 10, 15), dt.datetime(2026, 10, 25, 0, 30, 0, 123457, utc), bytearray(b"\xff\x00"),
         [1, None, 2**53 + 1], {"k": dt.datetime(2026, 10, 25, 1, 30, tzinfo=utc)}, (None, "x")),
        (None, 7, None, None, None, None, None, None, None, None, None),
    ]  # fmt: skip
    ddl = (
        "big BIGINT, small TINYINT, exact DECIMAL(38,18), real DOUBLE, yes BOOLEAN, day DATE, at TIMESTAMP, raw BINARY,"
        " many ARRAY<BIGINT>, named MAP<STRING, TIMESTAMP>, deep STRUCT<n: INT, t: STRING>"
    )
    extra = spark.createDataFrame(
        [(str(99 + n), *row) for n, row in enumerate(values)], f"sequence_number STRING, {ddl}"
    )
    records = frame([written.record("a", key="x"), written.record("b", key="y")]).join(extra, "sequence_number")
    for keys in (["partition_key"], ["big", "small"], ["exact", "real", "day", "at", "raw", "many", "deep"]):
        found = deduplicate(records, keys, window="1 hour", exact=True)
        assert found.schema == records.schema
        assert sorted(found.collect(), key=str) == sorted(records.collect(), key=str)


def test_a_span_is_checked_when_the_query_is_made(frame: Any, written: Any) -> None:
    with pytest.raises(OptionError, match="'a while' is no number of seconds"):
        deduplicate(frame([written.record("x")]), "data", window="a while", exact=True)
