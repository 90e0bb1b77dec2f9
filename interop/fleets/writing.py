"""Numbered records into the stream, at a steady rate, each key's in order; and what is asked of the stream besides."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

KEYS = 64
"""Record n has the key n modulo this."""
PORTIONS_PER_S = 10


class Writer:
    """Writes 0, 1, 2 … from a thread of its own, one request at a time, until it is stopped."""

    def __init__(self, kinesis: Any, stream: str, *, records_per_s: int) -> None:
        self.written = 0
        """All below are in the stream."""
        self._kinesis = kinesis
        self._stream = stream
        self._portion = records_per_s // PORTIONS_PER_S
        self._stop = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, count: int) -> None:
        """Write so many at once, before it is started."""
        for _ in range(count // self._portion):
            self._put()

    def stop(self) -> int:
        """How many were written. Raises what kept it from writing."""
        self._stop.set()
        self._thread.join()
        if self._fault is not None:
            raise self._fault
        return self.written

    def _run(self) -> None:
        try:
            while not self._stop.wait(1 / PORTIONS_PER_S):
                self._put()
        except BaseException as fault:
            self._fault = fault

    def _put(self) -> None:
        numbers = range(self.written, self.written + self._portion)
        records = [{"Data": b"%d" % n, "PartitionKey": f"key-{n % KEYS}"} for n in numbers]
        answer = self._kinesis.put_records(StreamName=self._stream, Records=records)
        assert answer["FailedRecordCount"] == 0, "the local Kinesis refused records"
        self.written = numbers.stop


def open_shards(kinesis: Any, stream: str) -> list[dict[str, Any]]:
    """In the order of their hash ranges."""
    shards = kinesis.list_shards(StreamName=stream)["Shards"]
    found = [one for one in shards if "EndingSequenceNumber" not in one["SequenceNumberRange"]]
    return sorted(found, key=lambda one: int(one["HashKeyRange"]["StartingHashKey"]))


def split_first(kinesis: Any, stream: str) -> None:
    """Split the first open shard into halves."""
    first = open_shards(kinesis, stream)[0]
    low, high = (int(first["HashKeyRange"][end]) for end in ("StartingHashKey", "EndingHashKey"))
    kinesis.split_shard(StreamName=stream, ShardToSplit=first["ShardId"], NewStartingHashKey=str((low + high) // 2 + 1))
    _until(lambda: kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]["StreamStatus"])


def merge_last(kinesis: Any, stream: str) -> None:
    """Merge the last two open shards."""
    left, right = open_shards(kinesis, stream)[-2:]
    kinesis.merge_shards(StreamName=stream, ShardToMerge=left["ShardId"], AdjacentShardToMerge=right["ShardId"])
    _until(lambda: kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]["StreamStatus"])


def _until(status: Callable[[], str], *, deadline_s: float = 30.0) -> None:
    end_s = time.monotonic() + deadline_s
    while status() != "ACTIVE":
        assert time.monotonic() < end_s, f"the stream is not active after {deadline_s:g} s"
        time.sleep(0.05)
