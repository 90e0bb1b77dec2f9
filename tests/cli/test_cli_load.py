"""``shardway load``: what is due when, what arrives, and what is said."""

from __future__ import annotations

import collections
import json
import re
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from shardway.cli.load import DURATION_S, Schedule, live_line
from shardway.errors import OptionError
from shardway.runtime.producer.meter import ProducerMeter
from shardway.testing import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.local import LocalKinesis

    Run = Callable[..., Any]
    ReadBack = Callable[[], list[Any]]


# --- what is due ----------------------------------------------------------------------------------------


def played(schedule: Schedule, *, most: int = 500) -> list[tuple[float, int]]:
    """(when, how many) while the schedule is followed to its end, by a producer that takes no time."""
    now_s, found = 0.0, []
    while not schedule.over(now_s):
        count = schedule.take(now_s, most)
        if count:
            found.append((now_s, count))
        assert len(found) < 100_000
        now_s += 0.0 if count == most else schedule.wait_s(now_s)
    return found


@pytest.mark.parametrize("rate", [1, 7.5, 100, 12_345])
def test_a_rate_is_kept(rate: float) -> None:
    found = played(Schedule(rate_per_s=rate, records=None, duration_s=4.0))
    assert sum(count for _, count in found) == pytest.approx(rate * 4, abs=1 + rate * 0.006)
    made = 0
    for when, count in found:
        made += count
        assert made <= when * rate + 1, "ahead of the rate"
    assert found[-1][0] < 4.0


def test_a_number_of_records_is_exact_at_any_rate() -> None:
    for rate in (50.0, 10_000.0, None):
        schedule = Schedule(rate_per_s=rate, records=1234, duration_s=None)
        assert sum(count for _, count in played(schedule)) == 1234
        assert schedule.over(0.0)


def test_what_comes_first_ends_it() -> None:
    assert sum(count for _, count in played(Schedule(rate_per_s=10, records=5, duration_s=100))) == 5
    assert sum(count for _, count in played(Schedule(rate_per_s=10, records=5000, duration_s=2))) == 20


def test_nothing_runs_for_ever() -> None:
    schedule = Schedule(rate_per_s=None, records=None, duration_s=None)
    assert not schedule.over(DURATION_S - 0.1)
    assert schedule.over(DURATION_S)
    assert schedule.take(1.0, 500) == 500


def test_a_producer_that_does_not_keep_up_is_not_run_over_afterwards() -> None:
    schedule = Schedule(rate_per_s=100, records=None, duration_s=60)
    assert schedule.take(0.0, 50) == 1
    assert schedule.take(30.0, 50) == 50
    assert schedule.take(30.0, 50) == 50
    assert schedule.take(30.0, 50) == 0, "more than a second is caught up"
    assert schedule.left_out == 3001 - 101
    assert schedule.take(30.5, 500) == 50


def test_bounds_are_above_zero() -> None:
    with pytest.raises(OptionError) as caught:
        Schedule(rate_per_s=0, records=-1, duration_s=0.0)
    assert caught.value.faults == [f"{name} must be more than 0" for name in ("--rate", "--records", "--duration")]


def test_a_line_tells_one_interval() -> None:
    meter = ProducerMeter(0.0)
    meter.count_accepted(1000)
    meter.count_put(990, 2 * 1024 * 1024, 0.05, 1)
    meter.count_errors(7, "Throttled", refused=True)
    line = live_line(12.0, meter.interval(2.0))
    assert re.sub(" +", " ", line) == " 12 s 495 records/s 1.0 MiB/s p50 50 ms p99 50 ms 7 refused 10 under way"
    meter.count_expired(10)
    assert live_line(14.0, meter.interval(4.0)).endswith("  0 under way  10 not written")


# --- what arrives ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--aggregation", "--ordered-by-key")], ids=str)
def test_every_record_arrives_once_and_can_be_checked(
    run: Run, local: LocalKinesis, read_back: ReadBack, options: tuple[str, ...]
) -> None:
    done = run("load", "orders", "--records", "1500", "--size", "100-300", "--keys", "50", "-o", "json", *options)
    told = json.loads(done.stdout)
    assert (done.status, told["complete"], told["written"], told["left_out"]) == (0, True, 1500, 0)
    found = read_back()
    data = [json.loads(one.data) for one in found]
    assert sorted(one["index"] for one in data) == list(range(1500))
    assert {one["run"] for one in data} == {told["run"]}
    assert {one.key for one in found} == {f"key-{n}" for n in range(50)}
    assert all(100 <= len(one.data) <= 300 for one in found)
    assert any(one.aggregated for one in found) is bool(options)
    if options:
        of_key = collections.defaultdict(list)
        for one in found:
            of_key[one.key].append(json.loads(one.data)["index"])
        assert all(indexes == sorted(indexes) for indexes in of_key.values())


def test_at_a_rate_for_a_time(run: Run, local: LocalKinesis, read_back: ReadBack) -> None:
    done = run("load", "orders", "--rate", "100", "--duration", "1.2", "--size", "lognormal:200", "--skew", "1.2")
    assert done.status == 0
    assert done.stdout.startswith("orders: ")
    lines = [line for line in done.stderr.splitlines() if "records/s" in line]
    assert len(lines) >= 2  # one a second, and the rest
    written = len(read_back())
    assert f"orders: {written} records written" in done.stdout
    assert written <= 121


def test_the_same_seed_is_the_same_load(run: Run, local: LocalKinesis, read_back: ReadBack) -> None:
    for _ in range(2):
        assert run("load", "orders", "--records", "50", "--seed", "7", "--size", "80-500").status == 0
    loads = collections.defaultdict(list)
    for one in read_back():
        data = json.loads(one.data)
        loads[data["run"]].append((data["index"], one.key, len(one.data)))
    first, second = loads.values()
    assert sorted(first) == sorted(second)


def test_what_is_not_written_is_told_and_it_goes_on(run: Run, local: LocalKinesis, read_back: ReadBack) -> None:
    local.faults.add(Fault(how="access_denied", operation="PutRecords", count=1))
    done = run("load", "orders", "--rate", "1000", "--records", "500", "-o", "json")
    told = json.loads(done.stdout)
    assert (done.status, told["records"], told["complete"]) == (1, 500, False)
    lost = {n for first, last in told["not_written_indexes"] for n in range(first, last + 1)}
    assert {json.loads(one.data)["index"] for one in read_back()} == set(range(500)) - lost
    assert "records are not written" in done.stderr


def test_ctrl_c_ends_it_with_its_figures(start: Run, local: LocalKinesis, read_back: ReadBack) -> None:
    process: subprocess.Popen[bytes] = start("load", "orders", "--rate", "200", "--duration", "600", "-o", "json")
    assert process.stderr is not None
    # A line comes each second. On a busy machine the first ones may be of records that are still under way.
    while re.search(rb" 0 records/s", line := process.stderr.readline()):
        pass
    assert b"records/s" in line
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    told = json.loads(stdout)
    assert process.returncode == 128 + signal.SIGINT
    assert (told["interrupted"], told["complete"]) == ("SIGINT", True)
    assert 0 < told["written"] == len(read_back())
    assert stderr.endswith(b"shardway: ended by SIGINT\n")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--rate", "0"), "--rate must be more than 0"),
        (("--size", "5"), "--size 5: sizes are from 80 to"),
        (("--keys", "0"), "--keys 0: from 1 to 1000000"),
        (("--flush", "-1"), "--flush must be at least 0"),
    ],
    ids=str,
)
def test_wrong_options_are_one_line(run: Run, arguments: tuple[str, ...], reason: str) -> None:
    done = run("load", "orders", *arguments)
    assert (done.status, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"shardway: {reason}")
