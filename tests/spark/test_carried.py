"""Records that the driver saw go to the tasks: the same rows as those that a task reads, with fewer calls."""

from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shardway.aws.kinesis.shapes import PutEntry, WireRecord
from shardway.core.aggregation.writer import encode_aggregate
from shardway.local.embedded import LocalKinesis
from shardway.spark.driver import carried_records
from shardway.spark.driver.carried_records import (
    BATCH_BYTES_MAX,
    PAUSE_S,
    PAUSE_S_MAX,
    SHARD_BYTES_MAX,
    Attempts,
    CarriedRecords,
)
from shardway.spark.driver.driver import Driver
from shardway.spark.driver.pace import BUSY_INTERVAL_S, CARRIED_INTERVAL_S
from shardway.spark.lookahead.lookahead import ENTRY_COST_BYTES, Bound, KnownRecord, Lookahead, Tail, entry_bytes
from shardway.spark.lookahead.shard_probe import ENTRIES_MAX, ShardProbe
from shardway.spark.lookahead.stream_calls import StreamCalls
from shardway.spark.offsets import StreamOffset
from shardway.spark.options.parsing import parse_read_options
from shardway.spark.ranges import EndKind, ShardPartition, ShardRange, TaskOptions
from shardway.spark.task import connections
from shardway.spark.task.partition_reader import read_partition
from tests.spark.planning import Row, World
from tests.spark.scenes import Scene, range_of, rows_of, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway.spark.driver.planner import Planner
    from tests.spark.querying import Stream


HOSTILE = Path(__file__).resolve().parents[1] / "fixtures" / "kpl" / "hostile.json"


def record(number: int, data: bytes = b"data") -> WireRecord:
    return WireRecord(data=data, sequence_number=str(number), approximate_arrival_timestamp=number / 1000)


def known(number: int, *, kept: bool = True) -> KnownRecord:
    entry = record(number)
    return KnownRecord(number, number, 1, len(entry.data), entry if kept else None)


def a_range(first: int, kind: EndKind, end: int | None, *, at_risk: bool = False) -> ShardRange:
    return ShardRange("shard", first, 0, kind, end, at_risk=at_risk)


# --- what was seen up to a bound ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "end", "numbers"),
    [
        (EndKind.EXCLUSIVE, 3, [1, 2]),
        (EndKind.INCLUSIVE, 3, [1, 2, 3]),
        (EndKind.INCLUSIVE, 5, None),  # it was not kept
        (EndKind.EXCLUSIVE, 5, [1, 2, 3, 4]),  # it is not of the range
        (EndKind.EXCLUSIVE, 6, None),
        (EndKind.EXCLUSIVE, 9, None),  # it was not seen
        (EndKind.SHARD_END, None, None),
    ],
)
def test_a_range_is_whole_only_up_to_a_record_that_was_seen(
    kind: EndKind, end: int | None, numbers: list[int] | None
) -> None:
    look = Lookahead([known(1), known(2), known(3), known(4), known(5, kept=False), known(6)])
    entries = look.entries(Bound(kind, end, 0))
    assert (entries and [int(one.sequence_number) for one in entries]) == numbers


def test_what_is_left_behind_a_bound_is_kept() -> None:
    look = Lookahead([known(1), known(2), known(3)], Tail.TIP).behind(Bound(EndKind.EXCLUSIVE, 2, 2))
    assert look.entries(Bound(EndKind.INCLUSIVE, 3, 3)) == (record(2), record(3))


def test_only_the_very_range_finds_its_records() -> None:
    carried = CarriedRecords()
    assert carried.add("shard", 5, Bound(EndKind.EXCLUSIVE, 9, 9), (record(5), record(8)))
    same = a_range(5, EndKind.EXCLUSIVE, 9)
    assert carried.for_ranges((same,)) == {"shard": (record(5), record(8))}
    for other in (
        a_range(4, EndKind.EXCLUSIVE, 9),
        a_range(5, EndKind.INCLUSIVE, 9),
        a_range(5, EndKind.EXCLUSIVE, 10),
        a_range(5, EndKind.SHARD_END, None),
        a_range(5, EndKind.EXCLUSIVE, 9, at_risk=True),
        same._replace(shard_id="another"),
    ):
        assert carried.for_ranges((other,)) == {}


def test_a_batch_carries_no_more_than_its_bound() -> None:
    carried = CarriedRecords()
    large = record(1, bytes(SHARD_BYTES_MAX - ENTRY_COST_BYTES))
    fit = BATCH_BYTES_MAX // SHARD_BYTES_MAX
    taken = [carried.add(f"shard-{n}", 1, Bound(EndKind.INCLUSIVE, 1, 1), (large,)) for n in range(fit + 2)]
    assert taken == [True] * fit + [False] * 2
    assert carried.held_bytes == fit * entry_bytes(large) <= BATCH_BYTES_MAX


def test_a_shard_that_had_more_is_left_alone_for_longer_each_time() -> None:
    attempts, now_s, pauses = Attempts(), 100.0, []
    for _ in range(7):
        assert attempts.may(now_s)
        attempts.note_failure(now_s)
        pauses.append(attempts.pause_s)
        assert not attempts.may(now_s + attempts.pause_s - 0.1)
        now_s += attempts.pause_s
    assert pauses == [PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S, 8 * PAUSE_S, 16 * PAUSE_S, PAUSE_S_MAX, PAUSE_S_MAX]
    attempts.note_success()
    attempts.note_failure(now_s)
    assert attempts.pause_s == PAUSE_S


# --- the planner ------------------------------------------------------------------------------------------


async def begun(world: World, shards: int, **settings: object) -> Planner:
    """A planner that is caught up, and knows how large records are."""
    await world.create(shards)
    for number in range(shards):
        await world.put(5 * shards, key=f"warm-{number}")
    await world.put(5 * shards)
    planner = world.planner(**settings)  # type: ignore[arg-type]
    await planner.begin(None)
    while await world.plan_settled(planner) is not await world.plan_settled(planner):
        pass
    return planner


def looks(world: World) -> int:
    return world.local.stats().tags["driver"]["GetRecords"].calls


def carried_rows(planner: Planner, offset: StreamOffset) -> list[Row]:
    ranges = planner.ranges(offset)
    return [
        Row(shard_id, int(entry.sequence_number), entry.data)
        for shard_id, entries in planner.carried.for_ranges(tuple(ranges)).items()
        for entry in entries
    ]


async def test_a_caught_up_query_carries_what_a_task_would_read(world: World) -> None:
    planner = await begun(world, 2)
    for count in (1, 30, 300):
        await world.put(count)
        before = looks(world)
        offset = await world.plan_settled(planner)
        assert looks(world) - before == 2  # one call for a shard, and none of a task
        assert planner.is_carried
        assert sorted(carried_rows(planner, offset)) == sorted(await world.read_batch(planner, offset))
        assert len(carried_rows(planner, offset)) == count


async def test_records_behind_the_cut_are_carried_with_the_next_batch(world: World) -> None:
    planner = await begun(world, 1)
    await world.put(40)
    world.local.clock.advance(10)
    await world.put(50)
    await world.client.describe_stream_summary(world.stream)
    first = await planner.plan(until_ms=int(world.local.clock.now() * 1000) - 5_000)
    assert planner.is_carried
    assert len(carried_rows(planner, first)) == 40
    assert carried_rows(planner, first) == await world.read_batch(planner, first)
    second = await world.plan_settled(planner)
    assert planner.is_carried
    assert carried_rows(planner, first) == []  # only the newest batch is kept
    assert carried_rows(planner, second) == await world.read_batch(planner, second)
    assert len(carried_rows(planner, second)) == 50


async def test_what_is_carried_stands_in_no_offset_and_a_resumed_query_reads_the_same(world: World) -> None:
    planner = await begun(world, 2)
    await world.put(60)
    offset = await world.plan_settled(planner)
    assert planner.is_carried
    text = json.dumps(offset.to_dict())
    assert world.written[-1].decode() not in text
    resumed = world.planner()
    await resumed.begin(StreamOffset.from_dict(json.loads(text)))
    assert resumed.ranges(offset) == planner.ranges(offset)
    assert carried_rows(resumed, offset) == []
    assert not resumed.is_carried
    assert sorted(carried_rows(planner, offset)) == sorted(await world.read_batch(resumed, offset))


async def test_more_records_than_a_look_takes_are_read_by_tasks_and_not_tried_again_at_once(world: World) -> None:
    planner = await begun(world, 1)
    await world.put(2 * ENTRIES_MAX, size=400)
    offset = await world.plan_settled(planner)
    assert not planner.is_carried
    assert carried_rows(planner, offset) == []
    assert len(await world.read_batch(planner, offset)) == 2 * ENTRIES_MAX
    await world.put(50)  # more than a small look
    before = looks(world)
    offset = await world.plan_settled(planner)
    assert looks(world) - before > 1
    assert not planner.is_carried  # the search brought all, and cost more calls than the faster pace leaves
    assert carried_rows(planner, offset) == await world.read_batch(planner, offset)


async def test_large_records_are_not_carried(world: World) -> None:
    planner = await begun(world, 1)
    await world.put(3, size=SHARD_BYTES_MAX // 2)
    offset = await world.plan_settled(planner)
    assert not planner.is_carried
    assert carried_rows(planner, offset) == []
    assert len(await world.read_batch(planner, offset)) == 3
    look = next(iter(planner._book.states.values())).look
    assert look is not None
    assert not any(seen.entry for seen in look.records)


async def test_shards_share_what_may_be_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried_records, "BATCH_BYTES_MAX", 8_000)
    planner = await begun(world, 4)
    await world.put(200)
    offset = await world.plan_settled(planner)
    assert not planner.is_carried
    assert planner.carried.held_bytes <= 8_000
    assert len(await world.read_batch(planner, offset)) == 200


async def test_an_ended_shard_is_read_by_a_task_and_its_child_may_be_carried(world: World) -> None:
    planner = await begun(world, 1, listing_interval_s=0.0)
    await world.put(20)
    await world.split(0)
    await world.put(20)
    offset = await world.plan_settled(planner)
    ended = {one.shard_id for one in planner.ranges(offset) if one.end_kind is EndKind.SHARD_END}
    assert ended
    assert ended.isdisjoint(planner.carried.for_ranges(tuple(planner.ranges(offset))))
    assert not planner.is_carried


async def test_no_stretch_is_carried_over_an_iterator_that_had_to_be_asked_for_anew(world: World) -> None:
    planner = await begun(world, 1)
    await world.put(5)
    shard_id = next(iter(planner.lineage.shards))
    calls: StreamCalls = planner._calls
    state = planner._book.states[shard_id]
    probe = ShardProbe(calls, shard_id)
    first = await probe.open(state.position, by_time=False, records_max=3)
    assert all(seen.entry for seen in first.records)
    first.iterator = None
    more = await probe.extend(first, state.position, 10)
    assert len(more.records) == 5
    assert [seen.entry is None for seen in more.records] == [True] * 3 + [False] * 2


# --- the task ---------------------------------------------------------------------------------------------


@pytest.fixture
def scene() -> Iterator[Scene]:
    with LocalKinesis(clock_running=False) as local:
        yield Scene(local, 3)
        connections.close_connections()


def calls_of_tasks(scene: Scene) -> int:
    return scene.local.stats().tags["task"]["GetRecords"].calls


def aggregates(count: int) -> list[bytes]:
    return [encode_aggregate((f"key-{n}", b"%d of %d" % (n, one), None) for n in range(3)) for one in range(count)]


def hostile() -> list[bytes]:
    """Aggregates that are broken, or that name what they do not have: each is opened, or is one plain record."""
    return [base64.b64decode(case["data"]) for case in json.loads(HOSTILE.read_text(encoding="utf-8"))["cases"]]


def scattered(scene: Scene) -> tuple[list[tuple[ShardRange, ...]], dict[str, tuple[WireRecord, ...]]]:
    """Plain records and aggregates in three shards, in chains, and all of them as the driver would carry them."""
    for shard in range(3):
        scene.put(shard, *[b"%08d" % n + bytes(1000 * shard) for n in range(30 + 50 * shard)], *aggregates(20))
        scene.put(shard, *[b"%08d" % n for n in range(7)], *hostile(), b"last")
    logs = [scene.log(shard) for shard in range(3)]
    ranges = [range_of(0, logs[0], EndKind.EXCLUSIVE, logs[0][40]), whole(1, logs[1]), whole(2, logs[2])]
    carried = {one.shard_id: tuple(log) for one, log in zip(ranges, logs, strict=True)}
    carried[ranges[0].shard_id] = tuple(logs[0][:40])
    return [(ranges[0], ranges[1]), (ranges[2],)], carried


@pytest.mark.parametrize("batch_rows_max", [7, 100_000])
def test_a_task_yields_the_same_batches_with_and_without_carried_records(scene: Scene, batch_rows_max: int) -> None:
    chains, carried = scattered(scene)
    options = scene.settings(batch_rows_max=batch_rows_max, batch_bytes_max=20_000, prefetch_bytes_max=50_000)

    def read(*given: str) -> list[object]:
        some = {shard_id: carried[shard_id] for shard_id in given}
        partition = ShardPartition(tuple(chains), scene.stream, options, some)
        return list(read_partition(pickle.loads(pickle.dumps(partition))))

    plain = read()
    assert len(rows_of(plain)) > 200
    shards = sorted(carried)
    for given in ([shards[0]], [shards[1]], [shards[2]], shards[:2], shards[1:]):
        assert read(*given) == plain
    before = calls_of_tasks(scene)
    assert read(*shards) == plain
    assert calls_of_tasks(scene) == before


def test_a_partition_with_carried_records_is_the_same_one_and_shows_none(scene: Scene) -> None:
    chains, carried = scattered(scene)
    plain = scene.partition(*chains)
    loaded = ShardPartition(plain.chains, plain.stream, plain.options, carried)
    assert loaded == plain
    assert hash(loaded) == hash(plain)
    assert repr(loaded) == repr(plain)
    copy = pickle.loads(pickle.dumps(loaded))
    assert copy == loaded
    assert copy.carried == carried
    # Spark warns of a task of more than 1,000 KiB.
    assert len(pickle.dumps(ShardPartition((), plain.stream, plain.options, full()))) < 1_000 * 1024


def full() -> dict[str, tuple[WireRecord, ...]]:
    """As many small records as one batch carries."""
    number = "4" + 55 * "0"
    one = WireRecord(
        data=bytes(50), sequence_number=number, approximate_arrival_timestamp=1.7e9, partition_key="key-0001"
    )
    records = tuple(
        WireRecord(
            data=bytes(one.data),
            sequence_number=str(int(number) + n),
            approximate_arrival_timestamp=1.7e9 + n / 1000,
            partition_key=f"key-{n:04d}",
        )
        for n in range(BATCH_BYTES_MAX // entry_bytes(one))
    )
    return {"shardId-000000000000": records}


# --- the driver ---------------------------------------------------------------------------------------------


def driver_of(stream: Stream) -> Driver:
    local = stream.local
    where = {"streamName": "orders", "region": local.region, "endpointUrl": local.endpoint_url}
    options = parse_read_options({**where, "startingPosition": "TRIM_HORIZON"}, streaming=True)
    return Driver(options, TaskOptions.of(options, options.connection("task")))


def test_a_batch_that_runs_again_elsewhere_has_the_same_rows(stream: Stream) -> None:
    driver, other = driver_of(stream), driver_of(stream)
    try:
        stream.put(12)
        stream.put_entries([PutEntry(one, "one") for one in aggregates(3)])
        stream.settle(20)
        end = driver.latest(None, capped=True)
        tasks, again = driver.partitions(end), other.partitions(end)
        assert any(task.carried for task in tasks)
        assert tasks == driver.partitions(end)
        assert tasks == again
        assert not any(task.carried for task in again)
        rows = [list(read_partition(task)) for task in tasks]
        assert rows == [list(read_partition(task)) for task in again]
        assert sum(len(rows_of(batches)) for batches in rows) == 12 + 9
    finally:
        driver.close()
        other.close()
        connections.close_connections()


@pytest.mark.parametrize(("count", "interval_s"), [(10, CARRIED_INTERVAL_S), (4 * ENTRIES_MAX, BUSY_INTERVAL_S)])
def test_batches_follow_sooner_where_tasks_make_no_calls(stream: Stream, count: int, interval_s: float) -> None:
    driver = driver_of(stream)
    try:
        stream.put(count)
        stream.settle(20)
        driver.latest(None, capped=True)
        assert driver._pace.early_s == pytest.approx(0.2 * interval_s)
    finally:
        driver.close()
