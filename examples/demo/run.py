"""The steps of the demo: what is started, split, killed, started again and merged, and when."""

from __future__ import annotations

import json
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn

from examples.demo.count import report, rows_so_far
from examples.demo.processes import kill_tree, start_job, start_producer

from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.options import ConnectionOptions, Credentials
from shardway.aws.wire import Wire
from shardway.model import StreamName
from shardway.runtime.threads.loop_thread import LoopThread

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from shardway.local.spawned import SpawnedKinesis
    from shardway.model import ListedShard

STREAM, SHARDS = "orders", 4
SPLIT_AT, MERGE_AT, KILL_AT = 0.25, 0.6, 0.5
"""Shares of the records: written when a shard is split, written when two are merged, arrived when the job is killed."""
STEP_TIMEOUT_S = 240.0
POLL_S = 0.1


class Demo:
    """One run: the local Kinesis, the producer and the job, and what is done to them."""

    def __init__(self, local: SpawnedKinesis, out: Path, records: int, records_per_s: float) -> None:
        self.local = local
        self.out = out
        self.report = out / "report.jsonl"
        self.records = records
        self.records_per_s = records_per_s
        self.written: dict[str, Any] = {"written": 0}
        self.job: subprocess.Popen[bytes] | None = None
        self.producer: subprocess.Popen[str] | None = None
        self._reshards = [(SPLIT_AT, self._split), (MERGE_AT, self._merge)]
        self._started_s = time.monotonic()
        self._loop = LoopThread("demo")
        self._wire = Wire(
            ConnectionOptions(
                region=local.region,
                endpoint_url=local.endpoint_url,
                credentials=Credentials("local", "any will do"),
                user_agent_tag="demo",
            )
        )
        self._client = KinesisClient(self._wire)

    def say(self, text: str) -> None:
        """A line with the time since the start."""
        print(f"{time.monotonic() - self._started_s:6.1f} s  {text}", flush=True)

    def run(self) -> None:
        """All steps, up to the end of the job. Raises RuntimeError when a process fails or a step takes too long."""
        self.say(f"local Kinesis at {self.local.endpoint_url}, stream {STREAM} with {SHARDS} shards")
        self._start_job()
        self._start_producer()
        self.say(
            f"a producer writes {self.records:,} orders, {self.records_per_s:,.0f} a second; the Spark job reads them"
        )
        arrived = self._until_halfway()
        assert self.job is not None
        killed = kill_tree(self.job)
        self.say(f"SIGKILL for the job in the middle of a batch: {killed} processes; {arrived:,} rows had arrived")
        batches = len(report(self.report))
        self._start_job()
        self.say("the job is started again")
        self._until(lambda: self.written["written"] >= self.records, "the producer's end")
        self.say(f"the producer is done: {self.written['aggregates']:,} of its records were aggregates")
        self._until(lambda: len(report(self.report)) > batches, "the first batch of the job that was started again")
        self._finish()

    def _finish(self) -> None:
        """Stop the job after its batch, and have it read what is still in the stream."""
        job = self.job
        assert job is not None
        job.send_signal(signal.SIGTERM)
        self._until(lambda: job.poll() == 0, "the job's end", job_may_end=True)
        self.say("SIGTERM: the job finished its batch, and ended")
        self._start_job(ONCE="true")
        last = self.job
        assert last is not None
        self._until(lambda: last.poll() == 0, "the end of the stream", job_may_end=True)
        self.say("started once more, it read what was still there, and ended")

    def close(self) -> None:
        """End what still runs."""
        for process in (self.producer, self.job):
            if process is not None:
                kill_tree(process)
        self._loop.run(self._wire.close())
        self._loop.close()

    def _start_job(self, **more: str) -> None:
        """The job file takes these from the environment."""
        settings = {
            "STREAM": STREAM,
            "LAKE": str(self.out),
            "AWS_REGION": self.local.region,
            "MAX_RECORDS": str(max(1_000, self.records // 8)),
            **more,
        }
        self.job = start_job(self.report, self.out / "job.log", {**self.local.environment(), **settings})

    def _start_producer(self) -> None:
        arguments = [self.local.endpoint_url, self.local.region, STREAM, str(self.records), str(self.records_per_s)]
        self.producer = start_producer(arguments, self.local.environment())
        threading.Thread(target=self._listen, args=(self.producer,), daemon=True).start()

    def _listen(self, producer: subprocess.Popen[str]) -> None:
        assert producer.stdout is not None
        for line in producer.stdout:
            self.written = json.loads(line)

    def _until_halfway(self) -> int:
        """Wait until half of the rows have arrived and a batch is being written; returns how many there are."""
        self._until(lambda: rows_so_far(self.out) >= KILL_AT * self.records, "half of the rows")
        self._until(lambda: any(self.out.glob("orders.staging/*/*")), "a batch that is being written")
        return rows_so_far(self.out)

    def _until(self, done: Callable[[], bool], what: str, *, job_may_end: bool = False) -> None:
        deadline_s = time.monotonic() + STEP_TIMEOUT_S
        while not done():
            self._reshard()
            for process, name in ((self.job, "the job"), (self.producer, "the producer")):
                if process is not None and process.poll() not in (None, 0):
                    self._fail(f"{name} failed (exit code {process.returncode}) while waiting for {what}")
            if not job_may_end and self.job is not None and self.job.poll() is not None:
                self._fail(f"the job ended while waiting for {what}")
            if time.monotonic() > deadline_s:
                self._fail(f"waited {STEP_TIMEOUT_S:.0f} s for {what}")
            time.sleep(POLL_S)

    def _fail(self, why: str) -> NoReturn:
        raise RuntimeError(f"{why}; the job's output is in {self.out / 'job.log'}")

    def _open_shards(self) -> list[ListedShard]:
        shards = self._loop.run(self._client.list_shards(StreamName(STREAM)))
        return sorted((shard for shard in shards if not shard.closed), key=lambda shard: shard.first_hash_key)

    def _reshard(self) -> None:
        """Split and merge when their time has come."""
        while self._reshards and self.written["written"] >= self._reshards[0][0] * self.records:
            self._reshards.pop(0)[1]()

    def _split(self) -> None:
        shard = self._open_shards()[0]
        middle = (shard.first_hash_key + shard.last_hash_key) // 2 + 1
        params = {"StreamName": STREAM, "ShardToSplit": shard.shard_id, "NewStartingHashKey": str(middle)}
        self._loop.run(self._client.call("SplitShard", params))
        self.say(f"{shard.shard_id} is split")

    def _merge(self) -> None:
        """The last two, which were there from the start."""
        left, right = self._open_shards()[-2:]
        params = {"StreamName": STREAM, "ShardToMerge": left.shard_id, "AdjacentShardToMerge": right.shard_id}
        self._loop.run(self._client.call("MergeShards", params))
        self.say(f"{left.shard_id} and {right.shard_id} are merged")
