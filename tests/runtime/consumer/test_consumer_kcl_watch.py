"""What a worker shows to a KCL leader, and how busy the processors are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.assignment.kcl.fleet import Coordination, Fleet, Place
from shardway.core.assignment.kcl.rows import metrics_row
from shardway.core.leases import Done, Outcome, Unknown
from shardway.errors import UnavailableError
from shardway.runtime.worker.kcl_watch import KclTimes, KclWatch
from shardway.runtime.worker.processors import Processors
from tests.momentary import now
from tests.runtime.consumer.kcl_kit import KclTable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


LOOK_INTERVAL_S = 60.0
F = 10.0
EPOCH_S = 1_800_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now_s = 50.0

    def __call__(self) -> float:
        return self.now_s

    def epoch_s(self) -> float:
        return EPOCH_S + self.now_s


class NotingTable(KclTable):
    """Notes what is shown; fails on demand."""

    def __init__(self) -> None:
        super().__init__("leases")
        self.shown: list[Mapping[str, Any]] = []
        self.looks = 0
        self.fails = False
        self.own_tables: Coordination | None = None

    async def coordination(self) -> Coordination | None:
        self.looks += 1
        if self.fails:
            raise UnavailableError("ThrottlingException", "slow down", operation="Scan")
        return self.own_tables

    async def show_metrics(self, place: Place, row: Mapping[str, Any]) -> Outcome:
        self.shown.append(row)
        return Unknown("no answer") if self.fails else Done(None)


class Busy(Processors):
    """They are so busy at all times."""

    def __init__(self, percent: float | None) -> None:
        super().__init__()
        self.percent = percent

    def busy_percent(self) -> float | None:
        return self.percent


def watching(table: KclTable, clock: Clock, busy: float | None = 42.0) -> KclWatch:
    return KclWatch(
        "ours",
        table,
        KclTimes(failover_s=F, report_interval_s=30.0, look_interval_s=LOOK_INTERVAL_S),
        clock=clock,
        epoch_s=clock.epoch_s,
        processors=Busy(busy),
    )


async def look(watch: KclWatch, table: KclTable) -> None:
    await watch.look(await table.scan(), (), {"ours"})


@pytest.mark.parametrize("kcl_shows_cpu", [False, True])
async def test_it_tells_how_busy_it_is_where_the_others_do(kcl_shows_cpu: bool) -> None:
    table, clock = NotingTable(), Clock()
    table.mode("CLIENT_VERSION_3X")
    table.add(metrics_row(Place.LEASE_TABLE, "kcl", clock.epoch_s(), (50.0,) if kcl_shows_cpu else ()))
    watch = watching(table, clock)
    await look(watch, table)
    assert watch.finding.fleet is Fleet.KCL3
    await watch.report()
    await watch.report()
    clock.now_s += 29
    await watch.report()
    assert len(table.shown) == 1, "at once, and then each 30 s"
    clock.now_s += 1
    await watch.report()
    samples = {"C": [42.0, 42.0]} if kcl_shows_cpu else {}
    assert [row["sts"] for row in table.shown] == [{"C": [42.0]} if kcl_shows_cpu else {}, samples]
    assert [row["lut"] for row in table.shown] == [int(EPOCH_S) + 50, int(EPOCH_S) + 80]


async def test_a_row_that_was_not_confirmed_is_shown_again_soon() -> None:
    table, clock = NotingTable(), Clock()
    table.mode("CLIENT_VERSION_3X")
    table.add(metrics_row(Place.LEASE_TABLE, "kcl", clock.epoch_s()))
    watch = watching(table, clock)
    await look(watch, table)
    table.fails = True
    await watch.report()
    await watch.report()
    assert len(table.shown) == 1
    clock.now_s += 2
    table.fails = False
    await watch.report()
    clock.now_s += 2
    await watch.report()
    assert len(table.shown) == 2


async def test_tables_that_cannot_be_read_for_a_while_hold_nothing_up_once_they_were() -> None:
    table, clock = NotingTable(), Clock()
    table.fails = True
    watch = watching(table, clock)
    with pytest.raises(UnavailableError):
        await look(watch, table)  # nothing is taken before it is known whose rules hold
    table.fails = False
    await look(watch, table)
    await look(watch, table)
    assert table.looks == 2
    table.fails = True
    clock.now_s += LOOK_INTERVAL_S
    await look(watch, table)
    await look(watch, table)
    assert table.looks == 3
    assert watch.finding.fleet is Fleet.ALONE


async def test_a_fleet_that_has_left_is_found_to_be_gone_before_two_reports_are_missed() -> None:
    """Its metrics rows and its mode stay. Each table that could tell of its life is looked at in time."""
    table, clock = NotingTable(), Clock()
    left = Coordination(client_version="CLIENT_VERSION_3X", updated_epoch_s={"kcl": int(clock.epoch_s())})
    table.own_tables = left
    watch = watching(table, clock)
    fleets: list[Fleet] = []
    for _ in range(21):  # as a worker scans
        await look(watch, table)
        fleets.append(watch.finding.fleet)
        clock.now_s += F / 5
    assert set(fleets) == {Fleet.KCL3}
    assert watch.is_asleep
    assert table.looks == 5, "each failover time, not each minute"
    await look(watch, table)
    assert now(watch.finding.fleet) is Fleet.ALONE
    table.own_tables = replace(left, has_leader=True)
    clock.now_s += LOOK_INTERVAL_S
    await look(watch, table)
    assert now(watch.finding.fleet) is Fleet.ALONE, "also a leader may be dead"
    table.own_tables = replace(left, updated_epoch_s={"kcl": int(clock.epoch_s())})
    clock.now_s += LOOK_INTERVAL_S
    await look(watch, table)
    assert watch.finding.fleet is Fleet.KCL3


def test_how_busy_the_machine_is(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3\n")
    since = Processors(tmp_path / "none", stat)
    stat.write_text("cpu  150 0 125 725 100 0 0 0 0 0\n")
    assert since.busy_percent() == 75.0
    assert since.busy_percent() is None, "no time has passed"
    stat.unlink()
    assert since.busy_percent() is None


def test_how_busy_a_container_with_a_limit_is(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("200000 100000\n")
    (tmp_path / "cpu.stat").write_text("usage_usec 5000000\nuser_usec 1\n")
    since = Processors(tmp_path, tmp_path / "none")
    (tmp_path / "cpu.stat").write_text("usage_usec 3605000000\nuser_usec 1\n")
    assert since.busy_percent() == 100.0, "an hour of work in no time"
    (tmp_path / "cpu.stat").write_text("usage_usec 3605000000\nuser_usec 1\n")
    idle = since.busy_percent()
    assert idle == 0.0
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert since.busy_percent() is None, "no limit, and no machine to look at"
