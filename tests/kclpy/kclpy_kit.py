"""A worker with processors of amazon_kclpy's shapes, on the local Kinesis, and a journal of what they were told."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardway.aws.options import ConnectionOptions, Credentials
from shardway.core.log.pace import PollingOptions
from shardway.core.shard.checkpoints.cadence import Prompt
from shardway.kclpy.daemon import Daemon, DaemonOptions
from shardway.kclpy.session import SessionOptions
from shardway.model import StartingPosition
from shardway.policies import Retry
from shardway.runtime.consumer.consumer import Consumer
from tests.options_kit import arguments_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from shardway.kclpy.processor import ProcessorProcess
    from shardway.local import LocalKinesis
    from shardway.ports import LeaseTable
    from shardway.runtime.shard.shard_reader import ShardReader

PROGRAMS = Path(__file__).parent / "programs"
STREAM = "orders"
SHARD_ID = "shardId-000000000000"
DEADLINE_S = 60.0


class Journal:
    """What processors have noted, in all processes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self, *what: str) -> list[dict[str, Any]]:
        """The notes, all or of these kinds; a line that is being written is left for the next look."""
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        notes = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [note for note in notes if not what or note["what"] in what]

    def kinds(self) -> list[str]:
        return [note["what"] for note in self.lines()]

    def datas(self) -> list[str]:
        return [note["data"] for note in self.lines("record")]

    def release(self) -> None:
        """Let processors that wait for it go on."""
        Path(f"{self.path}.go").touch()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)


def put(kinesis: Any, *datas: str) -> list[str]:
    """Sequence numbers."""
    return [
        kinesis.put_record(StreamName=STREAM, PartitionKey="k", Data=data.encode())["SequenceNumber"] for data in datas
    ]


@dataclasses.dataclass
class Running:
    """A worker at work."""

    consumer: Consumer[Any]
    readers: list[ShardReader]
    processes: list[ProcessorProcess]
    said: list[str]
    events: list[Any]
    task: asyncio.Task[None]
    stop: asyncio.Event

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for it; what ends the worker meanwhile is raised."""

        def done() -> object:
            return self.task.done() or condition()

        await until(done)
        if self.task.done():
            self.task.result()

    async def end(self) -> None:
        self.stop.set()
        async with asyncio.timeout(DEADLINE_S):
            await self.task


class NotesReaders(Daemon):
    """Keeps the shards that it was given, and the processes that it has started."""

    readers: list[ShardReader]
    processes: list[ProcessorProcess]

    async def _start(self) -> ProcessorProcess:
        process = await super()._start()
        self.processes.append(process)
        return process

    async def _serve(self, reader: ShardReader) -> None:
        self.readers.append(reader)
        await super()._serve(reader)


@contextlib.asynccontextmanager
async def running(
    local: LocalKinesis,
    table: LeaseTable,
    target: str,
    *,
    session: SessionOptions | None = None,
    failover_s: float = 2.0,
    drain_deadline_s: float = 10.0,
    start: StartingPosition = StartingPosition.TRIM_HORIZON,
    **times: Any,
) -> AsyncIterator[Running]:
    """A worker that reads from the oldest record on, or another start, until the block is left."""
    said: list[str] = []
    events: list[Any] = []
    consumer = Consumer(
        STREAM,
        application="words",
        connection=ConnectionOptions(
            endpoint_url=local.endpoint_url, region=local.region, credentials=Credentials("local", "local")
        ),
        on_event=events.append,
        **arguments_of(
            leases=table,
            failover_s=failover_s,
            look_interval_s=0.1,
            wait_interval_s=0.02,
            starting_position=start,
            polling=PollingOptions(interval_s=0.02, idle_interval_s=0.05),
            drain_deadline_s=drain_deadline_s,
            cadence=Prompt(),
            manual=True,
            retry=Retry(failures_max=None, base_s=0.001, cap_s=0.01),
        ),
    )
    await consumer.start()
    options = DaemonOptions(
        target=target,
        session=session or SessionOptions(end_again_s=0.01),
        restart_s=0.01,
        **{"stop_s": 30.0, **times},
    )
    stop = asyncio.Event()
    readers: list[ShardReader] = []
    daemon = NotesReaders(options, said.append)
    daemon.readers = readers
    processes: list[ProcessorProcess] = []
    daemon.processes = processes
    task = asyncio.create_task(daemon.run(consumer, stop))
    try:
        yield Running(consumer, readers, processes, said, events, task, stop)
        if not task.done():
            stop.set()
            async with asyncio.timeout(DEADLINE_S):
                await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await consumer.close()
