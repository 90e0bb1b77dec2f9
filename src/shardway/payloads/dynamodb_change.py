"""Read the change records that a table of DynamoDB puts into a stream of Kinesis, with plain values in place of
DynamoDB's typed ones.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from shardway.errors import PayloadError
from shardway.payloads.json_text import exact_json, value_as

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

WHAT = "change record of DynamoDB"
EXPIRY = "dynamodb.amazonaws.com"
"""The principal in whose name DynamoDB deletes items whose time to live is over."""
DEPTH_MAX = 64
"""How deep values may lie in values. DynamoDB allows 32."""
_NUMBER = re.compile(r"[+-]?(\d{1,60}\.?\d{0,60}|\.\d{1,60})([eE][+-]?\d{1,4})?", re.ASCII)
_MICROS = {"MILLISECOND": 1_000, "MICROSECOND": 1}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_Typed = dict[str, Any]


class _Images(msgspec.Struct, frozen=True, kw_only=True):
    keys: _Typed = msgspec.field(name="Keys")
    new_image: _Typed | None = msgspec.field(name="NewImage", default=None)
    old_image: _Typed | None = msgspec.field(name="OldImage", default=None)
    created: int | None = msgspec.field(name="ApproximateCreationDateTime", default=None)
    precision: str = msgspec.field(name="ApproximateCreationDateTimePrecision", default="MILLISECOND")
    size_bytes: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = msgspec.field(name="SizeBytes", default=None)


class _Wire(msgspec.Struct, frozen=True, kw_only=True):
    event_id: str = msgspec.field(name="eventID")
    event_name: str = msgspec.field(name="eventName")
    table_name: str = msgspec.field(name="tableName")
    region: str | None = msgspec.field(name="awsRegion", default=None)
    user_identity: dict[str, Any] | None = msgspec.field(name="userIdentity", default=None)
    images: _Images = msgspec.field(name="dynamodb")


class DynamoDbChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change of one item.

    The values of attributes are Python's: text, Decimal, bytes, bool, None, lists, dictionaries and sets.
    """

    event_id: str
    """The change's id. It is the same when the change comes again."""
    event_name: str
    """``INSERT``, ``MODIFY`` or ``REMOVE``."""
    table_name: str
    region: str | None
    created: dt.datetime | None
    """When the change was made, about."""
    keys: dict[str, Any]
    """The item's primary key."""
    new_image: dict[str, Any] | None
    """The item after the change; None where it is gone."""
    old_image: dict[str, Any] | None
    """The item before the change; None where it was not there."""
    size_bytes: int | None
    user_identity: dict[str, Any] | None
    """In whose name DynamoDB itself made the change; None for a change of a program's."""

    @property
    def is_expiry(self) -> bool:
        """True where DynamoDB deleted the item, as its time to live was over."""
        return _is_expiry(self.user_identity)


class DynamoDbText(msgspec.Struct, frozen=True, kw_only=True):
    """A change whose parts that differ by table are JSON: numbers are numbers, binary data is base64, a set is a
    list.
    """

    event_id: str
    event_name: str
    table_name: str
    region: str | None
    created: dt.datetime | None
    keys: str
    new_image: str | None
    old_image: str | None
    size_bytes: int | None
    is_expiry: bool


_DECODER = msgspec.json.Decoder(_Wire)


def dynamodb_change(data: bytes) -> DynamoDbChange:
    """Return the change that a record tells of. Raises PayloadError."""
    wire = value_as(_DECODER, data, WHAT)
    return DynamoDbChange(**_fields(wire, lambda typed: _item(typed, set)), user_identity=wire.user_identity)


def dynamodb_text(data: bytes) -> DynamoDbText:
    """Return the change that a record tells of, with the items as JSON. Raises PayloadError."""
    wire = value_as(_DECODER, data, WHAT)
    fields = _fields(wire, lambda typed: exact_json(_item(typed, list)).decode())
    return DynamoDbText(**fields, is_expiry=_is_expiry(wire.user_identity))


def _fields(wire: _Wire, made: Callable[[_Typed], Any]) -> dict[str, Any]:
    """Return the fields that both forms of a change have. ``made`` makes an item of its typed values."""
    images = wire.images
    return {
        "event_id": wire.event_id,
        "event_name": wire.event_name,
        "table_name": wire.table_name,
        "region": wire.region,
        "created": _moment(images),
        "keys": made(images.keys),
        "new_image": None if images.new_image is None else made(images.new_image),
        "old_image": None if images.old_image is None else made(images.old_image),
        "size_bytes": images.size_bytes,
    }


def _is_expiry(user_identity: dict[str, Any] | None) -> bool:
    return (user_identity or {}).get("principalId") == EXPIRY


def _moment(images: _Images) -> dt.datetime | None:
    if images.created is None:
        return None
    if images.precision not in _MICROS:
        raise PayloadError(f"it is no {WHAT}: the unit of its time is not known")
    try:
        return _EPOCH + dt.timedelta(microseconds=images.created * _MICROS[images.precision])
    except OverflowError:
        raise PayloadError(f"it is no {WHAT}: its time lies behind the year 9999") from None


def _item(typed: _Typed, gather: Callable[[list[Any]], Collection[Any]]) -> dict[str, Any]:
    return {name: _plain_value(one, gather, 0) for name, one in typed.items()}


def _plain_value(typed: Any, gather: Callable[[list[Any]], Collection[Any]], depth: int) -> Any:
    """Return the plain value of a typed one. ``gather`` makes a set of its values."""
    if not isinstance(typed, dict) or len(typed) != 1 or depth > DEPTH_MAX:
        raise _wrong()
    ((kind, value),) = typed.items()
    if kind == "M" and isinstance(value, dict):
        return {name: _plain_value(one, gather, depth + 1) for name, one in value.items()}
    if kind == "L" and isinstance(value, list):
        return [_plain_value(one, gather, depth + 1) for one in value]
    if kind in ("SS", "NS", "BS") and isinstance(value, list):
        return gather([_scalar(kind[0], one) for one in value])
    return _scalar(kind, value)


def _scalar(kind: str, value: Any) -> Any:
    if kind == "S" and isinstance(value, str):
        return value
    if kind == "N" and isinstance(value, str) and _NUMBER.fullmatch(value):
        return Decimal(value)
    if kind == "BOOL" and isinstance(value, bool):
        return value
    if kind == "NULL" and value is True:
        return None
    if kind == "B" and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise _wrong() from None
    raise _wrong()


def _wrong() -> PayloadError:
    return PayloadError(f"it is no {WHAT}: an attribute is not one of DynamoDB's types")
