"""A test has a stream in its hands here: in memory, or in a local Kinesis, which programs reach over HTTP.

A stream in memory is the local Kinesis's model of the service, asked directly.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from shardway.aws.calls.answers import error_class
from shardway.aws.kinesis import KinesisClient
from shardway.aws.options import ConnectionOptions, Credentials
from shardway.aws.record_source import KinesisSource
from shardway.core.ledger.letter import Letter, NotALetterError
from shardway.core.log.user_records import ShardView, opened
from shardway.core.service_clock import ServiceClock
from shardway.local.model import KinesisModel, Limits, ModelError
from shardway.model import HASH_KEY_MAX, OutRecord, Position, Record, StreamName
from shardway.tasks import wait_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from shardway.core.log.pages import ReadPage
    from shardway.local import LocalKinesis

# --- records --------------------------------------------------------------------------------------
# Tests give records as values of Python, or as lines of a file.

Given: TypeAlias = "bytes | str | Mapping[str, Any] | Sequence[Any] | OutRecord | Record"
"""A record as a test gives it: bytes as they are, a text in UTF-8, anything else as JSON; or a record with its keys."""

KEY = "key"
"""The partition key of records that are given without one."""


def out_record(given: Given, key: str | None = None) -> OutRecord:
    """Return a record to be put. ``key`` goes before the key that the record has."""
    if isinstance(given, OutRecord):
        return OutRecord(given.data, key or given.partition_key, given.explicit_hash_key)
    if isinstance(given, Record):
        return OutRecord(given.data, key or given.partition_key or KEY, given.explicit_hash_key)
    if isinstance(given, str):
        given = given.encode()
    data = given if isinstance(given, bytes) else json.dumps(given).encode()
    return OutRecord(data, key or KEY)


def records_of_file(path: Path | str, *, key: str | None = None) -> Iterator[OutRecord]:
    """Yield a record of each line: the record that a dead letter holds, or else the line itself.

    ``key`` names the field of JSON that is the partition key, as ``shardway put --format jsonl --key`` does: a path
    with dots. Raises ValueError, with the line's number, for a line that has none, and for a letter without its data.
    """
    for number, line in enumerate(Path(path).read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            letter = Letter.from_json(line)
        except NotALetterError:
            yield OutRecord(line, KEY if key is None else _field(line, key, f"{path}, line {number}"))
            continue
        record = letter.record()
        if record is None:
            raise ValueError(f"{path}, line {number}: the dead letter does not hold its record's data")
        yield out_record(record)


def _field(line: bytes, path: str, where: str) -> str:
    try:
        value = json.loads(line)
        for name in path.split("."):
            value = value[name]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{where}: it has no field {path}") from None
    return str(value)


# --- in memory ------------------------------------------------------------------------------------

PUT_MAX = 500
EMPTY_READ_S = 5.0
"""Seconds that a read waits where nothing is: well within the five minutes for which an iterator is good."""


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
        return [one["ShardId"] for one in sorted(self._listed(), key=_first) if _is_open(one)]

    def split(self, shard: str | None = None) -> list[str]:
        """End a shard (the only one, or this one), which goes on as two. Return the ids of these."""
        ended = self._shard(shard)
        before = self.shards()
        first, last = _first(ended), int(ended["HashKeyRange"]["EndingHashKey"])
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
        for shard in self._listed():
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
        listed = [one for one in self._listed() if _is_open(one)]
        if shard_id is None and len(listed) == 1:
            return listed[0]
        for one in listed:
            if one["ShardId"] == shard_id:
                return one
        open_ids = ", ".join(one["ShardId"] for one in listed)
        what = "say which shard" if shard_id is None else f"there is no open shard {shard_id}"
        raise ValueError(f"{self.name}: {what}; open are {open_ids}")

    def _listed(self) -> list[Any]:
        listed: list[Any] = self._call("ListShards")["Shards"]
        return listed

    def _call(self, operation: str, **request: Any) -> Any:
        return self._ask(operation, {"StreamName": self.name, **request})


class MemoryStream(StreamControls):
    """A stream of this process, for `TestConsumer`. Its clock is the event loop's, whose time can be let pass."""

    def __init__(self, name: str = "orders", *, shards: int = 1, seed: int = 0) -> None:
        super().__init__(name, self._answer)
        self.model = KinesisModel(clock=self.now_s, rng=random.Random(seed), limits=Limits(per_shard=False))
        self._began: tuple[float, float] | None = None
        self._last_s = time.time()
        self._call("CreateStream", ShardCount=shards)
        self.changes = 0
        """A count that grows with all that is done to the stream."""
        self._waiting: set[asyncio.Event] = set()

    def source(self) -> KinesisSource:
        """Return the stream as a consumer reads it."""
        return _MemorySource(self)

    async def changed(self, seconds_max: float) -> None:
        """Wait until something is done to the stream, or for ``seconds_max``."""
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            await wait_set(event, seconds_max)
        finally:
            self._waiting.discard(event)

    def ends(self) -> dict[str, Position]:
        """Return the position of the last record of each shard that has one."""
        return {
            record.shard_id: Position(record.sequence_number, record.sub_sequence_number) for record in self.records()
        }

    def _answer(self, operation: str, request: dict[str, Any]) -> Any:
        answer = self.model.handle(operation, json.dumps(request).encode())
        if operation in ("PutRecords", "SplitShard", "MergeShards"):
            self.changes += 1
            for event in self._waiting:
                event.set()
        return json.loads(answer) if answer else None

    def now_s(self) -> float:
        """Return the stream's time in epoch seconds: from the first look inside of a loop on, it goes as the loop's
        time.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return self._last_s if self._began else time.time()
        if self._began is None:
            self._began = (time.time(), loop.time())
        self._last_s = max(self._last_s, self._began[0] + loop.time() - self._began[1])
        return self._last_s


class _ModelWire:
    """Stands in for `shardway.aws.wire.Wire` before a client."""

    def __init__(self, model: KinesisModel, wall: Callable[[], float]) -> None:
        self.options = ConnectionOptions()
        self.region = model.region
        self.clock = ServiceClock()
        self.wall = wall
        self._model = model

    async def call(self, _service: str, operation: str, body: bytes, **_options: Any) -> bytes:
        """Make one call, which is answered at the loop's next turn."""
        await asyncio.sleep(0)
        try:
            return self._model.handle(operation, body)
        except ModelError as fault:
            raise error_class(fault.code, fault.status)(
                fault.code, fault.message or "", operation=operation, status=fault.status
            ) from None

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


class _MemorySource(KinesisSource):
    """`KinesisSource` without a connection. A read where nothing is waits for something to come."""

    def __init__(self, stream: MemoryStream) -> None:
        self._stream = StreamName(stream.name)
        self._client = KinesisClient(_ModelWire(stream.model, stream.now_s))  # type: ignore[arg-type]
        self._arn = None
        self._memory = stream

    @property
    def now_s(self) -> float:
        """The stream's time, in epoch seconds."""
        return self._memory.now_s()

    async def read(self, iterator: str, records_max: int) -> ReadPage:
        """See `RecordSource.read`."""
        before = self._memory.changes
        page = await super().read(iterator, records_max)
        at_tip = not page.records and page.millis_behind_latest == 0 and page.next_iterator is not None
        if at_tip and before == self._memory.changes:
            await self._memory.changed(EMPTY_READ_S)
        return page


def _first(shard: Any) -> int:
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


# --- in a local Kinesis ---------------------------------------------------------------------------
# A test has a stream of a local Kinesis in its hands here.

NAME_CHARACTERS_MAX = 128
"""The most characters of a stream's name (AWS API reference, CreateStream)."""


class ServedStream(StreamControls):
    """A stream that programs reach over HTTP, and that the test itself asks directly."""

    def __init__(self, local: LocalKinesis, name: str) -> None:
        super().__init__(name, lambda operation, request: _ask(local, operation, request))
        self.local = local
        """The local Kinesis that serves the stream."""

    @classmethod
    def create(cls, local: LocalKinesis, name: str, *, shards: int = 1) -> ServedStream:
        """Make a new stream."""
        _ask(local, "CreateStream", {"StreamName": name, "ShardCount": shards})
        return cls(local, name)

    @property
    def connection(self) -> ConnectionOptions:
        """The connection by which producers and consumers reach the stream, without the environment."""
        return ConnectionOptions(
            endpoint_url=self.local.endpoint_url,
            region=self.local.region,
            credentials=Credentials("local", "local"),
            ca_bundle=self.local.ca_file,
        )


def name_of_test(test: str) -> str:
    """Return a stream's name that is made of a test's name."""
    return re.sub(r"[^\w.-]+", "-", test, flags=re.ASCII).strip("-")[:NAME_CHARACTERS_MAX] or "stream"


def _ask(local: LocalKinesis, operation: str, request: dict[str, Any]) -> Any:
    answer = local.ask(operation, json.dumps(request).encode())
    return json.loads(answer) if answer else None
