"""Whole fleets in virtual time: no shard is delivered by two, planned moves leave a gap of a moment, and it heals."""

from collections import Counter
from random import Random

import pytest

from shardway.core.handoff import receiver
from shardway.core.handoff.receiver import RECEIVER, ReceiverCommand, ReceiverEvent, ReceiverState
from shardway.core.leases.tenure.machine import receive
from shardway.core.leases.tenure.state import State, Tenure
from shardway.core.worker import awaited
from tests.core.handoff import handoff_fleet
from tests.core.handoff.handoff_fleet import TICK_S, F, Fleet, states


def settled(fleet: Fleet) -> Counter[str]:
    return Counter(owner for node in fleet.workers if not node.gone for owner in [node.id] for _ in node.state.held)


def at_rest(fleet: Fleet, worker_count: int) -> None:
    """All shards are delivered, by as many as can be, and nothing moves."""
    present = [node for node in fleet.workers if not node.gone and not node.leaving]
    assert len(present) == worker_count
    before = [node.moves for node in present]
    fleet.run(3 * F)
    assert [node.moves for node in present] == before, "leases move though nothing happens"
    held = settled(fleet)
    delivered = {key for node in present for key in node.delivers(fleet.now_s)}
    assert delivered == set(fleet.leases), states(fleet)
    assert max(held.values()) - min(held[node.id] for node in present) <= 1
    for node in present:
        row = node.state.row(fleet.now_s)
        assert (row.wanted, row.warm, dict(row.given)) == (frozenset(), frozenset(), {})


def started(seed: int, leases: int, workers: int) -> Fleet:
    fleet = Fleet(Random(seed), leases)
    for _ in range(workers):
        fleet.join()
    return fleet


@pytest.mark.parametrize("seed", range(3))
def test_workers_that_join_and_leave_one_by_one(seed: int) -> None:
    """A rolling deploy: each new worker starts, then an old one stops."""
    fleet = started(seed, 8, 4)
    fleet.run(2 * F)
    at_rest(fleet, 4)
    fleet.gaps.clear()
    for number in range(4):
        fleet.join()
        fleet.run(1.5 * F)
        fleet.workers[number].leave()
        fleet.run(1.5 * F)
        assert fleet.workers[number].gone
    at_rest(fleet, 4)
    assert fleet.gaps
    assert max(gap for gap, *_ in fleet.gaps) < 0.6, "the drain takes up to 0.2, a look at the row up to 0.1"


def test_blue_green() -> None:
    fleet = started(1, 8, 4)
    fleet.run(2 * F)
    fleet.gaps.clear()
    for _ in range(4):
        fleet.join()
    fleet.run(F)
    for node in fleet.workers[:4]:
        node.leave()
    fleet.run(2 * F)
    assert all(node.gone for node in fleet.workers[:4])
    at_rest(fleet, 4)
    assert max(gap for gap, *_ in fleet.gaps) < 0.6


def test_a_spare_that_holds_nothing_gets_what_the_last_owner_leaves() -> None:
    fleet = started(1, 1, 2)
    fleet.run(2 * F)
    (owner,) = [node for node in fleet.workers if node.state.held]
    owner.leave()
    fleet.run(F)
    assert owner.gone
    at_rest(fleet, 1)
    assert fleet.gaps[-1][0] < 0.6


def test_the_last_one_frees_its_rows_and_the_next_starts_at_once() -> None:
    fleet = started(1, 4, 1)
    fleet.run(2 * F)
    fleet.workers[0].leave()
    fleet.run(F)
    assert fleet.workers[0].gone
    assert {row.owner for row in fleet.leases.values()} == {None}
    fleet.join()
    fleet.run(1.0)
    assert len(fleet.workers[1].delivers(fleet.now_s)) == 4


def test_a_dead_worker_is_taken_over_after_the_failover_time() -> None:
    fleet = started(1, 8, 4)
    fleet.run(2 * F)
    fleet.gaps.clear()
    fleet.workers[0].gone = True
    fleet.run(1.5 * F)
    at_rest(fleet, 3)
    assert len(fleet.gaps) >= 2
    taken = [gap for gap, _, last, _ in fleet.gaps if last == fleet.workers[0].id]
    assert min(taken) > F * 0.7
    assert max(taken) < F + 1.0


@pytest.mark.parametrize("cut", [("leases",), ("workers",), ("leases", "workers")], ids=str)
def test_a_worker_that_cannot_write_any_more_stops_and_others_take_over(cut: tuple[str, ...]) -> None:
    fleet = started(1, 8, 4)
    fleet.run(2 * F)
    fleet.gaps.clear()
    victim = fleet.workers[0]
    victim.cut, victim.cut_until_s = cut, float("inf")
    fleet.run(F)
    assert victim.delivers(fleet.now_s) == []
    fleet.run((3 if cut == ("leases",) else 1) * F)
    taken = [gap for gap, _, last, _ in fleet.gaps if last == victim.id]
    assert len(taken) == 2
    if "workers" in cut:  # else it tries again, once it has left its leases to others for the failover time
        fleet.gaps.clear()
        fleet.run(3 * F)
        assert fleet.gaps == [], "it gets nothing that it could not keep"


def test_a_worker_whose_leases_cannot_be_written_gets_none_for_a_while() -> None:
    fleet = started(1, 8, 4)
    fleet.run(2 * F)
    victim = fleet.workers[0]
    victim.cut, victim.cut_until_s = ("leases",), float("inf")
    while not victim.state.retreats:
        fleet.run(TICK_S)
    moves, until_s = victim.moves, victim.state.retreats_until_s
    fleet.run(until_s - fleet.now_s - TICK_S)
    assert victim.state.retreats
    assert victim.moves == moves


# 84, 240: tenures that were received and had to be claimed after all.
@pytest.mark.parametrize("seed", [*range(10), 84, 240])
def test_pauses_crashes_losses_joins_and_leaves(seed: int) -> None:
    rng = Random(seed)
    fleet = started(seed, rng.randrange(1, 7), rng.randrange(1, 4))
    fleet.loss = rng.choice([0.0, 0.02, 0.2])
    for _ in range(25):
        fleet.run(rng.uniform(0.0, F))
        present = [node for node in fleet.workers if not node.gone and not node.leaving]
        chosen = rng.choice(present) if present else None
        happens = rng.choice(["pause", "pause", "cut", "steal", "crash", "join", "leave", "nothing"])
        if happens == "pause" and chosen:
            chosen.paused_until_s = fleet.now_s + rng.choice([0.1, 1.0, 1.0, F, 2.5 * F])
        elif happens == "cut" and chosen:
            chosen.cut = rng.choice([("leases",), ("workers",), ("leases", "workers")])
            chosen.cut_until_s = fleet.now_s + rng.uniform(0.0, 4 * F)
        elif happens == "steal":
            fleet.steal(rng.choice(list(fleet.leases)), rng.uniform(0.0, 3 * F))
        elif happens == "crash" and chosen and len(present) > 1:
            chosen.gone = True
        elif happens == "leave" and chosen and len(present) > 1:
            chosen.leave()
        elif happens == "join" and len(present) < 5:
            fleet.join()
    fleet.loss = 0.0
    fleet.run(16 * F)
    assert not [node.id for node in fleet.workers if node.leaving and not node.gone], (
        "a worker that leaves comes to an end"
    )
    at_rest(fleet, len([node for node in fleet.workers if not node.gone]))


# --- a rule broken must be found ----------------------------------------------------------------------


def chaos() -> None:
    for seed in range(20):
        test_pauses_crashes_losses_joins_and_leaves(seed)


def test_a_fence_that_does_not_fall_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tenure, "may_deliver", lambda tenure, now_s: tenure.state in (State.HELD, State.FENCED))
    with pytest.raises(AssertionError, match="deliver"):
        chaos()


def test_a_lease_that_came_at_an_unknown_time_and_is_not_claimed_first_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    received = (ReceiverState.TAKING, (ReceiverCommand.RECEIVE,))
    rules = {pair: received if pair[1] is ReceiverEvent.MINE_UNSEEN else one for pair, one in RECEIVER.items()}
    monkeypatch.setattr(receiver, "RECEIVER", rules)
    monkeypatch.setattr(
        handoff_fleet, "receive", lambda row, me, times, now_s, *_: receive(row, me, times, now_s, now_s, now_s)
    )
    with pytest.raises(AssertionError, match="deliver"):
        chaos()


def test_a_lease_that_no_worker_adopts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = (ReceiverEvent.MINE, ReceiverEvent.MINE_UNSEEN)
    rules = {pair: one for pair, one in RECEIVER.items() if pair[0] is not ReceiverState.IDLE or pair[1] not in mine}
    monkeypatch.setattr(receiver, "RECEIVER", rules)
    with pytest.raises(AssertionError):
        chaos()


def test_a_worker_that_does_not_take_what_has_its_name_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaited, "_unasked_leases", lambda worker, view, now_s: [])
    with pytest.raises(AssertionError):
        chaos()
