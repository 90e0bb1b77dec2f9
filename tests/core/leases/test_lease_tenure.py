"""A tenure from the take to its end, step by step."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import get_args

import pytest

from shardway.core.leases import Checkpoint, Done, Kind, LeaseRow, Refused, Unknown, conditional_write, writes
from shardway.core.leases.tenure import commands, events, state
from shardway.core.leases.tenure.machine import TABLE, receive
from shardway.core.leases.tenure.state import Loss, State
from shardway.core.leases.tenure.times import LeaseTimes
from tests.core.leases.leasing import FREE, TIMES, Cell, Driver, at, held

F = TIMES.failover_s


def test_the_table_is_complete() -> None:
    inputs = {
        events.TimerFired,
        events.WriteAnswered,
        events.WorkerRowConfirmed,
        events.LeaseSeen,
        events.StoreCheckpoint,
        events.StorePending,
        events.StoreMeasurements,
        events.EndTenure,
        events.AbandonTenure,
    }
    assert set(get_args(events.Event)) == inputs
    assert set(TABLE) == set(itertools.product(State, inputs))


# --- beginning ------------------------------------------------------------------------------------


def test_a_take_that_succeeds_begins_with_the_counter_as_token() -> None:
    driver = Driver()
    assert driver.waiting == [writes.take(FREE, "w1")]
    assert not driver.tenure.may_deliver(driver.now_s)
    taken = replace(FREE, owner="w1", counter=4)
    assert driver.answer(after_s=0.2) == [commands.TenureBegan(4, taken)]
    assert driver.tenure.may_deliver(driver.now_s)
    assert driver.tenure.fence_s == 100.0 + F - TIMES.margin_s, "it counts from the sending, not from the answer"


def test_a_take_that_comes_too_late_is_told_once() -> None:
    driver = Driver()
    driver.others(owner="w2", counter=4)
    assert driver.answer() == [commands.TakeFailed(driver.row)]
    assert driver.tenure.state is State.OVER
    assert driver.handle(events.TimerFired(), after_s=100) == []
    assert driver.tenure.wake_at_s is None


def test_a_row_that_went_before_the_take() -> None:
    driver = Driver()
    driver.cell.row = None
    assert driver.answer() == [commands.TakeFailed(None)]


def test_a_take_that_was_applied_and_answered_with_an_error_is_a_take() -> None:
    driver = Driver()
    assert driver.lose_answer(apply=True) == []
    assert driver.handle(events.TimerFired(), after_s=TIMES.retry_s) == []
    assert driver.waiting == [writes.take(FREE, "w1")], "it is repeated as it was"
    assert driver.answer() == [], "it may be a take of a former life: that says nothing of the time"
    assert [write.kind for write in driver.waiting] == [Kind.RENEW]
    assert driver.answer() == [commands.TenureBegan(5, driver.row)]


def test_a_take_that_is_never_answered_is_given_up() -> None:
    driver = Driver()
    told = []
    while driver.tenure.state is not State.OVER:
        told += (
            driver.lose_answer(apply=False)
            if driver.waiting
            else driver.handle(events.TimerFired(), after_s=TIMES.retry_s)
        )
    assert told == [commands.TakeFailed(None)]
    assert driver.now_s <= 100.0 + TIMES.unconfirmed_max_s + TIMES.retry_s


def test_an_answer_that_comes_after_the_fence_does_not_begin_it() -> None:
    driver = Driver()
    assert driver.answer(after_s=F) == []
    assert [write.kind for write in driver.waiting] == [Kind.RENEW]
    assert driver.answer() == [commands.TenureBegan(5, driver.row)]


def test_a_take_that_was_taken_over_before_its_answer_came_never_began() -> None:
    driver = Driver()
    outcome = driver.cell.write(driver.waiting.pop())
    driver.others(owner="w2", counter=5)
    assert driver.handle(events.WriteAnswered(outcome), after_s=F) == []
    assert driver.answer() == [commands.TakeFailed(driver.row)]


def test_a_lease_that_has_ones_own_name_already_is_taken_anew() -> None:
    driver = Driver(replace(FREE, owner="w1"))
    driver.answer()
    assert driver.tenure.token == 4
    assert driver.row.switches == 0


# --- receiving ------------------------------------------------------------------------------------

GIVEN = replace(FREE, owner="w2", counter=9, checkpoint=at(5))


def test_a_lease_that_was_watched_while_it_was_given_begins_at_once() -> None:
    tenure, follows = receive(GIVEN, "w2", TIMES, 100.0, unmoved_s=99.9)
    assert follows == (commands.TenureBegan(9, GIVEN), commands.SendWrite(writes.renew(GIVEN)))
    assert tenure.may_deliver(100.0)
    assert tenure.fence_s == 99.9 + F - TIMES.margin_s
    assert tenure.token == 9


def test_a_lease_that_was_given_long_ago_is_taken_first() -> None:
    tenure, follows = receive(GIVEN, "w2", TIMES, 100.0, unmoved_s=90.0)
    assert follows == (commands.SendWrite(writes.take(GIVEN, "w2")),)
    assert not tenure.may_deliver(100.0)


@pytest.mark.parametrize(
    "row", [replace(GIVEN, owner="w3"), replace(GIVEN, owner=None), replace(GIVEN, checkpoint_owner="w1")]
)
def test_what_was_not_given_is_not_received(row: LeaseRow) -> None:
    with pytest.raises(ValueError, match="not given to this worker"):
        receive(row, "w2", TIMES, 100.0, unmoved_s=99.9)


# --- renewing -------------------------------------------------------------------------------------


def test_it_is_renewed_every_interval_and_lives_on() -> None:
    driver = held()
    for round_ in range(1, 4):
        assert driver.tenure.wake_at_s == driver.tenure.renew_at_s
        assert driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s - 0.01) == []
        assert driver.waiting == []
        driver.handle(events.TimerFired(), after_s=0.01)
        assert [write.kind for write in driver.waiting] == [Kind.RENEW]
        driver.answer()
        assert driver.row.counter == 4 + round_
        assert driver.tenure.may_deliver(driver.now_s)
    assert driver.said == []


def test_one_write_at_a_time() -> None:
    driver = held()
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    driver.handle(events.StoreCheckpoint(at(7), at_once=True))
    driver.handle(events.TimerFired(), after_s=1)
    assert len(driver.waiting) == 1, "the checkpoint waits for the renewal"
    driver.answer()
    assert driver.waiting[0].kind is Kind.CHECKPOINT
    assert driver.answer() == [commands.CheckpointStored(at(7))]


def test_a_renewal_that_was_applied_and_answered_with_an_error_costs_nothing() -> None:
    """KCL #2 and #325: there the owner finds the counter moved, by itself, and gives the lease up."""
    driver = held()
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    driver.lose_answer(apply=True)
    for _ in range(3):  # the repetitions fail as well
        driver.handle(events.TimerFired(), after_s=TIMES.retry_s)
        driver.lose_answer(apply=True)
    driver.handle(events.TimerFired(), after_s=TIMES.retry_s)
    assert driver.answer() == []
    assert driver.said == [], "nothing is lost, nothing even stopped"
    assert driver.tenure.state is State.HELD
    assert driver.tenure.lease_s == 100.0 + TIMES.renew_interval_s, "since it was sent first"
    assert driver.tenure.row == driver.row


@pytest.mark.parametrize("kind", [Kind.CHECKPOINT, Kind.PREPARE])
def test_a_checkpoint_that_was_applied_and_answered_with_an_error_is_stored(kind: Kind) -> None:
    driver = held()
    given = events.StoreCheckpoint(at(7), at_once=True) if kind is Kind.CHECKPOINT else events.StorePending(at(7), b"s")
    driver.handle(given)
    assert driver.waiting[0].kind is kind
    driver.lose_answer(apply=True)
    driver.handle(events.TimerFired(), after_s=TIMES.retry_s)
    assert driver.answer() == [
        commands.CheckpointStored(at(7)) if kind is Kind.CHECKPOINT else commands.PendingStored(at(7))
    ]
    assert driver.tenure.state is State.HELD


def test_a_write_in_doubt_that_comes_late_cannot_be_applied_after_the_next_one() -> None:
    driver = held()
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    late = driver.waiting[0]
    driver.lose_answer(apply=False)
    driver.handle(events.TimerFired(), after_s=TIMES.retry_s)
    driver.answer()
    assert isinstance(driver.cell.write(late), Refused)


def test_an_answer_that_was_refused_for_nothing_is_asked_again_later() -> None:
    driver = held()
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    driver.waiting.clear()
    assert driver.handle(events.WriteAnswered(Refused(driver.row))) == []
    assert driver.waiting == [], "not at once: that could go round for ever"
    driver.handle(events.TimerFired(), after_s=TIMES.retry_s)
    driver.answer()
    assert driver.tenure.state is State.HELD


def test_the_throughput_goes_with_the_next_renewal() -> None:
    driver = held()
    driver.handle(events.StoreMeasurements(12.3456789))
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    driver.answer()
    assert driver.row.throughput_kib_s == 12.345679
    driver.handle(events.StoreMeasurements(3.0))
    driver.handle(events.StoreCheckpoint(at(5), at_once=True))
    driver.answer()
    assert driver.row.throughput_kib_s == 3.0


# --- the fence ------------------------------------------------------------------------------------


def test_an_owner_without_confirmations_stops_before_another_may_take_the_lease() -> None:
    driver = held()
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    fence_s = 100.0 + F - TIMES.margin_s
    assert driver.tenure.may_deliver(fence_s - 0.001)
    assert not driver.tenure.may_deliver(fence_s)
    driver.now_s = fence_s
    assert driver.handle(events.TimerFired()) == [commands.FenceFell()]


def test_a_fallen_fence_is_lifted_by_a_later_write_only() -> None:
    driver = held()
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    assert driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s) == [commands.FenceFell()]
    assert driver.answer(after_s=0.1) == [], "this one was sent before it fell"
    assert not driver.tenure.may_deliver(driver.now_s)
    assert driver.answer() == [commands.FenceLifted()]
    assert driver.tenure.may_deliver(driver.now_s)
    assert driver.tenure.token == 4, "no worker had it meanwhile: it is the same tenure"


def test_a_fence_that_fell_while_the_process_slept_falls_before_the_answer_counts() -> None:
    driver = held()
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    assert driver.answer(after_s=TIMES.renew_interval_s) == [commands.FenceFell()]
    assert driver.answer() == [commands.FenceLifted()]


def test_a_repetition_lifts_by_its_own_time_when_it_was_itself_applied() -> None:
    driver = held()
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    driver.lose_answer(apply=False)
    assert driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s) == [commands.FenceFell()]
    assert driver.answer() == [commands.FenceLifted()]


def test_a_repetition_that_finds_the_first_applied_counts_from_the_first() -> None:
    driver = held()
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    driver.lose_answer(apply=True)
    assert driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s) == [commands.FenceFell()]
    assert driver.answer() == [], "applied at an unknown time: it may have been before the fence fell"
    assert driver.answer() == [commands.FenceLifted()]


def test_a_tenure_without_confirmation_for_too_long_is_lost() -> None:
    driver = held()
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    assert driver.handle(events.TimerFired(), after_s=F) == [commands.FenceFell()]
    assert driver.handle(events.TimerFired(), after_s=F) == [
        commands.LeaseLost(Loss.UNCONFIRMED, None, writes.as_known(driver.row))
    ]
    assert driver.handle(events.TimerFired(), after_s=F) == []


def test_one_that_slept_past_all_of_it_is_lost_at_once() -> None:
    driver = held()
    assert driver.handle(events.TimerFired(), after_s=3 * F) == [
        commands.FenceFell(),
        commands.LeaseLost(Loss.UNCONFIRMED, None, writes.as_known(driver.row)),
    ]


# --- the fence that the worker's own row holds up -------------------------------------------------


def test_the_older_of_both_confirmations_counts() -> None:
    driver = held(alive_s=98.0)
    assert driver.tenure.fence_s == 98.0 + F - TIMES.margin_s
    driver.handle(events.WorkerRowConfirmed(101.0))
    assert driver.tenure.fence_s == 100.0 + F - TIMES.margin_s
    driver.handle(events.WorkerRowConfirmed(99.0))
    assert driver.tenure.alive_s == 101.0, "answers may come in another order"


def test_renewals_alone_do_not_hold_the_fence_up() -> None:
    driver = held(alive_s=100.0)
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    driver.answer()
    assert driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s) == [commands.FenceFell()]
    driver.answer()
    assert driver.tenure.state is State.FENCED
    assert driver.waiting == [], "without the worker's row a further write lifts nothing"


def test_after_the_workers_row_a_write_to_the_lease_must_follow() -> None:
    """In between the lease could be taken, by its counter as it was read while the row stood still."""
    driver = held(alive_s=100.0)
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    driver.answer()
    assert driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s) == [commands.FenceFell()]
    early = driver.waiting[0]
    assert driver.handle(events.WorkerRowConfirmed(driver.now_s)) == []
    assert driver.waiting == [early]
    assert driver.answer() == [], "this renewal was sent before the worker's row was confirmed"
    assert driver.answer() == [commands.FenceLifted()]


# --- losing ---------------------------------------------------------------------------------------


def test_a_lease_that_was_taken_is_lost_once() -> None:
    driver = held()
    driver.others(owner="w2", counter=5)
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    assert driver.answer() == [commands.LeaseLost(Loss.TAKEN, driver.row)]
    assert driver.handle(events.StoreCheckpoint(at(9), at_once=True)) == []
    assert driver.handle(events.LeaseSeen(driver.row)) == []
    assert driver.waiting == []


def test_a_lease_that_was_deleted_is_written_anew_with_a_higher_counter() -> None:
    driver = held()
    before = driver.row
    driver.cell.row = None
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    assert driver.answer() == []
    assert driver.answer() == []
    assert driver.row == replace(before, counter=before.counter + 1)
    assert driver.tenure.state is State.HELD


def test_a_restored_row_is_beyond_a_renewal_whose_answer_was_lost() -> None:
    driver = held()
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    driver.lose_answer(apply=True)
    shown = driver.row
    driver.cell.row = None
    driver.handle(events.TimerFired(), after_s=TIMES.retry_s)
    driver.answer()
    driver.answer()
    assert driver.row == replace(shown, counter=shown.counter + 1)


def test_a_checkpoint_whose_answer_was_lost_does_not_go_back_with_the_restored_row() -> None:
    driver = held()
    driver.handle(events.StoreCheckpoint(at(7, 2), at_once=True))
    driver.lose_answer(apply=True)
    driver.cell.row = None
    driver.handle(events.TimerFired(), after_s=TIMES.retry_s)
    driver.answer()
    assert driver.answer() == [commands.CheckpointStored(at(7, 2))]
    assert driver.row.checkpoint == at(7, 2)


def test_a_row_that_went_while_the_fence_was_down_is_lost_with_what_was_known() -> None:
    """Another worker may have had the lease, and read the shard to its end: then the row was deleted rightly."""
    driver = held()
    before = driver.row
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    driver.cell.row = None
    known = replace(before, owner=None, process=None, counter=before.counter + 1)
    assert driver.answer(after_s=F) == [commands.FenceFell(), commands.LeaseLost(Loss.GONE, None, known)]
    assert driver.waiting == []


def test_a_row_is_not_restored_any_more_once_the_fence_has_fallen() -> None:
    driver = held()
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    driver.cell.row = None
    driver.answer()
    driver.lose_answer(apply=False)
    said = driver.handle(events.TimerFired(), after_s=F)
    assert [type(one) for one in said] == [commands.FenceFell, commands.LeaseLost]
    assert driver.waiting == []
    assert driver.cell.row is None


def test_a_row_that_another_process_of_the_name_restored_with_the_same_counter_is_its_own() -> None:
    driver = held()
    driver.others(process="p1/w1")
    driver.tenure = replace(driver.tenure, row=driver.row)
    driver.others(process="p2/w1")
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    assert driver.answer() == [commands.LeaseLost(Loss.TAKEN, driver.row)]
    assert driver.waiting == []


def test_a_take_whose_answer_was_lost_is_not_taken_when_its_row_was_deleted() -> None:
    """It may be another worker's row by now that was deleted: only an owner restores it."""
    driver = Driver()
    driver.lose_answer(apply=True)
    driver.cell.row = None
    driver.handle(events.TimerFired(), after_s=TIMES.retry_s)
    assert driver.answer() == [commands.TakeFailed(None)]
    assert driver.tenure.state is State.OVER
    assert driver.waiting == []


@pytest.mark.parametrize("to", [None, "w2"])
def test_what_may_have_gone_before_its_row_was_deleted_is_not_written_anew(to: str | None) -> None:
    """The next owner may have it, or may have read the shard to its end."""
    driver = held()
    driver.handle(events.StoreCheckpoint(at(7)))
    driver.handle(events.EndTenure(to))
    driver.lose_answer(apply=True)
    driver.cell.row = None
    driver.handle(events.TimerFired(), after_s=TIMES.retry_s)
    (lost,) = driver.answer()
    assert isinstance(lost, commands.LeaseLost)
    assert lost.known is not None
    assert (lost.why, lost.known.checkpoint, lost.known.actual_owner) == (Loss.GONE, at(7), None)
    assert driver.waiting == []


def test_what_ends_when_its_row_was_deleted_goes_at_once() -> None:
    driver = held()
    driver.cell.row = None
    driver.handle(events.EndTenure("w2"))
    driver.answer()
    driver.answer()
    assert driver.answer() == [commands.TenureEnded(driver.row)]
    assert driver.row.owner == "w2"


def test_a_row_that_is_deleted_twice_counts_from_the_first_time_that_it_was_restored() -> None:
    driver = held()
    driver.cell.row = None
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    driver.answer()
    restored_s = driver.now_s
    driver.lose_answer(apply=True)
    driver.cell.row = None
    driver.handle(events.TimerFired(), after_s=TIMES.retry_s)
    driver.answer()
    assert driver.tenure.lease_s == restored_s


def test_what_was_made_in_its_place_and_no_worker_has_is_written_over() -> None:
    driver = held()
    before = driver.row
    driver.cell.row = LeaseRow(key="a", checkpoint=Checkpoint.LATEST)
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    driver.answer()
    driver.answer()
    assert driver.row == replace(before, counter=before.counter + 1)


def test_what_was_made_in_its_place_and_taken_is_anothers() -> None:
    driver = held()
    driver.cell.row = LeaseRow(key="a", counter=1, owner="w2")
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    assert driver.answer() == [commands.LeaseLost(Loss.TAKEN, driver.row)]


def test_a_row_that_went_when_its_shard_had_ended_is_not_written_anew() -> None:
    driver = held()
    driver.handle(events.StoreCheckpoint(Checkpoint.SHARD_END, at_once=True))
    driver.answer()
    driver.cell.row = None
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    assert driver.answer() == [commands.LeaseLost(Loss.GONE, None)]


def test_a_lease_that_was_taken_and_given_back_is_another_tenure() -> None:
    driver = held()
    driver.others(counter=6)
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    assert driver.answer() == [commands.LeaseLost(Loss.TAKEN, driver.row)]


def test_a_row_that_was_made_anew_is_not_taken_for_the_old_one() -> None:
    driver = held()
    driver.others(owner="w2", counter=4)  # deleted, created, and taken until the counter is the same again
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    assert driver.answer() == [commands.LeaseLost(Loss.TAKEN, driver.row)]


def test_a_look_shows_that_it_is_lost() -> None:
    driver = held()
    driver.others(owner="w2", counter=5)
    assert driver.handle(events.LeaseSeen(driver.row)) == [commands.LeaseLost(Loss.TAKEN, driver.row)]


@pytest.mark.parametrize("stale", [FREE, replace(FREE, owner="w9", counter=2), replace(FREE, owner="w1", counter=4)])
def test_an_old_look_shows_nothing(stale: LeaseRow) -> None:
    driver = held()
    assert driver.handle(events.LeaseSeen(stale)) == []
    assert driver.tenure.state is State.HELD


def test_a_look_that_shows_ones_own_write_before_its_answer_shows_nothing() -> None:
    driver = held()
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    driver.cell.write(driver.waiting[0])
    assert driver.handle(events.LeaseSeen(driver.row)) == []


def test_an_answer_without_a_question_is_a_mistake() -> None:
    driver = held()
    with pytest.raises(ValueError, match="no write to the lease a is under way"):
        driver.handle(events.WriteAnswered(Unknown("late")))


# --- checkpoints ----------------------------------------------------------------------------------


def test_checkpoints_ride_on_the_renewals() -> None:
    driver = held()
    for number in range(1, 100):
        driver.handle(events.StoreCheckpoint(at(number)), after_s=0.01)
    assert driver.waiting == []
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    assert driver.answer() == [commands.CheckpointStored(at(99))]
    assert (driver.row.counter, driver.row.checkpoint) == (5, at(99)), "one write for all"


def test_what_is_settled_while_a_write_is_under_way_goes_with_the_next() -> None:
    driver = held()
    driver.handle(events.StoreCheckpoint(at(5), at_once=True))
    driver.handle(events.StoreCheckpoint(at(8), at_once=True))
    assert driver.answer() == [commands.CheckpointStored(at(5))]
    assert driver.answer() == [commands.CheckpointStored(at(8))]


def test_a_checkpoint_does_not_go_back() -> None:
    driver = held(row=replace(FREE, checkpoint=at(50)))
    driver.handle(events.StoreCheckpoint(at(40), at_once=True))
    assert driver.waiting == []
    driver.handle(events.StoreCheckpoint(at(60)))
    driver.handle(events.StoreCheckpoint(at(55), at_once=True))
    assert driver.answer() == [commands.CheckpointStored(at(60))]
    with pytest.raises(ValueError, match="would go back"):
        writes.checkpoint(driver.row, at(59))
    with pytest.raises(ValueError, match="cannot be prepared"):
        driver.handle(events.StorePending(at(59)))


def test_while_one_is_pending_others_hold_still_until_it_is_committed() -> None:
    driver = held()
    driver.handle(events.StorePending(at(7), b"s"))
    assert driver.answer() == [commands.PendingStored(at(7))]
    driver.handle(events.StoreCheckpoint(at(9), at_once=True))
    assert driver.waiting == []
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    assert driver.waiting[0].kind is Kind.RENEW, "a checkpoint would remove what is pending"
    driver.answer()
    assert driver.waiting == []
    assert (driver.row.pending, driver.row.checkpoint) == (at(7), Checkpoint.TRIM_HORIZON)
    driver.handle(events.StoreCheckpoint(at(7), commit=True))
    assert driver.answer() == [commands.CheckpointStored(at(9))]
    assert (driver.row.pending, driver.row.pending_state) == (None, None)
    assert driver.tenure.wish == state.WantedWrites()


def test_a_pending_one_that_says_what_is_stored_already_is_removed_by_its_commit() -> None:
    row = replace(FREE, checkpoint=at(7), pending=at(7))
    driver = held(row=row)
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    driver.handle(events.StoreCheckpoint(at(7), commit=True))
    driver.answer()
    assert driver.answer() == [commands.CheckpointStored(at(7))]
    assert driver.row.pending is None


@pytest.mark.parametrize("seconds", [0.0, TIMES.renew_interval_s], ids=["it is on its way", "a renewal is on its way"])
def test_what_is_pending_and_to_be_committed_is_stored_before_another_one_becomes_pending(seconds: float) -> None:
    driver = held(row=replace(FREE, checkpoint=at(2), pending=at(3)))
    driver.handle(events.TimerFired(), after_s=seconds)
    driver.handle(events.StoreCheckpoint(at(3), commit=True))
    driver.handle(events.StorePending(at(7), b"s"))
    if seconds:
        assert driver.answer() == []
    assert driver.answer() == [commands.CheckpointStored(at(3))], "overwritten, a next owner would begin before it"
    assert driver.answer() == [commands.PendingStored(at(7))]
    assert (driver.row.checkpoint, driver.row.pending, driver.row.pending_state) == (at(3), at(7), b"s")
    assert driver.tenure.wish == state.WantedWrites()


def test_a_wish_to_commit_ends_with_the_checkpoint_that_it_was_for() -> None:
    driver = held(row=replace(FREE, checkpoint=at(2), pending=at(3)))
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    driver.handle(events.StoreCheckpoint(at(2), commit=True))
    driver.handle(events.StorePending(at(7), b"s"))
    assert driver.answer() == [commands.CheckpointStored(at(2), pending=True)], "the renewal was on its way"
    assert driver.answer() == [commands.PendingStored(at(7))], "what was found pending is given up: it is overwritten"
    assert driver.waiting == [], "a checkpoint would clear what was prepared"
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    assert driver.answer() == []
    assert (driver.row.checkpoint, driver.row.pending, driver.row.pending_state) == (at(2), at(7), b"s")
    driver.handle(events.StoreCheckpoint(at(7), commit=True))
    assert driver.answer() == [commands.CheckpointStored(at(7))]
    assert driver.row.pending is None


def test_nothing_is_settled_before_it_has_begun() -> None:
    driver = Driver()
    driver.handle(events.StoreCheckpoint(at(5), at_once=True))
    driver.handle(events.StorePending(at(5)))
    driver.answer()
    assert driver.waiting == []


# --- ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["w2", None])
def test_the_last_checkpoint_and_the_end_are_one_write(to: str | None) -> None:
    driver = held()
    driver.handle(events.StoreCheckpoint(at(9)))
    driver.handle(events.EndTenure(to))
    assert not driver.tenure.may_deliver(driver.now_s)
    assert driver.answer() == [commands.CheckpointStored(at(9)), commands.TenureEnded(driver.row)]
    assert (driver.row.owner, driver.row.checkpoint, driver.row.counter) == (to, at(9), 5)
    assert driver.handle(events.TimerFired(), after_s=100) == []


def test_an_end_waits_for_the_write_that_is_under_way() -> None:
    driver = held()
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    driver.handle(events.EndTenure("w2"))
    driver.handle(events.StoreCheckpoint(at(9)))
    driver.lose_answer(apply=True)
    driver.handle(events.TimerFired(), after_s=TIMES.retry_s)
    assert driver.answer() == []
    assert driver.waiting[0].kind is Kind.GIVE
    assert driver.answer() == [commands.CheckpointStored(at(9)), commands.TenureEnded(driver.row)]


def test_a_give_that_was_applied_and_answered_with_an_error() -> None:
    driver = held()
    driver.handle(events.EndTenure("w2"))
    driver.lose_answer(apply=True)
    driver.handle(events.TimerFired(), after_s=TIMES.retry_s)
    assert driver.answer() == [commands.TenureEnded(driver.row)]


def test_a_give_that_the_next_owner_has_written_over_by_then() -> None:
    driver = held()
    driver.handle(events.StoreCheckpoint(at(9)))
    driver.handle(events.EndTenure("w2"))
    driver.lose_answer(apply=True)
    driver.others(counter=8, checkpoint=at(11))
    driver.handle(events.TimerFired(), after_s=TIMES.retry_s)
    assert driver.answer() == [commands.TenureEnded(driver.row)]


def test_a_lease_that_was_taken_before_it_could_be_given_is_lost() -> None:
    driver = held()
    driver.handle(events.StoreCheckpoint(at(9)))
    driver.others(owner="w3", counter=5)
    driver.handle(events.EndTenure("w2"))
    assert driver.answer() == [commands.LeaseLost(Loss.TAKEN, driver.row)]


def test_an_end_without_answers_is_over_some_time() -> None:
    driver = held()
    driver.handle(events.EndTenure("w2"))
    driver.lose_answer(apply=False)
    told = driver.handle(events.TimerFired(), after_s=TIMES.unconfirmed_max_s)
    assert told == [commands.TenureEnded(None)]


def test_a_pending_checkpoint_is_handed_on() -> None:
    driver = held()
    driver.handle(events.StorePending(at(7), b"s"))
    driver.answer()
    driver.handle(events.StoreCheckpoint(at(9)))
    driver.handle(events.EndTenure("w2"))
    assert driver.answer() == [commands.TenureEnded(driver.row)]
    assert (driver.row.pending, driver.row.pending_state, driver.row.owner) == (at(7), b"s", "w2")
    assert driver.row.checkpoint == Checkpoint.TRIM_HORIZON


def test_an_end_during_the_take_frees_the_lease() -> None:
    driver = Driver()
    assert driver.handle(events.EndTenure()) == []
    assert driver.answer() == []
    assert driver.waiting[0].kind is Kind.FREE
    assert driver.answer() == [commands.TenureEnded(driver.row)]
    assert driver.row.owner is None


def test_an_end_during_a_take_that_fails() -> None:
    driver = Driver()
    driver.handle(events.EndTenure())
    driver.others(owner="w2", counter=4)
    assert driver.answer() == [commands.TakeFailed(driver.row)]


def test_a_tenure_is_abandoned_without_a_write() -> None:
    driver = held()
    assert driver.handle(events.AbandonTenure()) == []
    assert driver.waiting == []
    assert driver.tenure.state is State.OVER
    assert driver.row.owner == "w1"


def test_it_cannot_be_given_to_its_owner() -> None:
    with pytest.raises(ValueError, match="to its owner"):
        held().handle(events.EndTenure("w1"))


# --- the KCL 3.x's handoff ------------------------------------------------------------------------


def test_a_handoff_that_a_leader_asks_for_is_noticed_by_the_renewal_and_costs_nothing() -> None:
    driver = held()
    driver.cell.write(writes.ask_handoff(driver.row, "kcl"))
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    assert driver.answer() == [commands.HandoffAsked("kcl")]
    assert driver.answer() == [], "the renewal goes on with what was found"
    assert driver.tenure.may_deliver(driver.now_s)
    driver.handle(events.StoreCheckpoint(at(4), at_once=True))
    assert driver.answer() == [commands.CheckpointStored(at(4))]
    assert (driver.row.owner, driver.row.checkpoint_owner) == ("kcl", "w1")
    driver.handle(events.EndTenure("kcl"))
    assert driver.answer() == [commands.TenureEnded(driver.row)]
    assert (driver.row.owner, driver.row.checkpoint_owner, driver.row.switches) == ("kcl", None, 1)


def test_a_handoff_is_noticed_by_a_look_too_and_told_once() -> None:
    driver = held()
    driver.cell.write(writes.ask_handoff(driver.row, "kcl"))
    assert driver.handle(events.LeaseSeen(driver.row)) == [commands.HandoffAsked("kcl")]
    assert driver.handle(events.LeaseSeen(driver.row)) == []
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    assert driver.answer() == []


def test_a_handoff_that_a_look_shows_while_a_renewal_is_under_way_costs_nothing() -> None:
    """The renewal is refused for what is known by then. Repeated as it was, it would be so until the lease is lost."""
    driver = held()
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    driver.cell.write(writes.ask_handoff(driver.row, "kcl"))
    assert driver.handle(events.LeaseSeen(driver.row)) == [commands.HandoffAsked("kcl")]
    counter = driver.row.counter
    assert driver.answer() == []
    assert driver.answer() == []
    assert driver.row.counter == counter + 1
    assert driver.tenure.may_deliver(driver.now_s)


def test_a_handoff_that_is_asked_for_right_after_a_write_without_an_answer() -> None:
    driver = held()
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    driver.lose_answer(apply=True)
    driver.cell.write(writes.ask_handoff(driver.row, "kcl"))
    driver.handle(events.TimerFired(), after_s=TIMES.retry_s)
    assert driver.answer() == [commands.HandoffAsked("kcl")]
    assert driver.tenure.state is State.HELD


def test_a_handoff_that_is_asked_for_before_the_take_is_confirmed_is_told_when_it_has_begun() -> None:
    driver = Driver()
    driver.lose_answer(apply=True, after_s=0.25)
    driver.cell.write(writes.ask_handoff(driver.row, "kcl"))
    driver.answer()  # the take, once more: it is found made, which proves nothing of the time
    assert driver.said == []
    driver.answer()
    assert driver.said == [commands.TenureBegan(driver.row.counter, driver.row), commands.HandoffAsked("kcl")]


def test_a_handoff_that_is_asked_for_after_an_end_that_came_before_the_beginning_is_not_told() -> None:
    driver = Driver()
    driver.handle(events.EndTenure())
    driver.answer()  # the take; what is sent next frees the lease
    driver.cell.write(writes.ask_handoff(driver.row, "kcl"))
    driver.answer()
    assert driver.said == []
    driver.answer()
    assert [type(one) for one in driver.said] == [commands.TenureEnded]


def test_a_handoff_that_the_leader_has_forced_is_a_loss() -> None:
    driver = held()
    driver.cell.write(writes.ask_handoff(driver.row, "kcl"))
    driver.others(checkpoint_owner=None, counter=5)
    driver.handle(events.TimerFired(), after_s=TIMES.renew_interval_s)
    assert driver.answer() == [commands.LeaseLost(Loss.TAKEN, driver.row)]


def test_a_free_amid_a_handoff_leaves_the_lease_to_the_next_owner() -> None:
    driver = held()
    driver.cell.write(writes.ask_handoff(driver.row, "kcl"))
    driver.handle(events.EndTenure())
    assert driver.answer() == [commands.HandoffAsked("kcl")]
    assert driver.answer() == [commands.TenureEnded(driver.row)]
    assert (driver.row.owner, driver.row.checkpoint_owner) == ("kcl", None)


# --- writes as values -----------------------------------------------------------------------------


def test_what_is_not_known_is_resolved_by_the_row() -> None:
    row = replace(FREE, owner="w1")
    cell = Cell(row)
    write = writes.checkpoint(row, at(5))
    assert conditional_write.resolve(write, row) == Unknown("the row is as it was")
    assert conditional_write.resolve(write, replace(row, counter=4)) == Refused(replace(row, counter=4))
    assert conditional_write.resolve(write, None) == Refused(None)
    assert cell.write(write) == conditional_write.resolve(write, cell.row) == Done(cell.row)
    assert conditional_write.resolve(writes.delete(row), None) == Done(None)


def test_writes_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="no owner"):
        writes.ask_handoff(FREE, "w1")
    with pytest.raises(ValueError, match="needs parents, children or a hash range"):
        writes.metadata("a")


@pytest.mark.parametrize(
    "times",
    [{"failover_s": -1.0}, {"renew_interval_s": 9.5}, {"margin_s": 5.0}, {"unconfirmed_max_s": 9.0}],
)
def test_times_that_would_not_protect(times: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="_s"):
        LeaseTimes(**times)


def test_times_follow_the_failover_time() -> None:
    assert LeaseTimes.of(10.0) == LeaseTimes()
    assert LeaseTimes.of(2.0) == LeaseTimes(2.0, 1.0, 0.1, 0.05, 4.0)
