"""Whole consumers under faults: `make sim` runs hundreds of these, here are a few."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from shardway import tasks
from shardway.core.shard.duplicates import Deduplicate
from shardway.model import StartingPosition
from shardway.policies import DeadLettersTo, Retry
from shardway.testing import FaultPlan, Simulator
from shardway.testing.sim.__main__ import main, replay_line
from shardway.testing.sim.history.shard_story import BAD
from shardway.testing.sim.plan import (
    Crash,
    Cut,
    Failing,
    Fault,
    Join,
    Leave,
    Merge,
    Noise,
    Outage,
    Pause,
    Seek,
    Service,
    SlowHandler,
    Split,
    Way,
)
from shardway.testing.sim.programs import PROGRAMS
from shardway.testing.sim.services.stream import EPOCH_S
from tests.options_kit import options_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.core.ledger.letter import Letter

SEEDS = range(1_000, 1_008)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_rule_breaks(seed: int) -> None:
    report = Simulator(FaultPlan.draw(seed)).run()
    assert report.ok, f"{report}; again: {replay_line(seed)}"
    assert report.deliveries > 20


def test_nothing_is_kept_of_a_simulation_that_is_over() -> None:
    """Its crashed processes have tasks that never ended: they held whole simulations, and long runs grew."""
    Simulator(FaultPlan.draw(next(seed for seed in range(100) if _crashes(seed)))).run()
    assert {type(task.get_loop()).__name__ for task in tasks._running_tasks} <= {"_UnixSelectorEventLoop", "Loop"}


def _crashes(seed: int) -> bool:
    return any(isinstance(fault, Crash) for fault in FaultPlan.draw(seed).faults)


def test_plans_differ_and_are_written_as_they_are_read() -> None:
    plans = [FaultPlan.draw(seed) for seed in range(300)]
    assert len(set(map(repr, plans))) == len(plans)
    kinds = {type(fault).__name__ for plan in plans for fault in plan.faults}
    assert kinds == {kind.__name__ for kind in Fault.__subclasses__()}
    assert {plan.program for plan in plans} == set(PROGRAMS) - {"only_the_last"}
    names = {kind.__name__: kind for kind in (FaultPlan, Crash, Pause, Join, Leave, Split, Merge, Seek)}
    calm = next(plan for plan in plans if plan.calm and plan.faults)
    assert eval(repr(calm), names) == calm


def test_a_seed_repeats_exactly_whatever_the_hash_seed() -> None:
    program = (
        "from shardway.testing import FaultPlan, Simulator\n"
        "print([Simulator(FaultPlan.draw(seed)).run().digest for seed in (1003,)])\n"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(found) == 1


def test_a_partition_from_the_table_alone_hands_the_shards_over_without_two_readers() -> None:
    cut = Cut(at_s=10.0, worker=0, service=Service.TABLE, way=Way.SILENT, lasts_s=30.0)
    report = Simulator(FaultPlan(workers=2, shards=4, duration_s=45.0, faults=(cut,))).run()
    assert report.ok, report
    assert report.moves > 8  # two went to the other worker, and two came back


def test_the_history_has_the_arrival_time_that_the_service_stamps_and_not_one_that_is_rounded_up() -> None:
    """A start is a whole millisecond too: what the service stamps with an earlier one lies before it."""
    simulator = Simulator(FaultPlan(workers=1, shards=1, start="LATEST", before_s=1.0))
    simulator.time.run(0.4486)
    (stream,) = simulator.streams
    stream.put(1)
    (story,) = simulator.history.shards.values()
    assert list(story.arrived.values()) == [EPOCH_S + 0.448]
    story.start(EPOCH_S + 0.449)
    assert story.before_start == set(story.positions)


OPTIONS: dict[str, Callable[[FaultPlan], object]] = {
    "several streams": lambda plan: plan.streams > 1,
    "dead letters": lambda plan: plan.bad,
    "duplicates": lambda plan: plan.window_s and plan.window_waits,
    "parts": lambda plan: plan.parts,
    "keys side by side": lambda plan: plan.program == "by_key",
    "two phases": lambda plan: plan.program == "two_phase",
    "shards given up": lambda plan: plan.gives_up_after_s,
    "an outage beyond the retention": lambda plan: any(isinstance(one, Outage) for one in plan.faults),
    "fan-out": lambda plan: plan.fan_out,
    "seeks": lambda plan: any(isinstance(one, Seek) for one in plan.faults),
    "a start at the oldest record": lambda plan: plan.start == "TRIM_HORIZON",
    "a start at LATEST": lambda plan: plan.start == "LATEST",
    "a start at a time": lambda plan: plan.start == "AT_TIMESTAMP",
    "leases that do not say when they begin": lambda plan: plan.foreign_leases,
}


@pytest.mark.parametrize("start", ["LATEST", "AT_TIMESTAMP"])
@pytest.mark.parametrize("foreign_leases", [False, True])
def test_what_lies_before_the_start_is_left_out_and_nothing_else(start: str, foreign_leases: bool) -> None:
    faults = (Crash(at_s=6.5, worker=0, back_after_s=1.0), Join(at_s=8.0), Leave(at_s=12.0, worker=1))
    plan = FaultPlan(
        workers=2, shards=4, duration_s=20.0, records_per_s=20.0, handle_s=0.5, start=start, before_s=4.0, since_s=1.0,
        foreign_leases=foreign_leases, options={"batch_records_max": 3}, faults=faults,
    )  # fmt: skip
    simulator = Simulator(plan)
    report = simulator.run()
    assert report.ok, report
    stories = simulator.history.shards.values()
    assert all(0 < len(story.before_start) < len(story.positions) for story in stories)


def test_a_seek_to_latest_passes_over_nothing_that_arrives_after_the_call() -> None:
    """The worker does not reach the stream when the program seeks: what arrives meanwhile is wanted."""
    seek = Seek(at_s=10.0, worker=0, choice=0.0, to="LATEST")
    cut = Cut(at_s=9.5, worker=0, service=Service.STREAM, way=Way.REFUSED, lasts_s=8.0)
    plan = FaultPlan(workers=1, shards=1, duration_s=25.0, records_per_s=20.0, faults=(cut, seek))
    simulator = Simulator(plan)
    report = simulator.run()
    assert report.ok, report
    assert simulator.history.seeks == 1


@pytest.mark.parametrize("start", ["TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"])
@pytest.mark.parametrize("to", ["TRIM_HORIZON", "LATEST", "AT_TIMESTAMP", "POSITION"])
def test_the_next_owner_goes_on_where_the_lease_stands_though_nothing_was_settled_since_a_seek(
    start: str, to: str
) -> None:
    """A word in the lease would be the next owner's: what was passed over would be lost, or come from before."""
    down = Failing(at_s=0.0, worker=0, lasts_s=40.0)
    seek = Seek(at_s=8.0, worker=0, choice=0.0, to=to, where=0.5)
    faults = (down, seek, Join(at_s=14.0), Crash(at_s=15.0, worker=0))
    plan = FaultPlan(
        workers=1, shards=1, duration_s=40.0, records_per_s=20.0, start=start, before_s=2.0, since_s=1.0, faults=faults
    )
    simulator = Simulator(plan)
    report = simulator.run()
    assert report.ok, report
    assert simulator.history.seeks == 1


def test_each_option_is_drawn_often_and_beside_faults() -> None:
    plans = [FaultPlan.draw(seed) for seed in range(200)]
    found = {name: sum(bool(has(plan)) and not plan.calm for plan in plans) for name, has in OPTIONS.items()}
    assert min(found.values()) >= 8, found


def test_a_worker_back_after_the_retention_says_what_it_lost_and_goes_on() -> None:
    """Parents too are gone by then: their children are begun all the same."""
    faults = (Split(at_s=18.9, choice=0.0), Crash(at_s=19.0, worker=0), Outage(at_s=22.0, hours=25.0))
    report = Simulator(FaultPlan(workers=1, shards=2, duration_s=40.0, faults=faults)).run()
    assert report.ok, report
    assert report.told["CheckpointTrimmed"] >= 1


def test_what_options_promise_is_told_too() -> None:
    noise = Noise(at_s=5.0, service=Service.LETTERS, lasts_s=20.0, request_lost=0.3, answer_lost=0.3)
    down = Failing(at_s=12.0, worker=0, lasts_s=10.0)
    plan = FaultPlan(
        workers=2, shards=4, duration_s=30.0, records_per_s=20.0, streams=2, keys=12, program="by_key", bad=0.05,
        repeats=0.2, window_s=30.0, parts=True, gives_up_after_s=2.0, cool_down_s=8.0, faults=(noise, down),
    )  # fmt: skip
    report = Simulator(plan).run()
    assert report.ok, report
    told = {"RecordDeadLettered", "DeadLetterFailed", "DuplicatesLeftOut", "ShardGivenUp", "DedupeWindowRebuilt"}
    assert told <= set(report.told)


def test_a_handoff_waits_for_the_parts_that_only_a_busy_program_can_take() -> None:
    leaves = tuple(Leave(at_s=32.0 + 0.1 * one, worker=one) for one in range(2))
    joins = tuple(Join(at_s=30.6 + 0.1 * one) for one in range(2))
    plan = FaultPlan(
        seed=2_000_152, workers=2, shards=5, duration_s=45.0, records_per_s=20.0, handle_s=0.5, parts=True,
        options={"drain_deadline_s": 5.0, "batch_records_max": 3, "cadence": "prompt"}, faults=joins + leaves,
    )  # fmt: skip
    report = Simulator(plan).run()
    assert report.ok, report
    assert report.duplicates == 0


def test_a_merges_child_waits_for_a_parent_that_another_worker_has_just_made_a_lease_for() -> None:
    """Its lease is younger than the last scan of the worker that reads the other parent to its end."""
    slow = SlowHandler(at_s=10.5, worker=1, lasts_s=5.0, handle_s=9.0)
    plan = FaultPlan(
        seed=1, workers=2, shards=2, duration_s=22.0, records_per_s=8.0, handle_s=0.5, fan_out=True,
        options={"batch_records_max": 3}, faults=(slow, Split(at_s=12.0, choice=0.75), Merge(at_s=12.6, choice=0.15)),
    )  # fmt: skip
    report = Simulator(plan).run()
    assert report.ok, report


BROKE_A_RULE = [1_000_187, 2_000_152]
BROKE_A_RULE += [3_004_385, 3_004_609, 3_005_688, 3_007_310, 3_011_011, 3_013_081, 3_014_103, 3_018_340]


@pytest.mark.parametrize("seed", BROKE_A_RULE)
def test_no_rule_breaks_where_one_did(seed: int) -> None:
    """The plans are those of that time, when every worker started at TRIM_HORIZON."""
    plan = replace(FaultPlan.draw(seed), start="TRIM_HORIZON", before_s=0.0, since_s=0.0, foreign_leases=False)
    report = Simulator(plan).run()
    assert report.ok, report


def test_planned_moves_repeat_nothing() -> None:
    faults = (
        *(Join(at_s=10.0 + one) for one in range(3)),
        *(Leave(at_s=20.0 + one, worker=one) for one in range(3)),
        Split(at_s=18.0, choice=0.5),
        Merge(at_s=30.0, choice=0.3),
    )
    plan = FaultPlan(workers=3, shards=6, duration_s=40.0, faults=faults, options={"cadence": "riding"})
    assert plan.calm
    report = Simulator(plan).run()
    assert report.ok, report
    assert report.duplicates == 0


def test_a_crash_repeats_what_was_not_stored_and_nothing_is_lost() -> None:
    crash = Crash(at_s=14.3, worker=0, back_after_s=2.0)
    report = Simulator(FaultPlan(workers=2, shards=4, duration_s=40.0, records_per_s=20.0, faults=(crash,))).run()
    assert report.ok, report
    assert report.duplicates > 0


def test_settling_through_the_last_record_counts() -> None:
    faults = (Join(at_s=8.0), Leave(at_s=14.0, worker=0))
    report = Simulator(FaultPlan(workers=1, shards=2, duration_s=20.0, program="only_the_last", faults=faults)).run()
    assert report.ok, report
    assert report.duplicates == 0


def test_a_worker_that_comes_after_the_faults_is_not_slow() -> None:
    """Else it would have no time for all that came while no worker was there, which is no fault of the consumer."""
    plan = FaultPlan(
        workers=1, shards=1, duration_s=50.0, records_per_s=20.0, handle_s=0.5, faults=(Leave(at_s=5.0, worker=0),),
        options={"failover_s": 5.0, "batch_records_max": 3},
    )  # fmt: skip
    report = Simulator(plan).run()
    assert report.ok, report


def test_settings_of_ones_own_are_judged_too() -> None:
    """Letters that were kept count, parts are as many as the function makes, the window is the one of the settings."""
    kept: list[Letter] = []
    options = options_of(
        starting_position=StartingPosition.TRIM_HORIZON,
        dead_letters=DeadLettersTo(kept.append),
        split=lambda record: [record.data[:1], record.data],
        deduplicate=Deduplicate(key=lambda record: record.data, window_s=5.0, wait=True),
        retry=Retry(failures_max=1),
    )
    faults = (Join(at_s=8.0), Leave(at_s=14.0, worker=0))
    plan = FaultPlan(workers=1, shards=2, duration_s=20.0, bad=0.1, repeats=0.3, window_s=8.0, faults=faults)
    report = Simulator(plan, options=options).run()
    assert report.ok, report
    assert report.told["DuplicatesLeftOut"]
    assert kept
    assert all(letter.part is not None and letter.data is not None and letter.data.endswith(BAD) for letter in kept)


def test_a_program_of_ones_own_is_judged_too() -> None:
    async def settles_nothing(consumer: object, process: object) -> None:
        async for _batch in consumer:  # type: ignore[attr-defined]
            pass

    report = Simulator(FaultPlan(workers=1, shards=1, duration_s=10.0), program=settles_nothing).run()
    assert [broken.rule for broken in report.broken] == ["no progress after healing"]


def test_the_command_tells_how_a_seed_is_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--first", "1000", "--jobs", "1"]) == 0
    assert "2 seeds, 0 of them broke a rule" in capsys.readouterr().out
    assert main(["--seed", "1001"]) == 0
    assert capsys.readouterr().out.startswith("FaultPlan(seed=1001, ")
