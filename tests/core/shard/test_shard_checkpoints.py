"""How far a shard's checkpoint goes, when it is stored, and the ones in two phases."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardway.core.leases import LeaseRow
from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.leases.tenure import commands as tenure_commands
from shardway.core.leases.tenure import events as tenure_events
from shardway.core.leases.tenure import machine as lease_machine
from shardway.core.leases.tenure.state import State as LeaseState
from shardway.core.shard.checkpoints import commands as checkpoint_commands
from shardway.core.shard.checkpoints import events as checkpoint_events
from shardway.core.shard.checkpoints import machine, state
from shardway.core.shard.checkpoints.cadence import Cadence, Every, Prompt, Riding
from shardway.core.shard.checkpoints.machine import TABLE
from shardway.core.shard.checkpoints.state import Pending, Progress, State
from shardway.errors import CheckpointError, OptionError
from shardway.policies import PendingChoice
from tests.core.leases.exploring import BrokenRuleError
from tests.core.leases.leasing import at
from tests.core.shard.checkpoints_search import Bounds, Search

BEGIN = Checkpoint.TRIM_HORIZON
END = Checkpoint.SHARD_END


class Driven:
    """The machine, a ledger that goes as far as it is told, and a clock."""

    def __init__(
        self,
        cadence: Cadence,
        row: LeaseRow = LeaseRow(key="a", checkpoint=BEGIN),  # noqa: B008 - a value
        choice: PendingChoice = PendingChoice.ABANDON,
    ) -> None:
        self.now_s = 100.0
        self.begun = machine.begin(row, choice, where="orders, shard-0", cadence=cadence, bound=None, now_s=self.now_s)
        self.one = self.begun.checkpoints
        self.progress = Progress(self.begun.settled, 0)
        self.came_to = at(20)

    def handle(self, given: Any) -> list[checkpoint_commands.Command]:
        self.one, outputs = machine.step(self.one, given, self.progress, self.now_s)
        return list(outputs)

    def settle(self, safe: Checkpoint, records: int = 0, *, after_s: float = 0.0) -> list[checkpoint_commands.Command]:
        self.now_s += after_s
        self.progress = Progress(safe, records)
        return self.handle(checkpoint_events.Look())

    def prepare(self, to: Checkpoint, state: bytes | None = None) -> checkpoint_events.Prepare:
        return checkpoint_events.Prepare(to, state, self.came_to)

    def prepared(self, to: Checkpoint, state: bytes | None = None) -> Pending:
        assert self.handle(self.prepare(to, state)) == [tenure_events.StorePending(to, state)]
        assert self.handle(tenure_commands.PendingStored(to)) == [checkpoint_commands.Answer()]
        assert self.one.pending is not None
        return self.one.pending


def test_the_table_is_complete() -> None:
    inputs = {
        checkpoint_events.Look,
        checkpoint_events.Flush,
        checkpoint_events.SetBound,
        checkpoint_events.Prepare,
        checkpoint_events.Commit,
        checkpoint_events.Abandon,
        tenure_commands.CheckpointStored,
        tenure_commands.PendingStored,
        checkpoint_events.Close,
    }
    assert set(get_args(checkpoint_events.Event)) == inputs
    assert set(TABLE) == set(itertools.product(State, inputs))


# --- when -----------------------------------------------------------------------------------------


def test_by_default_they_ride() -> None:
    driven = Driven(Riding())
    assert driven.handle(checkpoint_events.Look()) == []
    assert driven.settle(at(5), 1_000_000, after_s=1e9) == [tenure_events.StoreCheckpoint(at(5))]
    assert driven.settle(at(5)) == [], "the lease's machine knows"
    assert driven.one.wake_at_s(driven.progress) == math.inf
    assert driven.handle(tenure_commands.CheckpointStored(at(5))) == []
    assert driven.one.stored == at(5)
    assert driven.one.wanted(driven.progress) is None
    assert driven.settle(END) == [tenure_events.StoreCheckpoint(END, at_once=True)], "nothing follows"


def test_promptly_means_one_write_at_a_time() -> None:
    driven = Driven(Prompt())
    assert driven.handle(checkpoint_events.Look()) == []
    assert driven.settle(at(5), 1) == [tenure_events.StoreCheckpoint(at(5), at_once=True)]
    assert driven.settle(at(9), 5) == [tenure_events.StoreCheckpoint(at(9))]
    driven.handle(tenure_commands.CheckpointStored(at(5)))
    assert driven.settle(at(9), 5) == [tenure_events.StoreCheckpoint(at(9), at_once=True)]
    driven.handle(tenure_commands.CheckpointStored(at(9)))
    assert driven.settle(at(9), 5) == []


def test_a_write_that_took_more_along_than_was_asked_for_leaves_nothing_to_write() -> None:
    driven = Driven(Prompt())
    driven.settle(at(5), 1)
    driven.settle(at(9), 5)
    driven.handle(tenure_commands.CheckpointStored(at(9)))
    assert driven.settle(at(9), 5) == []
    assert driven.settle(at(11), 7) == [tenure_events.StoreCheckpoint(at(11), at_once=True)]


def test_every_so_many_records_or_seconds() -> None:
    driven = Driven(Every(records=100, seconds=5.0))
    assert driven.settle(at(5), 99, after_s=4.9) == [tenure_events.StoreCheckpoint(at(5))]
    assert driven.one.wake_at_s(driven.progress) == 105.0
    assert driven.settle(at(5), 99) == []
    assert driven.settle(at(5), 99, after_s=0.1) == [tenure_events.StoreCheckpoint(at(5), at_once=True)]
    assert driven.one.wake_at_s(driven.progress) == math.inf, "it is on its way"
    driven.now_s = 110.0
    driven.handle(tenure_commands.CheckpointStored(at(5)))
    assert driven.settle(at(6), 198, after_s=1.0) == [tenure_events.StoreCheckpoint(at(6))]
    assert driven.settle(at(7), 199) == [tenure_events.StoreCheckpoint(at(7), at_once=True)]
    assert Driven(Every(records=1)).one.wake_at_s(driven.progress) == -math.inf
    assert Driven(Every(seconds=9)).settle(at(5), 10**6, after_s=8.9) == [tenure_events.StoreCheckpoint(at(5))]
    assert Driven(Every(records=9)).settle(BEGIN, 0, after_s=200) == []


@pytest.mark.parametrize("given", [{}, {"records": 0}, {"seconds": 0.0}, {"records": 5, "seconds": -1}])
def test_a_cadence_of_nothing_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=r"records|seconds"):
        Every(**given)


def test_a_renewal_that_was_due_anyway_counts_as_a_checkpoint() -> None:
    driven = Driven(Every(seconds=5.0))
    driven.settle(at(5), 1, after_s=3.0)
    driven.handle(tenure_commands.CheckpointStored(at(5)))
    driven.settle(at(6), 2)
    assert driven.one.wake_at_s(driven.progress) == 108.0


# --- how far --------------------------------------------------------------------------------------


def test_a_bound_is_never_passed_and_what_was_told_never_goes_back() -> None:
    driven = Driven(Riding())
    driven.handle(checkpoint_events.SetBound(at(3)))
    assert driven.settle(at(5)) == [tenure_events.StoreCheckpoint(at(3))]
    driven.handle(checkpoint_events.SetBound(at(2)))
    assert driven.settle(END) == []
    assert driven.one.told == at(3)
    driven.handle(checkpoint_events.SetBound(END))
    assert driven.handle(checkpoint_events.Look()) == [tenure_events.StoreCheckpoint(END, at_once=True)]


def test_after_a_seek_back_the_stored_checkpoint_stands_until_what_is_settled_passes_it() -> None:
    driven = Driven(Riding())
    driven.settle(at(9))
    assert driven.settle(at(2)) == []
    assert driven.settle(at(8)) == []
    with pytest.raises(CheckpointError, match="would go back, as all up to 9/0 is settled"):
        driven.handle(driven.prepare(at(8)))
    assert driven.settle(at(10)) == [tenure_events.StoreCheckpoint(at(10))]


def test_what_is_settled_goes_at_once_when_the_program_leaves_and_with_the_last_write() -> None:
    driven = Driven(Riding())
    assert driven.handle(checkpoint_events.Flush()) == []
    driven.settle(at(5))
    assert driven.handle(checkpoint_events.Flush(at_once=True)) == [tenure_events.StoreCheckpoint(at(5), at_once=True)]
    driven.handle(checkpoint_events.Close("a record cannot be read"))
    assert driven.handle(checkpoint_events.Flush()) == [tenure_events.StoreCheckpoint(at(5))], (
        "also once reading has ended"
    )


# --- two phases -----------------------------------------------------------------------------------


def test_others_hold_still_until_it_is_committed() -> None:
    driven = Driven(Prompt())
    driven.settle(at(5), 5)
    driven.handle(tenure_commands.CheckpointStored(at(5)))
    pending = driven.prepared(at(9), b"file 7")
    assert pending == Pending(at(9), b"file 7")
    assert driven.settle(at(15), 15, after_s=100) == []
    assert driven.handle(checkpoint_events.Flush(at_once=True)) == []
    assert driven.one.wake_at_s(driven.progress) == math.inf
    assert driven.handle(checkpoint_events.Commit(pending)) == [tenure_events.StoreCheckpoint(at(9), commit=True)]
    assert driven.handle(checkpoint_events.Look()) == []
    assert driven.handle(tenure_commands.CheckpointStored(at(9))) == [checkpoint_commands.Answer()]
    assert (driven.one.stored, driven.one.pending, driven.one.state) == (at(9), None, State.FREE)
    assert driven.handle(checkpoint_events.Look()) == [tenure_events.StoreCheckpoint(at(15), at_once=True)]


def test_a_commit_never_lies() -> None:
    driven = Driven(Riding())
    driven.handle(driven.prepare(at(9, 3)))
    pending = driven.one.pending
    assert pending is not None
    for asked in (checkpoint_events.Commit(pending), checkpoint_events.Abandon(pending)):
        with pytest.raises(CheckpointError, match=r"is on its way \(preparing\)"):
            driven.handle(asked)
    driven.handle(tenure_commands.PendingStored(at(9, 3)))
    driven.settle(at(9, 2))
    with pytest.raises(CheckpointError, match="records up to 9/3 were prepared, but only those up to 9/2 are settled"):
        driven.handle(checkpoint_events.Commit(pending))
    driven.settle(at(9, 3))
    driven.handle(checkpoint_events.Commit(pending))
    with pytest.raises(CheckpointError, match=r"is on its way \(committing\)"):
        driven.handle(driven.prepare(at(10)))
    assert driven.handle(tenure_commands.CheckpointStored(at(9, 2))) == [], "another write was meant"
    assert driven.handle(tenure_commands.CheckpointStored(at(9, 3), pending=True)) == []
    assert driven.handle(tenure_commands.CheckpointStored(at(9, 3))) == [checkpoint_commands.Answer()]


def test_one_that_goes_back_or_ahead_is_refused() -> None:
    driven = Driven(Riding())
    driven.settle(at(5))
    driven.handle(tenure_commands.CheckpointStored(at(5)))
    with pytest.raises(
        CheckpointError, match="orders, shard-0: a checkpoint at 4/0 would go back, as all up to 5/0"
    ) as told:
        driven.handle(driven.prepare(at(4)))
    assert told.value.goes_back
    driven.settle(at(8))
    with pytest.raises(CheckpointError, match="as all up to 8/0 is settled and checkpointed"):
        driven.handle(driven.prepare(at(7)))
    with pytest.raises(CheckpointError, match="the last record that came is 20/0") as told:
        driven.handle(driven.prepare(at(21)))
    assert not told.value.goes_back
    with pytest.raises(CheckpointError, match="SHARD_END cannot be prepared: the last record that came is 20/0"):
        driven.handle(driven.prepare(END))
    assert driven.one.state is State.FREE
    driven.came_to = END
    driven.prepared(END)


def test_one_that_is_abandoned_lets_the_others_go_on() -> None:
    driven = Driven(Riding())
    driven.settle(at(5))
    driven.handle(tenure_commands.CheckpointStored(at(5)))
    first = driven.prepared(at(9))
    second = driven.prepared(at(10), b"second")
    with pytest.raises(CheckpointError, match="not pending any more"):
        driven.handle(checkpoint_events.Abandon(first))
    assert driven.handle(checkpoint_events.Abandon(second)) == [tenure_events.StoreCheckpoint(at(5), commit=True)], (
        "the columns are to be cleared"
    )
    with pytest.raises(CheckpointError, match="is still being abandoned"):
        driven.handle(driven.prepare(at(11)))
    assert driven.one.idle
    assert driven.settle(at(7)) == [tenure_events.StoreCheckpoint(at(7), commit=True)]
    assert driven.handle(tenure_commands.CheckpointStored(at(7))) == [checkpoint_commands.Answer()]
    assert driven.settle(at(8)) == [tenure_events.StoreCheckpoint(at(8))]


@pytest.mark.parametrize("state", [State.PREPARING, State.COMMITTING, State.ABANDONING, State.PREPARED])
def test_the_caller_that_waits_is_told_of_the_tenures_end(state: State) -> None:
    driven = Driven(Riding())
    pending = Pending(at(9), None)
    driven.settle(at(9))
    driven.one = driven.one._replace(state=state, pending=pending)
    answers = driven.handle(checkpoint_events.Close("the lease was lost: taken"))
    assert [type(one) for one in answers] == [checkpoint_commands.Answer] * (state is not State.PREPARED)
    for one in answers:
        assert isinstance(one, checkpoint_commands.Answer)
        assert "not held any more (the lease was lost: taken)" in str(one.error)
    assert driven.handle(checkpoint_events.Close("again")) == []
    for asked in (driven.prepare(at(9)), checkpoint_events.Commit(pending), checkpoint_events.Abandon(pending)):
        with pytest.raises(CheckpointError, match="not held any more"):
            driven.handle(asked)


def test_answers_that_no_caller_waits_for_change_nothing() -> None:
    driven = Driven(Riding())
    before = driven.one
    for said in (tenure_commands.PendingStored(at(3)), tenure_commands.CheckpointStored(BEGIN)):
        assert driven.handle(said) == []
    assert driven.one == before


# --- what a former owner left ---------------------------------------------------------------------

LEFT = LeaseRow(key="a", checkpoint=at(2), pending=at(6), pending_state=b"s")


def test_an_abandoned_one_of_the_former_owner_goes_with_the_next_write() -> None:
    driven = Driven(Riding(), LEFT)
    assert (driven.begun.settled, driven.begun.wanted) == (at(2), at(2))
    assert driven.handle(checkpoint_events.Look()) == []
    assert driven.settle(at(3)) == [tenure_events.StoreCheckpoint(at(3), commit=True)]
    driven.handle(tenure_commands.CheckpointStored(at(3)))
    assert driven.one.state is State.FREE
    assert Driven(Prompt(), LEFT).handle(checkpoint_events.Look()) == [
        tenure_events.StoreCheckpoint(at(2), at_once=True, commit=True)
    ]


@pytest.mark.parametrize(
    ("pending", "settled"), [(at(6), at(6)), (END, at(2)), (at(1), at(2))], ids=["ahead", "the end", "behind"]
)
def test_a_committed_one_of_the_former_owner_is_where_reading_goes_on(pending: Checkpoint, settled: Checkpoint) -> None:
    driven = Driven(Riding(), replace(LEFT, pending=pending), PendingChoice.COMMIT)
    assert (driven.begun.settled, driven.begun.wanted) == (settled, max(pending, at(2)))
    assert driven.handle(checkpoint_events.Flush(at_once=True)) == [
        tenure_events.StoreCheckpoint(settled, at_once=True, commit=True)
    ]


def test_a_kept_one_of_the_former_owner_waits_for_the_program() -> None:
    driven = Driven(Prompt(), LEFT, PendingChoice.KEEP)
    assert (driven.begun.settled, driven.one.pending) == (at(2), (at(6), b"s"))
    assert driven.settle(at(9)) == []
    assert driven.one.pending is not None
    assert driven.handle(checkpoint_events.Commit(driven.one.pending)) == [
        tenure_events.StoreCheckpoint(at(6), commit=True)
    ]


# --- all that can happen --------------------------------------------------------------------------

KEPT = Pending(at(1), b"found")
SMALL = [
    Bounds(position=1),
    Bounds(position=1, cadence=Riding(), found=KEPT),
    Bounds(position=1, found=KEPT, choice=PendingChoice.KEEP),
    Bounds(position=1, found=KEPT, choice=PendingChoice.COMMIT),
    Bounds(position=2, cadence=Riding(), lost=0, ends=False),
    Bounds(position=1, cadence=Every(records=1), seeks=1, lost=0),
    Bounds(position=1, bounds=True, lost=0),
]
LARGE = [Bounds(), Bounds(seeks=1), Bounds(found=KEPT), Bounds(cadence=Every(records=2), bounds=True, lost=0)]


@pytest.mark.parametrize(
    "bounds", [*SMALL, *(pytest.param(one, marks=pytest.mark.slow) for one in LARGE)], ids=Bounds.__str__
)
def test_with_the_leases_machine_nothing_is_stored_that_is_not_settled_and_no_caller_waits_for_ever(
    bounds: Bounds,
) -> None:
    search = Search(bounds).run()
    assert search.states > 100
    expected = set(State) - (set() if bounds.found and bounds.choice is not PendingChoice.KEEP else {State.CLEARING})
    assert search.seen == expected


def _swap(patch: pytest.MonkeyPatch, table: Any, key: tuple[Any, Any], rule: Any) -> None:
    patch.setitem(table, key, rule)


def a_wish_to_commit_outlives_what_it_was_for(patch: pytest.MonkeyPatch) -> None:
    def prepared(tenure: Any, asked: Any, now_s: float) -> Any:
        return lease_machine._work(replace(tenure, wish=replace(tenure.wish, prepare=asked)), now_s)

    _swap(patch, lease_machine.TABLE, (LeaseState.HELD, tenure_events.StorePending), prepared)


def what_is_to_be_committed_is_overwritten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lease_machine, "_commits_first", lambda tenure: False)


def what_was_told_goes_back(patch: pytest.MonkeyPatch) -> None:
    def tell(one: Any, to: Checkpoint, *, at_once: bool) -> Any:
        return one._replace(told=to), (
            tenure_events.StoreCheckpoint(to, at_once=at_once, commit=one.state in state.CLEARS),
        )

    patch.setattr(machine, "_ask_to_store", tell)


def only_its_own_writes_count_as_stored(patch: pytest.MonkeyPatch) -> None:
    real = machine._note_stored

    def stored(one: Any, said: tenure_commands.CheckpointStored, progress: Progress, now_s: float) -> Any:
        if one.writing is not None and one.writing.checkpoint <= said.checkpoint:
            said = replace(said, checkpoint=one.writing.checkpoint)
        return real(one, said, progress, now_s)

    _swap(patch, TABLE, (State.FREE, tenure_commands.CheckpointStored), stored)


def what_is_settled_is_stored_while_one_is_pending(patch: pytest.MonkeyPatch) -> None:
    clears = frozenset({*state.CLEARS, State.PREPARED})
    patch.setattr(state, "IDLE", frozenset(State))
    _swap(patch, TABLE, (State.PREPARED, checkpoint_events.Look), machine._look)
    patch.setattr(state, "CLEARS", clears)
    patch.setattr(machine, "CLEARS", clears)


def a_commit_is_not_held_against_what_is_settled(patch: pytest.MonkeyPatch) -> None:
    def commit(one: Any, said: checkpoint_events.Commit, progress: Progress, now_s: float) -> Any:
        return one._replace(state=State.COMMITTING), (
            tenure_events.StoreCheckpoint(said.pending.checkpoint, commit=True),
        )

    _swap(patch, TABLE, (State.PREPARED, checkpoint_events.Commit), commit)


@pytest.mark.parametrize(
    ("take_away", "bounds", "broken"),
    [
        (a_wish_to_commit_outlives_what_it_was_for, Bounds(position=1, found=KEPT), "counts as pending is not in"),
        (
            what_is_to_be_committed_is_overwritten,
            Bounds(position=1, found=KEPT, choice=PendingChoice.COMMIT),
            "would not learn that what was found pending is done",
        ),
        (what_was_told_goes_back, Bounds(position=1, cadence=Riding(), seeks=1), "cannot do as it is told"),
        (only_its_own_writes_count_as_stored, Bounds(lost=0), "not on its way"),
        (what_is_settled_is_stored_while_one_is_pending, Bounds(position=1), "counts as pending is not in the table"),
        (a_commit_is_not_held_against_what_is_settled, Bounds(position=1), "ahead of what is settled"),
    ],
    ids=lambda one: one.__name__ if callable(one) else "",
)
def test_the_search_notices_each_rule_that_is_taken_away(
    monkeypatch: pytest.MonkeyPatch, take_away: Any, bounds: Bounds, broken: str
) -> None:
    take_away(monkeypatch)
    with pytest.raises(BrokenRuleError, match=broken):
        Search(bounds).run()


@given(data=st.data(), cadence=st.sampled_from([Riding(), Prompt(), Every(records=3)]), found=st.booleans())
@settings(max_examples=60, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
def test_on_long_ways_the_same_rules_hold(data: st.DataObject, cadence: Cadence, found: bool) -> None:
    choice = data.draw(st.sampled_from(PendingChoice))
    search = Search(
        Bounds(
            position=9, cadence=cadence, found=Pending(at(4), b"s") if found else None, choice=choice, seeks=2,
            bounds=True, lost=3,
        )
    )  # fmt: skip
    world = search.first()
    for _ in range(50):
        steps = list(search.steps(world))
        if not steps:
            break
        _, world = steps[data.draw(st.integers(0, len(steps) - 1))]
        search.check(world)
