"""Reading a shard from any checkpoint, with iterators that expire, gives each record after it once and in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.core.aggregation.writer import encode_aggregate
from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.log.feed_cursor import TRIM_MARGIN_S, FeedCursor, PageMeaning, Refusal
from shardway.core.log.pages import ReadPage
from shardway.core.log.silence import BARREN_PAGES_MAX
from shardway.core.log.user_records import ShardView
from shardway.core.service_clock import SERVICE_CLOCK_S
from shardway.errors import AggregateError
from shardway.model import HASH_KEY_MAX, IteratorAt, OutsidePolicy, Position
from tests.core.log.shard_log import FIRST, ShardLog
from tests.momentary import now

SHARD = ShardView("orders", "shardId-000000000000", 0, HASH_KEY_MAX)
NOW_S = 1000.0
PAGES_MAX = 200


def at(place: int, sub: int = 0) -> Position:
    return Position(FIRST + 10 * place, sub)


def read_all(
    log: ShardLog, cursor: FeedCursor, *, limit: int = 3, expire_every: int = 0, horizon_s: float | None = None
) -> list[PageMeaning]:
    """Pages up to the tip, or to the end; an iterator is thrown away every so many of them."""
    taken: list[PageMeaning] = []
    iterator = None
    for number in range(PAGES_MAX):
        if iterator is None or (expire_every and number % expire_every == 0):
            iterator = log.iterator(cursor.start(NOW_S))
        page = log.read(iterator, limit)
        found = cursor.take(page, horizon_s=horizon_s)
        iterator = None if found is None else page.next_iterator
        if found is not None:
            taken.append(found)
            tips = [one for one in taken[-BARREN_PAGES_MAX - 1 :] if one.millis_behind_latest == 0 and not one.records]
            if found.ended or len(tips) > BARREN_PAGES_MAX:
                return taken
    raise AssertionError("the tip is not reached")


def datas(taken: list[PageMeaning]) -> list[bytes]:
    return [bytes(data) for one in taken for data in one.records.datas]


def aggregate(*parts: bytes) -> bytes:
    return encode_aggregate((f"key-{number}", part, None) for number, part in enumerate(parts))


def numbered(count: int, *, aggregated: int = 0) -> tuple[ShardLog, list[tuple[Position, bytes]]]:
    """A log, and each of its user records with its position. Every so many-th record is an aggregate of three."""
    log, expected = ShardLog(), []
    for place in range(count):
        if aggregated and place % aggregated == 0:
            parts = [b"%d/%d" % (place, sub) for sub in range(3)]
            log.put(aggregate(*parts), at_s=float(place))
            expected += [(at(place, sub), part) for sub, part in enumerate(parts)]
        else:
            log.put(b"%d" % place, at_s=float(place))
            expected.append((at(place), b"%d" % place))
    return log, expected


@given(
    count=st.integers(1, 25),
    aggregated=st.integers(0, 3),
    limit=st.integers(1, 7),
    expire_every=st.integers(0, 4),
    closed=st.booleans(),
    after=st.integers(-1, 60),
)
def test_what_follows_the_checkpoint_comes_once_and_in_order(
    count: int, aggregated: int, limit: int, expire_every: int, closed: bool, after: int
) -> None:
    log, expected = numbered(count, aggregated=aggregated)
    log.closed = closed
    after = min(after, len(expected) - 1)
    checkpoint = Checkpoint.at(expected[after][0]) if after >= 0 else Checkpoint.TRIM_HORIZON
    taken = read_all(log, FeedCursor(SHARD, checkpoint), limit=limit, expire_every=expire_every)
    wanted = expected[after + 1 :]
    assert datas(taken) == [data for _, data in wanted]
    assert [one.records.position(place) for one in taken for place in range(len(one.records))] == [
        at for at, _ in wanted
    ]
    assert [(record.sequence_number, record.sub_sequence_number) for one in taken for record in one.records] == [
        tuple(position) for position, _ in wanted
    ]
    ends = [one.ends_at for one in taken if one.ends_at is not None]
    assert ends == sorted(ends)
    assert ends[-1:] == [expected[-1][0]] if wanted else not ends
    assert taken[-1].ended is closed
    assert all(one.trimmed is None for one in taken)


@pytest.mark.parametrize("expire_every", [0, 1, 3])
def test_latest_is_the_moment_of_the_first_call_however_often_it_is_asked_for(expire_every: int) -> None:
    log = ShardLog()
    log.put(b"before", at_s=NOW_S - SERVICE_CLOCK_S - 0.001)
    cursor = FeedCursor(SHARD, Checkpoint.LATEST)
    iterator = log.iterator(cursor.start(NOW_S))
    assert cursor.take(log.read(iterator, 3)) is not None
    log.put(b"one", at_s=NOW_S - SERVICE_CLOCK_S / 2)  # The service's clock is not known better than that.
    log.put(b"two", at_s=NOW_S + 1)
    if expire_every:  # the iterator expired before it was used again
        iterator = log.iterator(cursor.start(NOW_S + 5))
    found = cursor.take(log.read(iterator, 3))
    assert found is not None
    assert list(found.records.datas) == [b"one", b"two"]


def test_a_start_by_time() -> None:
    log, _ = numbered(5)
    taken = read_all(log, FeedCursor(SHARD, Checkpoint.AT_TIMESTAMP, timestamp_s=3.0), expire_every=2)
    assert datas(taken) == [b"3", b"4"]
    with pytest.raises(ValueError, match="no time is given"):
        FeedCursor(SHARD, Checkpoint.AT_TIMESTAMP)


def test_a_lease_that_knows_its_time_begins_there_whatever_the_options_say() -> None:
    cursor = FeedCursor(SHARD, Checkpoint.AT_TIMESTAMP, timestamp_s=NOW_S, read_until_s=900.0)
    assert cursor.start(NOW_S) == IteratorAt.at_timestamp(900.0)
    cursor = FeedCursor(SHARD, Checkpoint.AT_TIMESTAMP, read_until_s=900.0)
    assert cursor.start(NOW_S) == IteratorAt.at_timestamp(900.0)
    with pytest.raises(ValueError, match="read to its end"):
        FeedCursor(SHARD, Checkpoint.SHARD_END)


@pytest.mark.parametrize("expire_every", [0, 2])
def test_a_checkpoint_that_is_trimmed_is_told_once_and_the_oldest_record_comes_next(expire_every: int) -> None:
    log, _ = numbered(10)
    log.trimmed = 6
    taken = read_all(log, FeedCursor(SHARD, Checkpoint.at(at(2))), horizon_s=5.5, expire_every=expire_every and 7)
    assert datas(taken) == [b"6", b"7", b"8", b"9"]
    told = [one.trimmed for one in taken if one.trimmed is not None]
    assert [(one.position, one.resumes_at, one.surely_nothing_lost) for one in told] == [(at(2), at(6), False)]


@pytest.mark.parametrize("sub", [0, 1, 2])
def test_a_record_that_is_slow_to_come_is_not_taken_for_trimmed(sub: int) -> None:
    """Nothing that is settled comes again, though it is looked for from the oldest record on."""
    log, expected = numbered(9, aggregated=2)
    log.hesitates = BARREN_PAGES_MAX + 1
    taken = read_all(log, FeedCursor(SHARD, Checkpoint.at(at(4, sub))), limit=2)
    assert datas(taken) == [data for position, data in expected if position > at(4, sub)]
    assert all(one.trimmed is None for one in taken)


def test_a_shard_that_was_only_silent_lost_nothing() -> None:
    log, _ = numbered(3)
    log.trimmed = 3
    cursor = FeedCursor(SHARD, Checkpoint.at(at(2)), read_until_s=900.0)
    taken = read_all(log, cursor, horizon_s=800.0)
    assert datas(taken) == []
    assert [one.trimmed.surely_nothing_lost for one in taken if one.trimmed] == [True]
    log.put(b"new", at_s=950.0)
    assert datas(read_all(log, cursor)) == [b"new"]


@pytest.mark.parametrize(("read_until_s", "horizon_s"), [(None, 800.0), (900.0, None), (700.0, 800.0)])
def test_without_knowing_better_a_trimmed_checkpoint_may_be_a_loss(
    read_until_s: float | None, horizon_s: float | None
) -> None:
    log, _ = numbered(3)
    log.trimmed = 3
    taken = read_all(log, FeedCursor(SHARD, Checkpoint.at(at(2)), read_until_s=read_until_s), horizon_s=horizon_s)
    assert [one.trimmed.surely_nothing_lost for one in taken if one.trimmed] == [False]


def test_a_closed_shard_whose_checkpoint_is_trimmed_ends() -> None:
    log, _ = numbered(4)
    log.trimmed, log.closed = 4, True
    taken = read_all(log, FeedCursor(SHARD, Checkpoint.at(at(1))))
    assert taken[-1].ended
    assert [one.trimmed.position for one in taken if one.trimmed] == [at(1)]


def test_a_sequence_number_that_the_service_refuses() -> None:
    log, _ = numbered(2)
    cursor = FeedCursor(SHARD, Checkpoint.at(Position(17)))
    assert cursor.start(NOW_S).sequence_number == 17
    assert cursor.take_refusal(NOW_S) is Refusal.TRIMMED
    assert cursor.start(NOW_S).type == "TRIM_HORIZON"
    assert datas(read_all(log, cursor)) == [b"0", b"1"]
    assert cursor.take_refusal(NOW_S) is Refusal.FINAL


class TestOutsideOfTheRange:
    def log(self) -> ShardLog:
        log = ShardLog()
        log.put(b"plain", encode_aggregate([("a", b"in", 0), ("b", b"out", HASH_KEY_MAX)]), b"last")
        return log

    def read(self, policy: OutsidePolicy) -> list[PageMeaning]:
        shard = ShardView("orders", "shardId-000000000000", 0, HASH_KEY_MAX // 2, policy)
        return read_all(self.log(), FeedCursor(shard, Checkpoint.TRIM_HORIZON))

    def test_they_are_delivered_and_counted(self) -> None:
        taken = self.read(OutsidePolicy.DELIVER)
        assert datas(taken) == [b"plain", b"in", b"out", b"last"]
        assert (sum(one.outside for one in taken), sum(one.dropped for one in taken)) == (1, 0)

    def test_or_dropped_with_their_whole_aggregate(self) -> None:
        taken = self.read(OutsidePolicy.DROP)
        assert datas(taken) == [b"plain", b"last"]
        assert (sum(one.outside for one in taken), sum(one.dropped for one in taken)) == (1, 2)

    def test_or_an_error_that_says_where(self) -> None:
        with pytest.raises(
            AggregateError, match=rf"orders, shardId-000000000000: the aggregate {FIRST + 10} of 2 user"
        ):
            self.read(OutsidePolicy.RAISE)

    def test_the_end_of_a_page_of_dropped_records_is_told(self) -> None:
        log = ShardLog()
        log.put(encode_aggregate([("a", b"in", 0), ("b", b"out", HASH_KEY_MAX)]))
        shard = ShardView("orders", "shardId-000000000000", 0, HASH_KEY_MAX // 2, OutsidePolicy.DROP)
        taken = read_all(log, FeedCursor(shard, Checkpoint.TRIM_HORIZON))
        assert [one.ends_at for one in taken if one.ends_at] == [at(0)]


@pytest.mark.parametrize("limit", [1, 2, 3, 20])
@pytest.mark.parametrize("aggregated", [0, 5])
def test_a_number_that_is_refused_though_its_record_is_there_brings_nothing_again(limit: int, aggregated: int) -> None:
    log, expected = numbered(10, aggregated=aggregated)
    after = 7  # the first part of an aggregate, or a plain record, behind several pages
    cursor = FeedCursor(SHARD, Checkpoint.at(expected[after][0]))
    cursor.start(NOW_S)
    assert cursor.take_refusal(NOW_S) is Refusal.TRIMMED
    taken = read_all(log, cursor, limit=limit)
    assert datas(taken) == [data for _, data in expected[after + 1 :]]
    assert [one.trimmed for one in taken if one.trimmed is not None] == []


def test_records_are_sequences() -> None:
    log, expected = numbered(7, aggregated=3)
    found = FeedCursor(SHARD, Checkpoint.TRIM_HORIZON).take(log.read("0", 7))
    assert found is not None
    records = found.records
    assert len(records) == len(expected)
    assert records[-1].data == expected[-1][1] == list(records)[-1].data
    assert list(records[2:5]) == list(records)[2:5]
    assert [record.data for record in records[1::4]] == [data for _, data in expected][1::4]
    assert records.payload_bytes == sum(len(data) for _, data in expected)
    assert records[0].aggregated
    assert (records[0].partition_key, records[0].sub_sequence_number) == ("key-0", 0)
    assert not records[3].aggregated
    assert records[3].partition_key == "k"
    with pytest.raises(IndexError):
        records[len(expected)]


# --- until when all is read ---------------------------------------------------------------------------


def page(*datas: bytes, behind_ms: int | None) -> ReadPage:
    log = ShardLog()
    for data in datas:
        log.put(data)
    records = log.read(log.iterator(FeedCursor(SHARD, Checkpoint.TRIM_HORIZON).start(NOW_S)), 100).records
    return ReadPage(records, behind_ms, next_iterator="next")


def test_only_a_page_at_the_tip_tells_until_when_all_is_read_and_it_never_goes_back() -> None:
    cursor = FeedCursor(SHARD, Checkpoint.TRIM_HORIZON)
    assert now(cursor.read_until_s) is None
    cursor.take(page(b"0", behind_ms=5), asked_s=2000.0)
    cursor.take(page(behind_ms=None), asked_s=2000.0)
    cursor.take(page(behind_ms=0))
    assert now(cursor.read_until_s) is None, "behind, not told, or asked for at a time that is not known"
    cursor.take(page(behind_ms=0), asked_s=2000.0)
    assert cursor.read_until_s == 2000.0 - SERVICE_CLOCK_S
    cursor.take(page(behind_ms=0), asked_s=1990.0)
    assert cursor.read_until_s == 2000.0 - SERVICE_CLOCK_S


def test_while_the_stored_record_is_looked_for_nothing_is_known() -> None:
    cursor = FeedCursor(SHARD, Checkpoint.at(at(0)), read_until_s=100.0)
    for _ in range(BARREN_PAGES_MAX - 1):
        cursor.take(page(behind_ms=0), asked_s=2000.0)
    assert cursor.read_until_s == 100.0


@pytest.mark.parametrize(("horizon_s", "silent"), [(99.0, True), (100.0, True), (101.0, False), (None, False)])
def test_a_shard_that_is_gone_has_ended_and_lost_nothing_if_it_was_read_to_its_tip_within_the_retention(
    horizon_s: float | None, silent: bool
) -> None:
    taken = FeedCursor(SHARD, Checkpoint.at(at(3)), read_until_s=100.0).gone(horizon_s=horizon_s)
    assert taken.ended
    assert taken.trimmed is not None
    assert (taken.trimmed.position, taken.trimmed.resumes_at) == (at(3), None)
    assert taken.trimmed.surely_nothing_lost is silent
    assert FeedCursor(SHARD, Checkpoint.TRIM_HORIZON).gone().trimmed is None, "the oldest there is: none"


def test_the_latest_goes_on_where_it_was_looked_at_last() -> None:
    cursor = FeedCursor(SHARD, Checkpoint.LATEST, read_until_s=900.0)
    assert cursor.start(NOW_S) == IteratorAt.at_timestamp(900.0)
    fresh = FeedCursor(SHARD, Checkpoint.LATEST)
    assert fresh.start(NOW_S) == IteratorAt.latest()
    fresh.take(page(behind_ms=0), asked_s=NOW_S + 0.5)
    assert fresh.read_until_s == NOW_S + 0.5 - SERVICE_CLOCK_S
    fresh = FeedCursor(SHARD, Checkpoint.LATEST)
    fresh.start(NOW_S)
    fresh.take(page(behind_ms=0), asked_s=NOW_S - 10)
    assert fresh.read_until_s == NOW_S - SERVICE_CLOCK_S, "it is not before it began"


# --- retention that overtakes a reader ----------------------------------------------------------------


def read_of(log: ShardLog, cursor: FeedCursor, *, now_s: float, retention_s: float = 100.0) -> list[PageMeaning]:
    """Ask anew, and read up to the tip, as the service's clock shows ``now_s``."""
    horizon_s = now_s - retention_s
    log.trimmed = sum(raw.approximate_arrival_timestamp < horizon_s for raw in log.raws)
    log.behind_ms = int(retention_s * 1000)
    taken: list[PageMeaning] = []
    iterator = None
    for _ in range(PAGES_MAX):
        iterator = iterator or log.iterator(cursor.start(now_s, horizon_s=horizon_s))
        page = log.read(iterator, 3)
        found = cursor.take(page, horizon_s=horizon_s, asked_s=now_s)
        iterator = None if found is None else page.next_iterator
        if found is not None:
            taken.append(found)
            if not found.millis_behind_latest and not page.records:
                return taken
    raise AssertionError("the tip is not reached")


def told(taken: list[PageMeaning]) -> list[tuple[Position, Position | None, bool]]:
    return [(*one.trimmed,) for one in taken if one.trimmed is not None]


@pytest.mark.parametrize("after", [Checkpoint.TRIM_HORIZON, Checkpoint.at(at(1))])
def test_a_reader_that_was_cut_off_for_longer_than_the_retention_is_told_and_goes_on_at_the_oldest(
    after: Checkpoint,
) -> None:
    log, _ = numbered(6)
    cursor = FeedCursor(SHARD, after)
    assert datas(read_of(log, cursor, now_s=50.0))[-1] == b"5"
    log.put(b"lost", at_s=60.0)
    log.put(b"left", at_s=300.0)
    taken = read_of(log, cursor, now_s=310.0)
    assert datas(taken) == [b"left"]
    assert told(taken) == [(at(5), at(7), False)]
    assert told(read_of(log, cursor, now_s=311.0)) == [], "once"


def test_one_that_was_cut_off_while_the_shard_was_silent_hears_no_alarm() -> None:
    log, _ = numbered(6)
    cursor = FeedCursor(SHARD, Checkpoint.at(at(1)))
    for now_s in (50.0, 120.0, 200.0, 290.0, 370.0):  # its last record is trimmed meanwhile
        assert told(read_of(log, cursor, now_s=now_s)) == []
    log.put(b"new", at_s=371.0)
    taken = read_of(log, cursor, now_s=460.0)
    assert (datas(taken), told(taken)) == ([b"new"], [])


def test_a_shard_that_was_silent_since_its_checkpoint_is_told_of_once_however_long_it_stays_so() -> None:
    log, _ = numbered(3)
    cursor = FeedCursor(SHARD, Checkpoint.at(at(2)), read_until_s=900.0)
    assert told(read_of(log, cursor, now_s=990.0)) == [(at(2), None, True)]
    assert told(read_of(log, cursor, now_s=1080.0)) == []
    log.put(b"new", at_s=1081.0)
    taken = read_of(log, cursor, now_s=1150.0)
    assert (datas(taken), told(taken)) == ([b"new"], [])


def test_what_was_read_just_before_the_retention_lets_go_of_it_comes_once() -> None:
    log = ShardLog()
    log.put(aggregate(b"0", b"1"), b"2", aggregate(b"3", b"4"), at_s=50.0)
    cursor = FeedCursor(SHARD, Checkpoint.TRIM_HORIZON)
    assert datas(read_of(log, cursor, now_s=60.0)) == [b"0", b"1", b"2", b"3", b"4"]
    log.put(b"5", at_s=61.0)
    taken = read_of(log, cursor, now_s=50.0 + 100.0 - TRIM_MARGIN_S / 2)
    assert (datas(taken), told(taken)) == ([b"5"], [])


def test_an_iterator_that_retention_has_overtaken_is_left() -> None:
    """As far behind as the retention is long, and empty: nothing would ever come (a clock that jumped, say)."""
    log, _ = numbered(6)
    cursor = FeedCursor(SHARD, Checkpoint.TRIM_HORIZON)
    read_of(log, cursor, now_s=50.0)
    assert cursor.start(50.0).type == "AFTER_SEQUENCE_NUMBER"
    empty = ReadPage((), 100_000, "nowhere")
    assert cursor.take(ReadPage((), 99_000, "next"), horizon_s=0.0, asked_s=400.0) is not None, "only far behind"
    assert cursor.take(empty, horizon_s=300.0, asked_s=400.0) is None
    assert cursor.start(400.0, horizon_s=300.0) == IteratorAt.trim_horizon()
    found = cursor.take(empty, horizon_s=300.0, asked_s=400.0)
    assert found is not None, "the oldest may be far behind, with empty pages on the way"
    assert found.trimmed is None


@pytest.mark.parametrize(
    ("after", "goes_on", "position"),
    [
        (Checkpoint.TRIM_HORIZON, IteratorAt.trim_horizon(), Position(FIRST + 90)),
        (Checkpoint.LATEST, IteratorAt.at_timestamp(NOW_S - SERVICE_CLOCK_S), Position(FIRST + 90)),
        (Checkpoint.at(at(0)), IteratorAt.trim_horizon(), at(0)),
    ],
)
def test_a_subscription_that_brought_nothing_but_how_far_it_was(
    after: Checkpoint, goes_on: IteratorAt, position: Position
) -> None:
    cursor = FeedCursor(SHARD, after)
    cursor.start(NOW_S)
    cursor.continues_at(str(FIRST + 90), service_now_s=NOW_S + 10)
    cursor.take(ReadPage((), 0, continuation=str(FIRST + 90)), horizon_s=0.0, asked_s=NOW_S + 5)
    if not after.is_position:
        assert cursor.start(NOW_S + 20, horizon_s=NOW_S - 80) == IteratorAt.after_sequence(FIRST + 90)
    later_s = NOW_S + 500
    assert cursor.start(later_s, horizon_s=later_s - 100) == goes_on
    log = ShardLog()
    log.put(b"lost?", b"left", at_s=later_s - 50)
    log.trimmed = 1
    taken = cursor.take(log.read("1", 3), horizon_s=later_s - 100, asked_s=later_s)
    assert taken is not None
    assert told([taken]) == [(position, at(1), False)]


def test_a_shard_that_is_gone_while_it_is_read_tells_how_far_it_was_read() -> None:
    log, _ = numbered(6)
    cursor = FeedCursor(SHARD, Checkpoint.at(at(1)), read_until_s=1.0)
    read_of(log, cursor, now_s=50.0)
    assert told([cursor.gone(horizon_s=300.0)]) == [(at(5), None, False)]
    silent = FeedCursor(SHARD, Checkpoint.at(at(1)))
    read_of(log, silent, now_s=50.0)
    assert told([silent.gone(horizon_s=40.0)]) == []


def test_a_number_that_the_service_refuses_while_the_shard_is_read() -> None:
    log, _ = numbered(6)
    cursor = FeedCursor(SHARD, Checkpoint.TRIM_HORIZON)
    read_of(log, cursor, now_s=50.0)
    assert cursor.start(60.0).sequence_number == at(5).sequence_number
    assert cursor.take_refusal(60.0) is Refusal.TRIMMED
    assert cursor.start(60.0) == IteratorAt.trim_horizon()
    assert cursor.take_refusal(60.0) is Refusal.FINAL


def test_a_reader_that_is_slower_than_the_retention_is_told_once_for_as_long_as_it_is() -> None:
    """Its iterator goes on at the oldest record, and says nothing."""
    log, _ = numbered(40)
    cursor = FeedCursor(SHARD, Checkpoint.TRIM_HORIZON)
    iterator = log.iterator(cursor.start(10.0, horizon_s=-90.0))
    found: list[PageMeaning] = []

    def turn(now_s: float, limit: int, lazy: int = 0) -> None:
        nonlocal iterator
        log.trimmed = max(0, int(now_s - 100.0) + 1 - lazy)
        page = log.read(iterator, limit)
        taken = cursor.take(page, horizon_s=now_s - 100.0, asked_s=now_s)
        assert taken is not None
        found.append(taken)
        iterator = page.next_iterator or ""

    turn(50.0, 3)
    turn(98.5, 3)
    assert told(found) == []
    turn(107.5, 1, lazy=5)  # older than the retention, and there yet
    assert told(found) == []
    turn(110.5, 3)  # 7 to 10 are gone
    assert told(found) == [(at(6), at(11), False)]
    turn(119.5, 3)
    turn(129.5, 3)
    assert len(told(found)) == 1
    turn(131.5, 20)  # the reader catches up
    assert datas(found)[-1] == b"39"
    turn(132.5, 3)
    log.put(b"40", at_s=300.0)
    turn(232.0, 3)
    turn(301.0, 3)
    assert len(told(found)) == 1, "the shard was silent, and the reader saw it"


def test_a_silence_before_the_next_record_neither_begins_anew_nor_ends_and_tells_until_when_all_is_read() -> None:
    cursor = FeedCursor(SHARD, Checkpoint.at(at(0)))
    assert datas([taken for taken in [cursor.take(page(b"0", b"1", behind_ms=86_400_000))] if taken]) == [b"1"]
    for hour in range(23, 0, -1):
        taken = cursor.take(page(behind_ms=hour * 3_600_000), asked_s=100_000.0)
        assert taken is not None
        assert not taken.ended
        assert cursor.read_until_s == 100_000.0 - hour * 3_600 - SERVICE_CLOCK_S
    assert cursor.start(100_000.0).type == "AFTER_SEQUENCE_NUMBER"


def test_a_stored_record_that_is_awaited_over_a_silence_is_not_looked_for_from_the_oldest_on() -> None:
    cursor = FeedCursor(SHARD, Checkpoint.at(at(0)))
    for hour in range(23, 0, -1):
        assert cursor.take(page(behind_ms=hour * 3_600_000)) is not None
    for _ in range(BARREN_PAGES_MAX - 1):
        assert cursor.take(page(behind_ms=3_600_000)) is not None
    assert cursor.take(page(behind_ms=3_600_000)) is None
    assert cursor.start(0.0).type == "TRIM_HORIZON"


def test_only_a_time_that_the_service_may_not_have_reached_yet_and_soon_will_is_to_come() -> None:
    cursor = FeedCursor(SHARD, Checkpoint.AT_TIMESTAMP, timestamp_s=1000.0)
    assert cursor.take_refusal(1000.0) is Refusal.FINAL, "nothing was asked for yet"
    assert cursor.start(990.0) == IteratorAt.at_timestamp(1000.0)
    assert {now_s: cursor.take_refusal(now_s) for now_s in (699.0, 700.0, 999.0, 1001.9, 1002.0)} == {
        699.0: Refusal.FINAL,
        700.0: Refusal.TO_COME,
        999.0: Refusal.TO_COME,
        1001.9: Refusal.TO_COME,
        1002.0: Refusal.FINAL,
    }
    stored = FeedCursor(SHARD, Checkpoint.LATEST, read_until_s=9000.0)
    assert stored.start(1000.0) == IteratorAt.at_timestamp(9000.0)
    assert [stored.take_refusal(now_s) for now_s in (1000.0, 9001.0, 9002.0)] == [
        Refusal.TO_COME,
        Refusal.TO_COME,
        Refusal.FINAL,
    ]
    oldest = FeedCursor(SHARD, Checkpoint.TRIM_HORIZON)
    oldest.start(990.0)
    assert oldest.take_refusal(990.0) is Refusal.FINAL
