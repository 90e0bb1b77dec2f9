"""``ordered_by_key``: a key's records are in the stream in the order in which they were put, whatever is refused."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from shardway.model import HASH_KEY_MAX, OutRecord
from shardway.runtime.producer.producer import Producer
from shardway.runtime.producer.sync_producer import SyncProducer
from shardway.testing import Fault
from tests.runtime.producing import STREAM, Content, merge, quick, read_all, read_sync, split, until, wire_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shardway.local import LocalKinesis

BOTH = pytest.mark.parametrize("aggregation", [False, True], ids=["plain", "aggregated"])
KEYS = [f"key-{number}" for number in range(20)]


def assert_in_order(content: Content, expected: dict[str, list[bytes]], *, repeats: bool = False) -> None:
    """Each key's records are there, in order; with ``repeats`` as the first of each says."""
    for key, datas in expected.items():
        found = content.of_key(key)
        if repeats:
            found = list(dict.fromkeys(found))
        assert found == datas


def counting(rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Endless (key, data): data count up."""
    number = 0
    while True:
        yield rng.choice(KEYS), b"%d" % number
        number += 1


def refuse(local: LocalKinesis, share: float = 0.1, code: str | None = None) -> None:
    local.faults.add(Fault(how="partial", operation="PutRecords", share=share, seed=7, code=code))


@BOTH
async def test_ordered_by_key_with_10_percent_random_refusals(local: LocalKinesis, aggregation: bool) -> None:
    refuse(local)
    rng = random.Random(1)
    source = counting(rng)
    expected: dict[str, list[bytes]] = {key: [] for key in KEYS}
    options = quick(ordered_by_key=True, aggregation=aggregation, aggregate_bytes_max=300)
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=options) as producer:
        waiting: list[Any] = []
        for _ in range(60):
            some = [next(source) for _ in range(rng.randrange(1, 60))]
            for key, data in some:
                expected[key].append(data)
            way = rng.randrange(4)
            if way == 0:
                waiting.append(await producer.put_many(some))
            elif way == 1:
                waiting.append(await producer.put_many([OutRecord(data, key) for key, data in some]))
            elif way == 2:
                waiting += [producer.put_nowait(OutRecord(data, key)) for key, data in some]
            else:
                for key, data in some[:-1]:
                    waiting.append(producer.put_nowait(OutRecord(data, key)))
                await producer.put(OutRecord(some[-1][1], some[-1][0]))
        await producer.flush()
        counts = producer.metrics()
        assert all(one.done() for one in waiting)
    assert counts.user_records_put == counts.user_records_accepted == sum(map(len, expected.values()))
    assert counts.records_refused > 10
    content = await read_all(local)
    assert set(content.counts().values()) == {1}
    assert_in_order(content, expected)


@BOTH
def test_ordered_by_key_with_10_percent_random_refusals_in_threads(local: LocalKinesis, aggregation: bool) -> None:
    refuse(local)
    source = counting(random.Random(2))
    expected: dict[str, list[bytes]] = {key: [] for key in KEYS}
    options = quick(ordered_by_key=True, aggregation=aggregation, aggregate_bytes_max=300)
    with SyncProducer[OutRecord](STREAM, connection=wire_of(local), options=options) as producer:
        for turn in range(40):
            some = [next(source) for _ in range(25)]
            for key, data in some:
                expected[key].append(data)
            if turn % 2:
                producer.put_many(some)
            else:
                handles = [producer.put_nowait(OutRecord(data, key)) for key, data in some]
                handles[-1].result()
    content = read_sync(local)
    assert set(content.counts().values()) == {1}
    assert_in_order(content, expected)


@BOTH
async def test_order_with_refusals_of_all_kinds(local: LocalKinesis, aggregation: bool) -> None:
    """Failed entries, whole requests throttled, failed and lost: repeats are possible, another order is not."""
    refuse(local, code="InternalFailure")
    for seed, how in enumerate(("throttle", "server_error", "reset", "lost_reply")):
        local.faults.add(Fault(how=how, operation="PutRecords", probability=0.05, seed=seed))  # type: ignore[arg-type]
    source = counting(random.Random(3))
    expected: dict[str, list[bytes]] = {key: [] for key in KEYS}
    options = quick(ordered_by_key=True, aggregation=aggregation, aggregate_bytes_max=300)
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=options) as producer:
        for _ in range(40):
            some = [next(source) for _ in range(25)]
            for key, data in some:
                expected[key].append(data)
            await producer.put_many(some)
        await producer.flush()
        assert producer.metrics().user_records_put == 1_000
    assert_in_order(await read_all(local), expected, repeats=True)


def puts_more(producer: Producer[OutRecord]) -> Callable[[], bool]:
    """True once more is put than when this was called."""
    done = producer.metrics().user_records_put
    return lambda: producer.metrics().user_records_put > done


@BOTH
async def test_order_through_a_split_and_a_merge(local: LocalKinesis, aggregation: bool) -> None:
    refuse(local)
    source = counting(random.Random(4))
    expected: dict[str, list[bytes]] = {key: [] for key in KEYS}
    options = quick(ordered_by_key=True, aggregation=aggregation, aggregate_bytes_max=300)
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=options) as producer:
        for turn in range(60):
            some = [next(source) for _ in range(25)]
            for key, data in some:
                expected[key].append(data)
            await producer.put_many(some)
            if turn == 15:
                await split(local, "shardId-000000000000", (HASH_KEY_MAX + 1) // 8)
            if turn == 30:
                await merge(local, "shardId-000000000002", "shardId-000000000003")
            if turn % 5 == 0:
                await until(puts_more(producer))
        await producer.flush()
    content = await read_all(local)
    assert_in_order(content, expected, repeats=True)
    if not aggregation:
        assert set(content.counts().values()) == {1}


async def test_without_order_a_refusal_holds_up_no_other_record(local: LocalKinesis) -> None:
    """The promise is per key and costs something: without the option a later record passes one that is refused."""
    fault = local.faults.add(Fault(how="partial", operation="PutRecords", shard="shardId-000000000000", count=1))
    quarter = (HASH_KEY_MAX + 1) // 4
    options = quick(retry_base_s=2.0, retry_cap_s=2.0, request_records_max=1)
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=options, rng=random.Random(1)
    ) as producer:
        first = producer.put_nowait(OutRecord(b"first", "key", quarter - 1))
        await until(lambda: fault.hits)
        second = producer.put_nowait(OutRecord(b"second", "key", quarter - 1))
        one, two = await asyncio.gather(first, second)
    assert (one.attempts, two.attempts) == (2, 1)
    assert one.sequence_number > two.sequence_number
