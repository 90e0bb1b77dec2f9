"""Failures, what is put off, what is given up, and what stays unsettled."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.ledger.failures import Halve, LastAttempt, Redelivery, after_failure
from shardway.errors import OptionError
from shardway.events import (
    BatchFailed,
    DeadLetterFailed,
    RecordDeadLettered,
    RecordsSkipped,
    RecordsStalled,
    ShardGivenUp,
)
from shardway.model import Position
from shardway.policies import (
    AnyOrder,
    DeadLetters,
    GiveUp,
    InOrder,
    Redeliver,
    Retry,
    SettlingOptions,
    Skip,
    Stop,
    Warn,
)
from tests.core.ledger.ledger_kit import Kept, Rec, at, next_at_s, numbers, recs
from tests.momentary import now

if TYPE_CHECKING:
    from collections.abc import Callable


class PoisonError(Exception):
    """A handler can not take a record."""


POISON = PoisonError()


def handle_all(kept: Kept, is_poison: Callable[[Rec], bool], steps_max: int = 1_000) -> list[list[int]]:
    """Deliver and handle until nothing is left; what was delivered."""
    handed: list[list[int]] = []
    for _ in range(steps_max):
        for letter in kept.ledger.letters.take(kept.now_s):
            kept.ledger.letters.written(letter)
        delivery = kept.ledger.deliver(kept.now_s)
        if delivery is None:
            if not kept.ledger.held.records or kept.ledger.ending is not None:
                return handed
            kept.now_s = max(kept.now_s, next_at_s(kept.ledger))
            continue
        handed.append(numbers(delivery.records))
        if any(is_poison(record) for record in delivery.records):
            kept.ledger.fail(delivery.ticket, PoisonError("the payload is bad"), kept.now_s)
        else:
            kept.ledger.ack(delivery.ticket)
    raise AssertionError("it does not end")


# --- retries --------------------------------------------------------------------------------------


def test_a_poison_record_is_found_by_halves_and_becomes_a_dead_letter() -> None:
    kept = Kept(retry=Retry(batch_failures_max=2, failures_max=3))
    kept.admit(recs(1, 8))
    handed = handle_all(kept, lambda record: record.sequence_number == 6)
    batch = list(range(1, 9))
    assert handed == [batch, batch, [1, 2, 3, 4], [5, 6, 7, 8], [5, 6], [5], [6], [6], [6], [7, 8]]
    assert kept.ledger.progress.safe == at(8)
    steps = [(event.position, event.records, event.attempt, event.next_step) for event in kept.of(BatchFailed)]
    assert steps == [
        (Position(1), 8, 1, "Redelivery"),
        (Position(1), 8, 2, "Halve"),
        (Position(5), 4, 3, "Halve"),
        (Position(5), 2, 4, "Halve"),
        (Position(6), 1, 5, "Redelivery"),
        (Position(6), 1, 6, "Redelivery"),
        (Position(6), 1, 7, "DeadLetters"),
    ]
    assert {event.error_type for event in kept.of(BatchFailed)} == {"PoisonError"}
    dead = RecordDeadLettered("orders", "shardId-000000000000", Position(6), None, 7, "PoisonError", 3, 8)
    assert kept.of(RecordDeadLettered) == [dead]


@given(st.integers(1, 100), st.sets(st.integers(1, 100), max_size=5), st.integers(1, 3))
def test_exactly_the_poison_records_are_given_up_and_order_is_kept(count: int, poison: set[int], attempts: int) -> None:
    kept = Kept(retry=Retry(batch_failures_max=1, failures_max=attempts))
    kept.admit(recs(1, count))
    handed = handle_all(kept, lambda record: record.sequence_number in poison)
    bad = sorted(number for number in poison if number <= count)
    assert [event.position.sequence_number for event in kept.of(RecordDeadLettered)] == bad
    assert kept.ledger.progress.safe == at(count)
    last = [numbers_ for numbers_ in handed if not poison.intersection(numbers_)]
    assert sorted(number for numbers_ in last for number in numbers_) == [
        number for number in range(1, count + 1) if number not in poison
    ]
    assert last == sorted(last)
    assert len(handed) <= 1 + len(bad) * (2 * count.bit_length() + attempts)


def test_a_batch_that_is_not_halved_shares_its_fate() -> None:
    kept = Kept(retry=Retry(halve=False, failures_max=2, then=Skip()))
    kept.admit(recs(1, 3))
    assert handle_all(kept, lambda record: record.sequence_number == 2) == [[1, 2, 3], [1, 2, 3]]
    (skipped,) = kept.of(RecordsSkipped)
    assert (skipped.first, skipped.last, skipped.records) == (Position(1), Position(3), 3)


def test_only_what_the_handler_left_unsettled_fails() -> None:
    kept = Kept(retry=Retry(batch_failures_max=1))
    kept.admit(recs(1, 4))
    delivery = kept.deliver()
    kept.ledger.ack(delivery.ticket, [0, 1, 3])
    kept.ledger.fail(delivery.ticket, PoisonError(), kept.now_s)
    (failed,) = kept.of(BatchFailed)
    assert (failed.position, failed.records, failed.next_step) == (Position(3), 1, "Redelivery")
    kept.ledger.fail(delivery.ticket, PoisonError(), kept.now_s)
    assert len(kept.told) == 1


def test_tries_are_apart_and_hold_up_what_is_new() -> None:
    kept = Kept(retry=Retry(base_s=2.0, cap_s=3.0), seed=3)
    kept.admit(recs(1, 4))
    delivery = kept.deliver(2)
    kept.ledger.fail(delivery.ticket, PoisonError(), kept.now_s)
    (failed,) = kept.of(BatchFailed)
    assert failed.delay_s == pytest.approx(Random(3).uniform(0, 2.0))
    assert kept.nothing()
    assert next_at_s(kept.ledger) == kept.now_s + failed.delay_s
    kept.now_s += failed.delay_s
    assert numbers(kept.deliver().records) == [1, 2]
    assert numbers(kept.deliver().records) == [3, 4]


def test_in_any_order_nothing_is_held_up() -> None:
    kept = Kept(order=AnyOrder())
    kept.admit(recs(1, 4))
    delivery = kept.deliver(2)
    kept.ledger.nack(delivery.ticket, kept.now_s, delay_s=5)
    assert numbers(kept.deliver().records) == [3, 4]
    assert kept.nothing()
    kept.now_s += 5
    assert numbers(kept.deliver().records) == [1, 2]


def test_what_is_put_off_comes_again_and_may_be_settled_meanwhile() -> None:
    kept = Kept()
    kept.admit(recs(1, 3))
    delivery = kept.deliver()
    kept.ledger.nack(delivery.ticket, kept.now_s, [0, 2], delay_s=10)
    assert kept.ledger.out == 1
    kept.ledger.ack(delivery.ticket, [1, 2])
    kept.now_s += 10
    again = kept.deliver()
    assert (numbers(again.records), list(again.places), again.attempt) == ([1], [0], 2)
    kept.ledger.ack(delivery.ticket, [0])
    assert kept.ledger.progress.safe == at(3)
    assert kept.ledger.remaining(again) == []


def test_a_delivery_that_lost_a_record_to_a_later_one_can_still_settle_it_but_not_put_it_off() -> None:
    kept = Kept()
    kept.admit(recs(1, 2))
    first = kept.deliver()
    kept.ledger.nack(first.ticket, kept.now_s)
    second = kept.deliver()
    kept.ledger.nack(first.ticket, kept.now_s)
    kept.ledger.fail(first.ticket, PoisonError(), kept.now_s)
    kept.ledger.dead_letter(first.ticket, kept.now_s)
    assert kept.told == []
    assert kept.ledger.out == 2
    kept.ledger.ack(first.ticket, first.places)
    assert kept.ledger.out == 0
    kept.ledger.fail(second.ticket, PoisonError(), kept.now_s)
    assert kept.told == []


def test_what_waits_is_delivered_in_the_order_of_the_shard_however_it_was_put_off() -> None:
    kept = Kept()
    kept.admit(recs(1, 4))
    delivery = kept.deliver(3)
    kept.ledger.nack(delivery.ticket, kept.now_s, [1])
    kept.ledger.nack(delivery.ticket, kept.now_s, [0, 2])
    kept.ledger.ack(delivery.ticket, [0])
    assert [numbers(kept.deliver().records) for _ in range(3)] == [[2], [3], [4]]


def test_what_is_cut_in_two_for_the_order_has_failed_as_often() -> None:
    kept = Kept(retry=Retry(halve=False, failures_max=2))
    kept.admit(recs(1, 3))
    delivery = kept.deliver()
    kept.ledger.nack(delivery.ticket, kept.now_s, [1])
    kept.ledger.fail(delivery.ticket, PoisonError(), kept.now_s)
    kept.now_s += 60
    again = [kept.deliver() for _ in range(3)]
    assert [(numbers(each.records), each.attempt) for each in again] == [([1], 2), ([2], 2), ([3], 2)]
    for each in again:
        kept.ledger.fail(each.ticket, PoisonError(), kept.now_s)
    assert [event.next_step for event in kept.of(BatchFailed)] == [
        "Redelivery",
        "DeadLetters",
        "Redelivery",
        "DeadLetters",
    ]


@pytest.mark.parametrize("order", [InOrder(), AnyOrder()])
def test_what_is_settled_while_it_waits_does_not_come_again(order: InOrder | AnyOrder) -> None:
    kept = Kept(order=order)
    kept.admit(recs(1, 4))
    delivery = kept.deliver()
    kept.ledger.nack(delivery.ticket, kept.now_s, [0, 1])
    kept.ledger.nack(delivery.ticket, kept.now_s, [2, 3])
    kept.ledger.ack(delivery.ticket, [0, 1, 2])
    again = kept.deliver()
    assert (numbers(again.records), list(again.places)) == ([4], [3])
    assert kept.nothing()


# --- what no record is to blame for ---------------------------------------------------------------


def test_a_dependency_that_is_down_halves_nothing_and_gives_the_shard_up_in_the_end() -> None:
    kept = Kept(retry=Retry(transient=(ConnectionError,), give_up_after_s=60.0, cool_down_s=120.0, cap_s=20.0))
    kept.admit(recs(1, 4))
    began_s = kept.now_s
    while kept.ledger.ending is None:
        delivery = kept.deliver()
        assert numbers(delivery.records) == [1, 2, 3, 4]
        kept.ledger.fail(delivery.ticket, ConnectionRefusedError("10.0.0.1"), kept.now_s)
        kept.now_s += 20
    assert kept.now_s - 20 - began_s == 60
    assert (kept.ledger.ending.action, kept.ledger.ending.cool_down_s) == ("GiveUp", 120.0)
    assert isinstance(kept.ledger.ending.error, ConnectionRefusedError)
    given_up = ShardGivenUp("orders", "shardId-000000000000", "GiveUp", "failed: ConnectionRefusedError", 120.0)
    assert kept.of(ShardGivenUp) == [given_up]
    assert kept.nothing()
    assert kept.ledger.drained, "no handler works on them any more: nothing is to be waited for"
    assert kept.ledger.progress.safe == Checkpoint.TRIM_HORIZON


def test_whatever_succeeds_meanwhile_shows_that_the_dependency_is_well() -> None:
    kept = Kept(order=AnyOrder(), retry=Retry(transient=(ConnectionError,), give_up_after_s=60.0, cap_s=1.0))
    kept.admit(recs(1, 1))
    for number in range(10):
        kept.ledger.fail(kept.deliver().ticket, ConnectionError(), kept.now_s)
        kept.admit(recs(2 + number, 1))
        kept.ledger.ack(kept.deliver().ticket)
        kept.now_s += 50
    assert kept.ledger.ending is None


def test_a_failure_may_stop_the_shard() -> None:
    kept = Kept(retry=Retry(failures_max=1, then=Stop()))
    kept.admit(recs(1, 1))
    error = PoisonError("why")
    kept.ledger.fail(kept.deliver().ticket, error, kept.now_s)
    assert kept.ledger.ending is not None
    assert (kept.ledger.ending.action, kept.ledger.ending.error) == ("Stop", error)
    assert kept.ledger.held.records == 1
    assert kept.ledger.drained


def test_the_table_of_steps() -> None:
    retry = Retry(
        batch_failures_max=2, failures_max=3, base_s=1.0, cap_s=8.0, transient=(OSError,), give_up_after_s=9.0
    )

    def step(
        error: Any = POISON, records: int = 1, failures: int = 1, halved: bool = False, failing_s: float = 0
    ) -> Any:
        rng = Random(0)
        return type(
            after_failure(retry, error, records=records, failures=failures, halved=halved, failing_s=failing_s, rng=rng)
        )

    assert step(records=2, failures=1) is Redelivery
    assert step(records=2, failures=2) is Halve
    assert step(records=2, failures=1, halved=True) is Halve
    assert step(failures=2) is Redelivery
    assert step(failures=3) is LastAttempt
    assert step(OSError(), failures=99, records=5, failing_s=8.9) is Redelivery
    assert step(TimeoutError(), failing_s=9.0) is LastAttempt
    for failures, most_s in ((1, 1.0), (3, 4.0), (9, 8.0)):
        delays = [
            after_failure(
                Retry(base_s=1.0, cap_s=8.0, failures_max=None), PoisonError(),
                records=1, failures=failures, halved=False, failing_s=0, rng=Random(seed),
            ).shown[1]
            for seed in range(50)
        ]  # fmt: skip
        assert 0.6 * most_s < max(delays) <= most_s


# --- dead letters ---------------------------------------------------------------------------------


def test_a_dead_letter_counts_only_when_it_is_written() -> None:
    kept = Kept()
    kept.admit(recs(1, 3))
    delivery = kept.deliver()
    kept.ledger.dead_letter(delivery.ticket, kept.now_s, [0], error=PoisonError("bad byte at 7"))
    kept.ledger.ack(delivery.ticket, [1, 2])
    assert next_at_s(kept.ledger) == kept.now_s
    (letter,) = kept.ledger.letters.take(kept.now_s)
    assert (letter.record, letter.position, letter.attempts) == (Rec(1), Position(1), 1)
    assert (letter.error_type, letter.error_message, letter.part) == ("PoisonError", "bad byte at 7", None)
    assert kept.ledger.progress.safe == Checkpoint.TRIM_HORIZON
    kept.ledger.letters.not_written(letter, OSError("disk full"), kept.now_s, hurries=False)
    (failed,) = kept.of(DeadLetterFailed)
    assert (failed.position, failed.error_type, failed.failures) == (Position(1), "OSError", 1)
    assert kept.ledger.letters.take(kept.now_s) == []
    kept.now_s = next_at_s(kept.ledger)
    assert kept.ledger.letters.take(kept.now_s) == [letter]
    kept.ledger.letters.written(letter)
    kept.ledger.letters.written(letter)
    assert kept.ledger.progress.safe == at(3)
    assert len(kept.of(RecordDeadLettered)) == 1
    assert "bad byte" not in str(kept.told)


def test_a_dead_letter_whose_record_was_settled_after_all_is_not_written() -> None:
    kept = Kept()
    kept.admit(recs(1, 2))
    delivery = kept.deliver()
    kept.ledger.dead_letter(delivery.ticket, kept.now_s)
    kept.ledger.ack(delivery.ticket, [1])
    (letter,) = kept.ledger.letters.take(kept.now_s)
    assert letter.position == Position(1)


def test_a_program_that_leaves_a_batch_settles_the_rest_and_not_what_was_put_off_or_given_up() -> None:
    kept = Kept()
    kept.admit(recs(1, 4))
    delivery = kept.deliver()
    kept.ledger.nack(delivery.ticket, kept.now_s, [1], delay_s=5)
    kept.ledger.dead_letter(delivery.ticket, kept.now_s, [2])
    kept.ledger.ack(delivery.ticket)
    assert kept.ledger.progress.unsettled() == [Position(2), Position(3)]
    (letter,) = kept.ledger.letters.take(kept.now_s)
    kept.ledger.letters.written(letter)
    kept.now_s += 5
    again = kept.deliver()
    assert numbers(again.records) == [2]
    kept.ledger.skip(delivery.ticket)
    assert kept.ledger.progress.safe == at(1)
    kept.ledger.ack(again.ticket)
    assert kept.ledger.progress.safe == at(4)


def test_what_was_put_off_once_is_not_settled_by_leaving_that_batch_whatever_happened_since() -> None:
    kept = Kept()
    kept.admit(recs(1, 1))
    first = kept.deliver()
    kept.ledger.nack(first.ticket, kept.now_s)
    kept.deliver()
    kept.ledger.take_back(kept.now_s)
    kept.ledger.ack(first.ticket)
    assert kept.ledger.progress.unsettled() == [Position(1)]


def test_settling_through_leaves_dead_letters_to_be_written() -> None:
    kept = Kept()
    kept.admit(recs(1, 4), unreadable={1: KeyError()})
    delivery = kept.deliver()
    kept.ledger.settle_through(delivery.ticket, 2)
    assert kept.ledger.progress.safe == at(1)
    (letter,) = kept.ledger.letters.take(kept.now_s)
    kept.ledger.letters.written(letter)
    assert kept.ledger.progress.safe == at(3)


def test_a_handler_that_was_only_slow_settles_what_was_delivered_to_another_meanwhile() -> None:
    kept = Kept(settle_deadline_s=10.0, stalled=Redeliver())
    kept.admit(recs(1, 4))
    slow = kept.deliver()
    kept.later(10)
    again = kept.deliver()
    kept.ledger.nack(again.ticket, kept.now_s, [3])
    kept.ledger.ack(slow.ticket)
    assert kept.ledger.progress.safe == at(3)
    assert numbers(kept.deliver().records) == [4]


def test_what_can_not_be_read_is_a_dead_letter_and_never_delivered() -> None:
    kept = Kept()
    kept.admit(
        recs(1, 4), settled=[3], unreadable={1: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), 3: KeyError()}
    )
    delivery = kept.deliver()
    assert numbers(delivery.records) == [1, 3]
    kept.ledger.ack(delivery.ticket)
    assert kept.ledger.progress.safe == at(1)
    (letter,) = kept.ledger.letters.take(kept.now_s)
    assert (letter.position, letter.error_type, letter.attempts) == (Position(2), "UnicodeDecodeError", 0)
    kept.ledger.letters.written(letter)
    assert kept.ledger.progress.safe == at(4)


def test_a_skip_is_told_with_its_reason() -> None:
    kept = Kept()
    kept.admit(recs(1, 4))
    delivery = kept.deliver()
    kept.ledger.ack(delivery.ticket, [1])
    kept.ledger.skip(delivery.ticket, [2, 0, 1], reason="too old")
    (skipped,) = kept.of(RecordsSkipped)
    assert (skipped.first, skipped.last, skipped.records, skipped.reason) == (Position(1), Position(3), 2, "too old")
    assert kept.ledger.progress.safe == at(3)
    kept.ledger.skip(delivery.ticket, [0])
    assert len(kept.told) == 1


# --- what stays unsettled -------------------------------------------------------------------------


def stalled(policy: Any, **more: Any) -> Kept:
    """Six records out; 3 settled, 1 put off again and again, and two of which nothing is heard."""
    kept = Kept(settle_deadline_s=30.0, stalled=policy, order=AnyOrder(), **more)
    kept.admit(recs(1, 6))
    delivery = kept.deliver()
    kept.ledger.ack(delivery.ticket, [0, 2, 4])
    kept.ledger.nack(delivery.ticket, kept.now_s, [5], delay_s=1000)
    kept.later(29.9)
    assert kept.told == []
    assert next_at_s(kept.ledger) == pytest.approx(kept.now_s + 0.1)
    kept.later(0.1)
    (told,) = kept.of(RecordsStalled)
    assert (told.positions, told.records, told.waiting) == ((Position(2), Position(4), Position(6)), 3, 1)
    assert told.age_s == pytest.approx(30)
    assert told.action == type(policy).__name__
    return kept


def test_stall_warn() -> None:
    kept = stalled(Warn())
    kept.later(29)
    assert len(kept.told) == 1
    kept.later(1)
    assert [round(event.age_s) for event in kept.of(RecordsStalled)] == [30, 60]
    assert kept.ledger.progress.safe == at(1)
    assert kept.ledger.out == 2


def test_stall_redeliver() -> None:
    kept = stalled(Redeliver(times_max=1, then=DeadLetters()))
    again = kept.deliver()
    assert (numbers(again.records), again.attempt) == ([2, 4], 2)
    assert kept.nothing()
    kept.ledger.ack(again.ticket, [1])
    kept.later(30)
    assert [event.action for event in kept.of(RecordsStalled)] == ["Redeliver", "DeadLetters"]
    letters = kept.ledger.letters.take(kept.now_s)
    assert [letter.position for letter in letters] == [Position(4), Position(6)]
    assert {letter.error_type for letter in letters} == {"not settled in time"}
    assert [letter.attempts for letter in letters] == [2, 1]


def test_stall_dead_letters() -> None:
    kept = stalled(DeadLetters())
    assert len(kept.ledger.letters.take(kept.now_s)) == 3
    kept.later(30)
    told = kept.of(RecordsStalled)[1]
    assert (told.records, told.waiting) == (3, 3)
    assert kept.ledger.letters.take(kept.now_s) == []


def test_stall_skip() -> None:
    kept = stalled(Skip())
    assert kept.ledger.progress.safe == at(6)
    assert sum(event.records for event in kept.of(RecordsSkipped)) == 3


def test_stall_give_up() -> None:
    kept = stalled(GiveUp(cool_down_s=7.0))
    assert kept.of(ShardGivenUp)[0].reason == "not settled in time"
    assert kept.ledger.ending is not None
    assert kept.ledger.ending.cool_down_s == 7.0
    kept.later(30)
    assert len(kept.of(ShardGivenUp)) == 1


def test_records_of_one_delivery_that_are_settled_in_time_are_not_told() -> None:
    kept = Kept(settle_deadline_s=30.0)
    kept.admit(recs(1, 6))
    for _ in range(3):
        kept.ledger.ack(kept.deliver(2).ticket)
        kept.later(29)
    kept.later(300)
    assert kept.told == []
    assert next_at_s(kept.ledger) == float("inf")


def test_one_that_is_told_again_and_again_hides_no_other() -> None:
    kept = Kept(settle_deadline_s=30.0)
    kept.admit(recs(1, 2))
    assert now(kept.ledger.progress.out_since_s) is None
    first = kept.deliver(1)
    kept.later(10)
    kept.deliver(1)
    kept.later(20)
    assert kept.ledger.progress.out_since_s == 1000
    kept.later(10)
    assert [event.positions for event in kept.of(RecordsStalled)] == [(Position(1),), (Position(2),)]
    assert next_at_s(kept.ledger) == kept.now_s + 20
    kept.ledger.ack(first.ticket)
    assert kept.ledger.progress.out_since_s == 1010
    assert next_at_s(kept.ledger) == kept.now_s + 30


def test_the_clock_of_a_record_does_not_start_again_with_each_try() -> None:
    kept = Kept(settle_deadline_s=30.0, retry=Retry(failures_max=None, cap_s=1.0))
    kept.admit(recs(1, 1))
    for _ in range(10):
        kept.ledger.fail(kept.deliver().ticket, PoisonError(), kept.now_s)
        kept.later(6)
    assert [round(event.age_s) for event in kept.of(RecordsStalled)] == [30, 60]


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: SettlingOptions(deadline_s=-1), "deadline_s must be more than 0, not -1"),
        (lambda: SettlingOptions(deadline_s=float("nan")), "deadline_s must be more than 0, not nan"),
        (lambda: Retry(base_s=0), "base_s must be more than 0, not 0"),
        (lambda: Retry(failures_max=0), "failures_max must be more than 0, not 0"),
        (lambda: Retry(give_up_after_s=0), "give_up_after_s must be more than 0, not 0"),
        (lambda: Retry(cool_down_s=-1), "cool_down_s must be at least 0, not -1"),
        (lambda: Redeliver(times_max=0), "times_max must be more than 0, not 0"),
        (lambda: GiveUp(cool_down_s=-0.5), "cool_down_s must be at least 0, not -0.5"),
    ],
)
def test_what_can_not_be_is_refused(make: Callable[[], object], fault: str) -> None:
    with pytest.raises(OptionError, match=fault):
        make()


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(OptionError) as raised:
        Retry(base_s=0, batch_failures_max=0)
    assert len(raised.value.faults) == 2
