"""Four programs that people write, and collections by a key."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardway.core.ledger.collector import Collector
from shardway.events import RecordsStalled, RecordsUnsettled
from shardway.model import Position
from shardway.policies import Redeliver
from tests.core.ledger.ledger_kit import Kept, Rec, at, numbers, recs


def test_a_task_per_record_settled_in_any_order() -> None:
    kept, random = Kept(), Random(7)
    out = []
    for page in range(20):
        kept.admit(recs(1 + 50 * page, 50))
        delivery = kept.deliver()
        out += [(delivery.ticket, [place]) for place in delivery.places]
        random.shuffle(out)
        while len(out) > 30:
            kept.ledger.ack(*out.pop())
    for each in out:
        kept.ledger.ack(*each)
    assert kept.ledger.close("stop") == (at(1000), 0)
    assert kept.told == []


def test_one_after_the_other() -> None:
    kept = Kept()
    for page in range(5):
        kept.admit(recs(1 + 10 * page, 10))
        while (delivery := kept.ledger.deliver(kept.now_s, 1)) is not None:
            kept.ledger.ack(delivery.ticket)
            assert kept.ledger.progress.safe == at(delivery.records[0].sequence_number)
    assert kept.told == []


def test_ten_collected_and_only_the_last_settled() -> None:
    kept = Kept()
    kept.admit(recs(1, 10))
    deliveries = [kept.deliver(1) for _ in range(10)]
    kept.ledger.ack(deliveries[-1].ticket)
    assert kept.ledger.close("stop").unsettled == 9
    (told,) = kept.of(RecordsUnsettled)
    assert told.positions == tuple(Position(number) for number in range(1, 10))
    assert "settle_through(record)" in told.advice


def test_ten_collected_and_settled_through_the_last() -> None:
    kept = Kept()
    kept.admit(recs(1, 100))
    for number in range(10, 101, 10):
        deliveries = [kept.deliver(1) for _ in range(10)]
        kept.ledger.settle_through(deliveries[-1].ticket, deliveries[-1].places[0])
        assert kept.ledger.progress.safe == at(number)
    assert kept.told == []


def customers(count: int, slow_every: int, first: int) -> list[Rec]:
    return [
        Rec(first + number, 0, "slow" if number % slow_every == 0 else f"customer {number % 3}")
        for number in range(count)
    ]


def test_batches_per_customer_and_a_slow_one_is_told() -> None:
    kept = Kept(settle_deadline_s=60.0, stalled=Redeliver(times_max=1))
    collector: Collector[Rec] = Collector(lambda record: record.partition_key, records=100)
    full = 0
    for page in range(20):
        kept.admit(customers(500, 250, 1 + page * 500))
        for group in collector.add(kept.deliver(), kept.now_s):
            assert len(group.records) == 100
            assert len({record.partition_key for record in group.records}) == 1
            assert numbers(group.records) == sorted(numbers(group.records))
            assert group.ack(kept.ledger)
            full += 1
        kept.now_s += 1
    assert full == 3 * 33
    assert kept.ledger.held.records == 20 * 500 - 99 * 100
    assert kept.ledger.has_room
    assert kept.ledger.held.held_bytes < 4 * 8 * kept.ledger.held.records
    kept.later(60)
    assert Position(1) in {position for event in kept.of(RecordsStalled) for position in event.positions}
    assert numbers(kept.deliver().records) == [1, 251]


def test_a_flush_by_age() -> None:
    kept = Kept()
    collector: Collector[Rec] = Collector(lambda record: record.partition_key, records=100, age_s=10.0)
    assert collector.next_at_s() == math.inf
    kept.admit(customers(10, 5, 1))
    assert collector.add(kept.deliver(), kept.now_s) == []
    kept.now_s += 4
    kept.admit([Rec(11, 0, "late")])
    assert collector.add(kept.deliver(), kept.now_s) == []
    assert collector.next_at_s() == kept.now_s + 6
    assert collector.due(kept.now_s + 5.9) == []
    groups = collector.due(kept.now_s + 6)
    assert {str(group.key) for group in groups} == {"slow", "customer 0", "customer 1", "customer 2"}
    assert all(group.ack(kept.ledger) for group in groups)
    assert kept.ledger.progress.safe == at(10)
    assert len(collector) == 1
    (rest,) = collector.flush()
    assert rest.ack(kept.ledger)
    assert kept.ledger.progress.safe == at(11)
    assert collector.flush() == []


@example(["bac", "ab", "ab", "a"], 4)  # one record of each delivery, always at the same distance
@given(st.lists(st.text("abc", min_size=1, max_size=12), max_size=8), st.integers(1, 4))
def test_each_record_is_collected_once(pages: list[str], count: int) -> None:
    kept = Kept()
    collector: Collector[Rec] = Collector(lambda record: record.partition_key, records=count)
    first = 1
    for page in pages:
        kept.admit([Rec(first + index, 0, key) for index, key in enumerate(page)])
        first += len(page)
        for group in collector.add(kept.deliver(5), kept.now_s):
            assert len(group.records) == count
            group.ack(kept.ledger)
        while (delivery := kept.ledger.deliver(kept.now_s, 5)) is not None:
            for group in collector.add(delivery, kept.now_s):
                group.ack(kept.ledger)
    for group in collector.flush():
        assert len(group.records) < count
        group.ack(kept.ledger)
    assert kept.ledger.held.records == 0
    assert kept.told == []


@pytest.mark.parametrize("wrong", [{"records": 0}, {"records": 5, "age_s": 0}])
def test_what_is_no_collection_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a collection needs"):
        Collector[Rec](lambda record: record, **wrong)
