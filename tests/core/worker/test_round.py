"""What a worker does, step by step: rounds, and what happens between them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core import worker as rounds
from shardway.core.assignment.kcl.fleet import Fleet
from shardway.core.assignment.views import WorkerView
from shardway.core.handoff.owner import OwnerEvent, OwnerState
from shardway.core.handoff.receiver import ReceiverState
from shardway.core.leases import Checkpoint
from shardway.core.leases.membership import WorkerRow
from shardway.core.worker import (
    CREATE_MISSING,
    MEASURE,
    SHOW,
    STIR,
    Began,
    Deliver,
    Delivers,
    Discard,
    EndTenure,
    Follow,
    Freed,
    FreeRows,
    GaveUp,
    Inherited,
    KeepUp,
    LeaderNamed,
    LeaseSeen,
    Leave,
    LookAt,
    NotReadable,
    Over,
    OwnerLearnt,
    ReadAhead,
    Resume,
    Stop,
    Take,
    Unconfirmed,
    UpkeepOver,
    Warmed,
    WarmUp,
    Work,
    WorkersSeen,
    step,
)
from tests.core.worker.round_kit import F, key, mine_of, row, view_of
from tests.momentary import now

if TYPE_CHECKING:
    from shardway.core.leases import LeaseRow
    from shardway.core.worker import Action, Input, WorkerState

K = key(0)


def other(**more: Any) -> WorkerView:
    return WorkerView(id="other", failover_s=F, **more)


def said(mine: WorkerState, given: Input, now_s: float = 0.0) -> list[Action]:
    """What follows, without what each round says."""
    return [one for one in step(mine, given, now_s) if not isinstance(one, KeepUp) and one is not MEASURE]


def holding(*numbers: int, **more: Any) -> WorkerState:
    """A worker that holds leases."""
    mine = mine_of(**more)
    for number in numbers:
        step(mine, Delivers(key(number)), 0.0)
    return mine


def lease_seen(one: LeaseRow | None, sent_s: float, known: LeaseRow | None = None, **more: Any) -> LeaseSeen:
    lease = None if one is None else view_of([one]).leases[one.key]
    return LeaseSeen(key=K if one is None else one.key, row=one, lease=lease, known=known, sent_s=sent_s, **more)


# --- what is free ---------------------------------------------------------------------------------


def test_what_is_free_is_taken_and_held() -> None:
    mine = mine_of()
    assert said(mine, view_of([row(0), row(1)])) == [Take(key(0), False, None), Take(key(1), False, None)]
    assert (mine.claims, key(0) in mine) == ({key(0), key(1)}, True)
    assert said(mine, view_of([row(0), row(1)])) == []
    assert said(mine, Began(key(0), True)) == [SHOW]
    assert said(mine, Delivers(key(0))) == [Deliver(key(0)), SHOW, STIR]
    assert (mine.claims, {*mine.held}, {*mine.receiving}) == ({key(1)}, {key(0)}, {key(1)})
    assert mine.shown(0.0).held == {key(0)}


def test_a_take_that_was_not_applied_leaves_nothing_behind() -> None:
    mine = mine_of()
    said(mine, view_of([row(0)]))
    assert said(mine, Began(K, False)) == [SHOW, Discard(K)]
    assert said(mine, Over(K, row(0, "other"))) == [SHOW, STIR]
    assert (mine.claims, {*mine.receiving}, {*mine.held}) == (set(), set(), set())
    assert said(mine, view_of([row(0, "other")], [other()])) == []


def test_a_stream_without_leases_gets_them_before_anything_else() -> None:
    mine = mine_of()
    assert step(mine, view_of([row(0)], is_complete=False), 0.0) == [CREATE_MISSING]
    said(mine, Leave())
    assert CREATE_MISSING not in step(mine, view_of([row(0)], is_complete=False), 0.0)


def test_a_lease_with_its_name_is_taken_unless_another_process_has_it() -> None:
    mine = mine_of()
    assert said(mine, view_of([row(0, "me")])) == []
    assert said(mine, view_of([row(0, "me")], named=[K])) == [Take(K, False, None)]


def test_what_it_gave_up_is_left_to_others_for_a_while() -> None:
    mine = mine_of()
    assert said(mine, GaveUp(K, 5.0), 10.0) == [SHOW, STIR]
    assert mine.shown(10.0).avoids == {K}
    assert said(mine, view_of([row(0, "me")], named=[K]), 14.0) == []
    assert said(mine, view_of([row(0, "me")], named=[K]), 15.0) == [Take(K, False, None)]


def test_no_more_is_claimed_than_it_may_hold_of_the_children_of_its_shards() -> None:
    mine = holding(0, leases_max=1)
    said(mine, Inherited(key(1), True))
    rows = [row(0, "me"), row(1)]
    taken = view_of(rows, [other(leases_max=5)])
    assert Take(key(1), False, None) not in said(mine, taken)
    said(mine, Over(K, row(0, "me")))
    assert Take(key(1), False, None) in said(
        mine, view_of([row(0, "me", checkpoint=Checkpoint.parse("SHARD_END")), row(1)])
    )


# --- the children of a shard that has ended -------------------------------------------------------


def test_the_children_of_its_shard_are_taken_at_once_whatever_the_plan() -> None:
    mine = holding(0, 1, 2)
    assert said(mine, Inherited(key(3), True)) == [ReadAhead(key(3))]
    assert said(mine, Inherited(key(4), False)) == []
    held = [row(number, "me") for number in range(3)]
    parent = row(9, checkpoint=Checkpoint.parse("1"), owner="other")
    told = said(mine, view_of([*held, row(3), row(4, parents=frozenset({key(9)})), parent], [other()]))
    assert Take(key(3), False, None) in told
    assert Take(key(4), False, None) not in told, "its other parent is still read"


def test_a_child_that_another_worker_took_is_read_ahead_no_more() -> None:
    mine = mine_of()
    said(mine, Inherited(K, True))
    assert said(mine, view_of([row(0, "other")], [other()])) == [Discard(K)]
    assert mine.heirs == set()


# --- handing over ---------------------------------------------------------------------------------


def test_a_worker_that_leaves_hands_over_to_one_that_is_warm() -> None:
    mine, rows = holding(0), [row(0, "me")]
    assert said(mine, Leave()) == [SHOW, STIR]
    assert mine.shown(0.0).leaving
    assert said(mine, view_of(rows, [other()]), 1.0) == [SHOW]
    assert mine.shown(1.0).given == {K: "other"}
    assert (mine.looks_closely, mine.looks_often, mine.is_done) == (True, True, False)
    warm = other(wants=frozenset({K}), warm=frozenset({K}), process="1/other")
    assert said(mine, view_of(rows, [warm]), 2.0) == [Stop(K, 2.0 + mine.terms.drain_deadline_s)]
    assert said(mine, OwnerLearnt(K, OwnerEvent.DRAINED), 2.5) == [EndTenure(K, "other", "1/other")]
    assert mine.shown(2.5).given == {K: "other"}, "until the outcome of the write is known"
    assert said(mine, OwnerLearnt(K, OwnerEvent.ENDED), 3.0) == [SHOW]
    assert said(mine, Over(K, row(0, "other", counter=2)), 3.0) == [SHOW, STIR]
    assert mine.shown(3.0).given == {}
    assert mine.is_done


def test_a_worker_that_leaves_alone_frees_what_it_has() -> None:
    mine = holding(0)
    said(mine, Leave())
    assert said(mine, view_of([row(0, "me")])) == [Stop(K, mine.terms.drain_deadline_s)]
    assert said(mine, OwnerLearnt(K, OwnerEvent.DRAINED)) == [EndTenure(K, None, None)]


def test_what_another_worker_should_have_is_offered_when_it_asks() -> None:
    mine, rows = holding(0, 1), [row(0, "me"), row(1, "me")]
    assert said(mine, view_of(rows, [other()])) == []
    wants = other(wants=frozenset({key(0), key(1)}))
    assert said(mine, view_of(rows, [wants])) == [SHOW]
    assert len(mine.gives) == 1


def test_a_receiver_that_vanishes_is_no_end_of_delivering() -> None:
    mine, rows = holding(0), [row(0, "me")]
    said(mine, Leave())
    said(mine, view_of(rows, [other()]), 0.0)
    said(mine, view_of(rows, [other(warm=frozenset({K}))]), 1.0)
    assert mine.held[K].side.state is OwnerState.DRAINING
    third = WorkerView(id="third", failover_s=F)
    assert said(mine, view_of(rows, [other(leaving=True), third]), 1.5) == [SHOW, Resume(K)]
    assert said(mine, view_of(rows, [other(leaving=True), third]), 1.6) == [SHOW]
    assert mine.gives == {K: "third"}


def test_what_the_policies_give_up_goes_to_another_worker() -> None:
    mine = holding(0)
    assert said(mine, view_of([row(0, "me")], [other()], given_up=[K])) == [SHOW]
    assert mine.gives == {K: "other"}


def test_few_stop_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "STOPS_AT_ONCE", 2)
    mine, rows = holding(*range(5)), [row(number, "me") for number in range(5)]
    said(mine, Leave())
    said(mine, view_of(rows, [other()]), 0.0)
    warm = other(wants=frozenset(mine.held), warm=frozenset(mine.held))
    stops = [len(said(mine, view_of(rows, [warm]), now_s)) for now_s in (0.1, 0.2, 0.2 + rounds.STOP_COUNTS_S, 1.0)]
    assert stops == [2, 0, 2, 1]


def test_a_leader_that_names_the_next_owner_is_followed_without_waiting() -> None:
    mine = holding(0)
    assert said(mine, LeaderNamed(K, "kcl"), 1.0) == [Stop(K, 1.0 + mine.terms.drain_deadline_s)]
    assert said(mine, OwnerLearnt(K, OwnerEvent.DRAINED), 2.0) == [EndTenure(K, "kcl", None)]
    said(mine, Over(K, row(0, "kcl")))
    assert mine.given == {}, "it has no row that could be seen to go"


def test_what_a_leader_wants_handed_over_of_a_former_life_is_freed() -> None:
    mine = mine_of()
    one = row(0, "kcl", checkpoint_owner="me")
    assert said(mine, view_of([one], fleet=Fleet.KCL3)) == []
    assert said(mine, view_of([one], fleet=Fleet.KCL3, named=[K])) == [FreeRows([one])]


# --- what was given -------------------------------------------------------------------------------


def given_away() -> tuple[WorkerState, LeaseRow]:
    mine, rows = holding(0), [row(0, "me")]
    said(mine, Leave())
    said(mine, view_of(rows, [other()]), 0.0)
    said(mine, view_of(rows, [other(warm=frozenset({K}))]), 1.0)
    said(mine, OwnerLearnt(K, OwnerEvent.DRAINED), 1.0)
    given = row(0, "other", counter=7)
    said(mine, Over(K, given), 1.0)
    assert mine.given == {K: given}
    return mine, given


def test_what_was_given_to_a_worker_that_left_is_freed() -> None:
    mine, given = given_away()
    there = {"other": WorkerRow(worker_id="other", failover_s=F)}
    assert said(mine, WorkersSeen([K], there, {K: given})) == []
    assert said(mine, WorkersSeen([], {}, {K: given})) == [], "the look is older than the give"
    assert said(mine, WorkersSeen([K], {}, {K: given})) == [FreeRows([given])]
    assert mine.given, "a free that fails is made again"
    assert said(mine, Freed([K])) == []
    assert mine.given == {}


@pytest.mark.parametrize("sign", ["it has written", "it says so", "the lease is gone"])
def test_a_receiver_that_was_seen_to_begin_is_not_watched_any_more(sign: str) -> None:
    mine, given = given_away()
    holds = WorkerRow(worker_id="other", failover_s=F, held=frozenset({K} if sign == "it says so" else ()))
    leases = {} if sign == "the lease is gone" else {K: replace(given, counter=8 if sign == "it has written" else 7)}
    assert said(mine, WorkersSeen([K], {"other": holds}, leases)) == []
    assert mine.given == {}


# --- receiving ------------------------------------------------------------------------------------


NAMES_ME = other(gives={K: "me"})


def warm() -> WorkerState:
    """A worker that an owner has named, and that has warmed up."""
    mine = mine_of()
    assert said(mine, view_of([row(0, "other")], [NAMES_ME]), 1.0) == [SHOW, WarmUp(K), LookAt(K)]
    assert said(mine, lease_seen(row(0, "other"), 1.1), 1.2) == [Follow(K, row(0).checkpoint)]
    assert said(mine, Warmed(K), 1.5) == [SHOW, STIR]
    assert mine.shown(1.5).warm == {K}
    return mine


def test_a_lease_that_is_given_is_read_without_a_write_once_it_is_here() -> None:
    mine = warm()
    told = said(mine, lease_seen(row(0, "me", counter=2), 2.0), 2.1)
    assert told == [Follow(K, row(0).checkpoint), Take(K, True, 1.1)]
    said(mine, Began(K, True))
    assert (mine.wanted, mine.warm) == (set(), set())


def test_one_that_is_named_no_more_looks_before_it_lets_go_of_the_lease() -> None:
    mine = warm()
    assert said(mine, view_of([row(0, "other")], [other()]), 2.0) == [STIR, LookAt(K)]
    assert said(mine, lease_seen(row(0, "other"), 1.9), 2.1)[1:] == [], "the look was sent before"
    assert said(mine, lease_seen(row(0, "other"), 2.0), 2.1)[1:] == [SHOW, Discard(K)]
    assert mine.receiving == {}


def test_a_worker_that_leaves_answers_no_offer_and_looks_until_the_lease_cannot_come() -> None:
    mine = warm()
    said(mine, Leave())
    assert said(mine, view_of([row(0, "other")], [NAMES_ME]), 2.0) == [SHOW, Discard(K), LookAt(K)]
    assert mine.receiving[K].state is ReceiverState.LETTING_GO
    assert not now(mine.is_done)
    assert said(mine, view_of([row(0, "other")], [other()]), 3.0) == [STIR, LookAt(K)]
    said(mine, lease_seen(row(0, "other"), 3.0), 3.1)
    assert mine.is_done
    assert said(mine, view_of([row(0, "other")], [NAMES_ME]), 4.0) == []


def test_what_cannot_be_read_ahead_is_left_to_its_owner() -> None:
    mine = warm()
    assert said(mine, NotReadable(K), 2.0) == [SHOW, SHOW, Discard(K)]
    assert mine.shown(2.0).avoids == {K}
    said(mine, view_of([row(0, "other")], [other()]), 2.5)
    said(mine, lease_seen(row(0, "other"), 2.5), 2.6)
    assert said(mine, view_of([row(0, "other")], [NAMES_ME]), 3.0) == [], "it is refused for the failover time"
    assert said(mine, view_of([row(0, "other")], [NAMES_ME]), 2.0 + F) == [SHOW, WarmUp(K), LookAt(K)]


def test_an_owner_that_falls_silent_is_succeeded_unless_its_lease_has_moved() -> None:
    mine = warm()
    silent = replace(NAMES_ME, alive=False)
    assert said(mine, view_of([row(0, "other")], [silent]), 20.0) == [LookAt(K)]
    moved = lease_seen(row(0, "other", counter=2), 20.0, known=row(0, "other"))
    assert said(mine, moved, 20.1)[1:] == []
    stands = lease_seen(row(0, "other"), 20.2, known=row(0, "other"))
    assert said(mine, stands, 20.3)[1:] == [Take(K, False, None)]


def test_a_lease_that_is_gone_is_not_waited_for() -> None:
    mine = warm()
    assert said(mine, lease_seen(None, 2.0), 2.1) == [SHOW, Discard(K)]
    assert not mine.waits


def test_many_awaited_leases_are_looked_at_by_one_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "READS_MAX", 0)
    mine = mine_of()
    owner = other(gives={key(0): "me", key(1): "me"})
    rows = [row(0, "other"), row(1, "other")]
    looks = [one for one in said(mine, view_of(rows, [owner]), 1.0) if isinstance(one, LookAt)]
    assert {one.key for one in looks} == {key(0), key(1)}
    assert mine.waits_for_many(2)
    came = [row(0, "me", counter=2), row(1, "other")]
    told = said(mine, view_of(came, [owner], scan_sent_s=1.5), 1.6)
    assert told == [Follow(key(1), rows[1].checkpoint), Follow(key(0), rows[0].checkpoint), Take(key(0), False, None)]
    told = said(mine, view_of(came, [owner], scan_sent_s=1.5), 1.7)
    assert told == [LookAt(key(1))], "a scan serves one round"


def test_beside_kcl_2x_workers_one_lease_is_stolen_at_a_time() -> None:
    mine = mine_of()
    rows = [row(number, "kcl") for number in range(4)]
    stolen = said(mine, view_of(rows, fleet=Fleet.KCL2, robbed=[one.key for one in rows]))
    assert len(stolen) == 1
    assert mine.stolen == mine.claims != set()
    assert said(mine, view_of(rows, fleet=Fleet.KCL2, robbed=[one.key for one in rows])) == []


# --- writes that fail, upkeep ---------------------------------------------------------------------


def test_a_worker_that_could_not_write_leaves_its_leases_to_others_for_the_failover_time() -> None:
    mine = mine_of()
    said(mine, Unconfirmed(), 1.0)
    assert said(mine, view_of([row(0)]), 2.0) == [Take(K, False, None)], "there are no others"
    assert said(mine, view_of([row(1)], [other()]), 2.0) == [SHOW]
    assert mine.shown(2.0).leaving
    assert not mine.leaving
    assert SHOW in said(mine, view_of([row(1)], [other()]), 1.0 + F)
    assert not mine.shown(1.0 + F).leaving


def upkeep(mine: WorkerState, now_s: float, *workers: WorkerView, **more: Any) -> list[Action]:
    return [one for one in step(mine, view_of([row(0, "me")], workers, **more), now_s) if isinstance(one, KeepUp)]


def test_missing_leases_are_searched_once_and_then_one_worker_cleans_up() -> None:
    mine, first = holding(0), WorkerView(id="a")
    assert upkeep(mine, 0.0) == [KeepUp(Work.SEARCH)]
    assert upkeep(mine, 100.0) == [], "one at a time"
    step(mine, UpkeepOver(Work.SEARCH, failed=False), 100.0)
    assert upkeep(mine, 100.0, first) == [], "the first of them does it"
    assert upkeep(mine, 100.0, replace(first, alive=False)) == [KeepUp(Work.CLEAN)]
    step(mine, UpkeepOver(Work.CLEAN, failed=False), 101.0)
    assert upkeep(mine, 100.0 + 59.0) == []
    assert upkeep(mine, 100.0 + 60.0) == [KeepUp(Work.CLEAN)]


def test_upkeep_that_failed_is_done_again_soon() -> None:
    mine = holding(0)
    assert upkeep(mine, 0.0, has_gone=True) == [KeepUp(Work.GONE)]
    step(mine, UpkeepOver(Work.GONE, failed=True), 1.0)
    assert upkeep(mine, F, has_gone=True) == []
    assert upkeep(mine, 1.0 + F, has_gone=True) == [KeepUp(Work.GONE)]
    step(mine, UpkeepOver(Work.GONE, failed=False), 1.0 + F)
    assert upkeep(mine, 1.0 + F) == [KeepUp(Work.SEARCH)]
