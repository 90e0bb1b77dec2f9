"""Open and read the data of rows in Spark's tasks, where Spark has no function for it: compressed data, and what
services of AWS put into a stream.

Rows come and go as Arrow batches. What a batch opens to may be a thousand times as large as the batch is, so it goes on
in pieces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa

from shardway.errors import PayloadError
from shardway.payloads.cloudwatch_logs import log_record
from shardway.payloads.dms import dms_text
from shardway.payloads.dynamodb_change import dynamodb_text
from shardway.payloads.opening import unpacked
from shardway.pipeline.service_schemas import CLOUDWATCH_LOGS, DMS, DYNAMODB_CHANGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shardway.payloads.opening import Compression


PIECE_BYTES = 16 * 1024 * 1024
"""The bytes that the records of a piece open to, from which on the piece is handed on."""
PIECE_ROWS = 10_000
NO_DATA = "there is no data"
_DATA = "data"
_TIME = pa.timestamp("us", tz="UTC")
_EVENT = pa.struct(
    [
        ("id", pa.string()),
        ("timestamp", _TIME),
        ("message", pa.string()),
        ("extracted_fields", pa.map_(pa.string(), pa.string())),
    ]
)


class ReadData(Protocol):
    """Makes something of a record's data."""

    @property
    def kind(self) -> pa.DataType:
        """The Arrow type of what is made."""

    def of(self, data: bytes) -> tuple[Any, int]:
        """Return what is made of the data, and how many bytes it opened to. Raises PayloadError, and a ValueError or
        ArithmeticError for what no value can be made of.
        """


class OpenedData(NamedTuple):
    """Opens compressed data."""

    compression: Compression
    opened_bytes_max: int
    kind: pa.DataType = pa.binary()

    def of(self, data: bytes) -> tuple[bytes, int]:
        """Return what is inside, and its size."""
        opened = unpacked(data, self.compression, opened_bytes_max=self.opened_bytes_max)
        return opened, len(opened)


class ServiceData(NamedTuple):
    """Reads what a service of AWS put into a stream."""

    format: str
    compression: Compression | None
    opened_bytes_max: int

    @property
    def kind(self) -> pa.DataType:
        """The Arrow type of the format."""
        return _READERS[self.format][0]

    def of(self, data: bytes) -> tuple[Any, int]:
        """Return the fields of a record as a tuple, and the size of its JSON."""
        if self.compression is not None:
            data = unpacked(data, self.compression, opened_bytes_max=self.opened_bytes_max)
        return _READERS[self.format][1](data), len(data)


def _of_logs(data: bytes) -> tuple[Any, ...]:
    found = log_record(data)
    events = [
        (one.id, one.timestamp_ms * 1_000, one.message, one.extracted_fields and list(one.extracted_fields.items()))
        for one in found.log_events
    ]
    return found.message_type, found.owner, found.log_group, found.log_stream, found.subscription_filters, events


def _of_dms(data: bytes) -> tuple[Any, ...]:
    found = dms_text(data)
    return tuple(getattr(found, field.name) for field in _READERS[DMS][0])


def _of_dynamodb(data: bytes) -> tuple[Any, ...]:
    found = dynamodb_text(data)
    return tuple(getattr(found, field.name) for field in _READERS[DYNAMODB_CHANGE][0])


def _struct(names: str, **others: pa.DataType) -> pa.StructType:
    """Return a struct of fields in their order, which are texts if they are not among ``others``."""
    return pa.struct([(name, others.get(name, pa.string())) for name in names.split()])


_READERS: dict[str, tuple[pa.StructType, Callable[[bytes], tuple[Any, ...]]]] = {
    CLOUDWATCH_LOGS: (
        _struct(
            "message_type owner log_group log_stream subscription_filters log_events",
            subscription_filters=pa.list_(pa.string()),
            log_events=pa.list_(_EVENT),
        ),
        _of_logs,
    ),
    DMS: (
        _struct(
            "record_type operation schema_name table_name timestamp transaction_id data before_image metadata",
            timestamp=_TIME,
        ),
        _of_dms,
    ),
    DYNAMODB_CHANGE: (
        _struct(
            "event_id event_name table_name region created keys new_image old_image size_bytes is_expiry",
            created=_TIME,
            size_bytes=pa.int64(),
            is_expiry=pa.bool_(),
        ),
        _of_dynamodb,
    ),
}


class PayloadRows:
    """Adds two columns to rows: what is made of ``data``, and why there is nothing."""

    def __init__(self, made: ReadData, name: str, reason: str) -> None:
        self._payloads = made
        self._names = name, reason

    def added(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all batches in their order, in pieces of a bounded size."""
        for batch in batches:
            begin = held = 0
            made: list[Any] = []
            reasons: list[str | None] = []
            for at, data in enumerate(batch.column(_DATA)):
                one, reason, opened_bytes = self._row_of(data.as_py())
                made.append(one)
                reasons.append(reason)
                held += opened_bytes
                if held >= PIECE_BYTES or len(made) == PIECE_ROWS:
                    yield self._piece(batch.slice(begin, len(made)), made, reasons)
                    begin, held, made, reasons = at + 1, 0, [], []
            if made or not batch.num_rows:
                yield self._piece(batch.slice(begin), made, reasons)

    def _row_of(self, data: bytes | None) -> tuple[Any, str | None, int]:
        if data is None:
            return None, NO_DATA, 0
        try:
            made, opened_bytes = self._payloads.of(data)
        except PayloadError as fault:
            return None, str(fault), 0
        except (ValueError, ArithmeticError) as fault:  # its message may show data
            return None, f"no value can be made of it ({type(fault).__name__})", 0
        return made, None, opened_bytes

    def _piece(self, rows: pa.RecordBatch, made: list[Any], reasons: list[str | None]) -> pa.RecordBatch:
        columns = [*rows.columns, pa.array(made, self._payloads.kind), pa.array(reasons, pa.string())]
        return pa.RecordBatch.from_arrays(columns, [*rows.schema.names, *self._names])
