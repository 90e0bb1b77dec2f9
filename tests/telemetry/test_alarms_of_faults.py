"""Consumers are driven through each fault, and Prometheus's own evaluation of the rules names it, and nothing else.

Time is virtual: hours pass in seconds, and the rules are those that users load.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from scripts.monitoring import FOLDER

from shardway.core.log.pace import PollingOptions
from shardway.errors import AccessDeniedError, UnavailableError
from shardway.local.model import Limits
from shardway.policies import DeadLettersTo, Retry
from tests.telemetry.watched_kit import HOUR_S, SCRAPE_S, Watched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PROMTOOL = shutil.which("promtool")
RULES = FOLDER / "prometheus-rules.yml"
FIRING = 'ALERTS{alertstate="firing"}'
AWAY = UnavailableError("InternalFailure", "The service failed", status=500)
GONE = {"ShardwayNoNumbers", "ShardwayProcessGone"}
STUCK = {"ShardwayNothingSettled", "ShardwayRecordsHeldUp"}
EXPIRED = AccessDeniedError("ExpiredTokenException", "The security token included in the request is expired")
"""Of credentials that the program gave: they are never renewed."""
RENEWED_LATER = AccessDeniedError("ExpiredTokenException", "The security token included in the request is expired")
RENEWED_LATER.retryable = True
"""Of those that come from where they may be renewed."""

pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not here (Debian: the package prometheus)")


class Looks(NamedTuple):
    """Which alarms are to fire, by minutes."""

    firing: dict[int, set[str]]
    ever: set[str]
    """All that fired at any time."""


@pytest.fixture
def world() -> Iterator[Watched]:
    made = Watched()
    yield made
    made.close()


def judge(world: Watched, looks: Looks, folder: Path) -> None:
    """Have promtool evaluate the rules over all that was scraped."""
    assert PROMTOOL is not None
    names = set(re.findall(r"\b(?:shardway_[a-z_]+|up)\b", RULES.read_text(encoding="utf-8")))

    def of(at_min: int, alarms: set[str], expression: str) -> dict[str, Any]:
        samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(alarms)]
        return {"expr": expression, "eval_time": f"{at_min}m", "exp_samples": samples}

    looked = [of(at_min, alarms, f"group by (alertname) ({FIRING})") for at_min, alarms in looks.firing.items()]
    ever = f"group by (alertname) (count_over_time({FIRING}[1d]))"
    unit = {
        "rule_files": [str(RULES)],
        "evaluation_interval": f"{SCRAPE_S}s",
        "tests": [
            {
                "interval": f"{SCRAPE_S}s",
                "input_series": world.series(names),
                "promql_expr_test": [*looked, of(world.now_min, looks.ever, ever)],
            }
        ],
    }
    (folder / "unit.yml").write_text(json.dumps(unit), encoding="utf-8")
    done = subprocess.run(
        [PROMTOOL, "test", "rules", str(folder / "unit.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def through(
    world: Watched,
    fault_min: float,
    begin: Callable[[], object],
    end: Callable[[], object],
    *,
    expected: set[str],
    quiet_min: float = 6,
    heals_min: float = 15,
) -> Looks:
    """A quiet time, the fault, and a quiet time again."""
    world.run(quiet_min)
    quiet_at = world.now_min
    begin()
    world.run(fault_min)
    rings_at = world.now_min
    end()
    world.run(heals_min)
    return Looks({quiet_at: set(), rings_at: expected, world.now_min: set()}, expected)


def test_handlers_fail(world: Watched, tmp_path: Path) -> None:
    process = world.start()

    def fails(value: bool) -> None:
        process.fails = value

    expected = {"ShardwayHandlersFail", *STUCK}
    judge(world, through(world, 12, lambda: fails(True), lambda: fails(False), expected=expected), tmp_path)


@pytest.mark.parametrize(
    ("hours", "expected"),
    [
        (0, set()),
        (2, {"ShardwayLossForeseen"}),
        (7, {"ShardwayLossForeseen", "ShardwayLagUsesRetention"}),
        (13, {"ShardwayLossForeseen", "ShardwayLagUsesRetention", "ShardwayLagUsesHalfOfRetention"}),
    ],
    ids=["at once", "loss foreseen", "a quarter", "half"],
)
def test_handlers_hang(world: Watched, tmp_path: Path, hours: int, expected: set[str]) -> None:
    process = world.start()

    def hangs() -> None:
        process.hangs = True
        world.run(0.5)
        world.service.passed_s += hours * HOUR_S

    def works() -> None:
        process.hangs = False

    judge(world, through(world, 14, hangs, works, expected=STUCK | expected), tmp_path)


def test_a_handler_hangs_for_one_shard_of_several(tmp_path: Path) -> None:
    with closing(Watched(shards=2)) as world:
        process, _ = world.start(), world.start()

        def hangs(value: bool) -> None:
            process.hangs = value

        expected = {"ShardwayRecordsHeldUp"}
        judge(world, through(world, 8, lambda: hangs(True), lambda: hangs(False), expected=expected), tmp_path)


def test_reads_fail(world: Watched, tmp_path: Path) -> None:
    process = world.start()

    def meets(error: Exception | None) -> None:
        process.wire.error = error

    expected = {"ShardwayReadsFail", "ShardwayNothingSettled"}
    judge(world, through(world, 9, lambda: meets(AWAY), lambda: meets(None), expected=expected), tmp_path)


def test_the_lease_table_cannot_be_reached(world: Watched, tmp_path: Path) -> None:
    process = world.start()

    def meets(error: Exception | None) -> None:
        process.table.error = error

    expected = {"ShardwayLeaseTableFails"}
    judge(world, through(world, 8, lambda: meets(AWAY), lambda: meets(None), expected=expected), tmp_path)


def test_credentials_expire_until_they_are_renewed(world: Watched, tmp_path: Path) -> None:
    process = world.start()

    def meets(error: Exception | None) -> None:
        process.wire.error = process.table.error = error

    expected = {"ShardwayLeaseTableFails"}  # its shards are let go: the reads that fail are told for as long
    looks = through(world, 9, lambda: meets(RENEWED_LATER), lambda: meets(None), expected=expected)
    assert process.consumer.metrics().fetches_failed.keys() == {"ExpiredTokenException"}
    judge(world, looks, tmp_path)


def test_credentials_expire_and_the_process_ends(world: Watched, tmp_path: Path) -> None:
    process = world.start()

    def expire() -> None:
        process.wire.error = process.table.error = EXPIRED

    def renewed() -> None:
        assert process.main.done()
        assert isinstance(process.main.exception(), AccessDeniedError)
        process.is_target = False
        world.start()

    judge(world, through(world, 4, expire, renewed, expected=GONE), tmp_path)


def test_credentials_expire_and_the_program_goes_on_without_its_consumer(world: Watched, tmp_path: Path) -> None:
    process = world.start(catches=True)

    def expire() -> None:
        process.wire.error = process.table.error = EXPIRED

    def renewed() -> None:
        process.wire.error = process.table.error = None
        process.work_again()

    judge(world, through(world, 4, expire, renewed, expected={"ShardwayNoNumbers"}), tmp_path)


def test_the_only_process_is_killed(world: Watched, tmp_path: Path) -> None:
    process = world.start()

    def replaced() -> None:
        process.is_target = False
        world.start()

    judge(world, through(world, 4, process.kill, replaced, expected=GONE), tmp_path)


def test_a_loop_stands_still(world: Watched, tmp_path: Path) -> None:
    process = world.start()
    expected = {"ShardwayNoNumbers"}
    judge(world, through(world, 4, process.loop.freeze, process.loop.thaw, expected=expected), tmp_path)


def test_shards_have_no_worker(world: Watched, tmp_path: Path) -> None:
    world.start(leases_max=0)
    looks = through(world, 8, lambda: None, world.start, quiet_min=2, expected={"ShardwayLeasesWithoutOwner"})
    judge(world, looks, tmp_path)


def test_a_worker_dies_and_no_other_may_take_its_shards(tmp_path: Path) -> None:
    with closing(Watched(shards=2)) as world:
        _, other = world.start(leases_max=1), world.start(leases_max=1)

        def replaced() -> None:
            other.is_target = False
            world.start()

        expected = {"ShardwayLeasesWithoutOwner", "ShardwayProcessGone"}
        judge(world, through(world, 8, other.kill, replaced, expected=expected), tmp_path)


def test_records_are_given_up(world: Watched, tmp_path: Path) -> None:
    letters: list[object] = []
    retry = Retry(failures_max=2, cap_s=5.0)
    process = world.start(retry=retry, dead_letters=DeadLettersTo(letters.append))

    def fails() -> None:
        process.fails = True
        world.run(0.5)
        process.fails = False

    judge(world, through(world, 1, fails, lambda: None, heals_min=17, expected={"ShardwayDeadLetters"}), tmp_path)
    assert letters


def test_others_read_the_shard_too(world: Watched, tmp_path: Path) -> None:
    world.start(polling=PollingOptions(interval_s=1.0, idle_interval_s=1.0))

    def crowded() -> None:
        world.model.limits = Limits(per_shard=True, get_calls_per_s=0.3)

    def free() -> None:
        world.model.limits = Limits()

    judge(world, through(world, 20, crowded, free, expected={"ShardwayReadsRefused"}), tmp_path)


def test_a_consumer_was_away_for_longer_than_the_retention(world: Watched, tmp_path: Path) -> None:
    process = world.start()

    def comes_back() -> None:
        process.stop()
        world.run(0.5)
        world.service.passed_s += 30 * HOUR_S
        world.start()

    looks = through(world, 2, comes_back, lambda: None, heals_min=17, expected={"ShardwayRecordsLost"})
    judge(world, looks, tmp_path)


def test_nothing_rings_without_a_fault(tmp_path: Path) -> None:
    """Deploys, a reshard with a backlog; a record, a read and a call to the table that fail twice in four minutes."""
    with closing(Watched(shards=2)) as world:
        first, second = world.start(), world.start()
        world.run(5)
        for _ in range(2):  # two single failures of each within five minutes
            first.fails = True
            world.run(0.3)
            first.fails = False
            for error, where in ((AWAY, first.wire), (AWAY, second.table)):
                where.error = error
                world.run(0.2)
                where.error = None
                world.run(1)
            world.run(1)
        world.run(6)
        world.put(200)
        world.reshard()
        world.run(10)
        for process in (first, second):
            process.stop()
            world.start()
            world.run(5)
        world.run(5)
        judge(world, Looks({world.now_min: set()}, set()), tmp_path)
