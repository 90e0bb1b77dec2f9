"""A look of the driver counts large aggregates beside the planning loop, on which a query's leases are renewed."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from shardway.aws.kinesis.shapes import PutEntry
from shardway.core.aggregation.wire_format import MAGIC
from shardway.core.aggregation.writer import encode_aggregate
from shardway.core.log import user_records
from shardway.core.log.user_records import OPENED_AT_ONCE_BYTES_MAX
from shardway.spark.lookahead.shard_probe import ShardProbe
from tests.off_loop import Threads

if TYPE_CHECKING:
    import pytest

    from tests.spark.planning import World

SMALLEST = 170_000
"""User records without a byte of data: as many as nearly fit into 1 MiB."""


def tags_without_end() -> bytes:
    """An aggregate with the right digest whose user records have more tags than any producer writes: it takes long to
    read, and is a plain record.
    """
    record = b"\x08\x00\x1a\x00" + b"\x22\x02\x0a\x00" * 9
    message = b"\x0a\x01k" + (b"\x1a" + bytes((len(record),)) + record) * 24_000
    return MAGIC + message + hashlib.md5(message).digest()


async def test_no_look_counts_a_hostile_aggregate_on_the_loop(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    three = encode_aggregate([("k", b"1", None)] * 3)
    datas = [encode_aggregate([("k", b"", None)] * SMALLEST), tags_without_end(), b"plain", three]
    assert [len(one) > OPENED_AT_ONCE_BYTES_MAX for one in datas] == [True, True, False, False]
    opening = Threads(monkeypatch, user_records, "open_aggregate", OPENED_AT_ONCE_BYTES_MAX)
    await world.create(1)
    for data in datas:
        await world.client.put_records(world.stream, [PutEntry(data, "k")])
    planner = world.planner()
    await planner.begin(None)
    ((shard_id, state),) = planner._book.states.items()
    probe = ShardProbe(planner._calls, shard_id)
    look = await probe.open(state.position, by_time=False, records_max=len(datas))
    assert [one.rows for one in look.records] == [SMALLEST, 1, 1, 3]
    assert (opening.calls, opening.on_loop) == (2, 0)
