"""One round of a worker in each of the three fleets."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.assignment.decide import Decision, decide
from shardway.core.assignment.kcl.fleet import Fleet
from shardway.core.assignment.kcl.kcl3 import Step
from shardway.core.assignment.strategies import EQUAL_COUNTS
from shardway.core.assignment.views import LeaseView, WorkerView

if TYPE_CHECKING:
    from collections.abc import Iterable

F = 10.0


def lease(number: int, owner: str | None = None, **more: Any) -> LeaseView:
    return LeaseView(key=f"s{number}", owner=owner, **more)


def by(fleet: Fleet, leases: Iterable[LeaseView], me: str = "a", **workers: WorkerView) -> Decision:
    known = {"a": WorkerView(id="a"), "b": WorkerView(id="b")} | workers
    return decide(fleet, leases, known.values(), me, strategy=EQUAL_COUNTS, rng=Random(1), failover_s=F)


LEAVES = WorkerView(id="a", leaving=True)


def test_alone_the_strategy_rules() -> None:
    leases = [lease(0, "a"), lease(1, "a"), lease(2, "a"), lease(3)]
    assert by(Fleet.ALONE, leases) == Decision(give={"s2": "b"})
    assert by(Fleet.ALONE, leases, "b") == Decision(take=("s3",), ask=("s2",))


def test_among_kcl_2x_workers_their_rule_holds() -> None:
    leases = [lease(number, "kcl") for number in range(9)]
    found = by(Fleet.KCL2, leases)
    assert len(found.take) == 1
    assert (found.ask, dict(found.give), found.free) == ((), {}, ())


def test_among_kcl_2x_workers_what_may_be_granted_is_given_to_the_worker_that_asks() -> None:
    leases = [*(lease(number, "a") for number in range(8)), lease(8, "kcl")]
    wants = frozenset(f"s{number}" for number in range(8))
    found = by(Fleet.KCL2, leases, b=WorkerView(id="b", wants=wants))
    assert list(found.give.values()) == ["b"] * 3, "nine by three workers"
    assert by(Fleet.KCL2, leases).give == {}


def test_among_kcl_2x_workers_nothing_is_taken_that_waits_or_has_ended() -> None:
    leases = [lease(0, "kcl"), lease(1, parents=("s0",)), lease(2, ended=True), lease(3)]
    assert by(Fleet.KCL2, leases).take in (("s3",), ())
    taken = [key for me in ("a", "b") for key in by(Fleet.KCL2, leases, me).take]
    assert taken == ["s3"]


def test_in_a_kcl_3x_fleet_the_leaders_word_counts_and_nothing_is_taken() -> None:
    leases = [lease(0, "a"), lease(1), lease(2, "dead", unmoved_s=99.0), lease(3, "kcl", next_owner="a")]
    assert by(Fleet.KCL3, leases) == Decision(follow={"s0": Step.READ, "s3": Step.WARM_UP})


@pytest.mark.parametrize("fleet", [Fleet.KCL2, Fleet.KCL3])
def test_a_worker_that_leaves_a_fleet_with_kcl_workers_deals_out_to_shardway_workers_or_frees(fleet: Fleet) -> None:
    leases = [*(lease(number, "a") for number in range(4)), lease(4, "b"), lease(5, "kcl"), lease(6, "a", ended=True)]
    third = WorkerView(id="c")
    found = by(fleet, leases, a=LEAVES, c=third)
    assert dict(found.give) == {"s0": "c", "s1": "b", "s2": "c", "s3": "b"}
    assert (found.free, found.take) == ((), ())
    alone = by(fleet, leases, a=LEAVES, b=WorkerView(id="b", alive=False))
    assert alone.free == ("s0", "s1", "s2", "s3")


def test_a_worker_that_leaves_still_hands_over_what_a_leader_has_named() -> None:
    found = by(Fleet.KCL3, [lease(0, "a", next_owner="kcl"), lease(1, "kcl", next_owner="a")], a=LEAVES)
    assert found == Decision(follow={"s0": Step.HAND_OVER})
