"""The rules of reading one range, judged page by page."""

from __future__ import annotations

import logging

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.aws.kinesis.shapes import GetRecordsPage, WireRecord
from shardway.aws.options import ConnectionOptions
from shardway.core.log.silence import BARREN_PAGES_MAX
from shardway.errors import DataLossError, StalledError, TransportError
from shardway.model import IteratorAt
from shardway.spark.options.read_options import ReadOptions
from shardway.spark.ranges import EndKind, ShardRange, TaskOptions
from shardway.spark.task.range_cursor import EMPTY_PAUSE_S, RangeCursor

BASE = 49590338271490256608559692538361571095921575989136588898
BORN_S = 1_700_000_000


def shard_range(first: int, kind: EndKind, end: int | None = None, *, at_risk: bool = False) -> ShardRange:
    last = None if end is None else BASE + end
    return ShardRange("shardId-000000000001", BASE + first, BORN_S + first, kind, last, at_risk=at_risk)


def cursor(range_: ShardRange, *, fail: bool = True, no_progress_s: float = 100.0) -> RangeCursor:
    options = TaskOptions.of(ReadOptions(fail_on_data_loss=fail), ConnectionOptions())
    return RangeCursor(range_, "orders", msgspec.structs.replace(options, no_progress_s=no_progress_s))


def page(*numbers: int, then: str | None = "next", behind_ms: int | None = 1_000) -> GetRecordsPage:
    records = [
        WireRecord(data=b"", sequence_number=str(BASE + n), approximate_arrival_timestamp=BORN_S + n + 0.5)
        for n in numbers
    ]
    return GetRecordsPage(records=records, next_shard_iterator=then, millis_behind_latest=behind_ms)


def take(reading: RangeCursor, answer: GetRecordsPage, spent_s: float = 0.1) -> list[int]:
    return [int(record.sequence_number) - BASE for record in reading.take(answer, spent_s)]


EMPTY = page(behind_ms=86_400_000)
TIP = page(behind_ms=0)


def test_an_exclusive_end_stops_before_its_record() -> None:
    reading = cursor(shard_range(3, EndKind.EXCLUSIVE, 9))
    assert reading.start() == IteratorAt.at_sequence(BASE + 3)
    assert take(reading, page(3, 5)) == [3, 5]
    assert (reading.iterator, reading.done) == ("next", False)
    assert take(reading, page(7, 8, 9, 10)) == [7, 8]
    assert reading.done


def test_an_inclusive_end_stops_after_its_record() -> None:
    reading = cursor(shard_range(3, EndKind.INCLUSIVE, 9))
    assert take(reading, page(3)) == [3]
    assert take(reading, page(9, 10)) == [9]
    assert reading.done


def test_an_inclusive_end_needs_no_record_after_it() -> None:
    reading = cursor(shard_range(3, EndKind.INCLUSIVE, 3))
    assert take(reading, page(3, behind_ms=0)) == [3]
    assert reading.done


def test_an_exclusive_end_needs_its_record() -> None:
    reading = cursor(shard_range(3, EndKind.EXCLUSIVE, 9))
    assert take(reading, page(3, 8, behind_ms=0)) == [3, 8]
    assert not reading.done
    assert take(reading, TIP) == []
    assert not reading.done
    assert take(reading, page(9)) == []
    assert reading.done


def test_the_end_of_a_shard_is_a_null_iterator() -> None:
    reading = cursor(shard_range(3, EndKind.SHARD_END))
    assert take(reading, page(3, 4)) == [3, 4]
    assert not reading.done
    assert take(reading, page(then=None)) == []
    assert reading.done


def test_a_range_starts_again_at_the_last_record_read_and_skips_it() -> None:
    reading = cursor(shard_range(3, EndKind.EXCLUSIVE, 9))
    take(reading, page(3, 5))
    reading.iterator = None
    assert reading.start() == IteratorAt.at_sequence(BASE + 5)
    assert take(reading, page(5, 6, 9)) == [6]
    assert reading.done


@given(
    log=st.lists(st.integers(0, 40), min_size=1, unique=True).map(sorted),
    kind=st.sampled_from(EndKind),
    at_risk=st.booleans(),
    steps=st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=30),
    data=st.data(),
)
def test_every_record_comes_once_however_pages_are_cut_and_iterators_lost(
    log: list[int], kind: EndKind, at_risk: bool, steps: list[tuple[int, bool]], data: st.DataObject
) -> None:
    first = data.draw(st.sampled_from(log))
    later = [n for n in log if n >= first]
    end = None if kind is EndKind.SHARD_END else data.draw(st.sampled_from(later))
    reading = cursor(shard_range(first, kind, end, at_risk=at_risk))
    got: list[int] = []
    at = 0
    for records, iterator_lost in [*steps, *[(3, False)] * len(log) * 3]:
        if reading.done:
            break
        if reading.iterator is None:
            start = reading.start()
            if start.timestamp_s is not None:
                at = next(i for i, n in enumerate(log) if BORN_S + n + 0.5 >= start.timestamp_s)
            else:
                at = log.index((start.sequence_number or 0) - BASE)
        chunk = log[at : at + records]
        at += records
        got += take(reading, page(*chunk, then="next" if at < len(log) else None))
        if iterator_lost:
            reading.iterator = None
    assert reading.done
    assert not reading.lost
    if kind is EndKind.SHARD_END:
        assert got == later
    else:
        assert end is not None
        assert got == [n for n in later if n < end or (n == end and kind is EndKind.INCLUSIVE)]


# --- trimmed ----------------------------------------------------------------------------------------


def test_a_trimmed_start_is_an_error_with_positions() -> None:
    reading = cursor(shard_range(3, EndKind.EXCLUSIVE, 9))
    with pytest.raises(DataLossError) as caught:
        reading.take(page(5, 9), 0.1)
    said = str(caught.value)
    for part in (
        "stream orders",
        "shardId-000000000001",
        str(BASE + 3),
        str(BASE + 5),
        "2023-11-14T22:13:23",
        "failOnDataLoss",
    ):
        assert part in said


def test_a_trimmed_start_leaves_exactly_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    reading = cursor(shard_range(3, EndKind.EXCLUSIVE, 9), fail=False)
    with caplog.at_level(logging.WARNING):
        assert take(reading, page(5, 8, 9)) == [5, 8]
    assert (reading.done, reading.lost) == (True, True)
    assert f"record {BASE + 3} (arrived 2023-11-14T22:13:23.000+00:00) is trimmed" in caplog.text
    assert f"{BASE + 5}" in caplog.text


@pytest.mark.parametrize("kind", [EndKind.EXCLUSIVE, EndKind.INCLUSIVE])
def test_a_range_that_is_trimmed_as_a_whole_gives_nothing(kind: EndKind, caplog: pytest.LogCaptureFixture) -> None:
    reading = cursor(shard_range(3, kind, 9), fail=False)
    assert take(reading, page(12, 13)) == []
    assert (reading.done, reading.lost) == (True, True)
    assert "after the whole range" in caplog.text
    assert len(caplog.records) == 1


def test_a_trimmed_exclusive_end_stops_at_the_next_record_and_is_a_loss() -> None:
    """All up to the end may be trimmed too, when the end is."""
    reading = cursor(shard_range(3, EndKind.EXCLUSIVE, 9), fail=False)
    assert take(reading, page(3, 5)) == [3, 5]
    assert take(reading, page(11, 12)) == []
    assert (reading.done, reading.lost) == (True, True)
    failing = cursor(shard_range(3, EndKind.EXCLUSIVE, 9))
    take(failing, page(3, 5))
    with pytest.raises(DataLossError, match="the range's end, is not there any more"):
        failing.take(page(11, 12), 0.1)


def test_a_trimmed_inclusive_end_is_a_loss() -> None:
    reading = cursor(shard_range(3, EndKind.INCLUSIVE, 9))
    take(reading, page(3, 5))
    with pytest.raises(DataLossError, match=f"the log goes on after {BASE + 9}"):
        reading.take(page(11), 0.1)


def test_a_trimmed_sequence_number_is_tried_by_time_after_some_empty_pages() -> None:
    reading = cursor(shard_range(3, EndKind.EXCLUSIVE, 9), fail=False)
    for _ in range(BARREN_PAGES_MAX):
        assert take(reading, EMPTY) == []
        assert reading.pause_s == EMPTY_PAUSE_S
    assert reading.iterator is None
    assert reading.start() == IteratorAt.at_timestamp(BORN_S + 3)
    assert take(reading, page(6, 7)) == [6, 7]
    assert reading.lost


def test_empty_pages_before_the_first_record_are_no_loss() -> None:
    reading = cursor(shard_range(3, EndKind.EXCLUSIVE, 9))
    for _ in range(BARREN_PAGES_MAX):
        take(reading, EMPTY)
    assert reading.start() == IteratorAt.at_timestamp(BORN_S + 3)
    for _ in range(BARREN_PAGES_MAX):
        take(reading, EMPTY)
    assert reading.iterator == "next"
    assert take(reading, page(1, 2, 3, 4)) == [3, 4]
    assert reading.pause_s == 0.0
    assert not reading.lost


def test_what_was_trimmed_after_the_last_record_read_is_noticed() -> None:
    reading = cursor(shard_range(3, EndKind.EXCLUSIVE, 9))
    take(reading, page(3, 5))
    reading.iterator = None
    reading.start()
    for _ in range(BARREN_PAGES_MAX):
        take(reading, EMPTY)
    assert reading.start() == IteratorAt.at_timestamp(BORN_S + 5)
    with pytest.raises(DataLossError, match=f"record {BASE + 5} .* is trimmed; the oldest record left is {BASE + 8}"):
        reading.take(page(8, 9), 0.1)


def test_a_range_at_risk_starts_by_time_and_holds_on_to_the_last_record_with_every_page() -> None:
    reading = cursor(shard_range(3, EndKind.EXCLUSIVE, 9, at_risk=True))
    assert reading.start() == IteratorAt.at_timestamp(BORN_S + 3)
    assert take(reading, page(1, 2, 3, 5)) == [3, 5]
    assert reading.iterator is None
    assert reading.start() == IteratorAt.at_sequence(BASE + 5)
    assert take(reading, page(5, 6)) == [6]
    reading.start()
    with pytest.raises(DataLossError, match=f"record {BASE + 6} "):
        reading.take(page(8, 9), 0.1)


def test_a_range_at_risk_of_which_nothing_is_left_is_decided_at_the_tip() -> None:
    reading = cursor(shard_range(3, EndKind.EXCLUSIVE, 9, at_risk=True), fail=False)
    assert take(reading, TIP, 5.0) == []
    assert not reading.done
    assert take(reading, TIP, 5.0) == []
    assert (reading.done, reading.lost) == (True, True)


def test_a_closed_shard_of_which_nothing_is_left() -> None:
    for kind, end in ((EndKind.SHARD_END, None), (EndKind.INCLUSIVE, 9)):
        reading = cursor(shard_range(3, kind, end, at_risk=True), fail=False)
        assert take(reading, page(then=None)) == []
        assert (reading.done, reading.lost) == (True, True)
        with pytest.raises(DataLossError, match="the shard is closed"):
            cursor(shard_range(3, kind, end)).take(page(then=None), 0.1)


def test_a_shard_that_is_gone() -> None:
    with pytest.raises(DataLossError, match="does not exist any more"):
        cursor(shard_range(3, EndKind.SHARD_END)).end_without_shard()
    reading = cursor(shard_range(3, EndKind.SHARD_END), fail=False)
    reading.end_without_shard()
    assert (reading.done, reading.lost) == (True, True)


def test_another_streams_sequence_number_is_tried_by_time_once() -> None:
    reading = cursor(shard_range(3, EndKind.EXCLUSIVE, 9), fail=False)
    reading.start()
    assert reading.refuse_sequence_number()
    assert reading.start() == IteratorAt.at_timestamp(BORN_S + 3)
    assert not reading.refuse_sequence_number()


# --- never stop early -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [EndKind.EXCLUSIVE, EndKind.INCLUSIVE])
def test_a_shard_that_ends_before_the_range_does_is_an_error(kind: EndKind) -> None:
    reading = cursor(shard_range(3, kind, 9), fail=False)
    take(reading, page(3, 4))
    with pytest.raises(StalledError, match="the shard ended before the range's end"):
        reading.take(page(then=None), 0.1)


@pytest.mark.parametrize("kind", EndKind)
def test_the_tip_before_the_end_is_an_error_in_the_end(kind: EndKind) -> None:
    end = None if kind is EndKind.SHARD_END else 9
    reading = cursor(shard_range(3, kind, end), fail=False, no_progress_s=10.0)
    take(reading, page(3, 4))
    for _ in range(BARREN_PAGES_MAX + 5):
        assert take(reading, TIP, 1.0) == []
    with pytest.raises(StalledError) as caught:
        take(reading, TIP, 1.0)
    assert not reading.done
    for part in ("stream orders", "shardId-000000000001", f"after {BASE + 4}", "10 s", "an empty page at the tip"):
        assert part in str(caught.value)


def test_coming_back_to_the_last_record_is_no_progress() -> None:
    reading = cursor(shard_range(3, EndKind.EXCLUSIVE, 9), fail=False, no_progress_s=10.0)
    take(reading, page(3, 4))
    for _ in range(BARREN_PAGES_MAX):
        take(reading, TIP, 1.0)
    assert reading.start() == IteratorAt.at_timestamp(BORN_S + 4)
    assert take(reading, page(4), 1.0) == []
    for _ in range(4):
        take(reading, TIP, 1.0)
    with pytest.raises(StalledError):
        take(reading, TIP, 1.0)


def test_records_are_progress() -> None:
    reading = cursor(shard_range(0, EndKind.EXCLUSIVE, 99), no_progress_s=10.0)
    for number in range(30):
        take(reading, EMPTY, 8.0)
        assert take(reading, page(number), 8.0) == [number]


def test_a_call_that_keeps_failing_is_told_as_the_cause() -> None:
    reading = cursor(shard_range(3, EndKind.EXCLUSIVE, 9), no_progress_s=10.0)
    failure = TransportError("connection reset")
    reading.check_time(9.0, failure)
    with pytest.raises(StalledError, match="connection reset") as caught:
        reading.check_time(10.0, failure)
    assert caught.value.__cause__ is failure


@pytest.mark.parametrize("end", [9, None])
def test_a_silence_that_is_crossed_is_progress_however_long_it_takes(end: int | None) -> None:
    reading = cursor(shard_range(3, EndKind.SHARD_END if end is None else EndKind.EXCLUSIVE, end), no_progress_s=10.0)
    assert take(reading, page(3, behind_ms=90_000_000)) == [3]
    for hour in range(24, 0, -1):
        assert take(reading, page(behind_ms=hour * 3_600_000), 9.0) == []
        assert reading.iterator == "next", "it is not asked for anew"
    assert take(reading, page(8, 9)) == ([8, 9] if end is None else [8])
    assert not reading.lost


def test_an_iterator_that_comes_no_nearer_is_no_progress() -> None:
    reading = cursor(shard_range(3, EndKind.EXCLUSIVE, 9, at_risk=True), no_progress_s=30.0)
    for hour in range(24, 20, -1):
        take(reading, page(behind_ms=hour * 3_600_000), 9.0)
    standing = page(behind_ms=75_600_000)
    for _ in range(3):
        take(reading, standing, 9.0)
    with pytest.raises(StalledError, match="an empty page 75600000 ms behind the tip"):
        reading.take(standing, 9.0)
