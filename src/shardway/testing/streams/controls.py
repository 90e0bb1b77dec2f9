"""What a test does with a stream, wherever that is: put, split, merge, and look at what is in it."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.core.log.user_records import ShardView, opened
from shardway.model import HASH_KEY_MAX
from shardway.testing.streams.given import out_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.model import Record
    from shardway.testing.streams.given import Given

PUT_MAX = 500


class Put(NamedTuple):
    """The place where a record was written."""

    shard_id: str
    sequence_number: int


class _RawRecord(NamedTuple):
    """A record as GetRecords returns it."""

    data: bytes
    sequence_number: str
    approximate_arrival_timestamp: float
    partition_key: str | None


class StreamControls:
    """Does what a test wants with a stream, in memory or on a server: ``ask(operation, request)`` makes one call."""

    def __init__(self, name: str, ask: Callable[[str, dict[str, Any]], Any]) -> None:
        self.name = name
        self._ask = ask

    def put(self, *records: Given, key: str | None = None, shard: str | None = None) -> list[Put]:
        """Write records, in this order. ``key``: the partition key of all of them; ``shard``: where they are to go."""
        where: dict[str, Any] = {}
        if shard is not None:
            where["ExplicitHashKey"] = self._shard(shard)["HashKeyRange"]["StartingHashKey"]
        entries = []
        for given in records:
            record = out_record(given, key)
            hash_key = record.explicit_hash_key
            entries.append(
                {
                    "Data": base64.b64encode(record.data).decode(),
                    "PartitionKey": record.partition_key,
                    **({} if hash_key is None else {"ExplicitHashKey": str(hash_key)}),
                    **where,
                }
            )
        found = []
        for start in range(0, len(entries), PUT_MAX):
            answer = self._call("PutRecords", Records=entries[start : start + PUT_MAX])
            for result in answer["Records"]:
                if "SequenceNumber" not in result:
                    raise RuntimeError(f"{self.name} refused a record: {result['ErrorMessage']}")
                found.append(Put(result["ShardId"], int(result["SequenceNumber"])))
        return found

    def shards(self) -> list[str]:
        """Return the ids of the shards that are open, in the order of their hash ranges."""
        return [one["ShardId"] for one in sorted(self._list_shards(), key=_first_hash_key) if _is_open(one)]

    def split(self, shard: str | None = None) -> list[str]:
        """End a shard (the only one, or this one), which goes on as two. Return the ids of these."""
        ended = self._shard(shard)
        before = self.shards()
        first, last = _first_hash_key(ended), int(ended["HashKeyRange"]["EndingHashKey"])
        self._call("SplitShard", ShardToSplit=ended["ShardId"], NewStartingHashKey=str(first + (last - first) // 2 + 1))
        return [one for one in self.shards() if one not in before]

    def merge(self, left: str, right: str) -> str:
        """End two neighbours, which go on as one. Return its id."""
        before = self.shards()
        self._call("MergeShards", ShardToMerge=left, AdjacentShardToMerge=right)
        return next(one for one in self.shards() if one not in before)

    def records(self) -> list[Record]:
        """Return all that is in the stream, also out of aggregates; shard by shard, each in its order."""
        found: list[Record] = []
        for shard in self._list_shards():
            begin = self._ask(
                "GetShardIterator",
                {"StreamName": self.name, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"},
            )
            iterator = begin["ShardIterator"]
            view = ShardView(self.name, shard["ShardId"], 0, HASH_KEY_MAX)
            while iterator is not None:
                page = self._ask("GetRecords", {"ShardIterator": iterator})
                found += opened(view, [_raw(record) for record in page["Records"]]).records
                iterator = page.get("NextShardIterator") if page["Records"] or page["MillisBehindLatest"] else None
        return found

    def _shard(self, shard_id: str | None) -> Any:
        listed = [one for one in self._list_shards() if _is_open(one)]
        if shard_id is None and len(listed) == 1:
            return listed[0]
        for one in listed:
            if one["ShardId"] == shard_id:
                return one
        open_ids = ", ".join(one["ShardId"] for one in listed)
        what = "say which shard" if shard_id is None else f"there is no open shard {shard_id}"
        raise ValueError(f"{self.name}: {what}; open are {open_ids}")

    def _list_shards(self) -> list[Any]:
        listed: list[Any] = self._call("ListShards")["Shards"]
        return listed

    def _call(self, operation: str, **request: Any) -> Any:
        return self._ask(operation, {"StreamName": self.name, **request})


def _first_hash_key(shard: Any) -> int:
    return int(shard["HashKeyRange"]["StartingHashKey"])


def _is_open(shard: Any) -> bool:
    return "EndingSequenceNumber" not in shard["SequenceNumberRange"]


def _raw(record: Any) -> _RawRecord:
    return _RawRecord(
        base64.b64decode(record["Data"]),
        record["SequenceNumber"],
        record["ApproximateArrivalTimestamp"],
        record.get("PartitionKey"),
    )
