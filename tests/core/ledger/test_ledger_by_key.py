"""Partition keys side by side."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.core.ledger.ledger import MayDeliver
from shardway.model import Position
from shardway.policies import ByKey, Redeliver, Retry
from tests.core.ledger.ledger_kit import Kept, Rec, at, next_at_s, numbers
from tests.momentary import now

if TYPE_CHECKING:
    from shardway.core.ledger.ticket import Delivery

CHANCE = st.randoms(use_true_random=False)


def keyed(keys: str, first: int = 1) -> list[Rec]:
    return [Rec(first + index, 0, key) for index, key in enumerate(keys)]


def test_a_delivery_is_of_one_key_and_the_next_of_it_waits() -> None:
    kept = Kept(order=ByKey(slots_max=4))
    kept.admit(keyed("abacab"))
    kept.admit(keyed("ad", 7))
    a, b, c, d = (kept.deliver() for _ in range(4))
    assert [numbers(each.records) for each in (a, b, c, d)] == [[1, 3, 5], [2, 6], [4], [8]]
    assert kept.nothing()
    kept.ledger.ack(b.ticket)
    assert kept.nothing()
    kept.ledger.ack(a.ticket, [0, 2])
    assert kept.nothing()
    kept.ledger.ack(a.ticket, [4])
    assert numbers(kept.deliver().records) == [7]
    assert kept.ledger.progress.safe == at(3)


def test_what_comes_while_its_key_is_out_waits() -> None:
    kept = Kept(order=ByKey(slots_max=4))
    kept.admit(keyed("a"))
    first = kept.deliver()
    kept.admit(keyed("ab", 2))
    assert numbers(kept.deliver().records) == [3]
    assert kept.nothing()
    kept.ledger.ack(first.ticket)
    assert numbers(kept.deliver().records) == [2]


def test_so_many_at_a_time() -> None:
    kept = Kept(order=ByKey(slots_max=2))
    kept.admit(keyed("abcd"))
    one, two = kept.deliver(), kept.deliver()
    assert kept.nothing()
    kept.ledger.ack(two.ticket)
    assert numbers(kept.deliver().records) == [3]
    assert kept.nothing()
    kept.ledger.ack(one.ticket)
    assert numbers(kept.deliver().records) == [4]


def test_keys_take_turns() -> None:
    kept = Kept(order=ByKey(slots_max=1))
    kept.admit(keyed("aaaab"))
    handed = []
    for _ in range(3):
        delivery = kept.deliver(2)
        handed.append(numbers(delivery.records))
        kept.ledger.ack(delivery.ticket)
    assert handed == [[1, 2], [5], [3, 4]]


def test_a_key_that_fails_holds_up_only_itself() -> None:
    kept = Kept(order=ByKey(slots_max=1), retry=Retry(batch_failures_max=1, base_s=4.0), seed=5)
    kept.admit(keyed("aaab"))
    first = kept.deliver()
    kept.ledger.fail(first.ticket, KeyError(), kept.now_s)
    b = kept.deliver()
    assert numbers(b.records) == [4]
    kept.ledger.ack(b.ticket)
    assert kept.nothing()
    due_s = next_at_s(kept.ledger)
    assert kept.now_s < due_s <= kept.now_s + 4
    kept.now_s = due_s
    halves = []
    for _ in range(2):
        delivery = kept.deliver()
        assert kept.nothing()
        halves.append((numbers(delivery.records), delivery.attempt))
        kept.ledger.ack(delivery.ticket)
    assert halves == [([1, 2], 2), ([3], 2)]
    assert kept.ledger.progress.safe == at(4)


def test_parts_of_what_was_put_off_come_in_order() -> None:
    kept = Kept(order=ByKey(slots_max=3))
    kept.admit(keyed("aaaaaa"))
    delivery = kept.deliver(5)
    kept.ledger.nack(delivery.ticket, kept.now_s, [1, 3])
    kept.ledger.nack(delivery.ticket, kept.now_s, [0, 2])
    assert kept.nothing()
    kept.ledger.ack(delivery.ticket, [4])
    handed = []
    while (again := kept.ledger.deliver(kept.now_s)) is not None:
        handed += numbers(again.records)
        kept.ledger.ack(again.ticket)
    assert handed == [1, 2, 3, 4, 6]


def test_a_late_settlement_of_what_waits_lets_the_key_go_on() -> None:
    kept = Kept(order=ByKey(slots_max=3))
    kept.admit(keyed("aab"))
    first = kept.deliver(1)
    kept.ledger.nack(first.ticket, kept.now_s, delay_s=100)
    b = kept.deliver()
    assert kept.nothing()
    kept.ledger.ack(first.ticket, first.places)
    second = kept.deliver()
    assert numbers(second.records) == [2]
    assert kept.nothing()
    kept.ledger.ack(b.ticket)
    kept.ledger.ack(second.ticket)
    assert kept.ledger.progress.safe == at(3)
    assert kept.ledger._book.queue._lanes == {}  # type: ignore[attr-defined]


def test_a_key_that_is_ready_twice_has_one_turn() -> None:
    kept = Kept(order=ByKey(slots_max=3))
    kept.admit(keyed("aaa"))
    first = kept.deliver(1)
    kept.ledger.nack(first.ticket, kept.now_s)
    kept.ledger.ack(first.ticket, first.places)
    assert numbers(kept.deliver(1).records) == [2]
    assert kept.nothing()


def test_a_handler_that_hangs_gives_its_slot_back_when_the_policy_redelivers() -> None:
    kept = Kept(order=ByKey(slots_max=1), settle_deadline_s=10.0, stalled=Redeliver())
    kept.admit(keyed("ab"))
    hung = kept.deliver()
    kept.later(10)
    b = kept.deliver()
    assert numbers(b.records) == [2]
    kept.ledger.ack(b.ticket)
    again = kept.deliver()
    assert (numbers(again.records), again.attempt) == ([1], 2)
    kept.ledger.ack(hung.ticket)
    assert kept.ledger.progress.safe == at(2)
    assert kept.ledger.out == 0


def test_the_key_may_be_anything() -> None:
    kept = Kept(order=ByKey())
    kept.admit([Rec(1, 0, None), Rec(2, 0, None), Rec(3, 0, "")])  # type: ignore[arg-type]
    assert [numbers(kept.deliver().records) for _ in range(2)] == [[1, 2], [3]]
    with pytest.raises(ValueError, match="ByKey"):
        kept.ledger.settle_through(kept.ledger.deliver, 1)  # type: ignore[arg-type]


@given(
    st.lists(st.text("abcde", min_size=1, max_size=30), max_size=6), st.integers(1, 4), st.integers(1, 5), st.integers()
)
def test_each_key_is_done_in_its_order_whatever_fails(pages: list[str], slots: int, most: int, seed: int) -> None:
    random = Random(seed)
    kept = Kept(order=ByKey(slots_max=slots), retry=Retry(failures_max=None, base_s=0.1, cap_s=1.0), seed=seed % 97)
    number = 1
    records: list[Rec] = []
    for page in pages:
        records += keyed(page, number)
        kept.admit(keyed(page, number))
        number += len(page)
    done: dict[str, list[int]] = {}
    out: list[Delivery[Any]] = []
    while kept.ledger.held.records:
        delivery = kept.ledger.deliver(kept.now_s, most)
        if delivery is not None:
            assert {record.partition_key for record in delivery.records} == {delivery.records[0].partition_key}
            out.append(delivery)
            assert len(out) <= slots
            continue
        if not out:
            assert next_at_s(kept.ledger) > kept.now_s
            kept.now_s = next_at_s(kept.ledger)
            continue
        delivery = out.pop(random.randrange(len(out)))
        if random.random() < 0.3:
            kept.ledger.fail(delivery.ticket, KeyError(), kept.now_s)
        else:
            done.setdefault(delivery.records[0].partition_key, []).extend(numbers(delivery.records))
            kept.ledger.ack(delivery.ticket)
    assert {key: sorted(found) for key, found in done.items()} == done
    assert sum(map(len, done.values())) == len(records)
    assert not records or kept.ledger.progress.safe.position == Position(number - 1)
    assert kept.ledger._book.queue._lanes == {}  # type: ignore[attr-defined]


def test_while_draining_only_what_lies_before_records_that_were_delivered() -> None:
    """Else no checkpoint passes the gap, and the next owner delivers again what lies behind it."""
    kept = Kept(order=ByKey(slots_max=2))
    kept.admit(keyed("aabcdabe"))
    first = kept.deliver(records_max=1)  # a: 1
    second = kept.deliver(records_max=1)  # b: 3
    kept.ledger.ack(second.ticket)
    third = kept.deliver(records_max=1)  # c: 4
    kept.ledger.may_deliver = MayDeliver.NOTHING
    assert now(kept.ledger.has_gaps)
    kept.ledger.ack(third.ticket)
    assert kept.nothing()  # it is not asked to fill them
    kept.ledger.may_deliver = MayDeliver.GAPS
    kept.ledger.ack(first.ticket)
    assert now(kept.ledger.has_gaps)
    gap = kept.deliver()
    assert numbers(gap.records) == [2]
    assert not kept.ledger.has_gaps
    assert kept.nothing()
    kept.ledger.ack(gap.ticket)
    assert kept.ledger.drained
    assert kept.ledger.progress.safe == at(4)
    kept.ledger.may_deliver = MayDeliver.ALL
    assert sorted(kept.deliver().records[0].sequence_number for _ in range(2)) == [5, 8]


@given(
    st.text("abcde", min_size=1, max_size=40), st.integers(1, 4), st.integers(0, 30), st.integers(1, 3), st.randoms()
)
def test_a_drain_that_is_filled_leaves_nothing_settled_behind_its_checkpoint(
    keys: str, slots_max: int, steps: int, records_max: int, rng: Random
) -> None:
    kept = Kept(order=ByKey(slots_max=slots_max))
    half = len(keys) // 2
    kept.admit(keyed(keys[:half]))
    kept.admit(keyed(keys[half:], half + 1))
    out: list[Delivery[Any]] = []
    settled: set[int] = set()

    def settle_one() -> None:
        delivery = out.pop(rng.randrange(len(out)))
        settled.update(numbers(delivery.records))
        kept.ledger.ack(delivery.ticket)

    for _ in range(steps):
        if rng.random() < 0.6 and (delivery := kept.ledger.deliver(kept.now_s, records_max)) is not None:
            out.append(delivery)
        elif out:
            settle_one()
    kept.ledger.may_deliver = MayDeliver.GAPS
    while out or kept.ledger.has_gaps:
        delivery = kept.ledger.deliver(kept.now_s, records_max)
        if delivery is not None:
            out.append(delivery)
        else:
            settle_one()
    assert settled == set(range(1, len(settled) + 1))
    assert kept.ledger.drained
