"""A page crosses a limited span of the log: silence is answered by empty pages that come nearer to the tip."""

from __future__ import annotations

import base64
import json

import pytest

from shardway.local import LocalKinesis
from shardway.local.model import Limits
from shardway.local.model.limits import PAGE_SPAN_S
from tests.local.model_kit import START_S, World

HOUR = 3_600
MINUTE = 60


@pytest.fixture
def world() -> World:
    made = World()
    made.create()
    return made


def follow(world: World, iterator: str | None) -> list[tuple[list[bytes], int]]:
    """(records, MillisBehindLatest) of each page, up to the tip or the shard's end."""
    pages = []
    while iterator is not None:
        page = world.get(iterator)
        pages.append(([base64.b64decode(record["Data"]) for record in page["Records"]], page["MillisBehindLatest"]))
        iterator = page.get("NextShardIterator") if page["MillisBehindLatest"] else None
    return pages


def test_silence_is_crossed_page_by_page_by_default(world: World) -> None:
    assert PAGE_SPAN_S == HOUR
    world.put(b"first")
    world.advance(5 * HOUR)
    world.put(b"last")
    world.advance(2.5 * HOUR)
    hours = [round(behind / HOUR / 1000, 1) for _, behind in follow(world, world.iterator())]
    assert hours == [6.5, 5.5, 4.5, 3.5, 2.5, 1.5, 0.5, 0]
    assert [data for datas, _ in follow(world, world.iterator()) for data in datas] == [b"first", b"last"]


def test_a_page_holds_what_arrived_within_its_span(world: World) -> None:
    world.model.limits = Limits(page_span_s=10 * MINUTE)
    for minute in range(30):
        world.put(b"%d" % minute)
        world.advance(MINUTE)
    pages = follow(world, world.iterator())
    assert [len(datas) for datas, _ in pages] == [11, 10, 9]
    assert [behind // 1000 for _, behind in pages] == [20 * MINUTE, 10 * MINUTE, 0]


def test_a_full_page_ends_at_its_last_record_and_the_next_span_begins_there(world: World) -> None:
    for _ in range(3):
        world.put(b"x")
        world.advance(40 * MINUTE)
    page = world.get(world.iterator(), Limit=1)
    assert page["MillisBehindLatest"] == 120 * MINUTE * 1000
    page = world.get(page["NextShardIterator"])
    assert (len(page["Records"]), page["MillisBehindLatest"]) == (1, 60 * MINUTE * 1000)


@pytest.mark.parametrize("kind", ["AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER", "AT_TIMESTAMP"])
def test_an_iterator_begins_to_cross_at_its_own_time(world: World, kind: str) -> None:
    number = world.put(b"x")["SequenceNumber"]
    world.advance(3 * HOUR)
    where = {"Timestamp": START_S + HOUR} if kind == "AT_TIMESTAMP" else {"StartingSequenceNumber": number}
    began = 1 if kind == "AT_TIMESTAMP" else 0
    pages = follow(world, world.iterator(kind, **where))
    assert [round(behind / HOUR / 1000) for _, behind in pages] == [*range(2 - began, -1, -1)]


def test_the_latest_and_a_reader_that_keeps_up_are_at_the_tip(world: World) -> None:
    world.put(b"x")
    world.advance(10 * HOUR)
    iterator = world.iterator("LATEST")
    for _ in range(100):
        page = world.get(iterator)
        assert page["MillisBehindLatest"] == 0
        iterator = page["NextShardIterator"]
        world.advance(4 * MINUTE)


def test_a_closed_shard_is_crossed_up_to_its_closing(world: World) -> None:
    world.put(b"x")
    world.advance(3 * HOUR)
    world.split()
    world.advance(10 * HOUR)
    iterator: str | None = world.iterator()
    pages = []
    while iterator is not None:
        page = world.get(iterator)
        pages.append(len(page["Records"]))
        iterator = page.get("NextShardIterator")
    assert pages == [1, 0, 0]
    assert len(page["ChildShards"]) == 2


def test_an_iterator_that_the_retention_overtakes_goes_on_at_the_oldest(world: World) -> None:
    world.put(b"gone")
    iterator = world.iterator()
    world.advance(4 * MINUTE)
    page = world.get(iterator)
    world.advance(24 * HOUR)
    pages = follow(world, world.iterator())
    assert [round(behind / HOUR / 1000) for _, behind in pages] == [*range(23, -1, -1)]
    assert page["MillisBehindLatest"] == 0


def test_a_trimmed_number_comes_no_nearer(world: World) -> None:
    number = world.put(b"x")["SequenceNumber"]
    world.advance(30 * HOUR)
    iterator = world.iterator("AT_SEQUENCE_NUMBER", StartingSequenceNumber=number)
    for _ in range(10):
        page = world.get(iterator)
        assert not page["Records"]
        assert page["MillisBehindLatest"] >= 29 * HOUR * 1000
        iterator = page["NextShardIterator"]


def test_the_span_is_a_setting_and_a_control() -> None:
    with LocalKinesis(streams={"s": 1}, page_span_s=2 * HOUR) as local:
        assert local.limits.page_span_s == 2 * HOUR
        local.set_limits(page_span_s=600)
        local.clock.advance(HOUR)
        begin = json.dumps({"StreamName": "s", "ShardId": "shardId-000000000000", "ShardIteratorType": "TRIM_HORIZON"})
        iterator = json.loads(local.ask("GetShardIterator", begin.encode()))["ShardIterator"]
        page = json.loads(local.ask("GetRecords", json.dumps({"ShardIterator": iterator}).encode()))
        assert 2990 <= page["MillisBehindLatest"] / 1000 <= 3010
        for wrong in (0, -1.0, "long"):
            with pytest.raises(ValueError, match="page_span_s"):
                local.set_limits(page_span_s=wrong)
    with pytest.raises(ValueError, match="page_span_s"):
        LocalKinesis(page_span_s=0)
