"""What is settled, in whatever order, and where the checkpoint may go."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.ledger.ledger import MayDeliver
from shardway.core.ledger.page import behind
from shardway.core.ledger.policy import LedgerPolicy
from shardway.errors import OptionError
from shardway.events import BatchFailed, FetchingHeld, LateSettlement, RecordsSkipped, RecordsUnsettled
from shardway.model import Position
from shardway.policies import ByKey, Retry, Skip
from tests.core.ledger.ledger_kit import Kept, Rec, at, next_at_s, numbers, recs
from tests.momentary import now


def test_the_checkpoint_stays_before_the_first_that_is_not_settled() -> None:
    kept = Kept(after=at(5))
    kept.admit(recs(10, 4))
    delivery = kept.deliver()
    assert numbers(delivery.records) == [10, 11, 12, 13]
    assert kept.ledger.progress.safe == at(5)
    kept.ledger.ack(delivery.ticket, [1])
    kept.ledger.ack(delivery.ticket, [3])
    assert kept.ledger.progress.safe == at(5)
    kept.ledger.ack(delivery.ticket, [0])
    assert kept.ledger.progress.safe == at(11)
    assert now(kept.ledger.progress.oldest) == Position(12)
    kept.ledger.ack(delivery.ticket)
    assert kept.ledger.progress.safe == at(13)
    assert kept.ledger.progress.oldest is None
    assert kept.told == []


def test_inside_of_an_aggregate_it_is_the_sub_sequence_number() -> None:
    kept = Kept()
    kept.admit([Rec(7, 0), Rec(7, 1), Rec(7, 2), Rec(8, 0)])
    delivery = kept.deliver()
    kept.ledger.ack(delivery.ticket, [0, 1])
    assert kept.ledger.progress.safe == at(7, 1)
    kept.ledger.ack(delivery.ticket, [3])
    assert kept.ledger.progress.safe == at(7, 1)
    kept.ledger.ack(delivery.ticket, [2])
    assert kept.ledger.progress.safe == at(8, 0)


def test_a_page_may_end_behind_its_last_record_and_may_be_empty() -> None:
    kept = Kept()
    kept.admit([], ends_at=Position(3, 9))
    assert kept.ledger.progress.safe == at(3, 9)
    kept.admit(recs(4, 2), ends_at=Position(8, 1))
    kept.admit([], ends_at=Position(9, 0))
    delivery = kept.deliver()
    kept.ledger.ack(delivery.ticket, [0])
    assert kept.ledger.progress.safe == at(4)
    kept.ledger.ack(delivery.ticket, [1])
    assert kept.ledger.progress.safe == at(9)
    kept.admit([])
    assert kept.ledger.progress.safe == at(9)


def test_records_that_do_not_follow_are_refused() -> None:
    kept = Kept(after=at(5, 3))
    with pytest.raises(ValueError, match=r"from \(5, 3\) to \(6, 0\) do not follow 5"):
        kept.admit([Rec(5, 3), Rec(6)])
    kept.admit([Rec(5, 4)])
    with pytest.raises(ValueError, match="do not follow"):
        kept.admit([Rec(9), Rec(8)])
    assert kept.ledger.held.records == 1


def test_at_the_shards_end_all_must_be_settled() -> None:
    kept = Kept()
    kept.admit(recs(1, 2))
    kept.ledger.end()
    delivery = kept.deliver()
    kept.ledger.ack(delivery.ticket, [1])
    assert kept.ledger.progress.safe == Checkpoint.TRIM_HORIZON
    kept.ledger.ack(delivery.ticket, [0])
    assert kept.ledger.progress.safe == Checkpoint.SHARD_END
    assert kept.ledger.progress.came_to == Checkpoint.SHARD_END


def test_a_shard_without_records_ends_too() -> None:
    kept = Kept()
    kept.ledger.end()
    assert kept.ledger.progress.safe == Checkpoint.SHARD_END


def test_deliveries_are_of_the_size_that_is_asked_for_and_never_across_pages() -> None:
    kept = Kept()
    kept.admit(recs(1, 5))
    kept.admit(recs(6, 2))
    assert [numbers(kept.deliver(3).records) for _ in range(3)] == [[1, 2, 3], [4, 5], [6, 7]]
    assert kept.nothing()
    with pytest.raises(ValueError, match="records_max"):
        kept.ledger.deliver(kept.now_s, 0)


def test_what_came_settled_is_never_delivered() -> None:
    kept = Kept()
    kept.admit(recs(1, 6), settled=[0, 1, 4])
    assert kept.ledger.progress.safe == at(2)
    delivery = kept.deliver(2)
    assert numbers(delivery.records) == [3, 4]
    assert list(delivery.places) == [2, 3]
    assert numbers(kept.deliver().records) == [6]
    kept.ledger.ack(delivery.ticket)
    assert kept.ledger.progress.safe == at(5)
    kept.admit(recs(7, 2), settled=[0, 1])
    assert kept.nothing()


def test_a_place_of_another_delivery_settles_nothing() -> None:
    kept = Kept()
    kept.admit(recs(1, 4))
    one, two = kept.deliver(2), kept.deliver(2)
    for wrong in (kept.ledger.ack, kept.ledger.skip):
        with pytest.raises(ValueError, match="place 2 is not of this delivery"):
            wrong(one.ticket, [2])
    with pytest.raises(ValueError, match="place -1"):
        kept.ledger.ack(two.ticket, [-1])
    with pytest.raises(ValueError, match="place 0"):
        kept.ledger.nack(two.ticket, kept.now_s, [0])
    assert kept.ledger.out == 4


def test_settling_twice_is_no_fault() -> None:
    kept = Kept()
    kept.admit(recs(1, 3))
    delivery = kept.deliver()
    for _ in range(2):
        assert kept.ledger.ack(delivery.ticket, [0])
        assert kept.ledger.ack(delivery.ticket)
    assert kept.ledger.out == 0
    assert kept.ledger.progress.settled_records == 3


# --- bounds ---------------------------------------------------------------------------------------


def test_fetching_stops_at_each_bound_and_nothing_is_dropped() -> None:
    bounds: list[dict[str, Any]] = [{"records_max": 4}, {"bytes_max": 32}, {"repeat_records_max": 4}]
    for bound in bounds:
        kept = Kept(**bound)
        kept.admit(recs(1, 3))
        assert now(kept.ledger.has_room)
        kept.admit(recs(4, 3))
        assert not now(kept.ledger.has_room)
        delivery = kept.deliver()
        kept.ledger.ack(delivery.ticket)
        assert kept.ledger.has_room


def test_what_lies_behind_one_that_is_stuck_counts_against_what_comes_again_after_a_crash() -> None:
    kept = Kept(repeat_records_max=10)
    kept.admit(recs(1, 1))
    stuck = kept.deliver()
    for number in range(9):
        assert now(kept.ledger.has_room)
        kept.admit(recs(2 + number, 1))
        kept.ledger.ack(kept.deliver().ticket)
    assert kept.ledger.held.records == 1
    assert not now(kept.ledger.has_room)
    kept.ledger.ack(stuck.ticket)
    assert kept.ledger.has_room


def test_a_record_that_is_slow_holds_itself_and_not_its_page() -> None:
    kept = Kept()
    for page in range(20):
        kept.admit(recs(1 + page * 1000, 1000, data=b"x" * 100))
        delivery = kept.deliver()
        kept.ledger.ack(delivery.ticket, [place for place in delivery.places if place != 500])
    assert kept.ledger.held.records == 20
    assert 20 * 100 <= kept.ledger.held.held_bytes <= 20 * 400
    assert kept.ledger.progress.safe == at(500)
    assert kept.ledger.progress.unsettled(2) == [Position(501), Position(1501)]


@given(st.integers(1, 200), st.integers(0, 2**32), st.integers(1, 5))
def test_pages_let_go_what_is_settled_and_keep_the_positions(count: int, seed: int, subs: int) -> None:
    """Also across several rounds of letting go, and with many records of one sequence number."""
    kept = Kept()
    records = [Rec(1 + number // subs, number % subs) for number in range(count)]
    kept.admit(records)
    delivery = kept.deliver()
    order = list(delivery.places)
    Random(seed).shuffle(order)
    open_places = set(order)
    for place in order:
        kept.ledger.ack(delivery.ticket, [place])
        open_places.discard(place)
        first = min(open_places, default=count)
        expected = Checkpoint.TRIM_HORIZON if first == 0 else at(*records[first - 1][:2])
        assert kept.ledger.progress.safe == expected
        page_bytes = kept.ledger.held.held_bytes
        assert page_bytes >= 8 * len(open_places)
        assert page_bytes < 8 * 4 * len(open_places) or page_bytes == 8 * len(open_places)


def test_a_program_that_waits_for_records_while_all_are_out_is_told() -> None:
    kept = Kept(records_max=4, full_after_s=5.0)
    kept.admit(recs(1, 4))
    delivery = kept.deliver()
    assert kept.nothing()
    assert next_at_s(kept.ledger) == kept.now_s + 5
    kept.later(4.9)
    assert kept.told == []
    kept.later(0.1)
    kept.later(60)
    (held,) = kept.of(FetchingHeld)
    assert (held.records, held.bytes_held, held.position, held.held_s) == (4, 32, Position(1), pytest.approx(5))
    kept.ledger.ack(delivery.ticket, [0, 1])
    kept.admit(recs(5, 2))
    kept.deliver()
    assert kept.nothing()
    kept.later(6)
    assert len(kept.of(FetchingHeld)) == 2


def test_no_room_is_not_told_while_there_is_something_to_deliver() -> None:
    kept = Kept(records_max=4)
    kept.admit(recs(1, 6))
    kept.deliver(3)
    kept.later(60)
    assert kept.of(FetchingHeld) == []


# --- settling through, and the newest wins --------------------------------------------------------


def test_settling_through_a_record_settles_all_that_were_delivered_before() -> None:
    kept = Kept()
    kept.admit(recs(1, 5))
    kept.admit(recs(6, 5))
    first, second = kept.deliver(), kept.deliver(3)
    kept.ledger.ack(first.ticket, [2])
    kept.ledger.nack(first.ticket, kept.now_s, [4], delay_s=5)
    assert kept.ledger.settle_through(second.ticket, 1)
    assert kept.ledger.progress.safe == at(7)
    assert kept.ledger.out == 1
    kept.later(10)
    assert numbers(kept.deliver().records) == [9, 10]
    assert kept.told == []


def test_the_newest_settlement_wins_where_it_is_told_to_and_says_what_was_skipped() -> None:
    kept = Kept(latest_wins=True)
    kept.admit(recs(1, 5))
    kept.admit(recs(6, 5))
    first, second = kept.deliver(), kept.deliver()
    kept.ledger.ack(first.ticket, [0])
    kept.ledger.ack(second.ticket, [1])
    assert kept.ledger.progress.safe == at(7)
    skipped = [(event.first, event.last, event.records, event.reason) for event in kept.of(RecordsSkipped)]
    assert skipped == [(Position(2), Position(5), 4, "latest wins"), (Position(6), Position(6), 1, "latest wins")]
    kept.ledger.ack(second.ticket, [4])
    assert kept.ledger.progress.safe == at(10)
    assert [event.reason for event in kept.of(RecordsUnsettled)] == []
    with pytest.raises(OptionError, match="latest_wins"):
        LedgerPolicy(latest_wins=True, order=ByKey())


# --- the end of a tenure --------------------------------------------------------------------------


def test_what_is_unsettled_at_the_end_is_told_by_name_once() -> None:
    kept = Kept()
    kept.admit(recs(1, 50))
    delivery = kept.deliver(30)
    kept.ledger.ack(delivery.ticket, [0, 1, 2, 7])
    closing = kept.ledger.close("lease lost")
    assert closing == (at(3), 26)
    assert kept.ledger.close("again") == closing
    (told,) = kept.told
    assert (told.records, told.reason) == (26, "lease lost")
    assert told.positions == tuple(Position(number) for number in [4, 5, 6, 7, *range(9, 25)])
    assert "settle_through(record)" in told.advice


def test_nothing_unsettled_is_nothing_told() -> None:
    kept = Kept()
    kept.admit(recs(1, 5))
    delivery = kept.deliver(3)
    kept.ledger.ack(delivery.ticket)
    assert kept.ledger.close("stop") == (at(3), 0)
    assert kept.told == []


def test_late_settlements_count_for_nothing_and_are_told_once() -> None:
    kept = Kept()
    kept.admit(recs(1, 5))
    delivery = kept.deliver()
    kept.ledger.dead_letter(delivery.ticket, kept.now_s, [4])
    (letter,) = kept.ledger.letters.take(kept.now_s)
    kept.ledger.close("lease lost")
    kept.told.clear()
    late = [
        kept.ledger.ack(delivery.ticket, [0]),
        kept.ledger.ack(delivery.ticket),
        kept.ledger.skip(delivery.ticket),
        kept.ledger.settle_through(delivery.ticket, 2),
        kept.ledger.nack(delivery.ticket, kept.now_s),
        kept.ledger.fail(delivery.ticket, KeyError(), kept.now_s),
        kept.ledger.dead_letter(delivery.ticket, kept.now_s),
        kept.ledger.letters.written(letter),
        kept.ledger.letters.not_written(letter, OSError(), kept.now_s, hurries=False),
    ]
    assert late == [False] * 9
    assert kept.told == [LateSettlement("orders", "shardId-000000000000", 1, "lease lost")]
    kept.admit(recs(10, 5))
    kept.ledger.take_back(kept.now_s)
    kept.later(1000)
    assert kept.nothing()
    assert kept.ledger.letters.take(kept.now_s) == []
    assert kept.ledger.progress.safe == Checkpoint.TRIM_HORIZON
    assert len(kept.told) == 1


def test_draining_delivers_nothing_and_waits_for_what_is_out() -> None:
    kept = Kept()
    kept.admit(recs(1, 6))
    delivery = kept.deliver(4)
    kept.ledger.may_deliver = MayDeliver.NOTHING
    assert kept.nothing()
    assert not now(kept.ledger.drained)
    kept.ledger.ack(delivery.ticket, [0])
    kept.ledger.nack(delivery.ticket, kept.now_s, [1])
    kept.ledger.dead_letter(delivery.ticket, kept.now_s, [2, 3])
    assert kept.ledger.out == 0
    assert not now(kept.ledger.drained)
    for letter in kept.ledger.letters.take(kept.now_s):
        kept.ledger.letters.written(letter)
    assert kept.ledger.drained
    kept.ledger.may_deliver = MayDeliver.ALL
    assert numbers(kept.deliver().records) == [2]


def test_an_iteration_that_was_left_offers_its_records_again() -> None:
    kept = Kept()
    kept.admit(recs(1, 6))
    one, two = kept.deliver(2), kept.deliver(2)
    kept.ledger.ack(one.ticket, [0])
    kept.ledger.take_back(kept.now_s)
    assert kept.ledger.out == 0
    again = [kept.deliver() for _ in range(3)]
    assert [numbers(delivery.records) for delivery in again] == [[2], [3, 4], [5, 6]]
    assert [delivery.attempt for delivery in again] == [2, 2, 1]
    kept.ledger.ack(two.ticket)
    for delivery in again:
        kept.ledger.ack(delivery.ticket)
    assert kept.ledger.progress.safe == at(6)


def sized(first: int, count: int) -> list[Rec]:
    return [Rec(number, data=bytes(number % 7)) for number in range(first, first + count)]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 11), st.integers(1, 12)), max_size=20))
def test_the_bytes_of_what_is_settled_are_known_whatever_is_settled_first(
    played: list[tuple[int, int, int]],
) -> None:
    kept = Kept()
    settled: set[tuple[int, int]] = set()
    deliveries = []
    for number in range(3):
        kept.admit(sized(100 * number + 1, 12))
        deliveries.append(kept.deliver(12))
    for page, start, count in played:
        places = [place for place in range(start, min(start + count, 12)) if (page, place) not in settled]
        if places:
            kept.ledger.ack(deliveries[page].ticket, places)
            settled |= {(page, place) for place in places}
        assert kept.ledger.progress.done_records == len(settled)
        assert kept.ledger.progress.done_bytes == sum((100 * page + 1 + place) % 7 for page, place in settled)


def test_the_bytes_of_what_is_skipped_failed_and_left_out_are_told() -> None:
    kept = Kept(retry=Retry(failures_max=1, then=Skip()))
    kept.admit(sized(1, 6), settled=[5])
    assert kept.ledger.progress.done_bytes == 6
    delivery = kept.deliver(3)
    kept.ledger.fail(delivery.ticket, KeyError(), kept.now_s)
    failed = kept.of(BatchFailed)[0]
    assert (failed.records, failed.payload_bytes) == (3, 1 + 2 + 3)
    kept.told.clear()
    while kept.ledger.progress.done_records < 6:
        kept.later(1000)
        kept.ledger.fail(kept.deliver().ticket, KeyError(), kept.now_s)
    assert sum(event.payload_bytes for event in kept.of(RecordsSkipped)) == 1 + 2 + 3 + 4 + 5
    assert kept.ledger.progress.done_bytes == sum(range(7))


# --- where a new owner goes on --------------------------------------------------------------------


def test_what_lies_behind_a_checkpoint() -> None:
    page = [Rec(1), Rec(2, 0), Rec(2, 1), Rec(2, 2), Rec(5)]
    assert behind(page, at(2, 1)) == page[3:]
    assert behind(page, at(2, 9)) == page[4:]
    assert behind(page, at(5)) == []
    assert behind(page, at(0)) is page
    assert behind(page, Checkpoint.LATEST) is page
    assert behind(page, Checkpoint.SHARD_END) == ()
    assert behind([], at(3)) == []
