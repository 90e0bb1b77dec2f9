"""A journey: one stream, one lease table, a writer, and a fleet that changes step by step while records flow."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import boto3
import botocore.config
from tests.starts import start_of

from interop.fleets.account import Account, Move, as_rows
from interop.fleets.processes import KCL_2, KCL_3, OURS, Services, WorkerProcess, now_ms, start_kcl, start_ours
from interop.fleets.watching import TableWatch
from interop.fleets.writing import Writer, merge_last, open_shards, split_first

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

SHARDS = 4
BEFORE_RECORDS = 400
"""So many lie before the start of a fleet that does not begin at the oldest record."""
BEFORE_S = 3.0
"""They are so much older than the start: a lease of ours that is made at LATEST may begin two seconds early."""
RECORDS_PER_S = 200
FAILOVER_S = 5.0
CHECKPOINT_MS = 1000
"""The KCL's processors checkpoint at most so often; ours do as the defaults have it: with the renewals."""
STEP_DEADLINE_S = 120.0
DRAIN_DEADLINE_S = 60.0
LOOK_INTERVAL_S = 0.1
SILENT_MS = 1500
"""A worker that has delivered nothing of a shard for so long is not taken for its reader."""

KCL_SETTINGS: dict[str, object] = {
    "lease.failoverTimeMillis": int(FAILOVER_S * 1000),
    # What a worker sleeps after its first look at the shards; 60 s by default, at each cold start.
    "lease.shardSyncIntervalMillis": 1000,
    "coordinator.parentShardPollIntervalMillis": 1000,
    "polling.idleTimeBetweenReadsInMillis": 250,
}
KCL_REPORT_S = 10.0
"""How often workers show themselves to a KCL 3.x leader; 30 s by default."""
TOLD_MS_MAX = 50
"""A worker has written the handoff by so long before it says so."""
KCL_3_SETTINGS: dict[str, object] = {
    "lease.workerUtilizationAwareAssignmentConfig.workerMetricsReporterFreqInMillis": int(KCL_REPORT_S * 1000),
    # Each round of the leader balances; each third by default.
    "lease.workerUtilizationAwareAssignmentConfig.varianceBalancingFrequency": 1,
    # For how long a dead leader's lock is respected, and how often a living one renews it: 120 s and 30 s by default.
    "lease.dynamoDbLockBasedLeaderLeaseDurationInMillis": 20_000,
    "lease.dynamoDbLockBasedLeaderHeartbeatPeriodInMillis": 5000,
}
BY_COUNT: dict[str, object] = {"lease.leaseAssignmentStrategy": "LEASE_COUNT_BASED"}


class Journey:
    """Use as a context: at its end all is stopped; `finish` checks what came of it."""

    def __init__(
        self, services: Services, name: str, folder: Path, *, seed: int, kcl_settings: dict[str, object] | None = None
    ) -> None:
        """``seed`` says where the fleet begins."""
        self.name = name
        self.starting_position = start_of(seed)
        self.passed = 0
        """Records below this number lie before the start."""
        self.opened: int | None = None
        """Records from this number on were written when the fleet read all shards. None: it does not yet."""
        self.folder = folder
        self.account = Account()
        self.moves: list[Move] = []
        self.workers: dict[str, WorkerProcess] = {}
        self.stop_s: dict[str, float] = {}
        self.result: dict[str, Any] = {"journey": name, "start": self.starting_position, "steps": []}
        self._kcl_settings = kcl_settings or {}
        stream = name.replace(" ", "-").replace(".", "-").replace(",", "")
        self.own = {  # the names and addresses that its workers are given
            "stream": stream,
            "application": f"{stream}-application",
            "kinesis": services.kinesis_url,
            "dynamodb": services.dynamodb_url,
        }
        self._kinesis = _client("kinesis", services.kinesis_url)
        dynamodb = _client("dynamodb", services.dynamodb_url)
        self._kinesis.create_stream(StreamName=stream, ShardCount=SHARDS)
        self._kinesis.get_waiter("stream_exists").wait(StreamName=stream, WaiterConfig={"Delay": 1})
        self._first_shards = [one["ShardId"] for one in open_shards(self._kinesis, stream)]
        self.writer = Writer(self._kinesis, stream, records_per_s=RECORDS_PER_S)
        self.watch = TableWatch(dynamodb, self.own["application"])

    def __enter__(self) -> Journey:
        self.own["start"] = self.starting_position
        if self.starting_position == "TRIM_HORIZON":
            self.opened = 0
        else:
            self.writer.put(BEFORE_RECORDS)
            time.sleep(BEFORE_S)
            self.passed = self.writer.written
        if self.starting_position == "AT_TIMESTAMP":
            self.own["start"] = str(now_ms())
            self.opened = self.passed
        self.writer.start()
        self.watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for worker in self.workers.values():
                if worker.is_running:
                    worker.kill()
        finally:
            self.writer.stop()
            self.watch.stop()

    # --- what is done with the fleet ------------------------------------------------------------

    def step(self, name: str) -> None:
        """What follows belongs to this step."""
        self.account.steps.append((now_ms(), name))
        self.result["steps"].append({"step": name})

    def kcl(self, version: str, name: str) -> str:
        """Start a KCL worker; returns its name."""
        settings = KCL_SETTINGS | (KCL_3_SETTINGS if version == KCL_3 else {}) | self._kcl_settings
        own = self.own | {"checkpoint_ms": str(CHECKPOINT_MS)}
        self.workers[name] = start_kcl(version, name, self.folder, own, settings)
        return name

    def ours(self, name: str) -> str:
        """Start one of ours; returns its name."""
        self.workers[name] = start_ours(
            name, self.folder, {**self.own, "failover_s": f"{FAILOVER_S:g}", "kcl_report_s": f"{KCL_REPORT_S:g}"}
        )
        return name

    def stop(self, *names: str) -> None:
        """As a deploy does; several at the same time."""
        began_s = time.monotonic()
        for name in names:
            self.workers[name].ask_to_stop()
        for name in names:
            self.workers[name].wait()
            self.stop_s[name] = round(time.monotonic() - began_s, 1)

    def kill(self, name: str) -> None:
        self.workers[name].kill()

    def split(self) -> None:
        split_first(self._kinesis, self.own["stream"])

    def merge(self) -> None:
        merge_last(self._kinesis, self.own["stream"])

    # --- what is waited for ---------------------------------------------------------------------

    def until(self, what: str, condition: Callable[[], bool], *, deadline_s: float = STEP_DEADLINE_S) -> None:
        """Wait, and write down for how long. Raises AssertionError with what was seen instead."""
        began_s = time.monotonic()
        while True:
            self.account.read(self.workers.values())
            if self.opened is None and self.account.read_all(self._first_shards):
                self.opened = self.writer.written
            gone = {one.name: one.status for one in self.workers.values() if one.status not in (None, 0, -9, 143)}
            assert not gone, f"{self.name}: workers ended by themselves: {gone}"
            if condition():
                break
            waited_s = time.monotonic() - began_s
            assert waited_s < deadline_s, f"{self.name}: not in {deadline_s:g} s: {what}\n{self.describe()}"
            time.sleep(LOOK_INTERVAL_S)
        if self.result["steps"]:
            self.result["steps"][-1][what] = round(time.monotonic() - began_s, 1)

    def shares(self, **at_least: int) -> None:
        """Until these workers read all open shards, each shard by one, and each worker at least so many.

        In their names ``-`` is written ``_``.
        """
        wanted = {name.replace("_", "-"): count for name, count in at_least.items()}
        self.until(" ".join(f"{name}>={count}" for name, count in wanted.items()), lambda: self._shared(wanted))

    def _shared(self, at_least: dict[str, int]) -> bool:
        readers = self.account.readers(since_ms=now_ms() - SILENT_MS)
        open_now = {one["ShardId"] for one in open_shards(self._kinesis, self.own["stream"])}
        if readers.keys() != open_now or any(len(one) != 1 for one in readers.values()):
            return False
        by_worker = [one for workers in readers.values() for one in workers]
        return set(by_worker) <= at_least.keys() and all(
            by_worker.count(worker) >= count for worker, count in at_least.items()
        )

    def flow(self, seconds: float = 3.0) -> None:
        """Let records flow for a while: what a step leads to is measured while nothing else happens."""
        end_s = time.monotonic() + seconds
        self.until("flow", lambda: time.monotonic() >= end_s)

    def handoffs(self) -> set[tuple[str, str]]:
        """(from, to) of all moves with a handoff that a KCL 3.x leader asked for: worker ids. A worker of ours answers
        faster than the watch looks, so what such a worker says of its handoffs counts too.
        """
        found = self.watch.handoffs()
        for name, worker in self.workers.items():
            for line in worker.lines_file.read_text().splitlines():
                said = json.loads(line)
                if said.get("kind") != "ShardLeft" or "the shard was handed over" not in said["text"]:
                    continue
                owners = (
                    seen.owner
                    for seen in list(self.watch.history)
                    if seen.at_ms >= said["at_ms"] - TOLD_MS_MAX and seen.key in said["text"]
                )
                to = next((owner for owner in owners if owner != name), None)
                found |= {(name, to)} if to is not None else set()
        return found

    def describe(self) -> str:
        """What the fleet looks like now."""
        running = {one.name: "running" if one.is_running else one.status for one in self.workers.values()}
        leases = {
            key: (seen.actual_owner, seen.owner if seen.checkpoint_owner else None, seen.checkpoint.text[-8:])
            for key, seen in sorted(self.watch.leases.items())
        }
        others = {
            key: {name: value for name, value in row.items() if name != "h"} for key, row in self.watch.others.items()
        }
        readers = self.account.readers(since_ms=now_ms() - SILENT_MS)
        return f"workers {running}\nreaders {readers}\nleases {leases}\nother rows {others}\nlogs in {self.folder}"

    # --- what came of it ------------------------------------------------------------------------

    def finish(self) -> dict[str, Any]:
        """Stop writing, wait until all has arrived, stop all workers; returns the figures of the journey."""
        written = self.writer.stop()
        assert self.opened is not None
        opened = self.opened
        self.until("all arrived", lambda: not self.account.missing(written, opened), deadline_s=DRAIN_DEADLINE_S)
        self.stop(*(worker.name for worker in self.workers.values() if worker.is_running))
        self.account.read(self.workers.values())
        self.watch.stop()
        moves = self.moves = self.account.moves()
        self.result |= {
            "records": written,
            "missing": len(self.account.missing(written, opened)),
            "too_early": sum(number < self.passed for number in self.account.numbers),
            "duplicates": self.account.duplicates(),
            "two_readers": sum(move.late for move in moves),
            "moves": as_rows(moves),
            "children": as_rows(self.account.children(self._first_shards)),
            "first_record_s": {
                name: round((at_ms - self.workers[name].started_ms) / 1000, 1)
                for name, at_ms in self.account.first_ms.items()
            },
            "stop_s": self.stop_s,
            "faults_logged": {one.name: dict(one.faults()) for one in self.workers.values()},
        }
        return self.result

    def check(self) -> None:
        """What holds in every journey. Raises AssertionError."""
        faults = []
        if self.result["missing"]:
            faults.append(f"{self.result['missing']} records did not arrive")
        if self.result["too_early"]:
            faults.append(f"{self.result['too_early']} records arrived that lie before the start")
        faults += self.account.out_of_order()[:5]
        faults += self.watch.steps_back()[:5]
        # A KCL 2.x steals in the middle of everything; all other moves from ours are handoffs, or come after silence.
        faults += [f"two readers: {one}" for one in self.moves if one.late and one.giver == OURS and one.taker != KCL_2]
        if any(one.kind == KCL_2 for one in self.workers.values()) and self.watch.without_counter:
            faults.append(f"rows without a counter, which no KCL 2.x can read: {sorted(self.watch.without_counter)}")
        for worker in self.workers.values():
            wanted = worker.faults()
            if worker.kind == OURS:
                unexpected = dict(wanted)
            else:
                unexpected = {name: count for name, count in wanted.items() if name not in EXPECTED_FAULTS}
            if unexpected:
                faults.append(f"{worker.name} ({worker.kind}) logged {unexpected}: {worker.log_file}")
            if not worker.killed and worker.status not in (0, 143):
                faults.append(f"{worker.name} ended with status {worker.status}")
        assert not faults, f"{self.name}:\n" + "\n".join(faults)


EXPECTED_FAULTS = {
    "InterruptedException": "a KCL 3.x worker that stops interrupts its own threads",
    "ShutdownException": "a KCL worker whose lease was stolen learns of it by its next checkpoint",
}
"""Exceptions that stand in a KCL worker's log also when there are only KCL workers, and why."""


def _client(service: str, url: str) -> Any:
    return boto3.client(
        service,
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=botocore.config.Config(retries={"total_max_attempts": 5}),
    )
