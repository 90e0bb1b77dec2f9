"""What the tests of the service model share: a service with a clock that they move."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import pytest

from shardway.local.model import KinesisModel, Limits, ModelError

START_S = 1_700_000_000.25
HASH_KEYS = 2**128


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def shard_id(index: int) -> str:
    return f"shardId-{index:012d}"


class World:
    """A service model, its clock, its journal."""

    def __init__(self, *, limits: Limits | None = None, settle_s: float = 0.0, shard_quota: int = 500) -> None:
        self.now = START_S
        self.journal: list[tuple[Any, ...]] = []
        self.model = KinesisModel(
            clock=lambda: self.now,
            rng=random.Random(7),
            limits=limits,
            stream_settle_s=settle_s,
            shard_quota=shard_quota,
        )
        self.model.keep_in(self.journal.append)

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def call(self, operation: str, /, **request: Any) -> Any:
        answer = self.model.handle(operation, json.dumps(request).encode())
        return json.loads(answer) if answer else None

    def fails(self, operation: str, /, **request: Any) -> ModelError:
        with pytest.raises(ModelError) as caught:
            self.call(operation, **request)
        return caught.value

    def create(self, name: str = "s", shards: int = 1, **more: Any) -> str:
        """A new stream; its ARN."""
        self.call("CreateStream", StreamName=name, ShardCount=shards, **more)
        return str(self.summary(name)["StreamARN"])

    def summary(self, name: str = "s") -> Any:
        return self.call("DescribeStreamSummary", StreamName=name)["StreamDescriptionSummary"]

    def put(self, data: bytes = b"x", key: str = "k", stream: str = "s", **more: Any) -> Any:
        return self.call("PutRecord", StreamName=stream, Data=b64(data), PartitionKey=key, **more)

    def put_many(self, records: list[tuple[bytes, str]], stream: str = "s") -> Any:
        entries = [{"Data": b64(data), "PartitionKey": key} for data, key in records]
        return self.call("PutRecords", StreamName=stream, Records=entries)

    def iterator(self, kind: str = "TRIM_HORIZON", shard: int = 0, stream: str = "s", **more: Any) -> str:
        request = {"StreamName": stream, "ShardId": shard_id(shard), "ShardIteratorType": kind, **more}
        return str(self.call("GetShardIterator", **request)["ShardIterator"])

    def get(self, iterator: str, **more: Any) -> Any:
        return self.call("GetRecords", ShardIterator=iterator, **more)

    def read(self, kind: str = "TRIM_HORIZON", shard: int = 0, stream: str = "s", **more: Any) -> list[bytes]:
        """The data from there to the shard's present end."""
        iterator: str | None = self.iterator(kind, shard, stream, **more)
        found: list[bytes] = []
        behind_ms = float("inf")
        while iterator is not None:
            page = self.get(iterator)
            found += [base64.b64decode(record["Data"]) for record in page["Records"]]
            nearer = page["Records"] or 0 < page["MillisBehindLatest"] < behind_ms  # not at a trimmed number
            behind_ms = page["MillisBehindLatest"]
            iterator = page.get("NextShardIterator") if nearer else None
        return found

    def shards(self, stream: str = "s", **more: Any) -> list[Any]:
        return list(self.call("ListShards", StreamName=stream, **more)["Shards"])

    def ids(self, stream: str = "s", **more: Any) -> list[int]:
        """The indexes of the listed shards."""
        return [int(shard["ShardId"][-12:]) for shard in self.shards(stream, **more)]

    def split(self, index: int = 0, at: int | None = None, stream: str = "s") -> None:
        """Split a shard, in the middle if nothing else is said."""
        shard = next(s for s in self.shards(stream) if s["ShardId"] == shard_id(index))
        ends = shard["HashKeyRange"]
        middle = (int(ends["StartingHashKey"]) + int(ends["EndingHashKey"]) + 1) // 2 if at is None else at
        self.call("SplitShard", StreamName=stream, ShardToSplit=shard_id(index), NewStartingHashKey=str(middle))

    def merge(self, lower: int, upper: int, stream: str = "s") -> None:
        self.call(
            "MergeShards",
            StreamName=stream,
            ShardToMerge=shard_id(lower),
            AdjacentShardToMerge=shard_id(upper),
        )
