"""What a worker does, step by step: rounds, and what happens between them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.assignment.kcl.fleet import Fleet
from shardway.core.assignment.views import WorkerView
from shardway.core.handoff.owner import OwnerEvent, OwnerState
from shardway.core.handoff.receiver import ReceiverState
from shardway.core.leases import Checkpoint
from shardway.core.leases.worker_row import WorkerRow
from shardway.core.worker import actions, events, held, state
from shardway.core.worker.machine import step
from shardway.core.worker.state import Work
from tests.core.worker.round_kit import F, key, row, view_of, worker_of
from tests.momentary import now

if TYPE_CHECKING:
    from shardway.core.leases import LeaseRow
    from shardway.core.worker.state import WorkerState

K = key(0)
PUBLISH, WAKE = actions.PublishRow(), actions.Wake()


def other(**more: Any) -> WorkerView:
    return WorkerView(id="other", failover_s=F, **more)


def follows(worker: WorkerState, event: events.Event, now_s: float = 0.0) -> list[actions.Action]:
    """What follows, without what each round says."""
    return [one for one in step(worker, event, now_s) if not isinstance(one, actions.KeepUp | actions.Measure)]


def holding(*numbers: int, **more: Any) -> WorkerState:
    """A worker that holds leases."""
    worker = worker_of(**more)
    for number in numbers:
        step(worker, events.ReadingBegan(key(number)), 0.0)
    return worker


def lease_seen(one: LeaseRow | None, sent_s: float, known: LeaseRow | None = None, **more: Any) -> events.LeaseSeen:
    lease = None if one is None else view_of([one]).leases[one.key]
    return events.LeaseSeen(key=K if one is None else one.key, row=one, lease=lease, known=known, sent_s=sent_s, **more)


# --- what is free ---------------------------------------------------------------------------------


def test_what_is_free_is_taken_and_held() -> None:
    worker = worker_of()
    assert follows(worker, view_of([row(0), row(1)])) == [
        actions.Take(key(0), False, None),
        actions.Take(key(1), False, None),
    ]
    assert (worker.claims, key(0) in worker) == ({key(0), key(1)}, True)
    assert follows(worker, view_of([row(0), row(1)])) == []
    assert follows(worker, events.TakeAnswered(key(0), True)) == [PUBLISH]
    assert follows(worker, events.ReadingBegan(key(0))) == [actions.Deliver(key(0)), PUBLISH, WAKE]
    assert (worker.claims, {*worker.held}, {*worker.receiving}) == ({key(1)}, {key(0)}, {key(1)})
    assert worker.row(0.0).held == {key(0)}


def test_a_take_that_was_not_applied_leaves_nothing_behind() -> None:
    worker = worker_of()
    follows(worker, view_of([row(0)]))
    assert follows(worker, events.TakeAnswered(K, False)) == [PUBLISH, actions.Discard(K)]
    assert follows(worker, events.TenureOver(K, row(0, "other"))) == [PUBLISH, WAKE]
    assert (worker.claims, {*worker.receiving}, {*worker.held}) == (set(), set(), set())
    assert follows(worker, view_of([row(0, "other")], [other()])) == []


def test_a_stream_without_leases_gets_them_before_anything_else() -> None:
    worker = worker_of()
    assert step(worker, view_of([row(0)], is_complete=False), 0.0) == [actions.CreateMissing()]
    follows(worker, events.LeaveAsked())
    assert actions.CreateMissing() not in step(worker, view_of([row(0)], is_complete=False), 0.0)


def test_a_lease_with_its_name_is_taken_unless_another_process_has_it() -> None:
    worker = worker_of()
    assert follows(worker, view_of([row(0, "me")])) == []
    assert follows(worker, view_of([row(0, "me")], named=[K])) == [actions.Take(K, False, None)]


def test_what_it_gave_up_is_left_to_others_for_a_while() -> None:
    worker = worker_of()
    assert follows(worker, events.LeaseGivenUp(K, 5.0), 10.0) == [PUBLISH, WAKE]
    assert worker.row(10.0).avoids == {K}
    assert follows(worker, view_of([row(0, "me")], named=[K]), 14.0) == []
    assert follows(worker, view_of([row(0, "me")], named=[K]), 15.0) == [actions.Take(K, False, None)]


def test_no_more_is_claimed_than_it_may_hold_of_the_children_of_its_shards() -> None:
    worker = holding(0, leases_max=1)
    follows(worker, events.ChildFound(key(1), True))
    rows = [row(0, "me"), row(1)]
    taken = view_of(rows, [other(leases_max=5)])
    assert actions.Take(key(1), False, None) not in follows(worker, taken)
    follows(worker, events.TenureOver(K, row(0, "me")))
    assert actions.Take(key(1), False, None) in follows(
        worker, view_of([row(0, "me", checkpoint=Checkpoint.parse("SHARD_END")), row(1)])
    )


# --- the children of a shard that has ended -------------------------------------------------------


def test_the_children_of_its_shard_are_taken_at_once_whatever_the_plan() -> None:
    worker = holding(0, 1, 2)
    assert follows(worker, events.ChildFound(key(3), True)) == [actions.ReadAhead(key(3))]
    assert follows(worker, events.ChildFound(key(4), False)) == []
    held = [row(number, "me") for number in range(3)]
    parent = row(9, checkpoint=Checkpoint.parse("1"), owner="other")
    found = follows(worker, view_of([*held, row(3), row(4, parents=frozenset({key(9)})), parent], [other()]))
    assert actions.Take(key(3), False, None) in found
    assert actions.Take(key(4), False, None) not in found, "its other parent is still read"


def test_a_child_that_another_worker_took_is_read_ahead_no_more() -> None:
    worker = worker_of()
    follows(worker, events.ChildFound(K, True))
    assert follows(worker, view_of([row(0, "other")], [other()])) == [actions.Discard(K)]
    assert worker.heirs == set()


# --- handing over ---------------------------------------------------------------------------------


def test_a_worker_that_leaves_hands_over_to_one_that_is_warm() -> None:
    worker, rows = holding(0), [row(0, "me")]
    assert follows(worker, events.LeaveAsked()) == [PUBLISH, WAKE]
    assert worker.row(0.0).leaving
    assert follows(worker, view_of(rows, [other()]), 1.0) == [PUBLISH]
    assert worker.row(1.0).given == {K: "other"}
    assert (worker.looks_closely, worker.looks_often, worker.is_done) == (True, True, False)
    warm = other(wants=frozenset({K}), warm=frozenset({K}), process="1/other")
    assert follows(worker, view_of(rows, [warm]), 2.0) == [
        actions.StopDelivering(K, 2.0 + worker.terms.drain_deadline_s)
    ]
    assert follows(worker, events.OwnerSideLearned(K, OwnerEvent.DRAINED), 2.5) == [
        actions.EndTenure(K, "other", "1/other")
    ]
    assert worker.row(2.5).given == {K: "other"}, "until the outcome of the write is known"
    assert follows(worker, events.OwnerSideLearned(K, OwnerEvent.ENDED), 3.0) == [PUBLISH]
    assert follows(worker, events.TenureOver(K, row(0, "other", counter=2)), 3.0) == [PUBLISH, WAKE]
    assert worker.row(3.0).given == {}
    assert worker.is_done


def test_a_worker_that_leaves_alone_frees_what_it_has() -> None:
    worker = holding(0)
    follows(worker, events.LeaveAsked())
    assert follows(worker, view_of([row(0, "me")])) == [actions.StopDelivering(K, worker.terms.drain_deadline_s)]
    assert follows(worker, events.OwnerSideLearned(K, OwnerEvent.DRAINED)) == [actions.EndTenure(K, None, None)]


def test_what_another_worker_should_have_is_offered_when_it_asks() -> None:
    worker, rows = holding(0, 1), [row(0, "me"), row(1, "me")]
    assert follows(worker, view_of(rows, [other()])) == []
    wants = other(wants=frozenset({key(0), key(1)}))
    assert follows(worker, view_of(rows, [wants])) == [PUBLISH]
    assert len(worker.gives) == 1


def test_a_receiver_that_vanishes_is_no_end_of_delivering() -> None:
    worker, rows = holding(0), [row(0, "me")]
    follows(worker, events.LeaveAsked())
    follows(worker, view_of(rows, [other()]), 0.0)
    follows(worker, view_of(rows, [other(warm=frozenset({K}))]), 1.0)
    assert worker.held[K].side.state is OwnerState.DRAINING
    third = WorkerView(id="third", failover_s=F)
    assert follows(worker, view_of(rows, [other(leaving=True), third]), 1.5) == [
        PUBLISH,
        actions.ResumeDelivering(K),
    ]
    assert follows(worker, view_of(rows, [other(leaving=True), third]), 1.6) == [PUBLISH]
    assert worker.gives == {K: "third"}


def test_what_the_policies_give_up_goes_to_another_worker() -> None:
    worker = holding(0)
    assert follows(worker, view_of([row(0, "me")], [other()], given_up=[K])) == [PUBLISH]
    assert worker.gives == {K: "other"}


def test_few_stop_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "STOPS_AT_ONCE", 2)
    worker, rows = holding(*range(5)), [row(number, "me") for number in range(5)]
    follows(worker, events.LeaveAsked())
    follows(worker, view_of(rows, [other()]), 0.0)
    warm = other(wants=frozenset(worker.held), warm=frozenset(worker.held))
    stops = [len(follows(worker, view_of(rows, [warm]), now_s)) for now_s in (0.1, 0.2, 0.2 + held.STOP_COUNTS_S, 1.0)]
    assert stops == [2, 0, 2, 1]


def test_a_leader_that_names_the_next_owner_is_followed_without_waiting() -> None:
    worker = holding(0)
    assert follows(worker, events.LeaderNamedReceiver(K, "kcl"), 1.0) == [
        actions.StopDelivering(K, 1.0 + worker.terms.drain_deadline_s)
    ]
    assert follows(worker, events.OwnerSideLearned(K, OwnerEvent.DRAINED), 2.0) == [actions.EndTenure(K, "kcl", None)]
    follows(worker, events.TenureOver(K, row(0, "kcl")))
    assert worker.given == {}, "it has no row that could be seen to go"


def test_what_a_leader_wants_handed_over_of_a_former_life_is_freed() -> None:
    worker = worker_of()
    one = row(0, "kcl", checkpoint_owner="me")
    assert follows(worker, view_of([one], fleet=Fleet.KCL3)) == []
    assert follows(worker, view_of([one], fleet=Fleet.KCL3, named=[K])) == [actions.FreeRows([one])]


# --- what was given -------------------------------------------------------------------------------


def given_away() -> tuple[WorkerState, LeaseRow]:
    worker, rows = holding(0), [row(0, "me")]
    follows(worker, events.LeaveAsked())
    follows(worker, view_of(rows, [other()]), 0.0)
    follows(worker, view_of(rows, [other(warm=frozenset({K}))]), 1.0)
    follows(worker, events.OwnerSideLearned(K, OwnerEvent.DRAINED), 1.0)
    given = row(0, "other", counter=7)
    follows(worker, events.TenureOver(K, given), 1.0)
    assert worker.given == {K: given}
    return worker, given


def test_what_was_given_to_a_worker_that_left_is_freed() -> None:
    worker, given = given_away()
    there = {"other": WorkerRow(worker_id="other", failover_s=F)}
    assert follows(worker, events.WorkersSeen([K], there, {K: given})) == []
    assert follows(worker, events.WorkersSeen([], {}, {K: given})) == [], "the look is older than the give"
    assert follows(worker, events.WorkersSeen([K], {}, {K: given})) == [actions.FreeRows([given])]
    assert worker.given, "a free that fails is made again"
    assert follows(worker, events.RowsFreed([K])) == []
    assert worker.given == {}


@pytest.mark.parametrize("sign", ["it has written", "it says so", "the lease is gone"])
def test_a_receiver_that_was_seen_to_begin_is_not_watched_any_more(sign: str) -> None:
    worker, given = given_away()
    holds = WorkerRow(worker_id="other", failover_s=F, held=frozenset({K} if sign == "it says so" else ()))
    leases = {} if sign == "the lease is gone" else {K: replace(given, counter=8 if sign == "it has written" else 7)}
    assert follows(worker, events.WorkersSeen([K], {"other": holds}, leases)) == []
    assert worker.given == {}


# --- receiving ------------------------------------------------------------------------------------


NAMES_ME = other(gives={K: "me"})


def warm() -> WorkerState:
    """A worker that an owner has named, and that has warmed up."""
    worker = worker_of()
    assert follows(worker, view_of([row(0, "other")], [NAMES_ME]), 1.0) == [
        PUBLISH,
        actions.WarmUp(K),
        actions.LookAt(K),
    ]
    assert follows(worker, lease_seen(row(0, "other"), 1.1), 1.2) == [actions.Follow(K, row(0).checkpoint)]
    assert follows(worker, events.WarmUpDone(K), 1.5) == [PUBLISH, WAKE]
    assert worker.row(1.5).warm == {K}
    return worker


def test_a_lease_that_is_given_is_read_without_a_write_once_it_is_here() -> None:
    worker = warm()
    found = follows(worker, lease_seen(row(0, "me", counter=2), 2.0), 2.1)
    assert found == [actions.Follow(K, row(0).checkpoint), actions.Take(K, True, 1.1)]
    follows(worker, events.TakeAnswered(K, True))
    assert (worker.wanted, worker.warm) == (set(), set())


def test_one_that_is_named_no_more_looks_before_it_lets_go_of_the_lease() -> None:
    worker = warm()
    assert follows(worker, view_of([row(0, "other")], [other()]), 2.0) == [WAKE, actions.LookAt(K)]
    assert follows(worker, lease_seen(row(0, "other"), 1.9), 2.1)[1:] == [], "the look was sent before"
    assert follows(worker, lease_seen(row(0, "other"), 2.0), 2.1)[1:] == [PUBLISH, actions.Discard(K)]
    assert worker.receiving == {}


def test_a_worker_that_leaves_answers_no_offer_and_looks_until_the_lease_cannot_come() -> None:
    worker = warm()
    follows(worker, events.LeaveAsked())
    assert follows(worker, view_of([row(0, "other")], [NAMES_ME]), 2.0) == [
        PUBLISH,
        actions.Discard(K),
        actions.LookAt(K),
    ]
    assert worker.receiving[K].state is ReceiverState.LETTING_GO
    assert not now(worker.is_done)
    assert follows(worker, view_of([row(0, "other")], [other()]), 3.0) == [WAKE, actions.LookAt(K)]
    follows(worker, lease_seen(row(0, "other"), 3.0), 3.1)
    assert worker.is_done
    assert follows(worker, view_of([row(0, "other")], [NAMES_ME]), 4.0) == []


def test_what_cannot_be_read_ahead_is_left_to_its_owner() -> None:
    worker = warm()
    assert follows(worker, events.WarmUpFailed(K), 2.0) == [PUBLISH, PUBLISH, actions.Discard(K)]
    assert worker.row(2.0).avoids == {K}
    follows(worker, view_of([row(0, "other")], [other()]), 2.5)
    follows(worker, lease_seen(row(0, "other"), 2.5), 2.6)
    assert follows(worker, view_of([row(0, "other")], [NAMES_ME]), 3.0) == [], "it is refused for the failover time"
    assert follows(worker, view_of([row(0, "other")], [NAMES_ME]), 2.0 + F) == [
        PUBLISH,
        actions.WarmUp(K),
        actions.LookAt(K),
    ]


def test_an_owner_that_falls_silent_is_succeeded_unless_its_lease_has_moved() -> None:
    worker = warm()
    silent = replace(NAMES_ME, alive=False)
    assert follows(worker, view_of([row(0, "other")], [silent]), 20.0) == [actions.LookAt(K)]
    moved = lease_seen(row(0, "other", counter=2), 20.0, known=row(0, "other"))
    assert follows(worker, moved, 20.1)[1:] == []
    stands = lease_seen(row(0, "other"), 20.2, known=row(0, "other"))
    assert follows(worker, stands, 20.3)[1:] == [actions.Take(K, False, None)]


def test_a_lease_that_is_gone_is_not_waited_for() -> None:
    worker = warm()
    assert follows(worker, lease_seen(None, 2.0), 2.1) == [PUBLISH, actions.Discard(K)]
    assert not worker.waits


def test_many_awaited_leases_are_looked_at_by_one_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "READS_MAX", 0)
    worker = worker_of()
    owner = other(gives={key(0): "me", key(1): "me"})
    rows = [row(0, "other"), row(1, "other")]
    looks = [one for one in follows(worker, view_of(rows, [owner]), 1.0) if isinstance(one, actions.LookAt)]
    assert {one.key for one in looks} == {key(0), key(1)}
    assert worker.waits_for_many(2)
    came = [row(0, "me", counter=2), row(1, "other")]
    found = follows(worker, view_of(came, [owner], scan_sent_s=1.5), 1.6)
    assert found == [
        actions.Follow(key(1), rows[1].checkpoint),
        actions.Follow(key(0), rows[0].checkpoint),
        actions.Take(key(0), False, None),
    ]
    found = follows(worker, view_of(came, [owner], scan_sent_s=1.5), 1.7)
    assert found == [actions.LookAt(key(1))], "a scan serves one round"


def test_beside_kcl_2x_workers_one_lease_is_stolen_at_a_time() -> None:
    worker = worker_of()
    rows = [row(number, "kcl") for number in range(4)]
    stolen = follows(worker, view_of(rows, fleet=Fleet.KCL2, robbed=[one.key for one in rows]))
    assert len(stolen) == 1
    assert worker.stolen == worker.claims != set()
    assert follows(worker, view_of(rows, fleet=Fleet.KCL2, robbed=[one.key for one in rows])) == []


# --- writes that fail, upkeep ---------------------------------------------------------------------


def test_a_worker_that_could_not_write_leaves_its_leases_to_others_for_the_failover_time() -> None:
    worker = worker_of()
    follows(worker, events.LeaseUnconfirmed(), 1.0)
    assert follows(worker, view_of([row(0)]), 2.0) == [actions.Take(K, False, None)], "there are no others"
    assert follows(worker, view_of([row(1)], [other()]), 2.0) == [PUBLISH]
    assert worker.row(2.0).leaving
    assert not worker.leaving
    assert PUBLISH in follows(worker, view_of([row(1)], [other()]), 1.0 + F)
    assert not worker.row(1.0 + F).leaving


def upkeep(worker: WorkerState, now_s: float, *workers: WorkerView, **more: Any) -> list[actions.Action]:
    return [
        one for one in step(worker, view_of([row(0, "me")], workers, **more), now_s) if isinstance(one, actions.KeepUp)
    ]


def test_missing_leases_are_searched_once_and_then_one_worker_cleans_up() -> None:
    worker, first = holding(0), WorkerView(id="a")
    assert upkeep(worker, 0.0) == [actions.KeepUp(Work.SEARCH)]
    assert upkeep(worker, 100.0) == [], "one at a time"
    step(worker, events.UpkeepDone(Work.SEARCH, failed=False), 100.0)
    assert upkeep(worker, 100.0, first) == [], "the first of them does it"
    assert upkeep(worker, 100.0, replace(first, alive=False)) == [actions.KeepUp(Work.CLEAN)]
    step(worker, events.UpkeepDone(Work.CLEAN, failed=False), 101.0)
    assert upkeep(worker, 100.0 + 59.0) == []
    assert upkeep(worker, 100.0 + 60.0) == [actions.KeepUp(Work.CLEAN)]


def test_upkeep_that_failed_is_done_again_soon() -> None:
    worker = holding(0)
    assert upkeep(worker, 0.0, has_gone=True) == [actions.KeepUp(Work.GONE)]
    step(worker, events.UpkeepDone(Work.GONE, failed=True), 1.0)
    assert upkeep(worker, F, has_gone=True) == []
    assert upkeep(worker, 1.0 + F, has_gone=True) == [actions.KeepUp(Work.GONE)]
    step(worker, events.UpkeepDone(Work.GONE, failed=False), 1.0 + F)
    assert upkeep(worker, 1.0 + F) == [actions.KeepUp(Work.SEARCH)]
