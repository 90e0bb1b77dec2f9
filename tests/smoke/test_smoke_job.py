"""A job of one folder on each PySpark: its dead letters come with the write, also where no good row is left of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardway.aws.kinesis.shapes import PutEntry
from shardway.pipeline.job.batch.observations import ObservedNumbers, WatchedBatch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "pipeline" / "job"))

from tests.pipeline.job.job_running import HEAD, JSON, ONCE, World, order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.querying import Stream

UNIQUE = '[deduplicate]\nkeys = ["value.order_id"]\nwindow = "1 hour"\n'
SINK = '[[sinks]]\nformat = "parquet"\npath = "{folder}/orders"\n'


@pytest.mark.parametrize("lies", ["", 'key = "order_id"\n', 'partition_by = ["hour"]\nkey = "partition_key"\n'])
def test_the_write_tells_what_was_set_apart(
    spark: SparkSession, stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lies: str
) -> None:
    """With a key rows go through a shuffle, which Spark takes out of the plan, with all before it, if none comes."""
    told: list[ObservedNumbers | None] = []
    watched: Any = WatchedBatch.told

    def noting(self: WatchedBatch, *, once: bool) -> ObservedNumbers | None:
        told.append(watched(self, once=once))
        return told[-1]

    monkeypatch.setattr(WatchedBatch, "told", noting)
    world = World(spark, stream.local, tmp_path)

    def run_behind(*data: bytes) -> tuple[str, int]:
        stream.put_entries([PutEntry(one, f"key-{number}") for number, one in enumerate(data)])
        stream.local.clock.advance(3.0)
        ended = world.run(HEAD + JSON + UNIQUE + SINK + lies + ONCE)
        return ended.errors, ended.summary["dead_letters"]

    assert run_behind(order(1), order(2), b"no json") == ("", 1)
    assert run_behind(order(1), b"neither", order(3, "x")) == ("", 2)  # a duplicate, and what cannot be decoded
    with_rows = [(one.rows, one.dead) for one in told if one is not None and one.rows]
    assert with_rows == [(3, 1), (2, 2)]
    assert None not in told
    assert world.rows("orders", "order_id") == [("order-1",), ("order-2",)]
    assert len(world.rows("dead", "reason")) == 3
