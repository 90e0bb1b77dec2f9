"""Real processes that share a stream, and are killed, stopped and paused: either output has every record once.

The outputs are those of KCL issue #11's copier: a store that refuses late writers, and a stream whose reader does.
"""

from __future__ import annotations

import random
import signal
import time
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from shardway.local import LocalKinesis
from tests.runtime.consumer.copying_kit import COPIES, Copiers, Load, once, put
from tests.runtime.consumer.copying_process import STREAM
from tests.starts import STARTS, start_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHARDS = 4
PAUSE_S = 5.0
"""More than twice the failover time."""
NOBODY_FAILS_S = 30.0
"""A failover time that no busy machine exceeds: where all moves are planned, none is a takeover."""
STREAMS = {STREAM: SHARDS, COPIES: 2}


@pytest.fixture(params=["store", "stream"])
def copiers(request: pytest.FixtureRequest, local: LocalKinesis, kinesis: Any, tmp_path: Path) -> Iterator[Copiers]:
    start = start_of(zlib.crc32(request.node.name.encode()))  # It is the same in each run.
    copiers = Copiers(local.endpoint_url, tmp_path, kinesis=kinesis if request.param == "stream" else None, start=start)
    yield copiers
    copiers.close()


def every_record_once(copiers: Copiers, wanted: list[str]) -> None:
    copiers.until(lambda: len(copiers.copies()) >= len(wanted))
    assert sorted(copiers.copies(), key=int) == wanted


@pytest.mark.parametrize("start", STARTS)
def test_a_worker_that_is_killed_costs_no_record(
    request: pytest.FixtureRequest, local: LocalKinesis, kinesis: Any, tmp_path: Path, start: str
) -> None:
    copiers = Copiers(local.endpoint_url, tmp_path, start=start)
    request.addfinalizer(copiers.close)
    wanted = put(kinesis, 0, 100)
    doomed, other = copiers.start(), copiers.start()
    wanted += put(kinesis, 100, 200)
    copiers.until(lambda: len(copiers.copies()) >= 150)
    copiers.kill(doomed)
    wanted += put(kinesis, 200, 300)
    every_record_once(copiers, wanted)
    copiers.stop(other)


def test_a_reader_of_stamps_drops_late_writers_and_duplicates() -> None:
    late, repeat = ("a", 1, 4, "late"), ("a", 2, 2, "repeat")
    stamped = [("a", 1, 1, "one"), ("a", 1, 2, "two"), repeat, ("a", 2, 3, "three"), late, ("b", 1, 1, "other")]
    assert [data for *_, data in once(stamped)] == ["one", "two", "three", "other"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kills_pauses_beyond_the_lease_and_deploys_under_load(
    local: LocalKinesis, kinesis: Any, copiers: Copiers
) -> None:
    rng = random.Random(11)
    for _ in range(3):
        copiers.start()
    with Load(kinesis) as load:
        for turn in range(8):
            time.sleep(rng.uniform(0.2, 1.5))
            process = rng.choice(copiers.running)
            what = turn % 4
            if what == 0:
                copiers.kill(process)
                copiers.start()
            elif what == 1:
                copiers.start()
                copiers.stop(process)
            elif what == 2:
                process.send_signal(signal.SIGSTOP)
                time.sleep(PAUSE_S)
                process.send_signal(signal.SIGCONT)
            else:
                copiers.stop(process)
                copiers.start()
    every_record_once(copiers, load.wanted)
    tokens_never_fall(copiers)


def tokens_never_fall(copiers: Copiers) -> None:
    """Of one shard: the process that came later had the higher one. (A stream takes what a late writer writes.)"""
    for (shard_id,) in copiers.rows("SELECT DISTINCT shard_id FROM copies"):
        tokens = [token for (token,) in copiers.rows(f"SELECT token FROM copies WHERE shard_id = '{shard_id}'")]
        assert tokens == sorted(tokens)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_one_worker_becomes_four_and_then_two_under_load(local: LocalKinesis, kinesis: Any, copiers: Copiers) -> None:
    """Every record once, and nothing is even written twice: all moves are handoffs."""
    copiers.failover_s = NOBODY_FAILS_S
    with Load(kinesis) as load:
        copiers.start()
        copiers.until(lambda: copiers.shared_evenly(4))
        for _ in range(3):
            copiers.start()
        copiers.until(lambda: copiers.shared_evenly(1))
        for process in copiers.running[:2]:
            copiers.stop(process)
        copiers.until(lambda: copiers.shared_evenly(2))
    every_record_once(copiers, load.wanted)
    assert copiers.written() == len(load.wanted)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", ["start", "stop"])
def test_a_rolling_restart_under_load(local: LocalKinesis, kinesis: Any, copiers: Copiers, first: str) -> None:
    """Each worker in turn is replaced: the new one starts before the old one stops, or after it."""
    copiers.failover_s = NOBODY_FAILS_S
    for _ in range(3):
        copiers.start()
    with Load(kinesis) as load:
        copiers.until(lambda: len(copiers.shares()) == 3)
        for process in list(copiers.running):
            if first == "start":
                copiers.start()
            copiers.stop(process)
            if first == "stop":
                copiers.start()
    every_record_once(copiers, load.wanted)
    assert copiers.written() == len(load.wanted)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_worker_that_sleeps_beyond_its_lease_writes_nothing_late(
    local: LocalKinesis, kinesis: Any, copiers: Copiers
) -> None:
    """All but one are stopped (SIGSTOP) in the midst of their work; when they go on, others have their shards."""
    for _ in range(2):
        copiers.start()
    copiers.until(lambda: copiers.shared_evenly(2))
    awake, asleep = copiers.running
    with Load(kinesis) as load:
        for _ in range(3):
            time.sleep(0.5)
            copiers.freeze(asleep)
            copiers.until(lambda: copiers.shares() == {awake.pid: SHARDS})
            asleep.send_signal(signal.SIGCONT)
            copiers.until(lambda: copiers.shared_evenly(2))
    every_record_once(copiers, load.wanted)
    tokens_never_fall(copiers)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_reshards_and_kills_under_load(local: LocalKinesis, kinesis: Any, copiers: Copiers) -> None:
    for _ in range(2):
        copiers.start()
    copiers.until(lambda: len(copiers.shares()) == 2)
    with Load(kinesis) as load:
        for count in (SHARDS * 2, SHARDS, SHARDS // 2):
            kinesis.update_shard_count(StreamName=STREAM, TargetShardCount=count, ScalingType="UNIFORM_SCALING")
            at = len(load.wanted)
            copiers.kill(copiers.running[0])
            copiers.start()
            copiers.until(lambda at=at: len(copiers.copies()) > at)  # type: ignore[misc]
    every_record_once(copiers, load.wanted)
