"""Assignments in whole fleets: every worker plans, carries its part out, and the next round finds nothing to do."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import ceil
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardway.core.assignment.shardway_fleet import plan, receiver_for
from shardway.core.assignment.strategies import ByThroughput, Custom, EqualCounts, Fixed
from shardway.core.assignment.views import LeaseView, WorkerView, startable
from shardway.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway.core.assignment.strategies import Strategy

F = 10.0
EQUAL = EqualCounts()
AFleet: TypeAlias = tuple[list[LeaseView], list[WorkerView]]


def lease(number: int, owner: str | None = None, **more: Any) -> LeaseView:
    return LeaseView(key=f"shardId-{number:012d}", owner=owner, **more)


def worker(number: int, **more: Any) -> WorkerView:
    return WorkerView(id=f"w{number:02d}", **more)


def rate_of(one: LeaseView) -> float:
    assert one.throughput_kib_s is not None
    return one.throughput_kib_s


def one_round(
    leases: Sequence[LeaseView], workers: Sequence[WorkerView], strategy: Strategy = EQUAL
) -> tuple[list[LeaseView], Counter[str]]:
    """All plan on the same rows; what is free is taken, what is asked for is handed over. Returns rows and moves."""
    owner_of = {one.key: one.owner for one in leases}
    before = dict(owner_of)
    plans = {one.id: plan(leases, workers, one.id, strategy, failover_s=F) for one in workers if one.alive}
    moves: Counter[str] = Counter()
    for name, mine in plans.items():
        for key in mine.take:
            assert owner_of[key] == before[key], "two took the same"
            owner_of[key] = name
            moves["taken"] += 1
        for key in mine.ask:
            assert owner_of[key] == before[key], "two asked for the same"
            owner = owner_of[key]
            assert owner is not None
            assert plans[owner].give[key] == name, "the worker that asks is the one that the owner would give it to"
            owner_of[key] = name
            moves["handed over"] += 1
        for key in mine.free:
            owner_of[key] = None
            moves["freed"] += 1
    return [replace(one, owner=owner_of[one.key], unmoved_s=0.0) for one in leases], moves


def counts(leases: Sequence[LeaseView], workers: Sequence[WorkerView]) -> list[int]:
    held = Counter(one.owner for one in leases)
    return sorted(held[one.id] for one in workers if one.present)


@st.composite
def fleets(draw: st.DrawFn, leases_max: int = 200, workers_max: int = 32) -> AFleet:
    """Any mess: free leases, dead and leaving owners, caps, leases that workers avoid."""
    rng = Random(draw(st.integers(0, 2**32)))
    workers = [
        worker(
            number,
            alive=rng.random() < 0.9,
            leaving=rng.random() < 0.1,
            leases_max=rng.choice([None, None, None, rng.randrange(1, 50)]),
        )
        for number in range(draw(st.integers(1, workers_max)))
    ]
    count = draw(st.integers(0, leases_max))
    some = rng.sample(workers, rng.randrange(1, len(workers) + 1))
    leases = [
        lease(
            number,
            rng.choice([None, *(one.id for one in some)]),
            throughput_kib_s=rng.choice([None, 0.0, rng.expovariate(0.01)]),
        )
        for number in range(count)
    ]
    return leases, workers


@given(fleets())
def test_equal_counts_are_reached_in_one_round_and_stay(fleet: AFleet) -> None:
    check_equal_counts(*fleet)


@settings(max_examples=5)
@given(fleets(leases_max=2000))
def test_equal_counts_of_many_leases(fleet: AFleet) -> None:
    check_equal_counts(*fleet)


def check_equal_counts(leases: Sequence[LeaseView], workers: Sequence[WorkerView]) -> None:
    after, _ = one_round(leases, workers)
    again, moves = one_round(after, workers)
    assert not moves
    assert again == after
    present = [one for one in workers if one.present]
    held = Counter(one.owner for one in after)
    for one in present:
        before = sum(two.owner == one.id for two in leases)
        assert one.leases_max is None or held[one.id] <= max(one.leases_max, before)
    below_cap = [held[one.id] for one in present if one.leases_max is None or held[one.id] < one.leases_max]
    if below_cap:
        assert max(held[one.id] for one in present) - min(below_cap) <= 1
        assert None not in held


@given(fleets())
def test_no_more_leases_move_than_must(fleet: AFleet) -> None:
    leases, workers = fleet
    workers = [replace(one, leases_max=None) for one in workers]
    present = [one for one in workers if one.present]
    _, moves = one_round(leases, workers)
    if not present:
        return
    held = Counter(one.owner for one in leases)
    share, over = divmod(len(leases), len(present))
    had = sorted((held[one.id] for one in present), reverse=True)
    surplus = sum(max(0, count - share - (place < over)) for place, count in enumerate(had))
    leaving = sum(held[one.id] for one in workers if one.leaving and one.alive)
    assert moves["handed over"] == surplus + leaving
    assert moves["taken"] == len(leases) - sum(held[one.id] for one in workers if one.alive)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.lists(st.integers(0, 5), max_size=8))
def test_children_that_would_rather_be_elsewhere_move_no_lease_that_is_read(
    held: list[int], parents: list[int]
) -> None:
    """Each worker reads so many; each of the children's parents was read by one of them."""
    workers = [worker(number) for number in range(len(held))]
    leases = [lease(100 * who + number, f"w{who:02d}") for who, many in enumerate(held) for number in range(many)]
    for number, who in enumerate(parents):
        ended = lease(1000 + number, f"w{who % len(held):02d}", ended=True)
        leases += [ended, lease(2000 + number, parents=(ended.key,))]
    _, moves = one_round(leases, workers)
    share, over = divmod(sum(held) + len(parents), len(held))
    surplus = sum(max(0, many - share - (place < over)) for place, many in enumerate(sorted(held, reverse=True)))
    assert (moves["handed over"], moves["taken"]) == (surplus, len(parents))


@given(fleets(leases_max=300, workers_max=12))
def test_by_throughput_is_reached_in_one_round_and_stays(fleet: AFleet) -> None:
    leases, workers = fleet
    strategy = ByThroughput(tolerance=0.2)
    after, _ = one_round(leases, workers, strategy)
    again, moves = one_round(after, workers, strategy)
    assert not moves
    assert again == after


@given(fleets(leases_max=300, workers_max=12), st.integers(0, 2**32))
def test_leases_that_some_avoid_settle_in_two_rounds(fleet: AFleet, seed: int) -> None:
    leases, workers = fleet
    rng = Random(seed)
    keys = [one.key for one in leases]
    workers = [
        replace(one, leases_max=None, avoids=frozenset(rng.sample(keys, min(len(keys), rng.randrange(4)))))
        for one in workers
    ]
    after, _ = one_round(leases, workers)
    after, _ = one_round(after, workers)
    _, moves = one_round(after, workers)
    assert not moves
    owned = {one.key: one.owner for one in after}
    for one in workers:
        assert not any(owned[key] == one.id and one.present for key in one.avoids if key in owned) or any(
            before.owner == one.id for before in leases
        )
    for key, owner in owned.items():
        if any(one.present and key not in one.avoids for one in workers):
            assert owner is not None


def test_throughput_is_evened_out_within_the_tolerance() -> None:
    rates = [900, 40, 30, 20, 10, 10, 10, 10]
    leases = [lease(number, "w00", throughput_kib_s=rate) for number, rate in enumerate(rates)]
    workers = [worker(0), worker(1)]
    after, moves = one_round(leases, workers, ByThroughput())
    assert moves == {"handed over": 7}
    assert [one.owner for one in after] == ["w00", *["w01"] * 7]
    rates = [100, 100, 100, 100, 50, 50]
    leases = [lease(number, "w00", throughput_kib_s=rate) for number, rate in enumerate(rates)]
    after, moves = one_round(leases, workers, ByThroughput())
    assert moves["handed over"] in (2, 3)
    assert sum(rate_of(one) for one in after if one.owner == "w01") in (200.0, 250.0, 300.0)


def test_a_worker_that_has_too_much_gives_until_it_is_well_below_the_limit() -> None:
    leases = [lease(number, "w00", throughput_kib_s=99.0) for number in range(100)]
    after, moves = one_round(leases, [worker(0), worker(1)], ByThroughput(tolerance=0.1))
    assert moves == {"handed over": 48}, "down to a twentieth above the mean of 50"
    kept = [replace(one, owner="w00" if number < 54 else "w01") for number, one in enumerate(leases)]
    assert one_round(kept, [worker(0), worker(1)], ByThroughput(tolerance=0.1)) == (kept, {})
    assert len(after) == 100


@given(st.integers(0, 2**32), st.integers(2, 8), st.integers(20, 200))
def test_rates_that_swing_a_little_move_nothing(seed: int, worker_count: int, lease_count: int) -> None:
    rng = Random(seed)
    strategy = ByThroughput(tolerance=0.2)
    workers = [worker(number) for number in range(worker_count)]
    leases = [lease(number, throughput_kib_s=rng.uniform(50, 150)) for number in range(lease_count)]
    leases, _ = one_round(leases, workers, strategy)
    swung = [replace(one, throughput_kib_s=rate_of(one) * rng.uniform(0.96, 1.04)) for one in leases]
    if worker_count * 8 <= lease_count:
        _, moves = one_round(swung, workers, strategy)
        assert not moves


def test_idle_shards_are_dealt_out_by_throughput_too() -> None:
    workers = [worker(number) for number in range(4)]
    after, _ = one_round([lease(number, throughput_kib_s=0.0) for number in range(8)], workers, ByThroughput())
    assert counts(after, workers) == [2, 2, 2, 2]


# --- joining, leaving, dying ------------------------------------------------------------------------


def test_a_worker_that_joins_gets_its_share_and_nothing_else_moves() -> None:
    workers = [worker(number) for number in range(3)]
    leases = [lease(number, f"w{number % 2:02d}") for number in range(8)]
    after, moves = one_round(leases, workers)
    assert moves == {"handed over": 2}
    assert counts(after, workers) == [2, 3, 3]


def test_three_that_join_at_once_ask_for_different_leases() -> None:
    workers = [worker(number) for number in range(4)]
    after, moves = one_round([lease(number, "w00") for number in range(8)], workers)
    assert counts(after, workers) == [2, 2, 2, 2]
    assert moves == {"handed over": 6}


def test_a_worker_that_leaves_gives_to_spares_that_hold_nothing() -> None:
    workers = [worker(0, leaving=True), worker(1)]
    leases = [lease(0, "w00"), lease(1, "w00")]
    assert dict(plan(leases, workers, "w00", EQUAL, failover_s=F).give) == {one.key: "w01" for one in leases}
    assert plan(leases, workers, "w01", EQUAL, failover_s=F).ask == tuple(one.key for one in leases)


def test_the_last_worker_that_leaves_frees_its_leases() -> None:
    alone = plan([lease(0, "w00"), lease(1)], [worker(0, leaving=True)], "w00", EQUAL, failover_s=F)
    assert alone.free == (lease(0).key,)
    assert alone.take == ()
    waits = [lease(0, ended=False), lease(1, "w00", parents=(lease(0).key,)), lease(2, "w00", ended=True)]
    assert plan(waits, [worker(0, leaving=True)], "w00", EQUAL, failover_s=F).free == (lease(1).key,)
    full = [worker(0, leaving=True), worker(1, leases_max=1)]
    assert plan([lease(0, "w00"), lease(1, "w01")], full, "w00", EQUAL, failover_s=F).free == (lease(0).key,)


def test_the_next_best_receiver() -> None:
    workers = [worker(0, leaving=True), worker(1), worker(2), worker(3, alive=False), worker(4, avoids=frozenset("k"))]
    load = {"w01": 3, "w02": 1}
    assert receiver_for("k", load, workers, "w00") == "w02"
    assert receiver_for("k", load, workers, "w00", without={"w02"}) == "w01"
    assert receiver_for("k", load, workers, "w00", without={"w01", "w02"}) is None
    assert receiver_for("k", {"w04": 2}, [worker(4, leases_max=2)], "w00") is None


def test_a_dead_workers_leases_are_taken_and_a_strangers_only_when_silent() -> None:
    workers = [worker(0), worker(1, alive=False)]
    leases = [lease(0, "w01", unmoved_s=0.0), lease(1, "kcl", unmoved_s=9.9), lease(2, "kcl", unmoved_s=10.1)]
    mine = plan(leases, workers, "w00", EQUAL, failover_s=F)
    assert mine.take == (lease(0).key, lease(2).key)
    assert mine.ask == ()


def test_a_living_workers_lease_is_asked_for_until_it_must_have_let_go() -> None:
    workers = [worker(0, failover_s=20.0), worker(1)]
    leases = [lease(0, "w00", unmoved_s=60.0), lease(1, "w00", unmoved_s=60.0)]
    mine = plan(leases, workers, "w01", EQUAL, failover_s=F)
    assert (mine.take, len(mine.ask)) == ((), 1)
    leases = [replace(one, unmoved_s=60.1) for one in leases]
    mine = plan(leases, workers, "w01", EQUAL, failover_s=F)
    assert (len(mine.take), mine.ask) == (2, ()), "none goes to one that cannot write"
    assert len(plan(leases, workers[:1], "w00", EQUAL, failover_s=F).unread) == 0


def test_a_worker_that_is_warm_for_a_lease_whose_owner_died_takes_it() -> None:
    workers = [worker(0, alive=False), worker(1), worker(2, warm=frozenset({lease(0).key}))]
    leases = [lease(0, "w00"), lease(1, "w01"), lease(2, "w02")]
    assert plan(leases, workers, "w02", EQUAL, failover_s=F).take == (lease(0).key,)


@given(fleets(leases_max=200, workers_max=12), st.integers(0, 2**32))
def test_after_a_round_on_different_pictures_one_more_is_enough(fleet: AFleet, seed: int) -> None:
    """Some have not heard of the newest workers, some see leases as they were: writes are refused, asks not granted."""
    leases, workers = fleet
    rng = Random(seed)
    workers = [replace(one, leases_max=None) for one in workers]
    old = [replace(one, owner=None) if rng.random() < 0.3 else one for one in leases]
    fewer = [one for one in workers if rng.random() < 0.7]
    owner_of = {one.key: one.owner for one in leases}
    real = dict(owner_of)
    for one in workers:
        if not one.alive:
            continue
        seen = rng.choice([leases, old]), [*fewer, *([one] if one not in fewer else [])]
        for key in plan(*seen, one.id, EQUAL, failover_s=F).take:
            if real[key] is None and owner_of[key] is None:
                owner_of[key] = one.id
    leases = [replace(one, owner=owner_of[one.key]) for one in leases]
    after, _ = one_round(leases, workers)
    again, moves = one_round(after, workers)
    assert not moves
    assert again == after


def test_a_lease_that_was_given_up_goes_elsewhere_and_not_back() -> None:
    workers = [worker(0, avoids=frozenset({lease(0).key})), worker(1)]
    leases = [lease(0), lease(1)]
    assert plan(leases, workers, "w00", EQUAL, failover_s=F).take == (lease(1).key,)
    assert plan(leases, workers, "w01", EQUAL, failover_s=F).take == (lease(0).key,)
    assert plan([lease(0)], workers[:1], "w00", EQUAL, failover_s=F).unread == (lease(0).key,)


def test_what_some_avoid_is_placed_before_what_any_worker_takes() -> None:
    workers = [worker(0, leases_max=1), worker(1, avoids=frozenset({lease(5).key}))]
    after, _ = one_round([lease(0), lease(5)], workers)
    assert [one.owner for one in after] == ["w01", "w00"]


# --- children ---------------------------------------------------------------------------------------


def test_children_wait_for_their_parents_and_then_go_where_these_were() -> None:
    parents = (lease(0).key, lease(1).key)
    workers = [worker(0), worker(1)]
    leases = [lease(0, "w01", ended=True), lease(1, "w00"), lease(2, parents=parents), lease(3, "w01")]
    assert [one.key for one in startable(leases)] == [leases[1].key, leases[3].key]
    assert plan(leases, workers, "w01", EQUAL, failover_s=F).take == ()
    leases[1] = lease(1, "w00", ended=True)
    assert plan(leases, workers, "w00", EQUAL, failover_s=F).take == (leases[2].key,), "the other one has its share"
    leases[3] = lease(3, "w00")
    assert plan(leases, workers, "w01", EQUAL, failover_s=F).take == (leases[2].key,), "a parent was there"


def test_a_child_goes_elsewhere_before_a_lease_that_is_read_does() -> None:
    workers = [worker(0), worker(1), worker(2)]
    leases = [lease(0, "w00", ended=True), lease(1, "w00"), lease(2, "w01"), lease(3, "w01")]
    leases.append(lease(9, parents=(leases[0].key,)))
    after, moves = one_round(leases, workers)
    assert moves == {"taken": 1}
    assert after[-1].owner == "w02"


def test_a_split_keeps_what_it_may_where_the_parent_was() -> None:
    key = lease(0).key
    workers = [worker(number) for number in range(4)]
    leases = [lease(0, "w03", ended=True), lease(8, parents=(key,)), lease(9, parents=(key,))]
    leases += [lease(1 + number, f"w{number:02d}") for number in range(3)]
    after, moves = one_round(leases, workers)
    assert moves == {"taken": 2}
    assert {one.owner for one in after if one.parents} == {"w03"}


@given(st.integers(0, 2**32), st.integers(1, 8), st.integers(1, 60))
def test_a_reshard_of_everything_moves_no_lease_that_is_read(seed: int, worker_count: int, shard_count: int) -> None:
    rng = Random(seed)
    workers = [worker(number) for number in range(worker_count)]
    leases, _ = one_round([lease(number) for number in range(shard_count)], workers)
    split = rng.sample(range(shard_count), rng.randrange(1, shard_count + 1))
    for number in split:
        leases[number] = replace(leases[number], ended=True)
        leases += [lease(1000 + 2 * number + half, parents=(leases[number].key,)) for half in (0, 1)]
    reading = {one.key: one.owner for one in leases if one.owner and not one.ended}
    after, moves = one_round(leases, workers)
    share = ceil((shard_count + len(split)) / worker_count)
    if max(Counter(reading.values()).values(), default=0) <= share:
        assert moves["taken"] == 2 * len(split)
        stayed = sum(
            one.owner == next(two.owner for two in leases if two.key == one.parents[0]) for one in after if one.parents
        )
        # One child of each split can stay where its parent was, at least: that worker had room for it before.
        assert moves["handed over"] > 0 or stayed >= len(split)


# --- lists and functions ------------------------------------------------------------------------------


def test_fixed_lists() -> None:
    keys = [lease(number).key for number in range(5)]
    lists = {"w00": [keys[0], "gone"], "w01": keys[1:3]}
    workers = [worker(0), worker(1)]
    leases = [lease(0), lease(1), lease(2, "w00"), lease(3, parents=("gone",)), lease(4)]
    after, _ = one_round(leases, workers, Fixed(lists, others=None))
    assert [one.owner for one in after] == ["w00", "w01", "w01", "w00", None]
    after, _ = one_round(leases, workers, Fixed(lists))
    assert after[4].owner is not None
    assert one_round(after, workers, Fixed(lists))[1] == {}
    without = [worker(0), worker(1, alive=False)]
    assert [one.owner for one in one_round(leases, without, Fixed(lists, others=None))[0]][1:3] == [None, None]
    assert {one.owner for one in one_round(leases, without, Fixed(lists))[0]} == {"w00"}


def test_one_lease_in_two_lists_is_a_fault() -> None:
    with pytest.raises(OptionError, match="k is in the lists of a and b"):
        Fixed({"a": ["k"], "b": ["k"]})


def test_a_function_of_the_users_and_its_faults() -> None:
    workers = [worker(0), worker(1)]
    leases = [lease(0), lease(1)]
    last = Custom(lambda leases, workers: {one.key: workers[-1].id for one in leases}, name="last")
    assert plan(leases, workers, "w01", last, failover_s=F).take == tuple(one.key for one in leases)
    assert plan(leases, workers, "w00", last, failover_s=F).take == ()
    with pytest.raises(OptionError, match="assignment by wrong names a worker 'stranger' that is not there"):
        plan(leases, workers, "w00", Custom(lambda *_: {leases[0].key: "stranger"}, name="wrong"), failover_s=F)
    with pytest.raises(OptionError, match="a lease 'x' that may not be read now"):
        plan(leases, workers, "w00", Custom(lambda *_: {"x": "w00"}), failover_s=F)


def test_options_of_by_throughput() -> None:
    with pytest.raises(OptionError) as caught:
        ByThroughput(tolerance=-1, base_kib_s=0)
    assert len(caught.value.faults) == 2


def test_no_worker_and_no_lease() -> None:
    assert plan([], [worker(0)], "w00", EQUAL, failover_s=F) == plan([lease(0, "x")], [], "w00", EQUAL, failover_s=F)
    assert plan([lease(0)], [worker(0, alive=False)], "w01", EQUAL, failover_s=F).unread == (lease(0).key,)
