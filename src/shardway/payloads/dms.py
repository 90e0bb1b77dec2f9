"""Read what the Database Migration Service (DMS) puts into a stream: rows of tables, and changes of them, as JSON."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from shardway.errors import PayloadError
from shardway.payloads.json_text import EXACT, value_as

WHAT = "record of DMS"


class _Metadata(msgspec.Struct, frozen=True, kw_only=True):
    record_type: str = msgspec.field(name="record-type")
    operation: str
    schema_name: str | None = msgspec.field(name="schema-name", default=None)
    table_name: str | None = msgspec.field(name="table-name", default=None)
    timestamp: dt.datetime | None = None
    transaction_id: int | str | None = msgspec.field(name="transaction-id", default=None)


class _Raw(msgspec.Struct, frozen=True, kw_only=True):
    metadata: msgspec.Raw
    data: msgspec.Raw = msgspec.Raw(b"null")
    before_image: msgspec.Raw = msgspec.field(name="before-image", default=msgspec.Raw(b"null"))


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that both forms of a record have."""

    record_type: str
    """``data`` for a row, ``control`` for what happens to a table, such as ``create-table``."""
    operation: str
    """``load``, ``insert``, ``update``, ``delete``, or the operation of a control record."""
    schema_name: str | None
    table_name: str | None
    timestamp: dt.datetime | None
    """When DMS wrote the record."""
    transaction_id: str | None


class DmsText(_Head, frozen=True, kw_only=True):
    """A record of DMS whose parts that differ by table are left as JSON."""

    data: str | None
    """The row, as JSON; None for a control record."""
    before_image: str | None
    """The row before the change, as JSON, where the task has it written."""
    metadata: str
    """All that stands beside the row, as JSON."""


class DmsChange(_Head, frozen=True, kw_only=True):
    """A row of a table, a change of one, or what happened to a table. Numbers with a fraction are a Decimal."""

    data: dict[str, Any] | None
    """The row, by the names of its columns; None for a control record."""
    before_image: dict[str, Any] | None
    """The row before the change, where the task has it written (``BeforeImageSettings``)."""
    metadata: dict[str, Any]
    """All that stands beside the row, by DMS's names."""

    @property
    def is_control(self) -> bool:
        """True where the record tells of a table, and not of a row."""
        return self.record_type == "control"


_RAW = msgspec.json.Decoder(_Raw)
_METADATA = msgspec.json.Decoder(_Metadata)
_ROW = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)


def dms_text(data: bytes) -> DmsText:
    """Return a record of DMS with its rows as JSON. Raises PayloadError."""
    raw = value_as(_RAW, data, WHAT)
    metadata = value_as(_METADATA, bytes(raw.metadata), WHAT)
    for part in (raw.data, raw.before_image):
        value_as(_ROW, bytes(part), WHAT)
    number = metadata.transaction_id
    return DmsText(
        record_type=metadata.record_type,
        operation=metadata.operation,
        schema_name=metadata.schema_name,
        table_name=metadata.table_name,
        timestamp=_in_utc(metadata.timestamp),
        transaction_id=None if number is None else str(number),
        data=_text(raw.data),
        before_image=_text(raw.before_image),
        metadata=_text(raw.metadata) or "{}",
    )


def dms_change(data: bytes) -> DmsChange:
    """Return a record of DMS. Raises PayloadError."""
    text = dms_text(data)
    values = {name: getattr(text, name) for name in text.__struct_fields__}
    for name in ("data", "before_image", "metadata"):
        values[name] = None if values[name] is None else value_as(EXACT, values[name].encode(), WHAT)
    return DmsChange(**values)


def _text(part: msgspec.Raw) -> str | None:
    """Return a part's text; None for JSON's null. msgspec looks into a part for its end, and not for UTF-8."""
    try:
        found = bytes(part).decode()
    except UnicodeDecodeError:
        raise PayloadError(f"it is no {WHAT}: it is not UTF-8") from None
    return None if found == "null" else found


def _in_utc(moment: dt.datetime | None) -> dt.datetime | None:
    """DMS writes UTC, and says so by a Z; a moment without a zone is one of UTC, too."""
    if moment is None:
        return None
    try:
        return moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment.astimezone(dt.UTC)
    except OverflowError:
        raise PayloadError(f"it is no {WHAT}: its time is not of the years 1 to 9999") from None
