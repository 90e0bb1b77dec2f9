"""One record, many parts."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.ledger.ledger import MayDeliver
from shardway.core.ledger.parts import Part, SplitError, split
from shardway.model import Position, Record
from shardway.policies import AnyOrder, ByKey, InOrder
from tests.core.ledger.ledger_kit import Kept, Rec, at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from shardway.policies import OrderPolicy


def words(record: Rec) -> list[bytes]:
    return record.data.split()


def admit(kept: Kept, records: list[Rec], **more: Any) -> None:
    parts = split(records, words, **more)
    kept.admit(parts.records, settled=parts.settled, unreadable=parts.unreadable)


def test_a_record_is_settled_when_all_of_its_parts_are() -> None:
    kept = Kept()
    admit(kept, [Rec(1, data=b"a b c"), Rec(2, 0, data=b"d"), Rec(2, 1, data=b"e f")])
    delivery = kept.deliver()
    assert [(part.value, part.part, part.parts) for part in delivery.records] == [
        (b"a", 0, 3), (b"b", 1, 3), (b"c", 2, 3), (b"d", 0, 1), (b"e", 0, 2), (b"f", 1, 2),
    ]  # fmt: skip
    kept.ledger.ack(delivery.ticket, [0, 1, 3, 4])
    assert kept.ledger.progress.safe == Checkpoint.TRIM_HORIZON
    kept.ledger.ack(delivery.ticket, [2])
    assert kept.ledger.progress.safe == at(2, 0)
    kept.ledger.ack(delivery.ticket, [5])
    assert kept.ledger.progress.safe == at(2, 1)


@given(st.lists(st.integers(0, 6), max_size=20), st.randoms(use_true_random=False))
def test_in_whatever_order_parts_are_settled(shape: list[int], random: Random) -> None:
    kept = Kept()
    records = [Rec(1 + number, data=b"x " * parts) for number, parts in enumerate(shape)]
    admit(kept, records)
    left = list(shape)
    delivery = kept.ledger.deliver(kept.now_s)
    places = [] if delivery is None else list(zip(delivery.places, delivery.records, strict=True))
    assert len(places) == sum(shape)
    random.shuffle(places)
    for place, part in [*places, (None, None)]:
        done = next((number for number, parts in enumerate(left) if parts), len(left))
        assert kept.ledger.progress.safe == (at(done) if done else Checkpoint.TRIM_HORIZON)
        if place is not None:
            assert delivery is not None
            kept.ledger.ack(delivery.ticket, [place])
            left[part.sequence_number - 1] -= 1


def test_a_record_without_parts_is_settled_and_holds_nothing_up() -> None:
    kept = Kept()
    admit(kept, [Rec(1, data=b""), Rec(2, data=b"a"), Rec(3, data=b"")])
    assert kept.ledger.progress.safe == at(1)
    delivery = kept.deliver()
    assert len(delivery.records) == 1
    kept.ledger.ack(delivery.ticket)
    assert kept.ledger.progress.safe == at(3)


def test_duplicates_are_not_split() -> None:
    kept = Kept()
    admit(kept, [Rec(1, data=b"a b"), Rec(2, data=b"c d"), Rec(3, data=b"e f")], without=[0, 2])
    delivery = kept.deliver()
    assert [part.value for part in delivery.records] == [b"c", b"d"]
    kept.ledger.ack(delivery.ticket)
    assert kept.ledger.progress.safe == at(3)


def test_a_part_that_fails_comes_again_alone_and_a_dead_letter_names_it() -> None:
    kept = Kept()
    admit(kept, [Rec(1, data=b"a b c")])
    delivery = kept.deliver()
    kept.ledger.ack(delivery.ticket, [0, 2])
    kept.ledger.nack(delivery.ticket, kept.now_s)
    again = kept.deliver()
    assert again.records[0] is delivery.records[1]
    kept.ledger.dead_letter(again.ticket, kept.now_s)
    (letter,) = kept.ledger.letters.take(kept.now_s)
    assert (letter.position, letter.part, letter.attempts) == (Position(1), 1, 2)
    kept.ledger.letters.written(letter)
    assert kept.ledger.progress.safe == at(1)


def test_a_record_that_can_not_be_split_is_unreadable() -> None:
    def half(record: Rec) -> Iterator[bytes]:
        yield b"first"
        raise ValueError(record.data)

    kept = Kept()
    parts = split([Rec(1, data=b"secret")], half)
    assert parts.settled == []
    kept.admit(parts.records, unreadable=parts.unreadable)
    assert kept.nothing()
    (letter,) = kept.ledger.letters.take(kept.now_s)
    assert (letter.record, letter.error_type, letter.part) == (Rec(1, data=b"secret"), "ValueError", None)


def test_there_is_a_bound_and_endless_functions_end() -> None:
    def forever(record: Rec) -> Iterator[int]:
        while True:
            yield 1

    parts = split([Rec(1)], forever, parts_max=100)
    assert isinstance(parts.unreadable[0], SplitError)
    assert "more than 100 parts (parts_max)" in str(parts.unreadable[0])
    assert len(split([Rec(1)], lambda record: range(100), parts_max=100).records) == 100


def test_parts_that_differ_the_second_time_are_found_out() -> None:
    counter = iter(range(100))
    parts = split([Rec(1), Rec(2)], lambda record: [next(counter)], twice=True)
    assert "follow from the record alone" in str(parts.unreadable[0])
    same = split([Rec(1), Rec(2)], lambda record: [record.sequence_number], twice=True)
    assert [part.value for part in same.records] == [1, 2]
    assert same.unreadable == {}


def test_a_part_has_all_that_its_record_has() -> None:
    arrived = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    record = Record(
        stream="orders",
        shard_id="shard-0",
        partition_key="k",
        data=b"a,b",
        sequence_number=7,
        sub_sequence_number=1,
        approximate_arrival_timestamp=arrived,
        explicit_hash_key=5,
        aggregated=True,
        tags=(("a", "b"),),
    )
    part = Part(record, 0, 2, b"a")
    for name in Record.__struct_fields__:
        assert getattr(part, name) == getattr(record, name)


def test_parts_count_the_records_bytes_once_and_keep_its_key() -> None:
    kept = Kept(order=ByKey())
    admit(kept, [Rec(1, 0, "k", b"a b c d"), Rec(2, 0, "l", b"e")])
    assert kept.ledger.held.held_bytes == 8
    part = kept.deliver().records[0]
    assert isinstance(part, Part)
    record: Any = part.record  # here one of the test's own
    assert (part.partition_key, record, part.sub_sequence_number) == ("k", Rec(1, 0, "k", b"a b c d"), 0)


@pytest.mark.parametrize("order", [InOrder(), AnyOrder(), ByKey()], ids=["in order", "any order", "by key"])
def test_while_draining_the_further_parts_of_a_record_are_delivered(order: OrderPolicy) -> None:
    """Else its record is not settled, and the next owner delivers again the parts that were."""
    kept = Kept(order=order)
    admit(kept, [Rec(1, partition_key="a", data=b"a b"), Rec(2, partition_key="a", data=b"c d e")])
    admit(kept, [Rec(3, partition_key="a", data=b"f")])
    first = kept.deliver(records_max=3)
    assert [part.value for part in first.records] == [b"a", b"b", b"c"]
    kept.ledger.may_deliver = MayDeliver.GAPS
    kept.ledger.ack(first.ticket)
    for value in (b"d", b"e"):
        assert kept.ledger.has_gaps
        rest = kept.deliver(records_max=1)
        assert [part.value for part in rest.records] == [value]
        kept.ledger.ack(rest.ticket)
    assert not kept.ledger.has_gaps
    assert kept.nothing()
    assert kept.ledger.drained
    assert kept.ledger.progress.safe == at(2)
    kept.ledger.may_deliver = MayDeliver.ALL
    assert [part.value for part in kept.deliver().records] == [b"f"]
