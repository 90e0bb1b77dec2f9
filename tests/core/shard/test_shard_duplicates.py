"""Duplicates of a shard: what is left out, and what is kept back until the window is known."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from shardway.core.leases import LeaseRow
from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.ledger.ledger import Ledger
from shardway.core.ledger.policy import LedgerPolicy
from shardway.core.shard import commands, events
from shardway.core.shard.checkpoints.cadence import Riding
from shardway.core.shard.checkpoints.machine import begin
from shardway.core.shard.duplicates import Admit, Deduplicate, Duplicates, KeyedRecord, PageRead, Window
from shardway.core.shard.machine import ShardMachine
from shardway.events import DedupeWindowCut, DedupeWindowRebuilding, DuplicatesLeftOut
from shardway.model import Position
from shardway.policies import PendingChoice
from tests.core.ledger.ledger_kit import Rec, at, numbers
from tests.momentary import now

if TYPE_CHECKING:
    pass

WHERE = ("orders", "shard-0")


def new_ledger(after: Checkpoint) -> Ledger[Rec]:
    return Ledger(*WHERE, after, LedgerPolicy(), rng=Random(1))


class Driven:
    """A shard of which duplicates are left out, with what it has admitted and told."""

    def __init__(self, *, wait: bool, **choice: Any) -> None:
        self.duplicates = Duplicates(Deduplicate(key=lambda record: record.data, wait=wait, **choice), *WHERE)
        row = LeaseRow(key="a", checkpoint=at(0))
        begun = begin(row, PendingChoice.ABANDON, where="orders, shard-0", cadence=Riding(), bound=None, now_s=0.0)
        self.shard: ShardMachine[Rec] = ShardMachine(new_ledger(at(0)), begun.checkpoints, duplicates=self.duplicates)
        self.events: list[Any] = []
        self.admitted: list[list[int]] = []

    def handle(self, given: events.Event) -> None:
        for output in self.shard.handle(given, 0.0):
            if isinstance(output, commands.Emit):
                self.events.append(output.event)
            elif isinstance(output, Admit):
                kept = [place for place in range(len(output.records)) if place not in output.twins]
                self.admitted.append([output.records[place].sequence_number for place in kept])
                self.handle(events.PageCame(output.records, output.ends_at, output.held_bytes, output.twins))

    def page(self, first: int, keys: str, *, held_bytes: int | None = None, ends_at: int | None = None) -> None:
        """Records from ``first`` on, each with a letter as its key."""
        records = [Rec(first + place) for place in range(len(keys))]
        end = None if ends_at is None else Position(ends_at)
        self.handle(PageRead(records, end, held_bytes, keyed(keys)))

    def taken(self) -> list[int]:
        delivery = self.shard.ledger.deliver(0.0)
        return [] if delivery is None else numbers(delivery.records)


def keyed(keys: str) -> list[KeyedRecord | None]:
    """A dash stands for a record without a key."""
    return [None if key == "-" else KeyedRecord.of(key, 1.0) for key in keys]


def test_duplicates_are_left_out_and_told() -> None:
    driven = Driven(wait=False)
    driven.duplicates.is_read()
    driven.page(1, "ab-a-")
    driven.page(6, "bc")
    assert driven.admitted == [[1, 2, 3, 5], [7]]
    left_out = [DuplicatesLeftOut(*WHERE, 1, Position(4), 8), DuplicatesLeftOut(*WHERE, 1, Position(6), 8)]
    assert driven.events == left_out
    assert driven.taken() == [1, 2, 3, 5]


def test_with_wait_pages_are_kept_back_until_the_window_is_known() -> None:
    driven = Driven(wait=True)
    driven.page(1, "ab", held_bytes=50)
    shard = driven.shard
    assert now(shard.keeps_pages)
    assert not now(shard.is_kept_waiting), "the next page may be what the window begins with"
    driven.duplicates.begins()
    assert shard.is_kept_waiting
    driven.page(3, "cd", held_bytes=70)
    assert shard.ledger.held.held_bytes == 120
    assert (driven.admitted, driven.taken()) == ([], [])
    assert driven.events == [DedupeWindowRebuilding(*WHERE, True)]
    driven.duplicates.learn(keyed("b"))
    driven.handle(events.WindowKnown())
    assert driven.admitted == [], "it is not known yet"
    driven.duplicates.is_read()
    driven.handle(events.WindowKnown())
    assert driven.admitted == [[1], [3, 4]]
    assert not shard.keeps_pages
    assert shard.ledger.held.held_bytes == 120
    assert driven.events[1:] == [DuplicatesLeftOut(*WHERE, 1, Position(2), 8)]


def test_of_a_silence_only_its_end_is_kept() -> None:
    driven = Driven(wait=True)
    for ends_at in (None, 2, None, 3):
        driven.page(1, "", ends_at=ends_at)
    assert driven.shard.ledger.progress.safe == at(0)
    driven.duplicates.is_read()
    driven.handle(events.WindowKnown())
    assert driven.admitted == [[]]
    assert driven.shard.ledger.progress.safe == at(3)
    driven.page(4, "")
    assert driven.admitted == [[]], "a page that says nothing is no page"


def test_without_wait_records_are_delivered_at_once_and_counted() -> None:
    driven = Driven(wait=False)
    driven.page(1, "ab")
    driven.page(3, "b")
    assert driven.admitted == [[1, 2], []]
    assert driven.duplicates.delivered_early == 2
    assert driven.events[0] == DedupeWindowRebuilding(*WHERE, False)
    driven.duplicates.is_read()
    driven.page(4, "c")
    assert driven.duplicates.delivered_early == 2


def test_a_bound_is_told_with_the_page_that_met_it() -> None:
    driven = Driven(wait=False, keys_max=2)
    driven.duplicates.is_read()
    driven.page(1, "abc")
    assert [type(event) for event in driven.events] == [DedupeWindowCut]


def test_what_the_former_owner_has_delivered_is_remembered() -> None:
    driven = Driven(wait=False)
    driven.duplicates.is_read()
    driven.duplicates.follow(keyed("a"))
    driven.page(1, "ab")
    assert driven.admitted == [[2]]


def test_a_seek_forgets_what_came_before() -> None:
    driven = Driven(wait=True)
    driven.duplicates.begins()
    driven.duplicates.learn(keyed("a"))
    driven.page(1, "b")
    driven.handle(events.Seek(new_ledger(at(0))))
    assert driven.duplicates.state is Window.KNOWN
    assert not driven.shard.keeps_pages
    driven.page(1, "ab")
    assert driven.admitted == [[1, 2]]
    driven.duplicates.begins()
    assert driven.duplicates.state is Window.KNOWN, "it is read no more"
    driven.handle(events.Stop("over"))
    driven.handle(events.Seek(new_ledger(at(0))))
    assert len(driven.duplicates.window) == 2, "and not once the shard is over"


def test_without_duplicates_each_page_goes_on_as_it_came() -> None:
    driven = Driven(wait=True)
    driven.shard.duplicates = None
    driven.page(1, "aa")
    driven.page(3, "")
    driven.handle(events.WindowKnown())
    assert driven.admitted == [[1, 2]]
    assert not driven.shard.keeps_pages
    assert not driven.shard.is_kept_waiting
