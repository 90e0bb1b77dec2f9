"""A shard in one tenure, from its first record to its end, as a machine."""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from shardway.core.leases import LeaseRow
from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.leases.tenure import commands as tenure_commands
from shardway.core.leases.tenure import events as tenure_events
from shardway.core.leases.tenure.state import Loss
from shardway.core.ledger.ledger import Ledger, MayDeliver
from shardway.core.ledger.policy import LedgerPolicy
from shardway.core.shard import commands, events, machine
from shardway.core.shard.checkpoints import commands as checkpoint_commands
from shardway.core.shard.checkpoints import events as checkpoint_events
from shardway.core.shard.checkpoints.cadence import Every, Prompt, Riding
from shardway.core.shard.checkpoints.machine import begin
from shardway.core.shard.checkpoints.state import Pending
from shardway.core.shard.machine import End, ShardMachine, Stage
from shardway.errors import CheckpointError, RegistryError
from shardway.events import HandoffWaits
from shardway.model import Position
from shardway.policies import AnyOrder, ByKey, DeadLetters, GiveUp, PendingChoice, Retry
from tests.core.ledger.ledger_kit import Rec, at, numbers, recs

if TYPE_CHECKING:
    from shardway.core.ledger.ticket import Delivery
    from shardway.core.shard.checkpoints.cadence import Cadence

END = Checkpoint.SHARD_END
DRAIN = events.Drain(2_000.0)
SPOKEN = events.RevokingDone()


class Driven:
    """A shard, its clock, and what it said."""

    def __init__(
        self,
        cadence: Cadence | None = None,
        after: Checkpoint = Checkpoint.TRIM_HORIZON,
        letters_max: int = machine.LETTERS_AT_ONCE_MAX,
        **given: Any,
    ) -> None:
        self.now_s = 1_000.0
        self.events: list[Any] = []
        self.settings = LedgerPolicy(**given)
        begun = begin(
            LeaseRow(key="a", checkpoint=after),
            PendingChoice.ABANDON,
            where="orders, shard-0",
            cadence=cadence or Riding(),
            bound=None,
            now_s=self.now_s,
        )
        ledger = self.new_ledger(after)
        self.shard: ShardMachine[Rec] = ShardMachine(ledger, begun.checkpoints, letters_at_once_max=letters_max)

    def new_ledger(self, after: Checkpoint) -> Ledger[Rec]:
        return Ledger("orders", "shard-0", after, self.settings, rng=Random(1))

    def handle(self, given: events.Event, *, after_s: float = 0.0) -> list[commands.Command]:
        """What follows; the events, which come first, are in `events`."""
        self.now_s += after_s
        said = self.shard.handle(given, self.now_s)
        emitted = [one.event for one in said if isinstance(one, commands.Emit)]
        assert said[: len(emitted)] == [commands.Emit(event) for event in emitted]
        assert not self.shard.ledger.events
        self.events += emitted
        return said[len(emitted) :]

    def admit(self, first: int, count: int, **fields: Any) -> None:
        self.shard.ledger.admit(recs(first, count, **fields), self.now_s)

    def take(self, records_max: int = 10_000) -> Delivery[Rec] | None:
        return self.shard.ledger.deliver(self.now_s, records_max)

    def taken(self, records_max: int = 10_000) -> Delivery[Rec]:
        delivery = self.take(records_max)
        assert delivery is not None
        return delivery

    def ack(self, delivery: Delivery[Rec], *places: int) -> list[commands.Command]:
        self.shard.ledger.ack(delivery.ticket, places or None)
        return self.handle(checkpoint_events.Look())


def named(said: list[commands.Command]) -> list[str]:
    """Events by their names, and the rest by their classes."""
    return [type(one.event).__name__ if isinstance(one, commands.Emit) else type(one).__name__ for one in said]


def test_there_is_a_rule_for_every_input() -> None:
    assert set(machine._RULES) == set(get_args(events.Event))


def test_what_is_settled_is_told_and_stored() -> None:
    driven = Driven(Prompt())
    driven.admit(1, 4)
    delivery = driven.taken()
    assert driven.ack(delivery, 1) == [commands.Wake()]
    assert driven.ack(delivery, 0) == [tenure_events.StoreCheckpoint(at(2), at_once=True), commands.Wake()]
    assert driven.ack(delivery, 2) == [tenure_events.StoreCheckpoint(at(3)), commands.Wake()]
    assert driven.handle(tenure_commands.CheckpointStored(at(2))) == [
        tenure_events.StoreCheckpoint(at(3), at_once=True),
        commands.Wake(),
    ]
    assert driven.handle(tenure_commands.CheckpointStored(at(3))) == [commands.Wake()]


def test_a_page_stirs_callers_and_what_of_it_no_handler_gets_is_looked_at() -> None:
    driven = Driven()
    assert driven.handle(events.PageCame((), Position(3))) == []
    assert driven.handle(events.PageCame(recs(4, 2))) == [commands.Wake()]
    assert driven.handle(events.PageCame(recs(6, 2), settled=[0])) == [
        tenure_events.StoreCheckpoint(at(3)),
        commands.Wake(),
    ]
    failed = driven.handle(events.PageCame(recs(8, 1), unreadable={0: ValueError("bad")}))
    assert named(failed) == ["WriteLetter", "Wake"]
    assert numbers(driven.taken().records) == [4, 5]
    assert numbers(driven.taken().records) == [7]


def test_what_is_out_has_an_alarm_and_what_cannot_be_had_while_the_shard_drains_has_none() -> None:
    driven = Driven(settle_deadline_s=60.0, retry=Retry(base_s=5.0))
    driven.admit(1, 2)
    delivery, said = driven.shard.take(10, driven.now_s)
    assert delivery is not None
    assert said == [commands.Alarm(1_060.0)]
    driven.shard.ledger.nack(delivery.ticket, driven.now_s, delay_s=9.0)
    assert driven.shard.take(10, driven.now_s) == (None, [commands.Alarm(1_009.0)])
    driven.handle(DRAIN)
    assert driven.shard.take(10, driven.now_s) == (None, [])
    driven.handle(events.Stop("over"))
    assert driven.shard.take(10, driven.now_s) == (None, [])


def test_what_is_due_by_time_alone_has_an_alarm() -> None:
    driven = Driven(Every(seconds=5.0), settle_deadline_s=60.0)
    driven.admit(1, 2)
    assert driven.ack(driven.taken(1)) == [
        tenure_events.StoreCheckpoint(at(1)),
        commands.Alarm(1_005.0),
        commands.Wake(),
    ]
    assert driven.handle(events.TimerFired(), after_s=5.0) == [
        tenure_events.StoreCheckpoint(at(1), at_once=True),
        commands.Wake(),
    ]
    driven.taken()
    assert driven.handle(events.TimerFired())[-1] == commands.Alarm(1_065.0), "a record may stall"
    assert [type(event).__name__ for event in driven.events] == []
    driven.handle(events.TimerFired(), after_s=60.0)
    assert [type(event).__name__ for event in driven.events] == ["RecordsStalled"]


def test_what_is_settled_while_a_write_is_on_its_way_has_an_alarm_from_its_answer_on() -> None:
    """A renewal would take it along at last, half of ``failover_s`` later."""
    driven = Driven(Every(seconds=5.0))
    driven.admit(1, 2)
    delivery = driven.taken()
    driven.now_s += 5.0
    assert driven.ack(delivery, 0) == [tenure_events.StoreCheckpoint(at(1), at_once=True), commands.Wake()]
    assert driven.ack(delivery, 1) == [tenure_events.StoreCheckpoint(at(2)), commands.Wake()], (
        "one write of its own at a time"
    )
    assert driven.handle(tenure_commands.CheckpointStored(at(1)), after_s=0.1) == [
        commands.Wake(),
        commands.Alarm(1_010.1),
    ]
    assert driven.handle(events.TimerFired(), after_s=5.0) == [
        tenure_events.StoreCheckpoint(at(2), at_once=True),
        commands.Wake(),
    ]


def test_what_the_ledger_tells_is_emitted_before_all_else_that_follows() -> None:
    driven = Driven(settle_deadline_s=60.0, retry=Retry(batch_failures_max=1, failures_max=1, then=GiveUp()))
    driven.admit(1, 2)
    shard, first = driven.shard, driven.taken(1)
    assert named(shard.take(1, driven.now_s + 60.0)[1]) == ["RecordsStalled", "Alarm"]
    shard.ledger.fail(first.ticket, ValueError("bad"), driven.now_s)
    assert named(shard.handle(checkpoint_events.Look(), driven.now_s)) == [
        "BatchFailed",
        "ShardGivenUp",
        "GaveUp",
        "Wake",
    ]
    assert named(shard.handle(checkpoint_events.Look(), driven.now_s)) == named(shard.look(driven.now_s)) == ["Wake"], (
        "each is told once"
    )
    former = shard.ledger
    assert named(shard.handle(events.Seek(driven.new_ledger(Checkpoint.TRIM_HORIZON)), driven.now_s)) == [
        "RecordsUnsettled",
        "Wake",
    ]
    assert former.closed
    assert not former.events


def test_records_that_the_program_cannot_read_are_skipped_or_become_dead_letters() -> None:
    driven = Driven()
    driven.admit(1, 3)
    ledger, delivery = driven.shard.ledger, driven.taken()
    assert driven.handle(events.CannotRead(ledger, delivery.ticket, [(0, ValueError("bad"))], skips=True)) == []
    assert driven.handle(events.CannotRead(ledger, delivery.ticket, [(2, ValueError("bad"))], skips=False)) == []
    assert [event.reason for event in driven.events] == ["unreadable: ValueError"]
    assert named(driven.handle(checkpoint_events.Look())) == ["WriteLetter", "StoreCheckpoint", "Wake"]
    driven.handle(events.Seek(driven.new_ledger(at(0))))
    assert driven.handle(events.CannotRead(ledger, delivery.ticket, [(1, ValueError("bad"))], skips=True)) == []
    assert type(driven.events[-1]).__name__ == "LateSettlement", "it is of the former ledger"


@pytest.mark.parametrize("pending", [True, False])
def test_records_whose_schema_is_not_to_be_had_wait_and_none_of_them_is_at_fault(pending: bool) -> None:
    driven = Driven()
    driven.admit(1, 3)
    for _ in range(5):
        delivery = driven.taken()
        assert len(delivery.records) == 3, "they are not halved"
        error = RegistryError("away", pending=pending)
        assert driven.handle(events.MustWait(driven.shard.ledger, delivery.ticket, error)) == []
        driven.now_s += 60.0
    told = [type(event).__name__ for event in driven.events]
    assert told == ([] if pending else ["BatchFailed"] * 5)
    assert driven.shard.ledger.ending is None


# --- dead letters -------------------------------------------------------------------------------


def given_out(said: list[commands.Command]) -> list[commands.WriteLetter]:
    return [one for one in said if isinstance(one, commands.WriteLetter)]


def test_so_many_letters_are_written_at_once_and_one_that_comes_back_makes_room() -> None:
    driven = Driven(letters_max=2, settle_deadline_s=300.0)
    driven.admit(1, 3)
    ledger = driven.shard.ledger
    ledger.dead_letter(driven.taken().ticket, driven.now_s)
    one, two = given_out(driven.handle(checkpoint_events.Look()))
    assert [given.letter.position for given in (one, two)] == [Position(1), Position(2)]
    assert driven.handle(checkpoint_events.Look()) == [commands.Wake()], "the third waits for its turn"
    assert driven.handle(events.TimerFired()) == [commands.Wake(), commands.Alarm(1_300.0)], (
        "and not for a time that has passed"
    )
    assert driven.shard.take(10, driven.now_s) == (None, [commands.Alarm(1_300.0)])
    assert driven.shard.waits_for(is_asked=False) == "dead letters"
    (three,) = given_out(driven.handle(events.LetterNotWritten(ledger, one.letter, OSError("disk full"))))
    assert three.letter.position == Position(3)
    assert named(driven.handle(events.LetterWritten(ledger, two.letter))) == ["Alarm", "Wake"], (
        "the first is due again later"
    )
    (again,) = given_out(driven.handle(events.TimerFired(), after_s=60.0))
    assert again.letter is one.letter
    assert driven.handle(events.LetterWritten(ledger, three.letter)) == [commands.Wake()]
    assert driven.handle(events.LetterWritten(ledger, one.letter)) == [
        tenure_events.StoreCheckpoint(at(3)),
        commands.Wake(),
    ]
    told = ["DeadLetterFailed", "RecordDeadLettered", "RecordDeadLettered", "RecordDeadLettered"]
    assert [type(event).__name__ for event in driven.events] == told


def test_a_letter_that_waits_for_its_retry_is_written_at_once_when_the_shard_is_about_to_go() -> None:
    """Else the drain ends first, and the next owner has the record and all behind it again."""
    driven = Driven()
    driven.admit(1, 2)
    ledger = driven.shard.ledger
    delivery = driven.taken()
    ledger.dead_letter(delivery.ticket, driven.now_s, [0])
    (out,) = given_out(driven.ack(delivery, 1))
    for _ in range(12):  # the pause has grown to its bound
        driven.handle(events.LetterNotWritten(ledger, out.letter, OSError("disk full")))
        (out,) = given_out(driven.handle(events.TimerFired(), after_s=60.0))
    driven.handle(events.LetterNotWritten(ledger, out.letter, OSError("disk full")))
    assert given_out(driven.handle(events.TimerFired(), after_s=0.0)) == []
    (out,) = given_out(driven.handle(DRAIN))
    driven.handle(SPOKEN)
    driven.handle(events.LetterNotWritten(ledger, out.letter, OSError("disk full")))
    (out,) = given_out(driven.handle(events.TimerFired(), after_s=0.5))
    said = driven.handle(events.LetterWritten(ledger, out.letter))
    assert tenure_events.StoreCheckpoint(at(2)) in said
    assert commands.Drained(True) in said


def test_a_letter_whose_record_is_settled_while_it_waits_for_its_turn_is_not_written() -> None:
    driven = Driven(letters_max=1)
    driven.admit(1, 2)
    ledger, delivery = driven.shard.ledger, driven.taken()
    ledger.dead_letter(delivery.ticket, driven.now_s)
    (one,) = given_out(driven.handle(checkpoint_events.Look()))
    ledger.ack(delivery.ticket, [1])
    assert driven.handle(events.LetterWritten(ledger, one.letter)) == [
        tenure_events.StoreCheckpoint(at(2)),
        commands.Wake(),
    ]


def test_letters_of_a_former_ledger_are_dropped_and_count_for_nothing() -> None:
    driven = Driven(letters_max=1)
    driven.admit(1, 1)
    former = driven.shard.ledger
    former.dead_letter(driven.taken().ticket, driven.now_s)
    (late,) = given_out(driven.handle(checkpoint_events.Look()))
    assert driven.handle(events.Seek(driven.new_ledger(Checkpoint.TRIM_HORIZON))) == [
        commands.DropLetters(),
        commands.Wake(),
    ]
    driven.admit(1, 1)
    driven.shard.ledger.dead_letter(driven.taken().ticket, driven.now_s)
    (again,) = given_out(driven.handle(checkpoint_events.Look()))
    assert again.letter is not late.letter
    assert driven.handle(events.LetterWritten(former, late.letter)) == [commands.Wake()]
    assert driven.shard.ledger.progress.safe == Checkpoint.TRIM_HORIZON
    assert [type(event).__name__ for event in driven.events] == ["RecordsUnsettled", "LateSettlement"]


def test_where_no_letters_are_written_none_is_given_out() -> None:
    driven = Driven(letters_max=0, retry=Retry(batch_failures_max=1, failures_max=1, then=DeadLetters()))
    driven.admit(1, 1)
    driven.shard.ledger.fail(driven.taken().ticket, ValueError("bad"), driven.now_s)
    assert driven.handle(checkpoint_events.Look()) == [commands.Wake()]
    assert driven.handle(events.TimerFired()) == [commands.Wake(), commands.Alarm(1_300.0)]


# --- from stage to stage --------------------------------------------------------------------------


def by_keys() -> Driven:
    """Two keys, of which the second one's record is with a handler."""
    driven = Driven(order=ByKey(slots_max=2))
    driven.shard.ledger.admit([Rec(1, 0, "a"), Rec(2, 0, "b"), Rec(3, 0, "a")], driven.now_s)
    first = driven.taken(1)
    second = driven.taken(1)
    assert (numbers(first.records), numbers(second.records)) == ([1], [2])
    return driven


def test_a_drain_delivers_what_lies_before_and_waits_for_what_is_out() -> None:
    driven = by_keys()
    shard = driven.shard
    driven.admit(4, 1, partition_key="b")
    assert driven.handle(DRAIN) == [commands.Revoking(), commands.Alarm(1_001.0)]
    assert (shard.stage, shard.ledger.may_deliver) == (Stage.DRAINING, MayDeliver.GAPS)
    assert shard.waits_for(is_asked=False) == "handlers"
    assert driven.handle(events.Resume()) == [commands.Resumed(), commands.Wake()]
    assert (shard.stage, shard.ledger.may_deliver) == (Stage.READING, MayDeliver.ALL)


def test_gaps_are_waited_for_while_a_caller_takes_them() -> None:
    driven = Driven(order=ByKey(slots_max=1))
    driven.shard.ledger.admit([Rec(1, 0, "a"), Rec(2, 0, "b"), Rec(3, 0, "a")], driven.now_s)
    delivery = driven.taken(10)
    assert numbers(delivery.records) == [1, 3]
    driven.handle(DRAIN)
    driven.ack(delivery)
    assert driven.shard.waits_for(is_asked=False) is None
    assert driven.shard.waits_for(is_asked=True) == "callers"
    gap = driven.taken(10)
    assert numbers(gap.records) == [2]
    driven.ack(gap)
    assert driven.shard.waits_for(is_asked=True) is None


def test_a_pending_checkpoint_and_letters_are_waited_for() -> None:
    driven = Driven()
    driven.admit(1, 2)
    delivery = driven.taken()
    driven.handle(checkpoint_events.Prepare(at(2), None, at(2)))
    driven.handle(tenure_commands.PendingStored(at(2)))
    driven.handle(DRAIN)
    assert driven.shard.waits_for(is_asked=False) == "handlers"
    driven.ack(delivery)
    assert driven.shard.waits_for(is_asked=False) == "a pending checkpoint"
    pending = driven.shard.checkpoints.pending
    assert pending is not None
    driven.handle(checkpoint_events.Commit(pending))
    assert driven.handle(tenure_commands.CheckpointStored(at(2)))[0] == checkpoint_commands.Answer()
    assert driven.shard.waits_for(is_asked=False) is None


def test_a_drain_is_over_when_the_listeners_have_spoken_and_nothing_is_out() -> None:
    driven = Driven()
    driven.admit(1, 2)
    driven.handle(DRAIN)
    assert driven.handle(SPOKEN) == [commands.Drained(True)]
    assert driven.handle(SPOKEN) == [], "it was said"
    driven.handle(events.Resume())
    delivery = driven.taken()
    driven.handle(DRAIN)
    assert driven.ack(delivery, 0) == [tenure_events.StoreCheckpoint(at(1)), commands.Wake()]
    assert driven.handle(SPOKEN) == []
    assert driven.ack(delivery) == [tenure_events.StoreCheckpoint(at(2)), commands.Drained(True), commands.Wake()]


@pytest.mark.parametrize(("is_said", "is_out"), [(True, True), (False, True), (False, False)])
def test_at_its_deadline_a_drain_is_over_whatever_it_waits_for(is_said: bool, is_out: bool) -> None:
    driven = Driven(settle_deadline_s=9_000.0)
    driven.admit(1, 1)
    delivery = driven.taken()
    driven.handle(DRAIN)
    if is_said:
        driven.handle(SPOKEN)
    driven.handle(events.CallersSeen(False, None), after_s=1.0)
    assert driven.handle(events.TimerFired())[-1] == (commands.Alarm(2_000.0) if is_said else commands.Alarm(1_002.0))
    if not is_out:
        driven.ack(delivery)
    assert driven.handle(events.TimerFired(), after_s=999.0)[0] == commands.Drained(not is_out)


def test_a_drain_whose_listeners_fail_is_over_and_one_that_came_to_nothing_says_nothing() -> None:
    driven = Driven()
    driven.handle(DRAIN)
    assert driven.handle(events.RevokingFailed()) == [commands.Drained(False)]
    driven.handle(events.Resume())
    driven.handle(DRAIN)
    driven.handle(events.Resume())
    assert (
        driven.handle(SPOKEN)
        == driven.handle(events.RevokingFailed())
        == driven.handle(events.CallersSeen(True, None))
        == []
    )
    assert commands.AskForCallers() not in driven.handle(events.TimerFired(), after_s=1_000.0)


def test_what_a_drain_waits_for_is_told_once() -> None:
    driven = Driven()
    driven.admit(1, 3)
    driven.taken(2)
    driven.handle(DRAIN)
    driven.handle(SPOKEN)
    assert driven.handle(events.TimerFired(), after_s=1.0) == [
        commands.AskForCallers(),
        commands.Wake(),
        commands.Alarm(1_300.0),
    ]
    assert driven.handle(events.CallersSeen(False, None)) == []
    assert driven.events == [HandoffWaits("orders", "shard-0", "handlers", 2, Position(1), 999.0)]
    assert driven.handle(events.TimerFired(), after_s=1.0) == [commands.Wake(), commands.Alarm(1_300.0)]


def test_a_function_of_the_program_is_told_when_it_has_run_for_long_and_the_way_to_it_is_not() -> None:
    driven = Driven()
    driven.handle(DRAIN)
    assert driven.handle(events.TimerFired(), after_s=1.0) == [
        commands.AskForCallers(),
        commands.Wake(),
        commands.Alarm(2_000.0),
    ]
    assert driven.handle(events.CallersSeen(False, None)) == [commands.Alarm(1_002.0)]
    assert commands.AskForCallers() in driven.handle(events.TimerFired(), after_s=1.0)
    assert driven.handle(events.CallersSeen(False, ("on_shards_revoked", 0.25))) == [commands.Alarm(1_002.75)]
    assert driven.events == []
    assert commands.AskForCallers() in driven.handle(events.TimerFired(), after_s=0.75)
    assert driven.handle(events.CallersSeen(False, ("on_shards_revoked", 1.0))) == []
    assert driven.events == [HandoffWaits("orders", "shard-0", "on_shards_revoked", 0, None, 997.25)]


def test_callers_that_may_take_the_rest_are_looked_for_again_and_again() -> None:
    driven = Driven(order=ByKey(slots_max=1))
    driven.shard.ledger.admit([Rec(1, 0, "a"), Rec(2, 0, "b"), Rec(3, 0, "a")], driven.now_s)
    delivery = driven.taken(10)
    driven.handle(DRAIN)
    driven.handle(SPOKEN)
    assert driven.ack(delivery) == [tenure_events.StoreCheckpoint(at(1)), commands.AskForCallers(), commands.Wake()]
    assert driven.handle(events.CallersSeen(True, None)) == [commands.Alarm(1_000.1)]
    assert driven.handle(events.TimerFired(), after_s=0.5)[0] == commands.AskForCallers()
    assert driven.handle(events.CallersSeen(False, None)) == [commands.Drained(True)], (
        "the caller has gone, and the rest comes again"
    )
    driven.handle(events.Resume())
    driven.handle(events.Drain(1_001.0))
    assert driven.handle(SPOKEN) == [commands.AskForCallers()]
    assert driven.handle(events.TimerFired(), after_s=1.0)[0] == commands.AskForCallers()
    assert driven.handle(events.CallersSeen(True, None)) == [commands.Drained(False)]


def test_a_shard_that_is_over_waits_for_nothing_but_last_words() -> None:
    driven = Driven()
    driven.admit(1, 1)
    driven.taken()
    driven.handle(DRAIN)
    assert driven.handle(events.Stop("over")) == [commands.Over(), commands.Wake(), commands.Alarm(1_001.0)]
    assert driven.handle(SPOKEN) == [commands.Drained(True)]
    driven.handle(DRAIN)
    assert driven.handle(events.TimerFired(), after_s=1_000.0) == [commands.Drained(True), commands.Wake()]
    late = Driven()
    late.admit(1, 1)
    late.taken()
    late.handle(DRAIN)
    late.handle(SPOKEN)
    assert late.handle(events.Stop("over")) == [commands.Over(), commands.Wake(), commands.Drained(True)]


def test_what_is_put_off_last_in_a_drain_is_left_to_the_next_owner() -> None:
    """The drain is over when the record is back; it is not delivered again before the lease goes."""
    driven = Driven()
    driven.admit(1, 1)
    held = driven.taken()
    driven.handle(DRAIN)
    assert driven.handle(SPOKEN) == []
    driven.shard.ledger.nack(held.ticket, driven.now_s)
    assert driven.handle(checkpoint_events.Look()) == [commands.Drained(True), commands.Wake()]
    assert driven.take() is None
    driven.handle(events.Seek(driven.new_ledger(at(0))))
    driven.admit(1, 1)
    assert driven.take() is None
    driven.handle(DRAIN)
    driven.handle(events.Resume())
    assert numbers(driven.taken().records) == [1], "the shard stays after all"


def test_once_the_shard_is_handed_over_nothing_is_delivered_whatever_comes_late() -> None:
    driven = by_keys()
    driven.handle(DRAIN)
    assert driven.handle(events.HandOver()) == []
    for given in (DRAIN, events.Resume()):
        driven.handle(given)
        assert driven.shard.stage is Stage.LEAVING
        assert driven.take() is None


def test_the_last_checkpoint_is_told_also_once_reading_is_over() -> None:
    driven = Driven()
    driven.admit(1, 2)
    driven.ack(driven.taken(1))
    assert driven.handle(events.Stop("a record cannot be read")) == [commands.Over(), commands.Wake()]
    assert driven.handle(checkpoint_events.Look()) == [commands.Wake()]
    assert driven.handle(events.HandOver()) == [tenure_events.StoreCheckpoint(at(1))]
    assert (driven.shard.stage, driven.shard.over_because) == (Stage.OVER, "a record cannot be read")


def test_it_is_over_once() -> None:
    driven = Driven()
    driven.admit(1, 1)
    delivery = driven.taken()
    assert driven.handle(tenure_commands.LeaseLost(Loss.TAKEN, None)) == [commands.Over(), commands.Wake()]
    assert (driven.shard.lost, driven.shard.over_because) == (Loss.TAKEN, "the lease was lost: taken")
    assert driven.shard.waits_for(is_asked=True) is None
    assert driven.handle(events.Stop("again")) == []
    assert driven.handle(events.Resume()) == []
    assert driven.ack(delivery) == [commands.Wake()], "it counts for nothing"
    assert driven.shard.ledger.closed


def test_a_fence_is_told_and_stirs() -> None:
    driven = Driven()
    assert driven.handle(tenure_commands.FenceFell()) == [commands.FenceMoved(True), commands.Wake()]
    assert driven.handle(tenure_commands.FenceLifted()) == [commands.FenceMoved(False), commands.Wake()]


def test_a_shard_that_is_given_up_is_told_once() -> None:
    driven = Driven(retry=Retry(batch_failures_max=1, failures_max=1, then=GiveUp(cool_down_s=9.0)))
    driven.admit(1, 1)
    driven.shard.ledger.fail(driven.taken().ticket, ValueError("bad"), driven.now_s)
    ending = driven.shard.ledger.ending
    assert ending is not None
    driven.shard.ledger.take_events()
    assert driven.shard.take(10, driven.now_s) == (None, [commands.GaveUp(ending)])
    assert driven.shard.take(10, driven.now_s) == (None, [])
    assert driven.handle(checkpoint_events.Look()) == [commands.Wake()]
    driven.handle(events.Seek(driven.new_ledger(at(0))))
    assert driven.shard.take(10, driven.now_s) == (None, [commands.Alarm(math.inf)]), "another ledger has not given up"


# --- a seek, and the end --------------------------------------------------------------------------


def test_a_seek_begins_another_ledger_in_the_same_stage() -> None:
    driven = Driven(Every(records=3))
    driven.admit(1, 4)
    late = driven.taken()
    driven.ack(late, 0, 1)
    driven.handle(tenure_commands.CheckpointStored(at(2)))
    driven.handle(DRAIN)
    former = driven.shard.ledger
    driven.handle(events.Seek(driven.new_ledger(at(7))))
    assert former.closed
    assert not driven.shard.ledger.closed
    assert driven.shard.ledger.draining
    assert driven.take() is None
    driven.handle(events.Resume())
    assert driven.ack(late) == [commands.Wake()], "it is of the former ledger"
    driven.admit(8, 2)
    assert driven.ack(driven.taken(1)) == [tenure_events.StoreCheckpoint(at(8), at_once=True), commands.Wake()], (
        "three, with those before the seek"
    )


def test_a_seek_is_refused_while_a_checkpoint_is_pending() -> None:
    driven = Driven()
    driven.admit(1, 2)
    former = driven.shard.ledger
    driven.handle(checkpoint_events.Prepare(at(2), None, at(2)))
    with pytest.raises(CheckpointError, match="commit or abandon the pending checkpoint before a seek"):
        driven.handle(events.Seek(driven.new_ledger(at(0))))
    assert driven.shard.ledger is former
    driven.handle(events.Stop("over"))
    assert driven.handle(events.Seek(driven.new_ledger(at(0)))) == []
    assert driven.shard.ledger is former


def test_another_order_drops_nothing_and_reads_nothing_again() -> None:
    driven = Driven()
    driven.admit(1, 2, partition_key="a")
    driven.admit(3, 2, partition_key="b")
    held = driven.taken(1)
    ledger, safe = driven.shard.ledger, driven.shard.ledger.progress.safe
    assert driven.handle(events.Reorder(ByKey(slots_max=4))) == [commands.Wake()]
    assert driven.shard.ledger is ledger
    assert (ledger.progress.safe, ledger.progress.came_to) == (safe, at(4))
    assert numbers(driven.taken().records) == [3, 4], "the key of what is in flight waits"
    driven.ack(held)
    assert numbers(driven.taken().records) == [2]
    assert driven.shard.ledger.progress.safe == at(1)


def test_another_order_while_the_end_is_stored_changes_nothing_of_the_end() -> None:
    driven = Driven()
    driven.admit(1, 1)
    driven.handle(events.Fetched())
    assert driven.ack(driven.taken()) == [tenure_events.StoreCheckpoint(END, at_once=True), commands.Wake()]
    assert (
        driven.handle(events.Reorder(AnyOrder()))
        == driven.handle(checkpoint_events.Look())
        == [tenure_events.StoreCheckpoint(END, at_once=True), commands.Wake()]
    )
    assert driven.handle(tenure_commands.CheckpointStored(END)) == [commands.Over(), commands.Wake()]
    assert driven.handle(events.Reorder(ByKey())) == [commands.Wake()], "it is over, and no order matters"


def test_another_order_keeps_a_pending_checkpoint() -> None:
    driven = Driven()
    driven.admit(1, 2)
    driven.handle(checkpoint_events.Prepare(at(2), None, at(2)))
    driven.handle(events.Reorder(AnyOrder()))
    assert not driven.shard.checkpoints.idle
    assert numbers(driven.taken().records) == [1, 2]


def test_a_shards_end_is_stored_when_all_is_settled() -> None:
    driven = Driven()
    driven.admit(1, 1)
    assert driven.handle(events.Fetched()) == [commands.Wake()]
    assert driven.ack(driven.taken()) == [tenure_events.StoreCheckpoint(END, at_once=True), commands.Wake()]
    assert driven.handle(tenure_commands.CheckpointStored(END)) == [commands.Over(), commands.Wake()]
    assert driven.shard.has_ended
    assert driven.shard.over_because == "the shard has ended"


def test_the_program_is_told_of_the_end_before_it_is_stored() -> None:
    driven = Driven()
    driven.handle(events.HoldEnd())
    driven.admit(1, 1)
    driven.handle(events.Fetched())
    assert driven.ack(driven.taken()) == [commands.TellEnd(), tenure_events.StoreCheckpoint(at(1)), commands.Wake()]
    assert driven.handle(checkpoint_events.Look()) == [commands.Wake()]
    assert driven.shard.end is End.TELLING
    assert driven.handle(events.HoldEnd()) == []
    assert driven.handle(events.EndTold()) == [tenure_events.StoreCheckpoint(END, at_once=True), commands.Wake()]


# --- all that can happen --------------------------------------------------------------------------


class Tenures(RuleBasedStateMachine):
    """A shard under everything that may happen to it, with a lease's machine that stores what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.driven = Driven(Every(records=3, seconds=4.0), letters_max=2, order=ByKey(slots_max=2))
        self.came = 0
        self.out: list[Delivery[Rec]] = []
        self.stored = Checkpoint.TRIM_HORIZON
        self.to_store: list[tenure_events.StoreCheckpoint | tenure_events.StorePending] = []
        self.ends = 0
        self.overs = 0
        self.is_drained = True
        self.letters: list[commands.WriteLetter] = []

    def handle(self, given: events.Event, *, after_s: float = 0.0) -> None:
        shard = self.driven.shard
        before = shard.stage
        for output in self.driven.handle(given, after_s=after_s):
            match output:
                case tenure_events.StoreCheckpoint(checkpoint=checkpoint):
                    assert checkpoint <= max(shard.ledger.progress.safe, self.stored), "it is ahead of what is settled"
                    assert not (checkpoint.is_end and shard.end is not End.FREE), "the program was not told of the end"
                    self.to_store.append(output)
                case tenure_events.StorePending():
                    self.to_store.append(output)
                case commands.TellEnd():
                    self.ends += 1
                    assert shard.ledger.progress.safe.is_end
                case commands.Over():
                    self.overs += 1
                case commands.AskForCallers():
                    self.handle(events.CallersSeen(bool(self.out), None))
                case commands.Drained(in_time=in_time):
                    assert not self.is_drained, "each drain is over once"
                    self.is_drained = True
                    assert in_time <= (shard.waits_for(is_asked=False) is None)
                case commands.WriteLetter():
                    self.letters.append(output)
                    assert sum(one.ledger is shard.ledger for one in self.letters) <= 2
        allowed = {
            Stage.READING: set(Stage),
            Stage.DRAINING: set(Stage),
            Stage.LEAVING: {Stage.LEAVING, Stage.OVER},
            Stage.OVER: {Stage.OVER},
        }
        assert shard.stage in allowed[before]

    @rule(count=st.integers(1, 4), key=st.sampled_from("ab"))
    def page(self, count: int, key: str) -> None:
        if not self.driven.shard.ledger.progress.came_to.is_end:
            self.driven.admit(self.came + 1, count, partition_key=key)
            self.came += count

    @rule(records_max=st.integers(1, 3))
    def take(self, records_max: int) -> None:
        delivery = self.driven.take(records_max)
        if delivery is not None:
            assert self.driven.shard.stage in (Stage.READING, Stage.DRAINING)
            self.out.append(delivery)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        delivery = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        self.driven.shard.ledger.ack(delivery.ticket)
        self.handle(checkpoint_events.Look())

    @rule(
        given=st.sampled_from(
            [
                events.Resume(),
                checkpoint_events.Flush(),
                checkpoint_events.Look(),
                events.TimerFired(),
                tenure_commands.FenceFell(),
                tenure_commands.FenceLifted(),
            ]
        )
    )
    def happens(self, given: events.Event) -> None:
        self.is_drained = self.is_drained or isinstance(given, events.Resume)
        self.handle(given)

    @rule(seconds=st.sampled_from([0.5, 7.0]))
    def drains(self, seconds: float) -> None:
        self.is_drained = False
        self.handle(events.Drain(self.driven.now_s + seconds))

    @rule(given=st.sampled_from([events.RevokingDone(), events.RevokingFailed()]))
    def speaks(self, given: events.Event) -> None:
        self.handle(given)

    @precondition(lambda self: self.out)
    @rule()
    def writes_a_letter(self) -> None:
        self.driven.shard.ledger.dead_letter(self.out.pop().ticket, self.driven.now_s)
        self.handle(checkpoint_events.Look())

    @precondition(lambda self: self.letters)
    @rule(is_written=st.booleans())
    def writes(self, is_written: bool) -> None:
        given = self.letters.pop(0)
        if is_written:
            self.handle(events.LetterWritten(given.ledger, given.letter))
        else:
            self.handle(events.LetterNotWritten(given.ledger, given.letter, OSError("disk full")))

    @rule(seconds=st.sampled_from([0.5, 5.0]))
    def time(self, seconds: float) -> None:
        self.handle(events.TimerFired(), after_s=seconds)

    @rule(back=st.integers(0, 4))
    def prepares(self, back: int) -> None:
        try:
            self.handle(
                checkpoint_events.Prepare(at(max(0, self.came - back)), None, self.driven.shard.ledger.progress.came_to)
            )
        except CheckpointError:
            return

    @rule(commits=st.booleans())
    def decides(self, commits: bool) -> None:
        pending = self.driven.shard.checkpoints.pending or Pending(at(0), None)
        try:
            self.handle(checkpoint_events.Commit(pending) if commits else checkpoint_events.Abandon(pending))
        except CheckpointError:
            return

    @rule(back=st.integers(0, 5))
    def seeks(self, back: int) -> None:
        to = max(0, self.came - back)
        try:
            self.handle(events.Seek(self.driven.new_ledger(at(to))))
        except CheckpointError:
            return
        if not self.driven.shard.is_over:
            self.came = to

    @rule(order=st.sampled_from([None, AnyOrder(), ByKey(slots_max=2)]))
    def reorders(self, order: Any) -> None:
        self.handle(events.Reorder(order))

    @rule()
    def bounds(self) -> None:
        self.handle(checkpoint_events.SetBound(at(self.came)))
        self.handle(checkpoint_events.Look())

    @precondition(lambda self: self.driven.shard.end is End.FREE and not self.ends)
    @rule()
    def holds(self) -> None:
        self.handle(events.HoldEnd())

    @rule()
    def ends_here(self) -> None:
        self.handle(events.Fetched())

    @precondition(lambda self: self.driven.shard.end is End.TELLING)
    @rule()
    def is_told(self) -> None:
        self.handle(events.EndTold())

    @precondition(lambda self: self.to_store)
    @rule()
    def stores(self) -> None:
        write = self.to_store.pop(0)
        if isinstance(write, tenure_events.StorePending):
            self.handle(tenure_commands.PendingStored(write.checkpoint))
            return
        self.stored = max(self.stored, write.checkpoint)
        self.handle(tenure_commands.CheckpointStored(self.stored))

    @rule(
        given=st.sampled_from([events.HandOver(), events.Stop("over"), tenure_commands.LeaseLost(Loss.GONE, None)]),
        chance=st.integers(0, 9),
    )
    def leaves(self, given: events.Event, chance: int) -> None:
        if chance == 0:
            self.handle(given)

    @invariant()
    def it_is_over_and_ends_once(self) -> None:
        shard = self.driven.shard
        assert self.overs == (shard.stage is Stage.OVER)
        assert self.ends <= 1
        assert self.is_drained == (shard.drain is None)
        assert shard.ledger.closed == (shard.stage is Stage.OVER)
        if shard.stage is not Stage.OVER:
            assert shard.ledger.draining == (shard.stage is not Stage.READING)
            is_leaving = shard.stage is Stage.LEAVING or (shard.stage is Stage.DRAINING and shard.drain is None)
            assert (shard.ledger.may_deliver is MayDeliver.NOTHING) == is_leaving


def test_whatever_happens_a_shard_keeps_its_rules() -> None:
    run_state_machine_as_test(
        Tenures,
        settings=settings(
            max_examples=100, stateful_step_count=40, derandomize=True, database=None, deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
