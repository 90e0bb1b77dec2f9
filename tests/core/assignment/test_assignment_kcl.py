"""Among KCL workers: whose rules hold, taking and stealing as the 2.x does, following a 3.x leader."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.core.assignment.kcl.fleet import Coordination, Finding, Fleet, FleetWatch, Place
from shardway.core.assignment.kcl.kcl2 import Moves, grants, moves
from shardway.core.assignment.kcl.kcl3 import Step, step, steps
from shardway.core.assignment.views import LeaseView, WorkerView, lease_view, shard_view, worker_view
from shardway.core.leases.listing import listing_of
from shardway.core.leases.worker_row import WorkerRow

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from shardway.core.leases.listing import Listing

F = 10.0
TABLES = Path(__file__).parents[2] / "fixtures" / "kcl"


def lease(number: int, owner: str | None = None, **more: Any) -> LeaseView:
    return LeaseView(key=f"s{number:03d}", owner=owner, **more)


def many(count: int, owner: str | None, first: int = 0, **more: Any) -> list[LeaseView]:
    return [lease(number, owner, **more) for number in range(first, first + count)]


def turn(
    leases: Iterable[LeaseView], me: str = "me", workers: Iterable[WorkerView] = (), seed: int = 1, **more: int
) -> Moves:
    return moves(leases, workers, me, Random(seed), failover_s=F, **more)


# --- KCL 2.x: its LeaseTaker's scenarios --------------------------------------------------------------


def test_alone_it_takes_everything_at_once() -> None:
    assert len(turn(many(8, None)).take) == 8


def test_what_is_free_is_taken_up_to_the_target() -> None:
    found = turn([*many(4, None), *many(4, "kcl", 4)])
    assert len(found.take) == 4
    assert (found.steal, found.ask) == ((), ())
    assert len(turn([*many(7, None), *many(1, "kcl", 7)]).take) == 4


def test_silent_owners_do_not_count() -> None:
    found = turn([*many(4, "dead", unmoved_s=F + 0.1), *many(4, "kcl", 4)])
    assert len(found.take) == 4
    assert turn(many(4, "kcl", unmoved_s=F)).take == ()


def test_stealing_one_at_a_time_from_the_busiest_and_only_when_nothing_is_free() -> None:
    leases = [*many(5, "busy"), *many(3, "other", 5)]
    found = turn(leases)
    assert len(found.steal) == 1
    assert found.steal[0] in {one.key for one in leases[:5]}
    assert len(turn(leases, steal_max=5).steal) == 2
    assert turn([*leases, lease(99)]).steal == ()


def test_at_the_target_nothing_is_stolen() -> None:
    assert turn([*many(2, "me"), *many(2, "kcl", 2)]) == Moves()
    assert turn([*many(1, "me"), *many(2, "kcl", 2)]) == Moves(), "one short, and no worker above the target"


def test_from_one_that_sits_exactly_at_the_target_only_for_a_worker_that_lacks_more_than_one() -> None:
    leases = [*many(3, "a"), *many(3, "b", 3), *many(1, "me", 6)]  # seven by three: a target of three
    assert len(turn(leases).steal) == 1
    assert turn([*leases, lease(7, "me")]).steal == ()


def test_more_workers_than_leases_have_one_each() -> None:
    assert turn([lease(0, "a"), lease(1, "b")]) == Moves()
    assert len(turn(many(2, "a")).steal) == 1


def test_a_maximum() -> None:
    assert len(turn(many(8, None), leases_max=3).take) == 3
    assert turn([*many(3, "me"), *many(3, None, 3)], leases_max=3) == Moves()


def test_what_no_worker_has_taken_for_long_is_taken_by_one_that_has_room() -> None:
    leases = [*many(4, "me"), *many(2, "a", 4), lease(6, "dead", unmoved_s=3 * F + 0.1)]
    assert turn(leases).take == ("s006",)
    assert turn(leases, leases_max=4).take == ()
    assert turn([*leases[:6], lease(6, "dead", unmoved_s=3 * F)]).take == ()


def test_ended_leases_count_and_are_not_stolen() -> None:
    leases = [*many(5, "kcl", ended=True), *many(1, "kcl", 5)]
    assert turn(leases).steal == ("s005",)


def test_three_shardway_workers_that_start_together_go_for_different_leases() -> None:
    ours = [WorkerView(id=one) for one in ("p1", "p2", "p3")]
    found = [turn(many(8, "kcl"), me=one.id, workers=ours).steal for one in ours]
    assert [len(one) for one in found] == [1, 1, 1]
    assert len({*found[0], *found[1], *found[2]}) == 3
    taken = [turn(many(8, None), me=one.id, workers=ours).take for one in ours]
    assert sorted(key for one in taken for key in one) == [f"s{number:03d}" for number in range(8)]


def test_no_more_shardway_workers_rob_one_than_it_has_too_many() -> None:
    ours = [WorkerView(id=one) for one in ("p1", "p2", "p3")]
    leases = [*many(3, "kcl"), lease(3, "p1"), lease(4, "p2"), lease(5, "p3")]
    assert [len(turn(leases, me=one.id, workers=ours).steal) for one in ours] == [1, 0, 0]


def test_what_a_shardway_worker_has_is_asked_for() -> None:
    ours = [WorkerView(id="p1"), WorkerView(id="p2")]
    found = turn(many(8, "p1"), me="p2", workers=ours)
    assert (len(found.ask), found.steal, found.take) == (4, (), ())


@given(st.integers(0, 2**32), st.integers(2, 5), st.integers(0, 3), st.integers(1, 30))
def test_what_is_asked_for_is_granted_and_no_more(seed: int, ours_count: int, kcl_count: int, lease_count: int) -> None:
    rng = Random(seed)
    ours = [WorkerView(id=f"p{number}") for number in range(ours_count)]
    all_ids = [*(one.id for one in ours), *(f"k{number}" for number in range(kcl_count))]
    leases = [lease(number, rng.choice([all_ids[0], *all_ids])) for number in range(lease_count)]
    held = Counter(one.owner for one in leases)
    for asker in ours:
        found = moves(leases, ours, asker.id, rng, failover_s=F)
        for key in found.ask:
            owner = next(one.owner for one in leases if one.key == key)
            assert owner is not None
            assert grants(leases, ours, owner, asker.id, failover_s=F)
        for other in ours:
            if held[other.id] <= held[asker.id]:
                assert not grants(leases, ours, other.id, asker.id, failover_s=F)


def test_a_worker_exactly_at_the_target_grants_only_to_one_that_lacks_more_than_one() -> None:
    ours = [WorkerView(id="p1"), WorkerView(id="p2")]
    leases = [*many(2, "p1"), *many(2, "kcl", 2)]
    assert not grants([*leases, lease(4, "p2")], ours, "p1", "p2", failover_s=F)
    assert grants([*leases, lease(4, "kcl")], ours, "p1", "p2", failover_s=F)


def test_a_lease_that_was_given_up_is_not_taken_back() -> None:
    ours = [WorkerView(id="me", avoids=frozenset({"s000"}))]
    assert turn(many(1, None), workers=ours).take == ()
    assert turn(many(1, "dead", unmoved_s=99.0), workers=ours).take == ()


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(0, 5), st.integers(0, 40))
def test_a_mixed_fleet_comes_to_rest(seed: int, ours_count: int, kcl_count: int, lease_count: int) -> None:
    """KCL workers decide by the same rules, without a look at the worker rows."""
    rng = Random(seed)
    ours = [WorkerView(id=f"p{number}") for number in range(ours_count)]
    all_ids = [*(one.id for one in ours), *(f"k{number}" for number in range(kcl_count))]
    leases = [lease(number, rng.choice([None, *all_ids])) for number in range(lease_count)]
    for _ in range(60):
        before = leases
        for me in rng.sample(all_ids, len(all_ids)):
            known = ours if me.startswith("p") else []
            found = moves(leases, known, me, rng, failover_s=F)
            if not known:
                found = Moves(found.take, (*found.steal, *found.ask))
            gained = {*found.take, *found.steal, *found.ask}
            leases = [replace(one, owner=me) if one.key in gained else one for one in leases]
        if leases == before:
            break
    assert leases == before, "it never rests"
    held = Counter(one.owner for one in leases)
    assert None not in held
    counts = [held[one] for one in all_ids if held[one]]
    target = -(-lease_count // len(all_ids)) if lease_count > len(all_ids) else 1
    assert max(counts, default=0) <= target + 1


# --- KCL 3.x ------------------------------------------------------------------------------------------


def test_what_a_follower_does() -> None:
    assert step(lease(0, "me"), "me") is Step.READ
    assert step(lease(0, "me", next_owner="kcl"), "me") is Step.HAND_OVER
    assert step(lease(0, "kcl", next_owner="me"), "me") is Step.WARM_UP
    assert step(lease(0, "me", next_owner="me"), "me") is Step.CONFIRM
    for other in (lease(0), lease(0, "kcl"), lease(0, "dead", unmoved_s=99.0), lease(0, "me", ended=True)):
        assert step(other, "me") is Step.NOTHING
    assert steps([lease(0, "me"), lease(1)], "me") == {"s000": Step.READ}


# --- which fleet --------------------------------------------------------------------------------------

V3 = Coordination(client_version="CLIENT_VERSION_3X", updated_epoch_s={"k1": 1_000_000})
NO_ROWS = Coordination()
NOW = 1_000_010.0


def find(
    watch: FleetWatch | None = None,
    now_s: float = 0.0,
    now_epoch_s: float = NOW,
    own_tables: Coordination | None = None,
    lease_table: Coordination = NO_ROWS,
    leases: Iterable[LeaseView] = (),
    ours: Collection[str] = ("p1",),
) -> Finding:
    watch = watch or FleetWatch(failover_s=F)
    return watch.look(
        now_s, now_epoch_s, own_tables=own_tables, lease_table=lease_table, leases=leases, shardway_workers=ours
    )


def sleeps(watch: FleetWatch) -> bool:
    return watch.is_asleep


def test_alone() -> None:
    assert find() == Finding(Fleet.ALONE)
    assert find(leases=many(3, "p1") + many(3, None, 3)) == Finding(Fleet.ALONE)


def test_kcl_2x_workers_show_by_their_leases() -> None:
    assert find(leases=many(1, "k1")).fleet is Fleet.KCL2
    assert find(leases=many(1, "k1", unmoved_s=F + 0.1)).fleet is Fleet.ALONE


@pytest.mark.parametrize("mode", ["CLIENT_VERSION_INIT", "CLIENT_VERSION_UPGRADE_FROM_2X", "CLIENT_VERSION_2X"])
def test_a_3x_fleet_in_2x_mode(mode: str) -> None:
    rows = replace(V3, client_version=mode)
    assert find(lease_table=rows, leases=many(1, "k1")) == Finding(Fleet.KCL2)
    shown = (Place.OWN_TABLES,) if mode == "CLIENT_VERSION_UPGRADE_FROM_2X" else ()
    assert find(own_tables=rows, leases=many(1, "k1")) == Finding(Fleet.KCL2, shown)
    assert find(own_tables=rows) == Finding(Fleet.ALONE)


@pytest.mark.parametrize("mode", ["CLIENT_VERSION_3X", "CLIENT_VERSION_3X_WITH_ROLLBACK", "CLIENT_VERSION_4X"])
def test_a_3x_fleet_by_its_metrics_in_both_layouts(mode: str) -> None:
    rows = replace(V3, client_version=mode)
    assert find(lease_table=rows) == Finding(Fleet.KCL3, (Place.LEASE_TABLE,))
    assert find(own_tables=rows) == Finding(Fleet.KCL3, (Place.OWN_TABLES,))


def test_while_a_fleet_moves_its_tables_a_worker_shows_itself_in_both() -> None:
    pending = replace(V3, table_migration="TABLE_MIGRATION_STATUS_PENDING")
    assert find(own_tables=pending, lease_table=V3).metrics_in == (Place.OWN_TABLES, Place.LEASE_TABLE)
    complete = replace(V3, table_migration="TABLE_MIGRATION_STATUS_COMPLETE")
    assert find(own_tables=V3, lease_table=complete).metrics_in == (Place.LEASE_TABLE,)
    deployed = replace(V3, table_migration="TABLE_MIGRATION_STATUS_DEPLOYED")
    assert find(own_tables=deployed, lease_table=NO_ROWS).metrics_in == (Place.OWN_TABLES,)


LED = replace(V3, has_leader=True)


@pytest.mark.parametrize("own_tables", [False, True])
def test_a_mode_outlives_its_workers_and_counts_no_more(own_tables: bool) -> None:
    watch = FleetWatch(failover_s=F)

    def at(now_s: float, rows: Coordination) -> Fleet:
        if own_tables:
            return find(watch, now_s, NOW + now_s, own_tables=rows).fleet
        return find(watch, now_s, NOW + now_s, lease_table=rows).fleet

    assert at(0.0, LED) is Fleet.KCL3
    assert at(60.0, LED) is Fleet.KCL3
    assert at(60.1, LED) is Fleet.ALONE
    assert at(61.0, replace(LED, updated_epoch_s={"k1": 1_000_071})) is Fleet.KCL3


def test_without_a_leader_a_worker_that_misses_a_beat_is_gone() -> None:
    watch = FleetWatch(failover_s=F)
    assert find(watch, 0.0, lease_table=LED).fleet is Fleet.KCL3
    assert not sleeps(watch)
    assert find(watch, 40.0, lease_table=V3).fleet is Fleet.KCL3
    assert sleeps(watch)
    assert find(watch, 40.1, lease_table=V3).fleet is Fleet.ALONE
    assert not sleeps(watch)
    assert find(watch, 41.0, lease_table=LED).fleet is Fleet.KCL3, "the worker has become leader after all"
    moved = replace(V3, updated_epoch_s={"k1": 1_000_071})
    assert find(watch, 90.0, lease_table=moved).fleet is Fleet.KCL3, "a follower lives, whichever worker leads"
    quick = FleetWatch(failover_s=F, report_interval_s=5.0)
    assert find(quick, 0.0, lease_table=V3).fleet is Fleet.KCL3
    assert find(quick, 10.0, lease_table=V3).fleet is Fleet.KCL3
    assert find(quick, 10.1, lease_table=V3).fleet is Fleet.ALONE, "never later than with a leader"


def test_a_fleet_without_a_leader_of_which_leases_move_is_awake() -> None:
    watch = FleetWatch(failover_s=F)
    assert find(watch, lease_table=V3, leases=many(1, "k1")).fleet is Fleet.KCL3
    assert not sleeps(watch)
    assert find(watch, 100.0, lease_table=V3, leases=many(1, "k1")).fleet is Fleet.KCL3


def test_rows_of_long_ago_are_not_waited_for() -> None:
    assert find(now_epoch_s=NOW + 400, lease_table=V3).fleet is Fleet.ALONE
    assert find(now_epoch_s=NOW + 300, lease_table=V3).fleet is Fleet.KCL3, "their clock may be behind"
    assert find(now_epoch_s=NOW - 9999, lease_table=V3).fleet is Fleet.KCL3, "or ahead"


def test_our_own_metrics_rows_make_no_kcl_fleet() -> None:
    assert find(lease_table=V3, ours=("p1", "k1")).fleet is Fleet.ALONE


def test_a_kcl_workers_lease_that_moves_is_enough_where_the_mode_says_3x() -> None:
    old = replace(V3, updated_epoch_s={})
    assert find(lease_table=old, leases=many(1, "k1")).fleet is Fleet.KCL3


# --- tables of the real KCL ---------------------------------------------------------------------------


def plain(value: Mapping[str, Any]) -> Any:
    (kind, inner), *_ = value.items()
    if kind == "N":
        return float(inner) if "." in inner else int(inner)
    if kind == "SS":
        return frozenset(inner)
    if kind in ("M", "L"):
        return {name: plain(one) for name, one in inner.items()} if kind == "M" else [plain(one) for one in inner]
    return inner


def table(name: str) -> Listing:
    """The one table of a fixture, sorted out."""
    (content,) = json.loads((TABLES / f"{name}.json").read_text())["tables"].values()
    return listing_of({name: plain(value) for name, value in item.items()} for item in content["items"])


def rows_of(listing: Listing) -> Coordination:
    migration = listing.foreign.get("Migration3.0", {})
    metrics = {key: row["lut"] for key, row in listing.foreign.items() if row["entityType"] == "WORKER_METRIC_STATS"}
    return Coordination(client_version=migration.get("cv"), updated_epoch_s=metrics)


def test_real_tables_tell_their_fleet() -> None:
    old, new = table("kcl27-steady"), table("kcl35-steady")
    assert find(lease_table=rows_of(old), leases=[lease_view(row) for row in old.rows]).fleet is Fleet.KCL2
    leases = [lease_view(row) for row in new.rows]
    now = max(rows_of(new).updated_epoch_s.values())
    assert find(now_epoch_s=now, lease_table=rows_of(new), leases=leases) == Finding(Fleet.KCL3, (Place.LEASE_TABLE,))


def test_a_real_handoff_under_way() -> None:
    found = {view.key: view for view in map(lease_view, table("kcl35-during-handoff").rows)}
    moving = [view for view in found.values() if view.next_owner]
    assert moving
    for view in moving:
        assert view.owner is not None
        assert view.next_owner is not None
        assert step(view, view.owner) is Step.HAND_OVER
        assert step(view, view.next_owner) is Step.WARM_UP


def test_views_of_rows() -> None:
    ended = next(view for view in map(lease_view, table("kcl35-reshard").rows) if view.key.endswith("000"))
    assert ended.ended
    assert ended.children == ("shardId-000000000003", "shardId-000000000004")
    assert ended.hash_range == (0, 113427455640312821154458202477256070484)
    (row,) = [one for one in table("kcl35-reshard").rows if one.key.endswith("005")]
    several = replace(row, key=f"1:s:2:{row.key}", stream="1:s:2")
    assert lease_view(several).parents == ("1:s:2:shardId-000000000001", "1:s:2:shardId-000000000002")
    assert lease_view(several, 3.0).unmoved_s == 3.0
    assert shard_view(several, 3.0) == replace(lease_view(row), unmoved_s=3.0)
    shown = WorkerRow(worker_id="w", failover_s=F, wanted=frozenset("a"), given={"b": "v"}, warm=frozenset("a"))
    view = worker_view(replace(shown, leaving=True))
    assert (view.wants, view.gives, view.warm, view.present) == (frozenset("a"), {"b": "v"}, frozenset("a"), False)
