"""A batch that runs again gives the same rows: a second action, a restart, across reshards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.querying import Stream, assert_exact, by_shard, forget_last_commit, rewind, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def run_twice(spark: SparkSession, stream: Stream, checkpoint: Path, **options: str) -> None:
    """Runs a query, takes its newest batch's commit away, lets more happen, runs it again, compares that batch."""
    first = run(spark, stream, checkpoint, actions=2, **options)
    for actions in first.rows.values():
        assert by_shard(actions[0]) == by_shard(actions[1])
    batch_id = forget_last_commit(checkpoint)
    stream.put(50)
    stream.split(0)
    stream.put(50)
    stream.settle()
    again = run(spark, stream, checkpoint, actions=2, **options)
    assert by_shard(again.rows[batch_id][0]) == by_shard(first.rows[batch_id][0])
    for actions in again.rows.values():
        assert by_shard(actions[0]) == by_shard(actions[1])
    assert_exact(stream, [row for rows in ({**first.rows, **again.rows}).values() for row in rows[0]])


def test_batch_zero_runs_again(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    stream.put(500)
    stream.settle()
    run_twice(spark, stream, tmp_path / "checkpoint")


def test_a_later_batch_runs_again(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    stream.put(300)
    stream.settle()
    before = run(spark, stream, tmp_path / "checkpoint")
    assert_exact(stream, before.all_rows())
    stream.written.clear()
    stream.put(300)
    stream.settle()
    run_twice(spark, stream, tmp_path / "checkpoint")


def test_a_batch_across_a_split_runs_again(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    stream.put(200)
    stream.split(1)
    stream.put(200)
    stream.settle()
    run_twice(spark, stream, tmp_path / "checkpoint")


@pytest.mark.slow
def test_a_batch_inside_a_backlog_of_three_generations_runs_again(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    """Split, merge of the halves (a diamond), split again; batches so small that one begins in the middle of it."""
    for act in (stream.split, stream.merge, stream.split):
        for _ in range(4):
            stream.put(100)
            stream.settle(1)
        act(0)
    stream.put(400)
    stream.settle()
    checkpoint = tmp_path / "checkpoint"
    first = run(spark, stream, checkpoint, maxRecordsPerTrigger="150")
    assert len(first.rows) >= 6
    assert_exact(stream, first.all_rows())
    generations = [{row.shard_id for row in rows[0]} for rows in first.rows.values()]
    inside = [number for number, shards in enumerate(generations) if shards & {"shardId-000000000004"}]
    for batch_id in (inside[0], inside[-1]):
        copy = rewind(checkpoint, tmp_path / f"from-{batch_id}", batch_id)
        again = run(spark, stream, copy, maxRecordsPerTrigger="150")
        assert by_shard(again.rows[batch_id][0]) == by_shard(first.rows[batch_id][0])
        assert min(again.rows) == batch_id
        before = [row for number in range(batch_id) for row in first.rows[number][0]]
        assert_exact(stream, before + again.all_rows())


def test_latest_stays_where_it_was_first_pinned(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    stream.put(100)
    stream.settle()
    stream.written.clear()
    checkpoint = tmp_path / "checkpoint"
    empty = run(spark, stream, checkpoint, startingPosition="LATEST")
    assert empty.all_rows() == []
    stream.put(80)
    stream.settle()
    rows = run(spark, stream, checkpoint, startingPosition="LATEST").all_rows()
    assert_exact(stream, rows)


def test_parents_come_before_their_children_also_in_one_batch(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    stream.put(300, keys=20)
    stream.split(0)
    stream.put(300, keys=20)
    stream.settle()
    batches = run(spark, stream, tmp_path / "checkpoint")
    assert len(batches.sizes()) == 1
    seen: dict[str, bytes] = {}
    for row in batches.all_rows():
        assert row.data > seen.get(row.partition_key, b"")
        seen[row.partition_key] = row.data
    assert_exact(stream, batches.all_rows())
