"""A stream under test."""

from __future__ import annotations

import time
from typing import Any

ACTIVE_TIMEOUT_S = 30.0


class Stream:
    """A stream under test."""

    def __init__(self, client: Any, name: str) -> None:
        self.client = client
        self.name = name

    def wait(self) -> dict[str, Any]:
        """Wait until it is ACTIVE; its description."""
        deadline = time.monotonic() + ACTIVE_TIMEOUT_S
        while time.monotonic() < deadline:
            answer = self.client.describe_stream_summary(StreamName=self.name)
            summary: dict[str, Any] = answer["StreamDescriptionSummary"]
            if summary["StreamStatus"] == "ACTIVE":
                return summary
            time.sleep(0.02)
        raise AssertionError(f"{self.name} is not ACTIVE after {ACTIVE_TIMEOUT_S} s")

    def put(self, *payloads: bytes, key: str = "k", hash_key: int | None = None) -> list[dict[str, Any]]:
        """PutRecords; the entries of the answer."""
        entry: dict[str, Any] = {"PartitionKey": key}
        if hash_key is not None:
            entry["ExplicitHashKey"] = str(hash_key)
        answer = self.client.put_records(
            StreamName=self.name, Records=[entry | {"Data": payload} for payload in payloads]
        )
        assert answer.get("FailedRecordCount", 0) == 0
        taken: list[dict[str, Any]] = answer["Records"]
        return taken

    def shards(self, **more: Any) -> list[dict[str, Any]]:
        """ListShards, one page."""
        shards: list[dict[str, Any]] = self.client.list_shards(StreamName=self.name, **more)["Shards"]
        return shards

    def open_shards(self) -> list[str]:
        return [
            shard["ShardId"] for shard in self.shards() if not shard["SequenceNumberRange"].get("EndingSequenceNumber")
        ]

    def iterator(self, shard: str, kind: str = "TRIM_HORIZON", **more: Any) -> str:
        made = self.client.get_shard_iterator(StreamName=self.name, ShardId=shard, ShardIteratorType=kind, **more)[
            "ShardIterator"
        ]
        return str(made)

    def page(self, shard: str, kind: str = "TRIM_HORIZON", **more: Any) -> dict[str, Any]:
        """The first page from there."""
        page: dict[str, Any] = self.client.get_records(ShardIterator=self.iterator(shard, kind, **more))
        return page

    def read(self, shard: str, pages_max: int = 200) -> list[dict[str, Any]]:
        """All records of a shard from its beginning: to its end, or until nothing more is there."""
        records: list[dict[str, Any]] = []
        iterator: str | None = self.iterator(shard)
        for _ in range(pages_max):
            page = self.client.get_records(ShardIterator=iterator)
            records += page["Records"]
            iterator = page.get("NextShardIterator")
            if iterator is None or (not page["Records"] and not page["MillisBehindLatest"]):
                return records
        raise AssertionError(f"no end after {pages_max} pages")
