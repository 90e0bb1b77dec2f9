"""Whatever is delivered, settled, put off and given up, in whatever order: what a ledger says is what is so.

The model beside it is a list with one entry for each record, and looks at all of it each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from shardway.core.leases.checkpoint import Checkpoint
from shardway.model import Position
from shardway.policies import AnyOrder, ByKey, DeadLetters, GiveUp, InOrder, Redeliver, Retry, Skip
from tests.core.ledger.ledger_kit import Kept, Rec

if TYPE_CHECKING:
    from shardway.core.ledger.letters import DeadLetter
    from shardway.core.ledger.ticket import Delivery

NEW, OUT, WAITING, LETTER, SETTLED = "new", "out", "waiting", "letter", "settled"
DEADLINE_S = 50.0


class Entry:
    """What the model knows of a record."""

    def __init__(self, record: Rec) -> None:
        self.record = record
        self.position = Position(record.sequence_number, record.sub_sequence_number)
        self.state = NEW
        self.delivery: Delivery[Any] | None = None
        self.times = 0
        self.put_off = False

    def put(self, state: str) -> None:
        """Its handler has said so."""
        self.state, self.put_off = state, True


class Histories(RuleBasedStateMachine):
    order: Any = InOrder()
    latest_wins = False
    orders: tuple[Any, ...] = ()
    """The orders that a program asks for while it runs."""

    @initialize(
        halve=st.booleans(), attempts=st.sampled_from([1, 2, None]),
        then=st.sampled_from([DeadLetters(), Skip(), GiveUp()]),
        stalled=st.sampled_from(
            [Redeliver(times_max=1, then=DeadLetters()), Redeliver(times_max=9), Skip(), DeadLetters()]
        ),
    )  # fmt: skip
    def begin(self, halve: bool, attempts: int | None, then: Any, stalled: Any) -> None:
        retry = Retry(halve=halve, failures_max=attempts, then=then, batch_failures_max=2, base_s=1.0, cap_s=8.0)
        self.kept = Kept(
            order=self.order, retry=retry, stalled=stalled, settle_deadline_s=DEADLINE_S, latest_wins=self.latest_wins
        )
        self.ledger = self.kept.ledger
        self.entries: list[Entry] = []
        self.deliveries: list[tuple[Delivery[Any], list[Entry]]] = []
        self.letters: list[DeadLetter[Any]] = []
        self.sequence = 100
        self.ends = Checkpoint.TRIM_HORIZON
        self.by_name: dict[Position, Entry] = {}
        self.former: set[int] = set()  # The deliveries of another order, which take none of the slots of this one.

    # --- what happens ---

    @rule(shape=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=12), big=st.integers(0, 60),
          without=st.sets(st.integers(0, 8), max_size=3), unreadable=st.sets(st.integers(0, 8), max_size=2),
          beyond=st.integers(0, 2))  # fmt: skip
    def admit(self, shape: Any, big: int, without: set[int], unreadable: set[int], beyond: int) -> None:
        records = []
        for subs, key in [*shape, *((1, number % 3) for number in range(big))]:
            self.sequence += 1
            records += [Rec(self.sequence, sub, f"key {key}") for sub in range(subs)]
        self.sequence += beyond
        settled = {place for place in without if place < len(records)}
        bad = {place: OSError() for place in unreadable if place < len(records)}
        ends_at = Position(self.sequence, 9) if beyond else None
        self.kept.admit(records, ends_at=ends_at, settled=sorted(settled), unreadable=bad)
        for place, record in enumerate(records):
            entry = Entry(record)
            entry.state = SETTLED if place in settled else LETTER if place in bad else NEW
            self.entries.append(entry)
            self.by_name[entry.position] = entry
        if ends_at is not None:
            self.ends = Checkpoint.at(ends_at)
        elif records:
            self.ends = Checkpoint.at(self.entries[-1].position)
        self.bound = self.ends

    @rule(most=st.sampled_from([1, 2, 7, 1000]))
    def deliver(self, most: int) -> None:
        delivery = self.ledger.deliver(self.kept.now_s, most)
        if delivery is None:
            if self.ledger.ending is None:
                self.nothing_was_due()
            return
        assert self.ledger.ending is None
        got = [self.by_name[Position(each.sequence_number, each.sub_sequence_number)] for each in delivery.records]
        assert got
        assert len(got) <= most or got[0].state == WAITING
        assert [entry.position for entry in got] == sorted(entry.position for entry in got)
        self.may_be_delivered(got)
        for entry in got:
            assert entry.state in (NEW, WAITING)
            entry.state, entry.delivery, entry.times = OUT, delivery, entry.times + 1
            assert delivery.attempt == entry.times
        self.deliveries.append((delivery, got))

    def may_be_delivered(self, got: list[Entry]) -> None:
        states = {entry.state for entry in got}
        assert len(states) == 1
        if self.order == InOrder():
            assert [entry for entry in self.entries if entry.state in (NEW, WAITING)][: len(got)] == got
        if isinstance(self.order, ByKey):
            keys = {entry.record.partition_key for entry in got}
            assert len(keys) == 1
            same = [entry for entry in self.entries if entry.record.partition_key in keys]
            assert not any(entry.state == OUT for entry in same)
            assert [entry for entry in same if entry.state in (NEW, WAITING)][: len(got)] == got
            busy = {id(entry.delivery) for entry in self.entries if entry.state == OUT} - self.former
            assert len(busy) < self.order.slots_max
        if states == {NEW} and not isinstance(self.order, ByKey):
            assert next(entry for entry in self.entries if entry.state == NEW) is got[0]

    def nothing_was_due(self) -> None:
        ready = [entry for entry in self.entries if entry.state == NEW]
        if not ready or any(entry.state == WAITING for entry in self.entries):
            return
        assert isinstance(self.order, ByKey)
        out = {entry.record.partition_key for entry in self.entries if entry.state == OUT}
        busy = {id(entry.delivery) for entry in self.entries if entry.state == OUT} - self.former
        assert len(busy) == self.order.slots_max or {entry.record.partition_key for entry in ready} <= out

    def some(self, data: st.DataObject) -> tuple[Delivery[Any], list[Entry], list[int] | None]:
        """A delivery of any age, and some of its records; None for all."""
        number = data.draw(st.integers(0, len(self.deliveries) - 1))
        delivery, entries = self.deliveries[-1 - number]
        if data.draw(st.booleans()):
            return delivery, entries, None
        chosen = data.draw(st.sets(st.integers(0, len(entries) - 1), min_size=1, max_size=5))
        indices = sorted(chosen)
        return delivery, [entries[index] for index in indices], [delivery.places[index] for index in indices]

    def has_deliveries(self) -> bool:
        return bool(self.deliveries)

    @precondition(has_deliveries)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        delivery, entries, places = self.some(data)
        assert self.ledger.ack(delivery.ticket, places)
        self.settle(delivery, entries, all_of_it=places is None)
        if self.latest_wins:
            self.pass_all_before(entries[-1])

    def settle(self, delivery: Delivery[Any], entries: list[Entry], *, all_of_it: bool) -> None:
        for entry in entries:
            with_it = entry.state == OUT and entry.delivery is delivery
            if with_it or not all_of_it or not entry.put_off:
                entry.state = SETTLED

    def pass_all_before(self, last: Entry) -> None:
        for entry in self.entries[: self.entries.index(last)]:
            if entry.state in (OUT, WAITING):
                entry.state = SETTLED

    @precondition(has_deliveries)
    @rule(data=st.data())
    def ack_one(self, data: st.DataObject) -> None:
        delivery, entries = data.draw(st.sampled_from(self.deliveries))
        index = data.draw(st.integers(0, len(entries) - 1))
        assert self.ledger.ack(delivery.ticket, [delivery.places[index]])
        entries[index].state = SETTLED
        if self.latest_wins:
            self.pass_all_before(entries[index])

    @precondition(has_deliveries)
    @rule(data=st.data())
    def skip(self, data: st.DataObject) -> None:
        delivery, entries, places = self.some(data)
        assert self.ledger.skip(delivery.ticket, places)
        self.settle(delivery, entries, all_of_it=places is None)

    @precondition(has_deliveries)
    @rule(data=st.data(), delay_s=st.sampled_from([0.0, 3.0]))
    def nack(self, data: st.DataObject, delay_s: float) -> None:
        delivery, entries, places = self.some(data)
        assert self.ledger.nack(delivery.ticket, self.kept.now_s, places, delay_s=delay_s)
        for entry in entries:
            if entry.state == OUT and entry.delivery is delivery:
                entry.put(WAITING)

    @precondition(has_deliveries)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        delivery, entries, places = self.some(data)
        mine = [entry for entry in entries if entry.state == OUT and entry.delivery is delivery]
        told = len(self.kept.told)
        assert self.ledger.fail(delivery.ticket, KeyError("x"), self.kept.now_s, places)
        assert (len(self.kept.told) > told) == bool(mine)
        if mine:
            step = self.kept.told[told].next_step
            assert self.kept.told[told].records == len(mine)
            for entry in mine:
                entry.put({"DeadLetters": LETTER, "Skip": SETTLED}.get(step, WAITING))
            assert (self.ledger.ending is not None) >= (step == "GiveUp")

    @precondition(has_deliveries)
    @rule(data=st.data())
    def dead_letter(self, data: st.DataObject) -> None:
        delivery, entries, places = self.some(data)
        assert self.ledger.dead_letter(delivery.ticket, self.kept.now_s, places)
        for entry in entries:
            if entry.state == OUT and entry.delivery is delivery:
                entry.put(LETTER)

    @precondition(has_deliveries)
    @rule(data=st.data())
    def settle_through(self, data: st.DataObject) -> None:
        delivery, entries = data.draw(st.sampled_from(self.deliveries))
        index = data.draw(st.integers(0, len(entries) - 1))
        if isinstance(self.order, ByKey):
            with pytest.raises(ValueError, match="ByKey"):
                self.ledger.settle_through(delivery.ticket, delivery.places[index])
            return
        assert self.ledger.settle_through(delivery.ticket, delivery.places[index])
        if entries[index].state != LETTER:
            entries[index].state = SETTLED
        self.pass_all_before(entries[index])

    @precondition(lambda self: self.orders)
    @rule(data=st.data())
    def reorder(self, data: st.DataObject) -> None:
        order = data.draw(st.sampled_from(self.orders))
        if order != self.order:
            self.former = {id(delivery) for delivery, _ in self.deliveries}
        self.order = order
        self.ledger.reorder(order)

    @rule()
    def take_back(self) -> None:
        self.ledger.take_back(self.kept.now_s)
        for entry in self.entries:
            if entry.state == OUT:
                entry.state = WAITING

    @rule(written=st.booleans(), how_many=st.integers(1, 5))
    def write_letters(self, written: bool, how_many: int) -> None:
        self.letters += self.ledger.letters.take(self.kept.now_s)
        for letter in self.letters[:how_many]:
            entry = self.by_name[letter.position]
            assert entry.state in (LETTER, SETTLED)
            assert letter.attempts == entry.times
            assert letter.record is entry.record
            if written:
                self.ledger.letters.written(letter)
                entry.state = SETTLED
            else:
                self.ledger.letters.not_written(letter, OSError(), self.kept.now_s, hurries=self.ledger.draining)
        del self.letters[:how_many]

    @rule(seconds=st.sampled_from([0.5, 9.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        told = len(self.kept.told)
        before = {entry.position: entry.state for entry in self.entries}
        self.kept.later(seconds)
        stalled = [event for event in self.kept.told[told:] if type(event).__name__ == "RecordsStalled"]
        assert sum(event.records for event in stalled) <= sum(state not in (NEW, SETTLED) for state in before.values())
        if not stalled:
            return
        actions = {event.action for event in stalled}
        seen = self.told_now()
        for entry in self.entries:
            now = seen.get(entry.position, SETTLED)
            if now != entry.state:
                assert entry.state in (OUT, WAITING)
                assert now in {SETTLED, WAITING, LETTER}
                assert (now == SETTLED) <= ("Skip" in actions)
                assert (now == LETTER) <= ("DeadLetters" in actions)
                assert (now == WAITING) <= ("Redeliver" in actions)
                entry.state = now
                entry.put_off |= now == LETTER

    def told_now(self) -> dict[Position, str]:
        """Where the ledger has each record that was delivered and is not settled, from the inside."""
        found = {}
        for root in self.ledger._book.stalls:
            for ticket, places in self.ledger._book.by_ticket(root).items():
                found.update({ticket.page.position(place): ticket.where.value for place in places})
        return found | {entry.position: NEW for entry in self.entries if entry.state == NEW}

    # --- what holds ---

    @invariant()
    def the_checkpoint_is_the_end_of_the_settled_prefix(self) -> None:
        expected, prefix = Checkpoint.TRIM_HORIZON, 0
        for entry in self.entries:
            if entry.state != SETTLED:
                break
            expected, prefix = Checkpoint.at(entry.position), prefix + 1
        else:
            expected = self.ends
        safe = self.ledger.progress.safe
        if prefix < len(self.entries):  # a page may end behind its last record
            assert expected <= safe
            assert safe < Checkpoint.at(self.entries[prefix].position)
            assert safe == expected or safe.position.sub_sequence_number == 9
            assert self.ledger.progress.oldest == self.entries[prefix].position
        else:
            assert safe == expected
            assert self.ledger.progress.oldest is None
        assert self.ledger.progress.settled_records == prefix
        assert self.ledger.progress.done_records == len(self.entries) - self.ledger.held.records

    @invariant()
    def all_is_counted(self) -> None:
        left = [entry for entry in self.entries if entry.state != SETTLED]
        assert self.ledger.held.records == len(left)
        assert self.ledger.held.held_bytes >= sum(len(entry.record.data) for entry in left)
        if not left:
            assert self.ledger.held.held_bytes == 0
        assert self.ledger.out == sum(entry.state == OUT for entry in left)
        assert self.ledger.progress.unsettled() == [entry.position for entry in left if entry.state != NEW]

    def teardown(self) -> None:
        """Nothing is stuck: a program that goes on and settles reaches the end."""
        if not hasattr(self, "kept"):
            return
        self.ledger.take_back(self.kept.now_s)
        letters = self.letters
        if self.ledger.ending is not None:  # its handoff waits only for letters
            assert self.ledger.drained == all(entry.state != LETTER for entry in self.entries)
            return
        for _ in range(10 * len(self.entries) + 10):
            self.kept.now_s += 10
            for letter in [*letters, *self.ledger.letters.take(self.kept.now_s)]:
                assert self.ledger.letters.written(letter)
            letters = []
            while (delivery := self.ledger.deliver(self.kept.now_s)) is not None:
                assert self.ledger.ack(delivery.ticket)
            if not self.ledger.held.records:
                break
        assert self.ledger.progress.safe == self.ends
        self.ledger.end()
        assert self.ledger.progress.safe == Checkpoint.SHARD_END
        assert self.ledger.close("stop").unsettled == 0


class AnyOrderHistories(Histories):
    order = AnyOrder()


class ByKeyHistories(Histories):
    order = ByKey(slots_max=2)


class LatestWinsHistories(Histories):
    latest_wins = True


class ReorderHistories(Histories):
    orders = (InOrder(), AnyOrder(), ByKey(slots_max=2), ByKey(slots_max=3))


def live(machine: type[RuleBasedStateMachine], examples: int, steps: int, *, derandomize: bool = True) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, derandomize=derandomize, database=None, deadline=None,
            phases=[Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck), print_blob=True,
        ),
    )  # fmt: skip


MACHINES = [Histories, AnyOrderHistories, ByKeyHistories, LatestWinsHistories, ReorderHistories]


@pytest.mark.parametrize("machine", MACHINES)
def test_what_the_ledger_says_is_so(machine: type[Histories]) -> None:
    live(machine, 60, 40)


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
def test_what_the_ledger_says_is_so_in_many_more_histories(machine: type[Histories]) -> None:
    live(machine, 1_000, 80, derandomize=False)
