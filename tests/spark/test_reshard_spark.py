"""A backlog across reshards: all task slots at work, and no row that a watermark calls late."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardway.aws.kinesis.shapes import PutEntry
from tests.spark.querying import Batches, Stream, reader, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Tasks:
    """When each task of a batch ran, noted by the tasks themselves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def take(self, frame, batch_id: int) -> None:  # type: ignore[no-untyped-def]
        folder = str(self.folder)

        def note(rows):  # type: ignore[no-untyped-def]
            import time
            import uuid

            began = time.time()
            shards: dict[str, int] = {}
            for row in rows:
                shards[row.shard_id] = shards.get(row.shard_id, 0) + 1
            said = {"batch": batch_id, "began": began, "ended": time.time(), "shards": shards}
            if shards:
                Path(folder, uuid.uuid4().hex).write_text(json.dumps(said))

        frame.select("shard_id").foreachPartition(note)

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in self.folder.iterdir()]


@pytest.mark.slow
@pytest.mark.parametrize("stream", [8], indirect=True)
def test_a_backlog_across_a_reshard_keeps_the_slots_busy(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    """8 -> 16 shards with data before and after; on two slots two tasks run at the same time for most of it."""
    for _ in range(40):
        stream.put(400, size=10_000)
        stream.settle(1)
    stream.call("UpdateShardCount", TargetShardCount=16, ScalingType="UNIFORM_SCALING")
    stream.settle(1)
    for _ in range(40):
        stream.put(400, size=10_000)
        stream.settle(1)
    stream.settle()
    tasks = Tasks(tmp_path / "tasks")
    tasks.folder.mkdir()
    query = start(reader(spark, stream), tmp_path / "checkpoint", tasks, availableNow=True)  # type: ignore[arg-type]
    try:
        assert query.awaitTermination(200)
    finally:
        query.stop()
    ran = tasks.read()
    rows = sum(sum(task["shards"].values()) for task in ran)
    assert rows == len(stream.written)
    for batch in sorted({task["batch"] for task in ran}):
        mine = [task for task in ran if task["batch"] == batch]
        spans = sorted((task["began"], task["ended"]) for task in mine)
        busy = sum(ended - began for began, ended in spans)
        took = max(ended for _, ended in spans) - spans[0][0]
        shards = sum(len(task["shards"]) for task in mine)
        print(f"\nbatch {batch}: {len(mine)} tasks, {shards} shards, {busy / took:.2f} slots busy for {took:.1f} s")
        assert len(mine) >= 4
        assert busy / took > 1.2


@pytest.mark.slow
def test_a_deduplication_over_three_generations_drops_nothing_as_late(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    """An hour of records over three reshards, a watermark of a minute, small batches: no row is late, repeats go."""
    number = 0
    for act in (stream.split, stream.merge, stream.split, None):
        for _ in range(5):
            entries = [PutEntry(b"%06d" % (number + n), f"key-{n % 50}") for n in range(100)]
            stream.put_entries(entries + entries[:20])
            number += 100
            stream.settle(180)
        if act is not None:
            act(0)
    stream.settle(60)
    batches = Batches()
    frame = reader(spark, stream, maxRecordsPerTrigger="150").withWatermark("approximate_arrival_timestamp", "1 minute")
    query = start(frame.dropDuplicatesWithinWatermark(["data"]), tmp_path / "checkpoint", batches, availableNow=True)
    try:
        assert query.awaitTermination(200)
        late = [
            operator["numRowsDroppedByWatermark"]
            for progress in query.recentProgress
            for operator in progress["stateOperators"]
        ]
    finally:
        query.stop()
    print(f"\n{len(batches.sizes())} batches over three generations, late rows {sum(late)}")
    assert sum(late) == 0
    assert sorted(row.data for row in batches.all_rows()) == [b"%06d" % n for n in range(number)]
