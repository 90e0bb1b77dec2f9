"""What Spark queries leave behind: checkpoint directories, and rows in a lease table."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shardway.core.leases.mirror import NOTE, Create, MirroredRows
from shardway.core.lineage import Lineage
from shardway.model import ListedShard, StartingPosition
from shardway.spark.leases.lease_position import marks_of
from shardway.spark.offsets import StreamOffset
from shardway.spark.positions import Kind, ShardPosition

if TYPE_CHECKING:
    from pathlib import Path

    from shardway.core.leases import LeaseRow

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
SHARDS = ["shardId-000000000000", "shardId-000000000001"]
NUMBER = 49590338271490256608559692538361571095921575989136588898


def offset(cut_s: float, **changed: Any) -> StreamOffset:
    positions = {
        SHARDS[0]: ShardPosition(Kind.NEXT, round(cut_s * 1000), NUMBER),
        SHARDS[1]: ShardPosition(Kind.ENDED, round(cut_s * 1000)),
    }
    values = {"stream_arn": ARN, "created_s": 1, "cut_ms": round(cut_s * 1000), "shards": positions, **changed}
    return StreamOffset(**values)


def planned(folder: Path, number: int, began_s: float, *texts: str) -> None:
    (folder / "offsets").mkdir(parents=True, exist_ok=True)
    head = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": round(began_s * 1000), "conf": {}})
    path = folder / "offsets" / str(number)
    path.write_text("\n".join(["v1", head, *texts]))
    os.utime(path, (began_s, began_s))


def committed(folder: Path, number: int, at_s: float) -> None:
    (folder / "commits").mkdir(parents=True, exist_ok=True)
    path = folder / "commits" / str(number)
    path.write_text('v1\n{"nextBatchWatermarkMs":0}')
    os.utime(path, (at_s, at_s))


def text_of(found: StreamOffset) -> str:
    return json.dumps(found.to_dict())


def query_rows(cut_s: float) -> list[LeaseRow]:
    """As a query writes them for a stream of which one shard has ended."""
    half = 2**127
    lineage = Lineage(
        ListedShard(shard_id=name, first_hash_key=first, last_hash_key=first + half - 1, first_sequence_number=1)
        for name, first in zip(SHARDS, (0, half), strict=True)
    )
    marks = {one.shard_id: one for one in marks_of(offset(cut_s), lineage, StartingPosition("TRIM_HORIZON"))}
    held = MirroredRows([])
    held.want(marks.values())
    made = [step.row for step in held.steps() if isinstance(step, Create)]
    return [replace(row, others={NOTE: marks[row.key].note}) for row in made]  # as they are after the second round
