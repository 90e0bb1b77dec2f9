"""KCL workers and ours in one fleet, on one lease table: whatever joins, leaves or dies, every record arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from interop.fleets.journey import BY_COUNT
from interop.fleets.processes import KCL_2, KCL_3

if TYPE_CHECKING:
    from collections.abc import Callable

    from interop.fleets.journey import Journey

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]


def fleets(seed: int) -> pytest.MarkDecorator:
    """A fleet with each version of the KCL; the seeds say where they begin."""
    given = [(KCL_2, {}, seed), (KCL_3, BY_COUNT, seed + 1)]
    return pytest.mark.parametrize(("version", "settings", "seed"), given, ids=[KCL_2, KCL_3])


@fleets(0)
def test_kcl_workers_alone(
    journey: Callable[..., Journey], version: str, settings: dict[str, object], seed: int
) -> None:
    """What the KCL does without us: the measure for all else, and of the harness."""
    with journey(f"KCL {version} alone", kcl_settings=settings, seed=seed) as fleet:
        fleet.step("KCL starts")
        fleet.kcl(version, "kcl-1")
        fleet.shares(kcl_1=4)
        fleet.step("KCL joins")
        fleet.kcl(version, "kcl-2")
        fleet.shares(kcl_1=2, kcl_2=2)
        fleet.flow()
        fleet.step("KCL leaves")
        fleet.stop("kcl-2")
        fleet.shares(kcl_1=4)
        fleet.step("shards split and merge")
        fleet.split()
        fleet.merge()
        fleet.shares(kcl_1=4)
        fleet.finish()
    fleet.check()


@fleets(2)
def test_ours_join_a_kcl_fleet(
    journey: Callable[..., Journey], version: str, settings: dict[str, object], seed: int
) -> None:
    """KCL first: ours joins, leaves, joins, and is killed; then the KCL's is killed beside one of ours."""
    with journey(f"KCL {version} first", kcl_settings=settings, seed=seed) as fleet:
        fleet.step("KCL starts")
        fleet.kcl(version, "kcl-1")
        fleet.shares(kcl_1=4)
        fleet.step("ours joins")
        fleet.ours("ours-1")
        fleet.shares(kcl_1=2, ours_1=2)
        fleet.flow()
        fleet.step("ours leaves")
        fleet.stop("ours-1")
        fleet.shares(kcl_1=4)
        fleet.step("ours joins again")
        fleet.ours("ours-2")
        fleet.shares(kcl_1=2, ours_2=2)
        fleet.flow()
        fleet.step("ours is killed")
        fleet.kill("ours-2")
        fleet.shares(kcl_1=4)
        fleet.step("ours joins once more")
        fleet.ours("ours-3")
        fleet.shares(kcl_1=2, ours_3=2)
        fleet.flow()
        fleet.step("KCL is killed")
        fleet.kill("kcl-1")
        fleet.shares(ours_3=4)
        fleet.finish()
    fleet.check()
    if version == KCL_3:
        assert {("kcl-1", "ours-1"), ("kcl-1", "ours-2")} <= fleet.handoffs()


@fleets(4)
def test_a_kcl_worker_joins_ours(
    journey: Callable[..., Journey], version: str, settings: dict[str, object], seed: int
) -> None:
    """Ours first: the KCL's joins, leaves, another joins, shards split and merge, and ours leaves."""
    with journey(f"ours first, then KCL {version}", kcl_settings=settings, seed=seed) as fleet:
        fleet.step("ours starts")
        fleet.ours("ours-1")
        fleet.shares(ours_1=4)
        fleet.step("KCL joins")
        fleet.kcl(version, "kcl-1")
        fleet.shares(kcl_1=2, ours_1=2)
        fleet.flow()
        fleet.step("KCL leaves")
        fleet.stop("kcl-1")
        fleet.shares(ours_1=4)
        fleet.step("KCL joins again")
        fleet.kcl(version, "kcl-2")
        fleet.shares(kcl_2=2, ours_1=2)
        fleet.flow()
        fleet.step("shards split and merge")
        fleet.split()
        fleet.merge()
        fleet.shares(kcl_2=0, ours_1=0)
        fleet.flow(10)
        fleet.step("ours leaves")
        fleet.stop("ours-1")
        fleet.shares(kcl_2=4)
        fleet.finish()
    fleet.check()
    if version == KCL_3:
        assert {("ours-1", "kcl-1"), ("ours-1", "kcl-2")} <= fleet.handoffs()


@fleets(1)
def test_a_rolling_migration_and_back(
    journey: Callable[..., Journey], version: str, settings: dict[str, object], seed: int
) -> None:
    """One worker after the other: two of the KCL's become two of ours, and these two of the KCL's again."""
    with journey(f"KCL {version} to ours and back", kcl_settings=settings, seed=seed) as fleet:
        fleet.step("KCL starts")
        fleet.kcl(version, "kcl-1")
        fleet.shares(kcl_1=4)
        fleet.step("KCL joins")
        fleet.kcl(version, "kcl-2")
        fleet.shares(kcl_1=2, kcl_2=2)
        fleet.step("first KCL -> ours")
        fleet.stop("kcl-1")
        fleet.ours("ours-1")
        fleet.shares(kcl_2=1, ours_1=1)
        fleet.step("second KCL -> ours")
        fleet.stop("kcl-2")
        fleet.ours("ours-2")
        fleet.shares(ours_1=2, ours_2=2)
        fleet.flow()
        fleet.step("first of ours -> KCL")
        fleet.stop("ours-1")
        fleet.kcl(version, "kcl-3")
        fleet.shares(kcl_3=1, ours_2=1)
        fleet.step("second of ours -> KCL")
        fleet.stop("ours-2")
        fleet.kcl(version, "kcl-4")
        fleet.shares(kcl_3=2, kcl_4=2)
        fleet.finish()
    fleet.check()
