"""What looks at records opens the large ones beside the loop, on which a program may renew leases."""

from __future__ import annotations

import threading
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.aggregation.writer import encode_aggregate
from shardway.core.log import user_records
from shardway.core.log.user_records import OPENED_AT_ONCE_BYTES_MAX
from shardway.inspect import Goal, Reading, plan_seek, plan_skip
from shardway.inspect.records import reader, seen_records
from shardway.inspect.records.reader import get, read_pages
from shardway.inspect.records.registries import Registries
from shardway.model import IteratorAt
from shardway.wiring import stream_name
from tests.inspect.scenes import shard_id
from tests.off_loop import Threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.inspect.scenes import Scene

pytestmark = pytest.mark.xdist_group("inspected-tables")
USER_RECORDS = 8_000
GZIPPED = zlib.compress(b"x" * 100, wbits=31)


def large(scene: Scene) -> int:
    data = encode_aggregate([("k", b"%018d" % one, None) for one in range(USER_RECORDS)])
    assert len(data) > OPENED_AT_ONCE_BYTES_MAX
    return int(scene.put(0, data))


async def skip(scene: Scene, number: int) -> None:
    async with scene.inspector() as inspector:
        skipped = await plan_skip(inspector, scene.application, shard_id(0), stream=scene.name)
    assert (skipped.letter.position, skipped.letter.data) == ((number, 3), b"%018d" % 3)


async def seek(scene: Scene, number: int) -> None:
    async with scene.inspector() as inspector:
        plan = await plan_seek(inspector, scene.application, Goal("latest"), stream=scene.name)
    assert [(one.checkpoint, one.sub_sequence_number) for one in plan.moves] == [(str(number), USER_RECORDS - 1)]


async def one_record(scene: Scene, number: int) -> None:
    async with scene.inspector() as inspector:
        found = await get(inspector, stream_name(scene.name), number, USER_RECORDS - 1, shard_id(0))
    assert found.data == b"%018d" % (USER_RECORDS - 1)


@pytest.mark.parametrize("look", [skip, seek, one_record])
async def test_no_large_aggregate_is_opened_on_the_loop(
    make: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch, look: Callable[[Scene, int], Any]
) -> None:
    scene = make(1)
    number = large(scene)
    scene.table()
    scene.row({"leaseKey": shard_id(0), "leaseCounter": 1, "checkpoint": str(number), "checkpointSubSequenceNumber": 2})
    opening = Threads(monkeypatch, user_records, "open_aggregate", OPENED_AT_ONCE_BYTES_MAX)
    await look(scene, number)
    assert opening.calls
    assert not opening.on_loop


async def test_no_layer_is_opened_on_the_loop_to_look_for_the_id_of_a_schema(
    make: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = make(1)
    for _ in range(3):
        scene.put(0, GZIPPED)
    opening = Threads(monkeypatch, seen_records, "framing")
    async with scene.inspector() as inspector:
        reading, registries = Reading(starting_position=IteratorAt.trim_horizon()), Registries(inspector.wire)
        pages = read_pages(inspector, stream_name(scene.name), reading, registries)
        assert [one.data async for page in pages for one in page] == [GZIPPED] * 3
    assert (opening.calls, opening.on_loop) == (3, 0)


async def test_records_of_a_large_page_are_chosen_beside_the_loop(
    make: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = make(1)
    large(scene)
    scene.put(0, b"other", key="other")
    monkeypatch.setattr(reader, "CHOSEN_AT_ONCE_MAX", 100)
    threads, plain = set[int](), reader._Reader._wants

    def wants(self: Any, record: Any) -> bool:
        threads.add(threading.get_ident())
        return plain(self, record)

    monkeypatch.setattr(reader._Reader, "_wants", wants)
    async with scene.inspector() as inspector:
        reading = Reading(starting_position=IteratorAt.trim_horizon(), partition_key="other")
        pages = read_pages(inspector, stream_name(scene.name), reading)
        assert [one.data async for page in pages for one in page] == [b"other"]
    assert threads
    assert threading.get_ident() not in threads
