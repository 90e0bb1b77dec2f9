"""Records as a reader of the read model shows them, and pages of them."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from shardway.core.log.user_records import ShardView, UserRecords
from shardway.inspect.records.decoding import Decoded, decode, framing
from shardway.inspect.records.registries import opened_by
from shardway.model import Record
from shardway.waiting import next_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shardway.core.log.user_records import Inner
    from shardway.inspect.records.decoding import Step
    from shardway.inspect.records.registries import Registries
    from shardway.model import ListedShard, StreamName
    from shardway.payloads.registry_schemas import Schema


class SeenRecord:
    """A user record, and what is inside of it. What was decoded stays with it: a record of 16 KB may hold 100 MB so,
    and whatever keeps many records keeps those that were not decoded, or what it made of them.
    """

    def __init__(self, record: Record, opens: Callable[[Decoded], Decoded] | None = None) -> None:
        """``opens``: decodes what stands behind the framing of a schema registry."""
        self.record = record
        self._opens = opens

    @property
    def shard_id(self) -> str:
        """The shard that it was read from."""
        return self.record.shard_id

    @property
    def partition_key(self) -> str:
        """The record's partition key; empty where the record has none."""
        return self.record.partition_key or ""

    @property
    def data(self) -> bytes:
        """The record's data as it was put."""
        return self.record.data

    @property
    def arrived_at(self) -> dt.datetime:
        """The service's time at which the record arrived, in UTC."""
        return self.record.approximate_arrival_timestamp

    @cached_property
    def decoded(self) -> Decoded:
        """What is inside of the data."""
        found = decode(self.record.data)
        return found if self._opens is None else self._opens(found)

    def to_line(self, *, with_decoded: bool = False) -> RecordLine:
        """Return the record as a line of JSON, which ``shardway put --format records`` takes back byte for byte."""
        record, key = self.record, self.partition_key
        inner: Inner | None = None
        if record.aggregated:
            inner = (record.sub_sequence_number, key, record.explicit_hash_key, record.tags)
        line = _line(record.shard_id, str(record.sequence_number), inner, self.arrived_at, key, record.data)
        if not with_decoded:
            return line
        found = self.decoded
        steps = [msgspec.to_builtins(step) for step in found.steps]
        inside = {"value": found.value} if found.is_json else {"text": found.shown}
        return msgspec.structs.replace(line, decoded={"steps": steps, **inside})


class RecordLine(msgspec.Struct, frozen=True, kw_only=True):
    """A record as a line of JSON. It has either ``data``, where the data is UTF-8, or ``data_base64``."""

    shard_id: str
    sequence_number: str
    sub_sequence_number: int | msgspec.UnsetType = msgspec.UNSET
    """The record's index in its aggregate; unset where the record came out of none."""
    arrived_at: dt.datetime
    partition_key: str
    explicit_hash_key: str | msgspec.UnsetType = msgspec.UNSET
    """The explicit hash key, which is known of records out of aggregates alone: Kinesis does not return it."""
    data: str | msgspec.UnsetType = msgspec.UNSET
    data_base64: str | msgspec.UnsetType = msgspec.UNSET
    decoded: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """What is inside of the data; unset unless the caller asked for it."""


def _line(
    shard_id: str,
    number: str,
    inner: Inner | None,
    arrived_at: dt.datetime,
    key: str,
    data: bytes,
) -> RecordLine:
    """Return a record as a line. ``inner``: what the record's aggregate says of the record; None: it has none."""
    text, encoded = _texts(data)
    if inner is None:
        return RecordLine(
            shard_id=shard_id,
            sequence_number=number,
            arrived_at=arrived_at,
            partition_key=key,
            data=text,
            data_base64=encoded,
        )
    sub, key, explicit, _ = inner
    return RecordLine(
        shard_id=shard_id,
        sequence_number=number,
        sub_sequence_number=sub,
        arrived_at=arrived_at,
        partition_key=key,
        explicit_hash_key=msgspec.UNSET if explicit is None else str(explicit),
        data=text,
        data_base64=encoded,
    )


def _texts(data: bytes) -> tuple[str | msgspec.UnsetType, str | msgspec.UnsetType]:
    try:
        return data.decode(), msgspec.UNSET
    except UnicodeDecodeError:
        return msgspec.UNSET, base64.b64encode(data).decode()


class SeenPage:
    """User records of one shard that came together, in their order. A record is made when the caller looks at it."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self._opens: Callable[[Decoded], Decoded] | None = None

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[SeenRecord]:
        return (SeenRecord(record, self._opens) for record in self._records)

    async def open_by(self, registries: Registries) -> None:
        """Look up the schemas that the records' framings name. The records are decoded by them when the caller comes to
        each: a page that was decoded as a whole would take any amount of memory.
        """
        known: dict[tuple[str, str], Schema | None] = {}
        left = iter(self._records)
        # A framing may lie in layers that take seconds to open.
        while framings := await asyncio.to_thread(next_part, left, _framing_step):
            for step in framings:
                if step is not None and (key := (step.kind, step.schema_id or "")) not in known:
                    known[key] = await registries.schema(*key)
        self._opens = lambda found: opened_by(known, found)

    def lines(self, first: int = 0, end: int | None = None) -> list[RecordLine]:
        """Return what `SeenRecord.to_line` makes of each record from ``first`` up to ``end``, in less time."""
        records = self._records[first:end]
        if not isinstance(records, UserRecords):
            return [SeenRecord(record).to_line() for record in records]
        at, shard_id, found = dt.datetime.fromtimestamp, records.shard_id, []
        for raw, inner, data in records.columns():
            arrived_at = at(raw.approximate_arrival_timestamp, dt.UTC)
            # Some emulators pad their numbers with zeros.
            number, key = raw.sequence_number.lstrip("0") or "0", raw.partition_key or ""
            found.append(_line(shard_id, number, inner, arrived_at, key, data))
        return found


def _framing_step(record: Record) -> Step | None:
    return framing(record.data)


def view(stream: StreamName, shard: ListedShard) -> ShardView:
    """Return a shard as records are opened with."""
    return ShardView(stream.short, shard.shard_id, shard.first_hash_key, shard.last_hash_key)
