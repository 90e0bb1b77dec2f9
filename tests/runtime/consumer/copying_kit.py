"""Processes that copy a stream, a steady load, and what is in their output for a reader that reads it rightly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardway.errors import NotFoundError
from tests.runtime.consumer.beside import Beside
from tests.runtime.consumer.copying_process import SCHEMA, STREAM, TO_STREAM, table_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shardway.core.leases import LeaseRow

PROGRAM = Path(__file__).with_name("copying_process.py")
COPIES = "copies"
BEFORE_S = 60.0
DEADLINE_S = 120.0


def put(kinesis: Any, start: int, stop: int) -> list[str]:
    datas = [str(number) for number in range(start, stop)]
    for at in range(0, len(datas), 100):
        kinesis.put_records(
            StreamName=STREAM, Records=[{"Data": data, "PartitionKey": data} for data in datas[at : at + 100]]
        )
    return datas


class Load(Beside):
    """Puts numbers, some every few milliseconds, until it is ended."""

    def __init__(self, kinesis: Any, *, per_turn: int = 10, turn_s: float = 0.05) -> None:
        super().__init__(kinesis, turn_s)
        self.wanted: list[str] = []
        self._per_turn = per_turn

    def turn(self) -> None:
        at = len(self.wanted)
        self.wanted += put(self.kinesis, at, at + self._per_turn)


class Copiers:
    """Worker processes on one lease table and one output: a database, or a stream."""

    def __init__(
        self,
        endpoint_url: str,
        folder: Path,
        *,
        kinesis: Any = None,
        leases: str | None = None,
        start: str = "TRIM_HORIZON",
    ) -> None:
        """``kinesis``: a client; given, the output is the stream ``COPIES`` there. ``leases``: a PostgreSQL server, in
        the place of an SQLite file. ``start``: TRIM_HORIZON, LATEST or AT_TIMESTAMP; all that is put from now on is
        wanted.
        """
        self._database = str(folder / "output.db")
        self._leases = leases or str(folder / "leases.db")
        self._kinesis = kinesis
        output = self._database if kinesis is None else TO_STREAM + COPIES
        since = str(time.time() - BEFORE_S) if start == "AT_TIMESTAMP" else start
        self._arguments = [endpoint_url, self._leases, output, since]
        self.failover_s = 2.0
        self.running: list[subprocess.Popen[bytes]] = []
        with sqlite3.connect(self._database) as database:
            database.executescript(SCHEMA)
        if start == "LATEST":
            self._make_leases()

    def _make_leases(self) -> None:
        """Let one worker make the leases: LATEST is that moment."""
        process = self.start()
        self.until(lambda: any(row.owner for row in self.leases()))
        self.kill(process)

    # --- processes --------------------------------------------------------------------------------

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(PROGRAM), *self._arguments, str(self.failover_s)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self.running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        self.running.remove(process)
        process.kill()
        process.communicate()

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """As a deploy does."""
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=DEADLINE_S)
        self.running.remove(process)  # only now: a process that does not end is killed when all is over
        assert process.returncode == 0

    def freeze(self, process: subprocess.Popen[bytes]) -> None:
        """Stop it (SIGSTOP) where it holds no lock: one that sleeps amid a write to SQLite stops all the others."""
        end_s = time.monotonic() + DEADLINE_S
        while True:
            process.send_signal(signal.SIGSTOP)
            if not any(map(_locked, (self._leases, self._database))):
                return
            process.send_signal(signal.SIGCONT)
            assert time.monotonic() < end_s, "it always holds a lock"
            time.sleep(0.01)

    def close(self) -> None:
        for process in list(self.running):
            process.send_signal(signal.SIGCONT)
            self.kill(process)

    def until(self, condition: Callable[[], bool]) -> None:
        end_s = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < end_s, "it did not come to that"
            assert all(process.poll() is None for process in self.running), "a worker ended by itself"
            time.sleep(0.05)

    # --- leases -----------------------------------------------------------------------------------

    def leases(self) -> list[LeaseRow]:
        async def scan() -> list[LeaseRow]:
            table = table_at(self._leases).of("copier")
            try:
                return (await table.scan(consistent=True)).rows
            except NotFoundError:  # the first worker has not made it yet
                return []
            finally:
                await table.close()

        return asyncio.run(scan())

    def shares(self) -> dict[int, int]:
        """How many shards each process owns, by its id."""
        owners = [row.owner for row in self.leases() if row.owner is not None]
        return dict(Counter(int(owner.split(":")[1]) for owner in owners))

    def shared_evenly(self, each: int) -> bool:
        return self.shares() == {process.pid: each for process in self.running}

    # --- output -----------------------------------------------------------------------------------

    def rows(self, query: str) -> list[Any]:
        with sqlite3.connect(self._database, timeout=30) as database:
            return database.execute(query).fetchall()

    def copies(self) -> list[str]:
        """What a reader gets that reads the output rightly."""
        if self._kinesis is not None:
            return [data for *_, data in once(self.stamped())]
        return [data.decode() if isinstance(data, bytes) else data for (data,) in self.rows("SELECT data FROM copies")]

    def written(self) -> int:
        """All that was written, duplicates too."""
        if self._kinesis is not None:
            return len(self.stamped())
        return int(self.rows("SELECT COUNT(*) FROM deliveries")[0][0])

    def stamped(self) -> list[tuple[str, int, int, str]]:
        """All of the output stream, each of its shards in order: the source's shard, token, position, data."""
        kinesis, found = self._kinesis, []
        for shard in kinesis.list_shards(StreamName=COPIES)["Shards"]:
            iterator = kinesis.get_shard_iterator(
                StreamName=COPIES, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
            while True:
                page = kinesis.get_records(ShardIterator=iterator)
                found += [tuple(json.loads(record["Data"])) for record in page["Records"]]
                iterator = page["NextShardIterator"]
                if not page["Records"] and page["MillisBehindLatest"] == 0:
                    break
        return found


def _locked(path: str) -> bool:
    """True where another process has it locked, for longer than a write takes."""
    with contextlib.closing(sqlite3.connect(path, timeout=2.0, isolation_level=None)) as database:
        try:
            database.execute("BEGIN IMMEDIATE")
            database.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return True
    return False


def once(stamped: Iterable[tuple[str, int, int, str]]) -> list[tuple[str, int, int, str]]:
    """Drops late writers and duplicates: of each shard of the source, a token below one that was seen, and a position
    that is not above all that were taken.
    """
    tokens: dict[str, int] = {}
    positions: dict[str, int] = {}
    taken = []
    for one in stamped:
        shard_id, token, position, _ = one
        if token < tokens.get(shard_id, 0):
            continue
        tokens[shard_id] = token
        if position > positions.get(shard_id, -1):
            positions[shard_id] = position
            taken.append(one)
    return taken
