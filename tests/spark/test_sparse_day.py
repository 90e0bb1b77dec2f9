"""A day of sparse traffic, read by queries that are killed ten times on their way over its silences, between batches
and inside them: no row is lost, none comes twice, and those of all shards come in step.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from shardway.local import LocalKinesis
from shardway.model import StreamName
from tests.spark.killing import Program
from tests.spark.querying import Stream

if TYPE_CHECKING:
    from collections.abc import Callable

KILLS = 10
MINUTE_S = 60
HOUR_S = 3600
PAGE_SPAN_S = 30 * MINUTE_S
"""So 20 hours are 40 pages of a shard that is silent; the driver makes five calls a second."""
DEADLINE_S = 600.0
"""Far more than anything here takes."""


class Killed(NamedTuple):
    """Where a query stood when it was killed."""

    batches: int
    """That it had committed."""
    inside: bool
    """It had planned one more."""


class Sparse:
    """A stream with little in it, and the query that reads it."""

    def __init__(self, mode: str, stream: Stream, folder: Path, seed: int) -> None:
        self.mode = mode
        self.start = "TRIM_HORIZON"
        self.passed = 0
        """How many records lie before the start."""
        self.stream = stream
        self.rng = random.Random(seed)
        self.folder = folder
        self.output = folder / "output"
        self.output.mkdir()
        self.kills: list[Killed] = []
        self._batches: dict[int, list[list[str]]] = {}
        program = Path(__file__).with_name("sparse_query.py")
        self._program = Program(program, folder / "query.log", deadline_s=DEADLINE_S)

    def traffic(self, hours: float) -> None:
        """Now and then a record or a few; some shards have none for most of the time."""
        left_s = hours * HOUR_S
        while left_s > 0:
            self.stream.put(self.rng.choice([1, 1, 2, 5]), keys=self.rng.choice([1, 1, 1, 40]))
            gap_s = self.rng.choice([20, 7 * MINUTE_S, HOUR_S, 5 * HOUR_S])
            self.stream.local.clock.advance(min(gap_s, left_s))
            left_s -= gap_s

    def begin(self, start: str) -> None:
        """Let the query begin here: at LATEST it is run for its first, empty batch."""
        self.stream.local.clock.advance(MINUTE_S)
        self.start = str(self.stream.local.clock.now() - 1) if start == "AT_TIMESTAMP" else start
        self.passed = 0 if start == "TRIM_HORIZON" else len(self.stream.written)
        if start == "LATEST":
            self._program.killed_when(lambda: self._logged("commits") > 0, *self._arguments())
            assert self.rows() == []

    def kill(self, when: Callable[[], bool]) -> bool:
        """Run until then, and kill the query. False: it came to its end before. A live one that has committed all rows
        is killed too: nothing more comes.
        """
        killed = self._program.killed_when(
            lambda: when() or (self.mode == "live" and self._is_idle()), *self._arguments()
        )
        if killed:
            self.kills.append(self._stand())
        return killed

    def _arguments(self) -> tuple[str, ...]:
        return self.mode, self.stream.local.endpoint_url, str(self.folder), self.start

    def finish(self) -> None:
        """Run to the end; a live query has none, and is stopped when it has all rows."""
        self.kill(lambda: False)

    def some_calls(self) -> Callable[[], bool]:
        """When the query has made so many calls more: somewhere."""
        wanted = self._calls() + self.rng.choice([5, 20, 60, 150])
        return lambda: self._calls() >= wanted

    def a_read(self) -> Callable[[], bool]:
        """When a task has begun to read."""
        before = self._calls("task")
        return lambda: self._calls("task") > before

    def a_commit(self) -> Callable[[], bool]:
        """When a batch more, or two, is done."""
        wanted = self._logged("commits") + self.rng.choice([1, 2])
        return lambda: self._logged("commits") >= wanted

    def a_plan(self) -> Callable[[], bool]:
        """When a batch more is planned, and not done yet."""
        before = self._logged("offsets")
        return lambda: self._logged("offsets") > max(before, self._logged("commits"))

    def _calls(self, *tag: str) -> int:
        return self.stream.local.stats().calls("GetRecords", *tag)

    def _logged(self, log: str) -> int:
        """Batches that Spark's log has."""
        folder = self.folder / "checkpoint" / log
        numbers = [int(path.name) for path in folder.iterdir() if path.name.isdigit()] if folder.exists() else []
        return max(numbers, default=-1) + 1

    def batches(self) -> list[list[list[str]]]:
        for path in self.output.glob("*.json"):
            if int(path.stem) not in self._batches:  # what was written stays as it is
                self._batches[int(path.stem)] = json.loads(path.read_text())
        return [self._batches[number] for number in sorted(self._batches)]

    def rows(self) -> list[list[str]]:
        return [row for batch in self.batches() for row in batch]

    def is_complete(self) -> bool:
        return len(self.rows()) >= len(self.stream.written) - self.passed

    def _is_idle(self) -> bool:
        return self.is_complete() and not self._stand().inside

    def _stand(self) -> Killed:
        return Killed(self._logged("commits"), self._logged("offsets") > self._logged("commits"))

    def check(self) -> None:
        """Every record once, shards in order, and no batch with a row that is older than one of the batch before."""
        rows = self.rows()
        assert sorted(data for _, _, data in rows) == sorted(one.decode() for one in self.stream.written[self.passed :])
        last: dict[str, int] = {}
        for shard_id, number, _ in rows:
            assert int(number) > last.get(shard_id, -1)
            last[shard_id] = int(number)
        newest = ""
        for batch in filter(None, self.batches()):
            numbers = sorted(data for _, _, data in batch)
            assert numbers[0] > newest
            newest = numbers[-1]

    def torture(self) -> None:
        """Every second kill waits for a batch, and falls behind it or into it; the others fall anywhere. More traffic
        comes whenever all is read.
        """
        turns = [self.some_calls, self.a_commit, self.some_calls, self.a_plan]
        if self.mode == "batch":
            turns = [self.some_calls, self.a_read]
        while len(self.kills) < KILLS:
            killed = self.kill(turns[len(self.kills) % len(turns)]())
            print(self.mode, killed, self.kills[-1:], len(self.rows()), len(self.stream.written), flush=True)
            if self.mode != "batch" and (not killed or self.is_complete()):
                self.traffic(6)
        if self.mode != "batch":
            assert len({one.batches for one in self.kills}) >= KILLS // 3, self.kills
            assert {one.inside for one in self.kills} == {False, True}, self.kills


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("mode", "start"),
    [
        ("live", "LATEST"),
        ("live", "AT_TIMESTAMP"),
        ("available", "LATEST"),
        ("available", "TRIM_HORIZON"),
        ("batch", "AT_TIMESTAMP"),
        ("batch", "TRIM_HORIZON"),
    ],
)
def test_a_day_of_sparse_traffic_is_read_exactly_though_the_query_is_killed_ten_times(
    mode: str, start: str, tmp_path: Path
) -> None:
    with LocalKinesis(page_span_s=PAGE_SPAN_S) as local:
        stream = Stream(local, StreamName("orders"))
        try:
            stream.call("CreateStream", ShardCount=2)
            stream.call("IncreaseStreamRetentionPeriod", RetentionPeriodHours=168)
            sparse = Sparse(mode, stream, tmp_path, seed=len(mode))
            sparse.traffic(2)
            sparse.begin(start)
            sparse.traffic(10)
            stream.split(0)
            sparse.traffic(12)
            sparse.torture()
            local.clock.advance(MINUTE_S)
            sparse.finish()
            sparse.check()
        finally:
            stream.close()
