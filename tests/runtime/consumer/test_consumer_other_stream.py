"""Leases of another stream: one that was deleted and made anew, or one that the application read before."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from shardway import OptionError
from shardway.core.leases import Checkpoint, LeaseRow, writes
from shardway.events import LeasesBegunAnew
from shardway.leases import MemoryLeaseTable, SqliteLeaseTable
from shardway.local import LocalKinesis
from shardway.options import LeaseOptions
from tests.runtime.consumer.face_kit import DEADLINE_S, STREAM, consumer_of, put

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = 100
STREAMS = {STREAM: 4, "returns": 4}


def anew(kinesis: Any, shards: int = 4) -> None:
    """The stream, deleted and made anew under its name."""
    kinesis.delete_stream(StreamName=STREAM, EnforceConsumerDeletion=True)
    kinesis.get_waiter("stream_not_exists").wait(StreamName=STREAM, WaiterConfig={"Delay": 1})
    kinesis.create_stream(StreamName=STREAM, ShardCount=shards)
    kinesis.get_waiter("stream_exists").wait(StreamName=STREAM, WaiterConfig={"Delay": 1})


async def read(local: LocalKinesis, leases: Any, wanted: set[bytes], **given: Any) -> set[bytes]:
    got: set[bytes] = set()
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, **given) as consumer:
        async for batch in consumer:
            with batch:
                got |= {record.data for record in batch.records}
            if got >= wanted:
                break
    return got


@pytest.fixture(params=["memory", "sqlite", "dynamodb"])
def leases(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":
        return MemoryLeaseTable()
    return SqliteLeaseTable(tmp_path / "l.db") if request.param == "sqlite" else LeaseOptions(request_timeout_s=30)


async def test_a_stream_made_anew_under_its_name(local: LocalKinesis, kinesis: Any, leases: Any) -> None:
    """It is refused with both ways out; begun anew, all is read, by tokens that are higher than the former ones."""
    wanted = set(put(kinesis, range(RECORDS)))
    assert await read(local, leases, wanted) == wanted
    await asyncio.to_thread(anew, kinesis, 2)
    wanted = set(put(kinesis, range(1000, 1000 + RECORDS)))
    with pytest.raises(
        OptionError, match=r"are of a former stream .* another application's name, or .*begins_anew=True"
    ):
        await read(local, leases, wanted)
    events: list[Any] = []
    chosen = {"other_stream_begins_anew": True, "on_event": events.append, "failover_s": 20.0}
    assert await read(local, leases, wanted, **chosen) == wanted
    assert [one.leases for one in events if isinstance(one, LeasesBegunAnew)] == [4]
    wanted = set(put(kinesis, range(2000, 2000 + RECORDS)))
    assert await read(local, leases, wanted) == wanted


async def test_another_stream_under_an_applications_name(local: LocalKinesis, kinesis: Any, leases: Any) -> None:
    wanted = set(put(kinesis, range(RECORDS)))
    assert await read(local, leases, wanted) == wanted
    wanted = set(put(kinesis, range(1000, 1000 + RECORDS), stream="returns"))
    with pytest.raises(OptionError, match=r"\d leases .* are of arn:.*/orders .*, and not of arn:.*/returns"):
        await read(local, leases, wanted, stream="returns")
    assert await read(local, leases, wanted, stream="returns", other_stream_begins_anew=True) == wanted


async def test_positions_tell_where_no_worker_has_written_the_stream_down(local: LocalKinesis, kinesis: Any) -> None:
    """As of KCL workers: the positions are older than the stream. Others are written down."""
    table = MemoryLeaseTable()
    wanted = set(put(kinesis, range(RECORDS)))
    assert await read(local, table, wanted) == wanted
    for row in table.rows():
        await table.write(writes.delete(row))
        await table.create(dataclasses.replace(row, of_stream=None, process=None, owner=None))
    wanted |= set(put(kinesis, range(RECORDS, 2 * RECORDS)))
    assert await read(local, table, set(put(kinesis, range(RECORDS, 2 * RECORDS)))) <= wanted
    assert all(row.of_stream is not None for row in table.rows())
    arn = kinesis.describe_stream_summary(StreamName=STREAM)["StreamDescriptionSummary"]["StreamARN"]
    marks = {row.of_stream for row in table.rows()}
    assert len(marks) == 1
    assert str(marks.pop()).startswith(f"{arn} ")


async def test_a_living_owner_of_another_stream_keeps_its_leases(local: LocalKinesis) -> None:
    """Also one that shows itself by the counters of its leases alone, as KCL workers do."""
    table = MemoryLeaseTable()
    key = "shardId-000000000000"
    await table.create(LeaseRow(key=key, owner="kcl", of_stream="arn:aws:kinesis:us-east-1:123456789012:stream/x 1"))

    async def live() -> None:
        while True:
            await table.write(writes.renew(table.rows()[0]))
            await asyncio.sleep(0.05)

    living = asyncio.create_task(live())
    with pytest.raises(OptionError, match=r"the worker kcl lives, and reads by leases of another stream"):
        await read(local, table, {b""}, other_stream_begins_anew=True, failover_s=1.0)
    living.cancel()
    assert [row.key for row in table.rows()] == [key]


async def test_a_positions_time_tells_of_a_former_stream(local: LocalKinesis) -> None:
    """The row is as a KCL worker wrote it, for a stream of before the one that is read."""
    table = MemoryLeaseTable()
    old = Checkpoint.parse("49590338271490256608559692538361571095921575989136588898")
    await table.create(LeaseRow(key="shardId-000000000006", checkpoint=old))
    with pytest.raises(OptionError, match=r"1 leases \(shardId-000000000006\) are of a former stream of this name"):
        await read(local, table, {b""})
