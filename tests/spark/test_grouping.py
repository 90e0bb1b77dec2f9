from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardway.core.lineage import Lineage
from shardway.model import ListedShard
from shardway.spark.driver.grouping import TASK_BYTES, chains_of, pack_tasks, ranges_of, tasks_for
from shardway.spark.offsets import RangeStart, StreamOffset
from shardway.spark.positions import Kind, ShardPosition
from shardway.spark.ranges import EndKind

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"


def shard(number: int, *parents: int) -> ListedShard:
    return ListedShard(
        shard_id=f"shardId-{number:012d}",
        parents=tuple(f"shardId-{parent:012d}" for parent in parents),
        first_hash_key=number,
        last_hash_key=number + 10,
        first_sequence_number=0,
    )


def offset(spans_ms: dict[str, int], tasks: int = 1) -> StreamOffset:
    return StreamOffset(
        stream_arn=ARN,
        created_s=0,
        cut_ms=0,
        shards={s: ShardPosition(Kind.NEXT, 1_000_000 + span, 100) for s, span in spans_ms.items()},
        starts={s: RangeStart(10, 1_000_000) for s in spans_ms},
        tasks=tasks,
    )


def test_ranges_carry_both_ends_and_the_hash_keys() -> None:
    a, b, c = shard(0), shard(1), shard(2)
    batch = StreamOffset(
        stream_arn=ARN,
        created_s=0,
        cut_ms=0,
        shards={
            a.shard_id: ShardPosition(Kind.NEXT, 5_000, 20),
            b.shard_id: ShardPosition(Kind.AFTER, 6_000, 30),
            c.shard_id: ShardPosition(Kind.ENDED, 7_000),
            "shardId-000000000009": ShardPosition(Kind.SINCE, 1),
        },
        starts={s.shard_id: RangeStart(10, 4_999) for s in (a, b, c)},
    )
    ranges = ranges_of(batch, {s.shard_id: s for s in (a, b)}, at_risk_before_ms=4_999)
    assert [(r.end_kind, r.end_sequence_number) for r in ranges] == [
        (EndKind.EXCLUSIVE, 20),
        (EndKind.INCLUSIVE, 30),
        (EndKind.SHARD_END, None),
    ]
    assert [r.hash_range for r in ranges] == [(0, 10), (1, 11), None]
    assert {(r.first_sequence_number, r.first_arrival_s, r.at_risk) for r in ranges} == {(10, 4, False)}


def test_parents_and_children_of_one_batch_are_one_chain() -> None:
    shards = {s.shard_id: s for s in (shard(0), shard(1), shard(2, 0), shard(3, 0), shard(4, 2, 3), shard(5, 7))}
    ranges = ranges_of(offset(dict.fromkeys(shards, 1)), shards)
    chains = [[one.shard_id[-1] for one in chain] for chain in chains_of(ranges, Lineage(shards.values()))]
    assert chains == [["0", "2", "3", "4"], ["1"], ["5"]]


def test_a_grandchild_is_in_one_chain_also_when_its_parent_has_no_rows() -> None:
    shards = {s.shard_id: s for s in (shard(0), shard(1, 0), shard(2, 1))}
    batch = offset({"shardId-000000000000": 1, "shardId-000000000002": 1})
    chains = chains_of(ranges_of(batch, shards), Lineage(shards.values()))
    assert [[one.shard_id[-1] for one in chain] for chain in chains] == [["0", "2"]]


def test_a_shard_that_is_no_longer_listed_is_a_chain_of_its_own() -> None:
    ranges = ranges_of(offset({"shardId-000000000000": 1, "shardId-000000000001": 1}), {})
    assert [len(chain) for chain in chains_of(ranges, Lineage(()))] == [1, 1]


def test_small_batches_take_few_tasks() -> None:
    assert tasks_for(10, 500, 100) == 1
    assert tasks_for(10 * TASK_BYTES, 500, 100) == 10
    assert tasks_for(10 * TASK_BYTES, 3, 100) == 3
    assert tasks_for(1000 * TASK_BYTES, 500, 100) == 100
    assert tasks_for(0, 0, 100) == 1


@given(st.lists(st.integers(0, 100_000), min_size=1, max_size=60), st.integers(1, 20))
def test_packing_keeps_every_chain_once_and_is_the_same_again(spans: list[int], tasks: int) -> None:
    shards = {s.shard_id: s for s in map(shard, range(len(spans)))}
    batch = offset(dict(zip(shards, spans, strict=True)), tasks)
    chains = chains_of(ranges_of(batch, shards), Lineage(shards.values()))
    packed = pack_tasks(batch, chains)
    assert sorted(chain for task in packed for chain in task) == sorted(chains)
    assert len(packed) == min(tasks, len(chains))
    assert pack_tasks(batch, list(reversed(chains))) == packed
