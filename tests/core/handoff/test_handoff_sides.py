"""One side at a time: what a worker sees, step by step, and what it does."""

from typing import Any

import pytest

from shardway.core.assignment.views import LeaseView, WorkerView
from shardway.core.handoff.owner import OWNER, OwnerCommand, OwnerEvent, OwnerSide, OwnerState
from shardway.core.handoff.receiver import RECEIVER, ReceiverCommand, ReceiverEvent, ReceiverSide, ReceiverState
from tests.momentary import now

O, OE, OC = OwnerState, OwnerEvent, OwnerCommand  # noqa: E741
R, RE, RC = ReceiverState, ReceiverEvent, ReceiverCommand
F = 10.0
K = "shardId-000000000000"


def owner(**more: float) -> OwnerSide:
    return OwnerSide(K, **more)


def seen(**more: Any) -> dict[str, WorkerView]:
    return {"b": WorkerView(id="b", **more)}


WANTS = {"wants": frozenset({K})}
WARM = {**WANTS, "warm": frozenset({K})}


# --- the owner --------------------------------------------------------------------------------------


def test_a_handoff_to_a_worker_that_warms_up() -> None:
    side = owner()
    assert side.offer("b", 0.0) == (OC.NAME,)
    assert now(side.state) is O.OFFERING
    assert side.look(seen(**WANTS), 0.1) == ()
    assert side.look(seen(**WARM), 0.4) == (OC.STOP,)
    assert now(side.state) is O.DRAINING
    assert side.handle(OE.DRAINED, 0.5) == (OC.GIVE,)
    assert now(side.receiver) == "b"
    assert side.handle(OE.ENDED, 0.6) == (OC.UNNAME,)
    assert (side.state, side.receiver, side.due_s) == (O.GONE, None, None)


def test_it_waits_for_the_receiver_only_so_long() -> None:
    side = owner(warm_deadline_s=3.0)
    side.offer("b", 100.0)
    side.look(seen(**WANTS), 100.1)
    assert side.due_s == 103.0
    assert side.tick(102.9) == ()
    assert side.tick(103.0) == (OC.STOP,)
    assert side.state is O.DRAINING


def test_a_worker_that_asked_and_died_is_found_out_by_its_row_that_does_not_move() -> None:
    rows: dict[str, Any] = {"failover_s": 10.0, **WANTS}
    side = owner(warm_deadline_s=3.0)
    side.offer("b", 100.0)
    side.look(seen(unmoved_s=1.9, **rows), 101.8)
    side.look(seen(unmoved_s=3.0, **rows), 102.9)
    assert side.tick(103.0) == (OC.UNNAME,)
    assert side.tried == {"b"}
    side.offer("c", 200.0)
    side.look({"c": WorkerView(id="c", unmoved_s=0.1, **rows)}, 201.8)
    side.look({"c": WorkerView(id="c", unmoved_s=1.2, **rows)}, 202.9)
    assert side.tick(203.0) == (OC.STOP,)
    slow = owner(warm_deadline_s=3.0)
    slow.offer("b", 100.0)
    slow.look(seen(unmoved_s=3.0, **(rows | {"failover_s": 30.0})), 102.9)
    assert slow.tick(103.0) == (OC.STOP,), "its row is written too rarely to tell"


def test_a_cold_receiver_is_not_waited_for() -> None:
    side = owner()
    assert side.offer("kcl", 0.0, cold=True) == (OC.NAME, OC.STOP)
    assert side.state is O.DRAINING


def test_a_worker_that_does_not_answer_gets_nothing_and_is_not_asked_again() -> None:
    side = owner(warm_deadline_s=3.0)
    side.offer("b", 0.0)
    side.look(seen(), 1.0)
    assert side.tick(3.0) == (OC.UNNAME,)
    assert (side.state, side.tried) == (O.HOLDING, {"b"})


@pytest.mark.parametrize(
    "row",
    [{}, seen(alive=False, **WARM), seen(leaving=True, **WARM), seen()],
    ids=["no row", "dead", "leaves", "drops"],
)
def test_a_receiver_that_vanishes_before_and_while_the_owner_drains(row: dict[str, WorkerView]) -> None:
    side = owner()
    side.offer("b", 0.0)
    side.look(seen(**WANTS), 0.1)
    assert side.look(row, 0.2) == (OC.UNNAME,)
    assert now(side.state) is O.HOLDING
    side.offer("b", 1.0)
    side.look(seen(**WARM), 1.1)
    assert side.look(row, 1.2) == (OC.UNNAME, OC.RESUME)
    assert now(side.state) is O.HOLDING
    assert side.due_s is None


def test_once_the_write_is_sent_there_is_no_way_back() -> None:
    side = owner()
    side.offer("b", 0.0, cold=True)
    side.handle(OE.DRAINED, 0.1)
    for given in (OE.RECEIVER_GONE, OE.FREE, OE.OFFER, OE.WARM, OE.LEADER_NAMED, OE.DRAIN_DEADLINE):
        assert side.handle(given, 0.2) == ()
    assert side.look({}, 0.3) == side.offer("c", 0.3) == side.leader_named("c", 0.3) == ()
    assert (side.state, side.receiver) == (O.GIVING, "b")


def test_what_is_not_settled_in_time_is_given_all_the_same() -> None:
    side = owner(drain_deadline_s=10.0)
    side.offer("b", 0.0, cold=True)
    assert side.tick(9.9) == ()
    assert side.tick(10.0) == (OC.GIVE,)


def test_with_no_worker_to_hand_to_the_row_is_freed() -> None:
    side = owner(drain_deadline_s=10.0)
    assert side.handle(OE.FREE, 0.0) == (OC.STOP,)
    assert side.due_s == 10.0
    assert side.handle(OE.DRAINED, 0.5) == (OC.FREE,)
    assert side.handle(OE.ENDED, 0.6) == ()
    assert side.state is O.GONE


def test_a_worker_that_comes_while_the_last_one_drains_gets_the_lease_within_the_same_deadline() -> None:
    side = owner(drain_deadline_s=10.0)
    side.handle(OE.FREE, 0.0)
    assert side.offer("b", 4.0) == (OC.NAME,)
    assert side.due_s == 10.0
    assert side.tick(10.0) == (OC.GIVE,)
    assert side.receiver == "b"


def test_the_last_receiver_goes_while_a_leaving_owner_drains() -> None:
    side = owner(drain_deadline_s=10.0)
    side.offer("b", 0.0, cold=True)
    assert side.handle(OE.FREE, 5.0) == (OC.UNNAME,)
    assert (side.state, side.receiver, side.due_s) == (O.DRAINING_TO_FREE, None, 10.0)


def test_a_second_asker_waits_for_its_turn() -> None:
    side = owner()
    side.offer("b", 0.0)
    assert side.offer("c", 0.1) == ()
    assert side.receiver == "b"


@pytest.mark.parametrize("before", ["holding", "offering", "draining", "draining to free"])
def test_a_kcl_leader_assigns_meanwhile(before: str) -> None:
    side = owner()
    if before in ("offering", "draining"):
        side.offer("b", 0.0, cold=before == "draining")
    if before == "draining to free":
        side.handle(OE.FREE, 0.0)
    commands = side.leader_named("kcl", 1.0)
    assert (OC.UNNAME in commands) == (before in ("offering", "draining"))
    assert (OC.STOP in commands) == (before in ("holding", "offering"))
    assert side.look({}, 1.1) == (), "the worker that the leader has named is not ours to judge"
    assert side.handle(OE.DRAINED, 1.2) == (OC.GIVE,)
    assert side.receiver == "kcl"


@pytest.mark.parametrize("given", [OE.LOST, OE.FINISHED])
def test_a_steal_or_the_shards_end_ends_everything(given: OwnerEvent) -> None:
    for state in (O.HOLDING, O.OFFERING, O.DRAINING, O.DRAINING_TO_FREE):
        side = owner()
        if state in (O.OFFERING, O.DRAINING):
            side.offer("b", 0.0, cold=state is O.DRAINING)
        if state is O.DRAINING_TO_FREE:
            side.handle(OE.FREE, 0.0)
        assert side.state is state
        assert side.handle(given, 1.0) == ((OC.UNNAME,) if state in (O.OFFERING, O.DRAINING) else ())
        assert (side.state, side.due_s) == (O.GONE, None)


# --- the receiver -----------------------------------------------------------------------------------


def receiver() -> ReceiverSide:
    return ReceiverSide(K, "b", failover_s=F)


def naming(to: str | None = "b") -> WorkerView:
    return WorkerView(id="a", gives={} if to is None else {K: to})


def row(owner: str | None, **more: Any) -> LeaseView:
    return LeaseView(key=K, owner=owner, **more)


def looks(
    side: ReceiverSide, owner: str | None, at_s: float, free: bool = False, planned: bool = False, **more: Any
) -> tuple[ReceiverCommand, ...]:
    return side.look_at_lease(row(owner, **more), sent_s=at_s, now_s=at_s + 0.01, free=free, planned=planned)


def warm_receiver() -> ReceiverSide:
    side = receiver()
    assert side.want("a") == (RC.SAY_WANTED,)
    assert side.look_at_owner(naming(), 1.0) == (RC.WARM_UP,)
    assert looks(side, "a", 1.1) == ()
    assert side.handle(RE.WARMED) == (RC.SAY_WARM,)
    return side


def test_a_receiver_delivers_when_the_row_names_it() -> None:
    side = warm_receiver()
    assert side.polls
    assert looks(side, "a", 1.2) == ()
    assert looks(side, "b", 1.3) == (RC.RECEIVE,)
    assert side.unmoved_s == 1.2
    assert side.handle(RE.BEGAN) == (RC.UNSAY, RC.DELIVER)
    assert side.state is R.HOLDING


def test_a_tenure_that_has_to_be_claimed_after_all_and_is_not_to_be_had() -> None:
    """Its worker's own row was not confirmed for long, so that it cannot begin at once."""
    side = warm_receiver()
    looks(side, "b", 1.3)
    assert side.handle(RE.NOT_TAKEN) == (RC.UNSAY, RC.DISCARD)
    assert side.state is R.IDLE


def test_a_row_seen_too_late_is_claimed_before_anything_is_delivered() -> None:
    side = warm_receiver()
    assert looks(side, "b", 1.1 + F / 2) == (RC.TAKE,)
    assert side.handle(RE.BEGAN) == (RC.UNSAY, RC.DELIVER)
    cold = receiver()
    cold.want("a")
    cold.look_at_owner(naming(), 1.0)
    assert looks(cold, "b", 1.1) == (RC.TAKE,), "the first look shows it already"


def test_unnamed_because_given() -> None:
    side = warm_receiver()
    looks(side, "a", 1.9)
    assert side.look_at_owner(naming(None), 2.0) == (RC.READ,)
    assert looks(side, "a", 1.95) == (), "sent before: it does not count"
    assert side.state is R.PARTING
    assert looks(side, "b", 2.0) == (RC.RECEIVE,)


def test_unnamed_because_the_owner_exited_after_giving() -> None:
    side = warm_receiver()
    assert side.look_at_owner(None, 2.0) == (RC.READ,)
    assert looks(side, "b", 2.0) == (RC.RECEIVE,)


def test_unnamed_because_withdrawn() -> None:
    side = warm_receiver()
    side.look_at_owner(naming(None), 2.0)
    assert looks(side, "a", 2.1) == (RC.UNSAY, RC.DISCARD)
    assert (side.state, side.owner, side.unmoved_s) == (R.IDLE, None, None)


def test_the_owner_dies_and_a_warm_receiver_takes_over() -> None:
    side = warm_receiver()
    assert looks(side, "a", 12.0, free=True) == (RC.TAKE,)
    assert looks(side, "a", 12.1, free=True) == (), "one write at a time"
    assert side.handle(RE.BEGAN) == (RC.UNSAY, RC.DELIVER)


def test_a_kcl_worker_steals_it_from_the_owner() -> None:
    side = warm_receiver()
    assert looks(side, "kcl", 2.0) == (RC.UNSAY, RC.DISCARD)
    assert side.state is R.IDLE


def test_another_worker_was_faster() -> None:
    side = receiver()
    assert looks(side, None, 1.0, free=True, planned=True) == (RC.TAKE,)
    assert side.handle(RE.NOT_TAKEN) == (RC.UNSAY, RC.DISCARD)
    assert side.state is R.IDLE


def test_given_while_it_was_about_to_take() -> None:
    side = warm_receiver()
    looks(side, "a", 12.0, free=True)
    assert side.handle(RE.GIVEN_INSTEAD) == (RC.TAKE,)
    assert side.state is R.TAKING


def test_a_free_lease_is_nobodys_business_unless_it_is_planned() -> None:
    side = receiver()
    assert looks(side, None, 1.0, free=True) == ()
    side.want("a")
    assert looks(side, None, 1.1, free=True) == ()
    assert looks(side, None, 1.2, free=True, planned=True) == (RC.TAKE,)


def test_a_spare_that_a_leaving_owner_chose() -> None:
    side = receiver()
    assert side.look_at_owner(naming(), 1.0) == (RC.SAY_WANTED, RC.WARM_UP)
    assert side.owner == "a"


def test_one_that_leaves_itself_gives_no_answer() -> None:
    side = receiver()
    assert side.look_at_owner(naming(), 1.0, leaving=True) == ()
    assert side.look_at_lease(row("kcl", next_owner="b"), sent_s=1.0, now_s=1.0, free=False, leaving=True) == ()
    assert side.state is R.IDLE


def test_one_that_leaves_stays_until_the_lease_cannot_come_any_more() -> None:
    side = warm_receiver()
    assert side.drop() == (RC.UNSAY, RC.DISCARD)
    assert side.polls
    assert looks(side, "a", 2.0) == ()
    assert side.look_at_owner(naming(None), 3.0) == (RC.READ,)
    assert looks(side, "a", 3.1) == ()
    assert side.state is R.IDLE


@pytest.mark.parametrize("owner", ["a", None])
def test_one_that_leaves_does_not_wait_for_a_dead_owner(owner: str | None) -> None:
    side = warm_receiver()
    side.drop()
    assert looks(side, owner, 20.0, free=True) == ()
    assert side.state is R.IDLE


def test_a_shard_that_has_ended_or_a_row_that_is_gone_is_not_waited_for() -> None:
    side = warm_receiver()
    assert side.look_at_lease(None, sent_s=2.0, now_s=2.0, free=False) == (RC.UNSAY, RC.DISCARD)
    side = warm_receiver()
    assert looks(side, None, 2.0, free=True, planned=True, ended=True) == (RC.UNSAY, RC.DISCARD)
    assert looks(receiver(), "b", 2.0, ended=True) == ()


def test_one_that_leaves_and_gets_the_lease_all_the_same() -> None:
    side = warm_receiver()
    side.drop()
    assert looks(side, "b", 2.0) == (RC.TAKE,)
    assert side.handle(RE.BEGAN) == (RC.UNSAY, RC.DELIVER)


def test_a_lease_that_comes_unasked_is_adopted() -> None:
    side = receiver()
    assert looks(side, "b", 1.0) == (RC.TAKE,)


def test_a_handoff_by_a_kcl_leader() -> None:
    side = receiver()
    assert looks(side, "kcl", 1.0, next_owner="b") == (RC.SAY_WANTED, RC.WARM_UP)
    assert side.look_at_owner(None, 1.1) == (), "the KCL worker has no row"
    assert looks(side, "kcl", 1.2, next_owner="b") == ()
    assert looks(side, "b", 1.3) == (RC.RECEIVE,)


def test_a_kcl_leader_changes_its_mind() -> None:
    side = receiver()
    looks(side, "kcl", 1.0, next_owner="b")
    assert looks(side, "kcl", 1.1, next_owner="x") == (RC.READ,)
    assert looks(side, "kcl", 1.2, next_owner="x") == (RC.UNSAY, RC.DISCARD)


# --- the tables -------------------------------------------------------------------------------------


def test_every_state_is_reached_and_left() -> None:
    for table, states, first, last in ((OWNER, O, O.HOLDING, O.GONE), (RECEIVER, R, R.IDLE, R.HOLDING)):
        reached = {first}
        for _ in states:
            reached |= {after for (before, _), (after, _) in table.items() if before in reached}
        assert reached == set(states)
        assert {before for before, _ in table} == set(states) - {last}


def test_every_input_counts_somewhere() -> None:
    assert {given for _, given in OWNER} == set(OE)
    assert {given for _, given in RECEIVER} == set(RE)
