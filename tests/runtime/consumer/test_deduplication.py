"""Duplicates by a key over a window: a new owner reads the window again, and decides as the former one."""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from shardway.aws.record_source import KinesisSource
from shardway.core.aggregation.writer import encode_aggregate
from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.leases.row import LeaseRow
from shardway.core.ledger.ledger import Ledger
from shardway.core.ledger.policy import LedgerPolicy
from shardway.core.log.feed_cursor import PageMeaning
from shardway.core.log.user_records import ShardView, UserRecords
from shardway.core.shard.checkpoints.cadence import Prompt
from shardway.core.shard.checkpoints.machine import begin
from shardway.core.shard.duplicates import Admit, Deduplicate
from shardway.core.shard.events import WindowKnown
from shardway.core.shard.machine import ShardMachine
from shardway.errors import OptionError
from shardway.events import (
    AggregatesOutsideRange,
    DedupeKeyFailed,
    DedupeWindowRebuilding,
    DedupeWindowRebuilt,
    DuplicatesLeftOut,
)
from shardway.model import OutsidePolicy, Position, StartingPosition, StreamName
from shardway.policies import DeadLettersTo, PendingChoice, Retry
from shardway.runtime.consumer.consumer import Consumer
from shardway.runtime.consumer.streams import OpenStream
from shardway.runtime.feeds.admission import Admission
from shardway.runtime.feeds.fan_out import SubscriptionGate
from shardway.runtime.worker.reading_ahead import WarmUp
from shardway.stores.memory import MemoryLeaseTable
from tests.options_kit import arguments_of, options_of
from tests.runtime.consumer.fleet_kit import DEADLINE_S, POLL, STREAM
from tests.runtime.consumer.outcome_kit import SHARD_ID, checkpoint_reaches, consumer_of, of, put, until, wire_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shardway.core.shard.events import Event
    from shardway.local import LocalKinesis
    from shardway.runtime.shard.window_reading import WindowRead

EACH = Deduplicate(key=lambda record: record.data)


async def read_until(
    consumer: Any, leases: Any, number: int, shard_id: str = SHARD_ID, also: Any = lambda: True
) -> list[bytes]:
    """All that is delivered until the checkpoint has come to a record, and ``also`` holds."""
    got: list[bytes] = []

    async def handle(batch: Any) -> None:
        got.extend(record.data for record in batch)

    running = asyncio.create_task(consumer.run_batches(handle))
    await checkpoint_reaches(leases, number, shard_id)
    await until(also)
    await consumer.close()
    await running
    return got


async def test_duplicates_are_left_out_and_counted(local: LocalKinesis, kinesis: Any) -> None:
    numbers = put(kinesis, b"a", b"b", b"a", b"c", b"b", b"a")
    leases = MemoryLeaseTable()
    events: list[Any] = []
    chosen: dict[str, Any] = {"deduplicate": EACH, "cadence": Prompt()}
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, events=events, **chosen) as consumer:
        assert await read_until(consumer, leases, numbers[-1]) == [b"a", b"b", b"c"]
    assert sum(event.records for event in of(events, DuplicatesLeftOut)) == 3
    assert of(events, DuplicatesLeftOut)[0].first.sequence_number == numbers[2]
    assert not of(events, DedupeWindowRebuilding)


@pytest.mark.parametrize("wait", [True, False], ids=["when rebuilt", "at once"])
async def test_a_new_owner_without_a_handoff_reads_the_window_again(
    local: LocalKinesis, kinesis: Any, wait: bool
) -> None:
    numbers = put(kinesis, b"a", b"b")
    leases = MemoryLeaseTable()
    events: list[Any] = []
    choice = Deduplicate(key=lambda record: record.data, wait=wait)
    chosen: dict[str, Any] = {"deduplicate": choice, "cadence": Prompt()}
    async with asyncio.timeout(DEADLINE_S):
        async with consumer_of(local, leases, **chosen) as consumer:
            assert await read_until(consumer, leases, numbers[-1]) == [b"a", b"b"]
        more = put(kinesis, b"b", b"c", b"a", b"d")
        async with consumer_of(local, leases, events=events, **chosen) as consumer:
            got = await read_until(consumer, leases, more[-1], also=lambda: of(events, DedupeWindowRebuilt))
    (told,) = of(events, DedupeWindowRebuilding)
    assert told.waits is wait
    (known,) = of(events, DedupeWindowRebuilt)
    assert known.shards == 1
    if wait:
        assert got == [b"c", b"d"]
        assert known.delivered_before == 0
    else:
        assert {b"c", b"d"} <= set(got) <= {b"a", b"b", b"c", b"d"}
        assert max(Counter(got).values()) == 1
        assert known.delivered_before == len(got) or known.delivered_before == 0


async def test_a_window_that_waits_begins_behind_a_silence(local: LocalKinesis, kinesis: Any) -> None:
    """The first pages of a new owner may be empty, and behind: the window begins with what comes after them."""
    numbers = put(kinesis, b"a", b"b")
    leases = MemoryLeaseTable()
    events: list[Any] = []
    choice = Deduplicate(key=lambda record: record.data, wait=True, window_s=12 * 3600.0)
    chosen: dict[str, Any] = {"deduplicate": choice, "cadence": Prompt()}
    async with asyncio.timeout(DEADLINE_S):
        async with consumer_of(local, leases, **chosen) as consumer:
            assert await read_until(consumer, leases, numbers[-1]) == [b"a", b"b"]
        local.clock.advance(5 * 3600.0)
        more = put(kinesis, b"b", b"c", b"a", b"d")
        async with consumer_of(local, leases, events=events, **chosen) as consumer:
            got = await read_until(consumer, leases, more[-1], also=lambda: of(events, DedupeWindowRebuilt))
    assert got == [b"c", b"d"]


def machine_of(row: LeaseRow, admission: Admission) -> ShardMachine[Any]:
    """A shard's machine, as its reader makes it."""
    ledger: Ledger[Any] = Ledger(STREAM, SHARD_ID, row.checkpoint, LedgerPolicy(), rng=random.Random(1))
    begun = begin(row, PendingChoice.ABANDON, where=SHARD_ID, cadence=Prompt(), bound=None, now_s=0.0)
    return ShardMachine(ledger, begun.checkpoints, duplicates=admission.duplicates)


def admit(shard: ShardMachine[Any], admission: Admission, given: Event) -> None:
    """Tell the machine, and tell it what the program's functions make of what it asks for."""
    for output in shard.handle(given, 0.0):
        if isinstance(output, Admit):
            shard.handle(admission.made_of(output), 0.0)


async def test_pages_that_tell_no_time_are_not_what_a_window_waits_for(local: LocalKinesis) -> None:
    """They hold nothing, or only what is another shard's: the next page is fetched, and where they end is not lost."""
    source = KinesisSource(StreamName(STREAM), wire_of(local))
    settings = options_of(deduplicate=Deduplicate(key=lambda record: record.data, wait=True))
    stream = OpenStream(source, settings, SubscriptionGate(1.0), rng=random.Random(1), on_event=print)
    row = LeaseRow(key=SHARD_ID, checkpoint=Checkpoint.at(Position(1)))
    window = stream.open_window(row)
    assert window is not None
    admission, nothing = Admission(window=window), UserRecords(ShardView(STREAM, SHARD_ID, 0, 1), ())
    shard = machine_of(row, admission)
    for ends_at in (None, Position(2), None, Position(3)):
        page = PageMeaning(nothing, ends_at, 1000, ended=False, children=(), outside=0, dropped=0, trimmed=None)
        admit(shard, admission, admission.read(page, nothing, ends_at))
        assert not shard.is_kept_waiting
    assert shard.keeps_pages
    assert shard.ledger.progress.safe == row.checkpoint
    window.duplicates.is_read()
    admit(shard, admission, WindowKnown())
    assert shard.ledger.progress.safe == Checkpoint.at(Position(3))
    await source.close()


async def test_dedupe_survives_a_handoff(local: LocalKinesis, kinesis: Any) -> None:
    """The receiver reads the window while it warms up: nothing is waited for, and no duplicate comes through."""
    leases = MemoryLeaseTable()
    told: list[Any] = []
    got: list[tuple[str, bytes]] = []

    async def consume(consumer: Any) -> None:
        async for batch in consumer:
            with batch:
                got.extend((consumer.worker_id, record.data) for record in batch)

    numbers = put(kinesis, *[b"%d" % number for number in range(20)])
    chosen: dict[str, Any] = {"deduplicate": EACH, "warm_deadline_s": DEADLINE_S, "cadence": Prompt()}
    async with asyncio.timeout(DEADLINE_S):
        async with consumer_of(local, leases, worker_id="one", **chosen) as one:
            first = asyncio.create_task(consume(one))
            await checkpoint_reaches(leases, numbers[-1])
            async with consumer_of(local, leases, worker_id="two", events=told, **chosen) as two:
                second = asyncio.create_task(consume(two))
                numbers = put(kinesis, *[b"%d" % number for number in range(10, 30)])
                while len(await leases.workers()) < 2:
                    await asyncio.sleep(0.01)
                await one.close()
                await first
                numbers = put(kinesis, *[b"%d" % number for number in range(0, 35, 2)], b"last")
                await checkpoint_reaches(leases, numbers[-1])
                await two.close()
                await second
    assert Counter(data for _, data in got) == Counter(
        [*(b"%d" % number for number in range(30)), b"30", b"32", b"34", b"last"]
    )
    assert ("two", b"last") in got
    assert not of(told, DedupeWindowRebuilding), "it was known before the shard came"


def fails(error: BaseException) -> None:
    pytest.fail(repr(error))


@asynccontextmanager
async def warm(local: LocalKinesis, numbers: list[int]) -> AsyncIterator[tuple[WarmUp, WindowRead]]:
    """A receiver that has read what follows the first record, and knows its window."""
    source = KinesisSource(StreamName(STREAM), wire_of(local))
    settings = options_of(deduplicate=EACH, polling=POLL)
    stream = OpenStream(source, settings, SubscriptionGate(1.0), rng=random.Random(1), on_event=print)
    row = LeaseRow(key=SHARD_ID, checkpoint=Checkpoint.at(Position(numbers[0])))
    window, is_warm = stream.open_window(row), asyncio.Event()
    assert window is not None
    warming = WarmUp(stream.open_feed(row), 1000, is_warm.set, fails, window, begins=row)
    try:
        async with asyncio.timeout(DEADLINE_S):
            await is_warm.wait()
        assert window.is_known
        yield warming, window
    finally:
        await warming.stop()
        await window.stop()
        await source.close()


async def test_what_the_owner_settles_while_the_receiver_warms_up_belongs_to_the_window(
    local: LocalKinesis, kinesis: Any
) -> None:
    numbers = put(kinesis, b"a", b"b", b"c")
    async with warm(local, numbers) as (warming, window):
        again = [record for page in warming.pages for record in page.records]
        assert [record.data for record in again] == [b"b", b"c"]
        warming.drop(Checkpoint.at(Position(numbers[2])))
        assert not warming.pages
        assert window.duplicates.window.duplicates(window.keys_of(again)) == [0, 1]


async def test_a_page_that_the_owner_has_settled_in_part_belongs_to_the_window_with_that_part(
    local: LocalKinesis, kinesis: Any
) -> None:
    async with warm(local, put(kinesis, b"a", b"b", b"c")) as (warming, window):
        admission = Admission(window=window)
        shard = machine_of(LeaseRow(key=SHARD_ID), admission)
        for page in warming.pages:
            mine = [record for record in page.records if record.data != b"b"]
            admit(shard, admission, admission.read(page, mine, page.ends_at))
        delivery = shard.ledger.deliver(0.0)
        assert delivery is not None
        assert [record.data for record in delivery.records] == [b"c"]
        again = [record for page in warming.pages for record in page.records]
        assert window.duplicates.window.duplicates(window.keys_of(again)) == [0, 1]


async def test_the_tail_of_a_parent_belongs_to_the_window_of_its_child(local: LocalKinesis, kinesis: Any) -> None:
    numbers = put(kinesis, b"a", b"b", key="k")
    leases = MemoryLeaseTable()
    events: list[Any] = []
    chosen: dict[str, Any] = {
        "deduplicate": Deduplicate(key=lambda record: record.data, wait=True),
        "cadence": Prompt(),
    }
    async with asyncio.timeout(DEADLINE_S):
        async with consumer_of(local, leases, **chosen) as consumer:
            await read_until(consumer, leases, numbers[-1])
        kinesis.split_shard(StreamName=STREAM, ShardToSplit=SHARD_ID, NewStartingHashKey=str(2**127))
        while (
            kinesis.describe_stream_summary(StreamName=STREAM)["StreamDescriptionSummary"]["StreamStatus"] != "ACTIVE"
        ):
            await asyncio.sleep(0.01)
        answer = [
            kinesis.put_record(StreamName=STREAM, PartitionKey="k", Data=data) for data in (b"b", b"c", b"a", b"d")
        ]
        child, last = answer[0]["ShardId"], int(answer[-1]["SequenceNumber"])
        assert child != SHARD_ID
        async with consumer_of(local, leases, events=events, **chosen) as consumer:
            assert await read_until(consumer, leases, last, child) == [b"c", b"d"]
    known = {event.shard_id: event for event in of(events, DedupeWindowRebuilt)}
    assert known[child].shards == 1
    assert known[child].keys == 2


async def test_the_window_reaches_back_over_several_generations(local: LocalKinesis, kinesis: Any) -> None:
    """Two shards merged into the one that begins, one of which came of a split, within the window."""
    kinesis.create_stream(StreamName="two", ShardCount=2)

    def put_at(hash_key: int, *datas: bytes) -> tuple[str, int]:
        for data in datas:
            answer = kinesis.put_record(StreamName="two", PartitionKey="k", Data=data, ExplicitHashKey=str(hash_key))
        return answer["ShardId"], int(answer["SequenceNumber"])

    async def active() -> list[str]:
        while kinesis.describe_stream_summary(StreamName="two")["StreamDescriptionSummary"]["StreamStatus"] != "ACTIVE":
            await asyncio.sleep(0.01)
        return [shard["ShardId"] for shard in kinesis.list_shards(StreamName="two")["Shards"]]

    def reading(events: list[Any]) -> Any:
        choice = Deduplicate(key=lambda record: record.data, wait=True)
        settings = dict[str, Any](
            starting_position=StartingPosition.TRIM_HORIZON,
            polling=POLL,
            cadence=Prompt(),
            deduplicate=choice,
            look_interval_s=0.1,
        )
        return Consumer(
            "two",
            application="billing",
            connection=wire_of(local),
            on_event=events.append,
            **arguments_of(leases=leases, **settings),
        )

    leases, events = MemoryLeaseTable(), list[Any]()
    async with asyncio.timeout(DEADLINE_S):
        left = put_at(0, b"grandparent's")
        right = put_at(2**127, b"parent's")
        async with reading([]) as consumer:
            await read_until(
                consumer, leases, left[1], left[0],
                also=lambda: [shard.settled is not None for shard in consumer.statistics().shards] == [True, True],
            )  # fmt: skip
        kinesis.split_shard(StreamName="two", ShardToSplit=left[0], NewStartingHashKey=str(2**126))
        known = await active()
        inner = put_at(2**126, b"child's")[0]
        kinesis.merge_shards(StreamName="two", ShardToMerge=inner, AdjacentShardToMerge=right[0])
        (last,) = set(await active()) - set(known)
        shard_id, number = put_at(2**126, b"child's", b"parent's", b"new", b"grandparent's", b"end")
        assert shard_id == last
        async with reading(events) as consumer:
            got = await read_until(consumer, leases, number, last)
    assert sorted(got) == [b"child's", b"end", b"new"]
    (rebuilt,) = [event for event in of(events, DedupeWindowRebuilt) if event.shard_id == last]
    assert rebuilt.shards == 3


async def test_what_came_before_a_start_at_the_tip_has_no_twins(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, b"a", key="k")
    kinesis.split_shard(StreamName=STREAM, ShardToSplit=SHARD_ID, NewStartingHashKey=str(2**127))
    leases = MemoryLeaseTable()
    got: list[bytes] = []
    chosen: dict[str, Any] = {"deduplicate": EACH, "starting_position": StartingPosition.LATEST}
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, **chosen) as consumer:

        async def handle(batch: Any) -> None:
            got.extend(record.data for record in batch)

        running = asyncio.create_task(consumer.run_batches(handle))
        while b"a" not in got:  # put again until the tip is known, and then at least once more
            put(kinesis, b"a", b"%d" % len(got), key="k")
            await asyncio.sleep(0.05)
        await consumer.close()
        await running
    assert got.count(b"a") == 1


async def test_what_was_dropped_for_its_hash_key_has_no_twins(local: LocalKinesis, kinesis: Any) -> None:
    """It was not delivered, so an owner that reads the window again must not take a later record for its duplicate."""
    kinesis.create_stream(StreamName="two", ShardCount=2)
    inside, outside = [next(key for key in map(str, range(99)) if shard_of(key) == shard) for shard in (0, 1)]
    aggregate = encode_aggregate([(outside, b"a", None)])
    leases = MemoryLeaseTable()
    events: list[Any] = []

    def consumer() -> Consumer[Any]:
        settings = dict[str, Any](failover_s=2.0, look_interval_s=0.1, starting_position=StartingPosition.TRIM_HORIZON,
        polling=POLL, cadence=Prompt(), deduplicate=Deduplicate(key=lambda record: record.data, wait=True),
        aggregates_outside_range=OutsidePolicy.DROP)  # fmt: skip
        return Consumer(
            "two",
            application="x",
            connection=wire_of(local),
            on_event=events.append,
            **arguments_of(leases=leases, **settings),
        )

    def put_there(data: bytes) -> int:
        answer = kinesis.put_record(StreamName="two", PartitionKey=inside, ExplicitHashKey="0", Data=data)
        assert answer["ShardId"] == SHARD_ID
        return int(answer["SequenceNumber"])

    async with asyncio.timeout(DEADLINE_S):
        put_there(aggregate)
        number = put_there(b"b")
        async with consumer() as one:
            assert await read_until(one, leases, number) == [b"b"]
        put_there(b"b")
        number = put_there(b"a")
        async with consumer() as two:
            assert await read_until(two, leases, number) == [b"a"]
    assert of(events, AggregatesOutsideRange)


def shard_of(key: str) -> int:
    return hashlib.md5(key.encode()).digest()[0] >> 7


async def test_a_key_that_cannot_be_made_is_told_and_the_record_delivered(local: LocalKinesis, kinesis: Any) -> None:
    numbers = put(kinesis, b"1", b"x", b"1", b"x")
    leases = MemoryLeaseTable()
    events: list[Any] = []
    chosen: dict[str, Any] = {"deduplicate": Deduplicate(key=lambda record: str(int(record.data))), "cadence": Prompt()}
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, events=events, **chosen) as consumer:
        assert await read_until(consumer, leases, numbers[-1]) == [b"1", b"x", b"x"]
    failed = of(events, DedupeKeyFailed)
    assert [event.error_type for event in failed] == ["ValueError", "ValueError"]
    shown = r"raised ValueError \(test_deduplication\.py:\d+\)"  # The message has the record's data in it.
    assert [event for event in failed if not re.fullmatch(shown, event.failure)] == []


async def test_a_record_that_is_tried_again_is_no_duplicate_of_itself(local: LocalKinesis, kinesis: Any) -> None:
    numbers = put(kinesis, b"a")
    leases, tries = MemoryLeaseTable(), 0
    retry = Retry(failures_max=None, base_s=0.001, cap_s=0.01)
    chosen: dict[str, Any] = {"deduplicate": EACH, "cadence": Prompt(), "retry": retry}

    async def handle(batch: Any) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise OSError

    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, **chosen) as consumer:
        running = asyncio.create_task(consumer.run_batches(handle))
        await checkpoint_reaches(leases, numbers[-1])
        await consumer.close()
        await running
    assert tries == 3


async def test_splitting_and_deduplication_together(local: LocalKinesis, kinesis: Any) -> None:
    numbers = put(kinesis, b"a,b", b"c", b"a,b", b"", key="k")
    leases = MemoryLeaseTable()

    def words(record: Any) -> list[bytes]:
        return [word for word in record.data.split(b",") if word]

    chosen: dict[str, Any] = {
        "deduplicate": EACH,
        "cadence": Prompt(),
        "split": words,
        "dead_letters": DeadLettersTo(print),
    }
    got: list[bytes] = []

    async def handle(batch: Any) -> None:
        got.extend(part.value for part in batch)

    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, **chosen) as consumer:
        running = asyncio.create_task(consumer.run_batches(handle))
        await checkpoint_reaches(leases, numbers[-1])
        await consumer.close()
        await running
    assert got == [b"a", b"b", b"c"]


@pytest.mark.parametrize("wrong", [{"window_s": 0}, {"keys_max": 0}, {"bytes_max": -1}])
def test_what_is_no_window_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="must be more than 0"):
        Deduplicate(key=lambda record: record.data, **wrong)
