"""A shard that is read ahead while another worker delivers it: bounded in bytes, and going on as that one does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.leases.row import LeaseRow
from shardway.model import Position
from shardway.runtime.worker.reading_ahead import WarmUp
from tests.runtime.feeds.feeding_kit import DEADLINE_S, POLL, STREAM, polling, read, source_of

if TYPE_CHECKING:
    from shardway.local import LocalKinesis


def fails(error: BaseException) -> None:
    pytest.fail(repr(error))


SMALL = replace(POLL, request_records_max=2)
SIZE = 10


def held(warming: WarmUp) -> list[bytes]:
    return [data for page in warming.pages for data in page.records.datas]


async def test_it_reads_as_much_as_it_may_and_goes_on_when_the_owner_has(local: LocalKinesis, kinesis: Any) -> None:
    datas = [b"%010d" % number for number in range(20)]
    numbers = [
        int(kinesis.put_record(StreamName=STREAM, PartitionKey="k", Data=data)["SequenceNumber"]) for data in datas
    ]
    warm = asyncio.Event()
    async with asyncio.timeout(DEADLINE_S), source_of(local) as source, source_of(local) as other:
        feed = polling(source, [], options=SMALL)
        warming = WarmUp(feed, 4 * (SIZE + 334), warm.set, fails, begins=LeaseRow(key=feed.shard_id))
        await warm.wait()
        for done in (0, 2, 6):
            while len(held(warming)) < 4:
                await asyncio.sleep(0.01)
            # Another reader reads all of it meanwhile, by pages as small: one that knew no bound would have, too.
            await read(polling(other, [], options=SMALL), len(datas))
            assert held(warming) == datas[done : done + 4]
            upto = {0: 1, 2: 5, 6: 5}[done]
            warming.drop(Checkpoint.at(Position(numbers[upto])))
        await warming.stop()
        assert held(warming) == datas[6:10]
