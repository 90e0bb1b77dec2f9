"""Deserializers make a value of a record's bytes: ``Consumer(deserializer=...)`` takes them. Any function from bytes
will do.

A deserializer raises for what it cannot read; a consumer's ``unreadable`` says what becomes of that record. `gzip` and
`zstd` open the data first and hand it to another deserializer; `cloudwatch_logs`, `dms` and `dynamodb_change` read what
AWS's services put into a stream; `confluent` and `glue` read records whose schema is in a registry. A registry that is
away makes no record unreadable: the deserializer raises RegistryError, and a consumer delivers the records later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from shardway.payloads.cloudwatch_logs import LogRecord, log_record
from shardway.payloads.dms import DmsChange, dms_change
from shardway.payloads.dynamodb_change import DynamoDbChange
from shardway.payloads.dynamodb_change import dynamodb_change as change_of_dynamodb
from shardway.payloads.frames import confluent_frame, glue_frame
from shardway.payloads.opening import OPENED_BYTES_MAX, check_zstd, unpacked
from shardway.payloads.registry_values import RegistryValues
from shardway.payloads.schema_cache import confluent_schemas, glue_schemas
from shardway.wiring import ConnectionOptions, connection_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.payloads.opening import Compression

__all__ = [
    "cloudwatch_logs",
    "confluent",
    "dms",
    "dynamodb_change",
    "glue",
    "gzip",
    "json",
    "msgpack",
    "protobuf",
    "text",
    "zstd",
]

T = TypeVar("T")


def text(encoding: str = "utf-8") -> Callable[[bytes], str]:
    """Return a deserializer of text. A record that is not in this encoding cannot be read."""

    def read(data: bytes) -> str:
        return data.decode(encoding)

    return read


@overload
def json(type: type[T]) -> Callable[[bytes], T]: ...


@overload
def json(type: Any = ...) -> Callable[[bytes], Any]: ...


def json(type: Any = Any) -> Callable[[bytes], Any]:
    """Return a deserializer of JSON, checked against a type: a dataclass, a TypedDict, a ``msgspec.Struct``,
    ``list[int]``, a union ...

    Without a type it returns dictionaries, lists, strings, numbers. Raises TypeError for a type that JSON cannot hold.
    """
    return msgspec.json.Decoder(type).decode


@overload
def msgpack(type: type[T]) -> Callable[[bytes], T]: ...


@overload
def msgpack(type: Any = ...) -> Callable[[bytes], Any]: ...


def msgpack(type: Any = Any) -> Callable[[bytes], Any]:
    """Return a deserializer of MessagePack, checked against a type as `json` does."""
    return msgspec.msgpack.Decoder(type).decode


def protobuf(message: type[T]) -> Callable[[bytes], T]:
    """Return a deserializer of protobuf messages of this class, which a generated module has. Raises TypeError for any
    other class.

    A message of another type is often readable too: protobuf names no types.
    """
    read: Callable[[bytes], T] | None = getattr(message, "FromString", None)
    if read is None:
        raise TypeError(f"{message!r} is no protobuf message: it has no FromString")
    return read


@overload
def gzip(then: Callable[[bytes], T], *, opened_bytes_max: int = ...) -> Callable[[bytes], T]: ...


@overload
def gzip(then: None = ..., *, opened_bytes_max: int = ...) -> Callable[[bytes], bytes]: ...


def gzip(
    then: Callable[[bytes], Any] | None = None, *, opened_bytes_max: int = OPENED_BYTES_MAX
) -> Callable[[bytes], Any]:
    """Return a deserializer that opens gzip and hands what is inside to ``then``; without it, the bytes are the value.

    Data that is cut off or not gzip cannot be read, nor what opens to more than ``opened_bytes_max`` bytes (by default
    16 MiB) or has more than 1,000 members: a record of a few kilobytes can hold gigabytes.
    """
    return _opening("gzip", then, opened_bytes_max)


@overload
def zstd(then: Callable[[bytes], T], *, opened_bytes_max: int = ...) -> Callable[[bytes], T]: ...


@overload
def zstd(then: None = ..., *, opened_bytes_max: int = ...) -> Callable[[bytes], bytes]: ...


def zstd(
    then: Callable[[bytes], Any] | None = None, *, opened_bytes_max: int = OPENED_BYTES_MAX
) -> Callable[[bytes], Any]:
    """Return a deserializer that opens zstd as `gzip` opens gzip, with the same bounds for its frames.

    Before Python 3.14 it needs the package ``backports.zstd``, which the extra ``inspect`` brings. Raises
    ModuleNotFoundError without it.
    """
    check_zstd("deserializers.zstd")
    return _opening("zstd", then, opened_bytes_max)


def _opening(
    compression: Compression, then: Callable[[bytes], Any] | None, opened_bytes_max: int
) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        opened = unpacked(data, compression, opened_bytes_max=opened_bytes_max)
        return opened if then is None else then(opened)

    return read


def cloudwatch_logs(*, opened_bytes_max: int = OPENED_BYTES_MAX) -> Callable[[bytes], LogRecord]:
    """Return a deserializer of what a subscription filter of CloudWatch Logs puts into a stream: gzip of JSON, opened
    within the bounds of `gzip`; JSON alone is taken, too.

    A value has ``log_events`` (``id``, ``timestamp``, ``message``), ``log_group``, ``log_stream``, ``owner``,
    ``subscription_filters`` and ``message_type``. ``is_control`` is true for the control messages with which CloudWatch
    tests a stream; their events are no lines of a log.
    """

    def read(data: bytes) -> LogRecord:
        return log_record(data, opened_bytes_max=opened_bytes_max)

    return read


def dms() -> Callable[[bytes], DmsChange]:
    """Return a deserializer of what the Database Migration Service puts into a stream.

    A value has ``operation``, ``schema_name``, ``table_name``, ``timestamp``, ``transaction_id``, ``data`` and
    ``before_image`` (dictionaries by the names of columns) and ``metadata``. Whole numbers are an int and others a
    Decimal, so that no digit is lost. ``is_control`` is true for what tells of a table (``create-table``): then
    ``data`` is None.
    """
    return dms_change


def dynamodb_change() -> Callable[[bytes], DynamoDbChange]:
    """Return a deserializer of the changes that a table of DynamoDB puts into a stream of Kinesis.

    A value has ``event_name`` (INSERT, MODIFY, REMOVE), ``event_id``, ``table_name``, ``created``, and ``keys``,
    ``new_image`` and ``old_image`` as dictionaries of plain values: a number is a Decimal, binary data is bytes, and a
    set is a set. ``is_expiry`` is true where DynamoDB deleted the item at the end of its time to live.
    """
    return change_of_dynamodb


def confluent(registry_url: str) -> Callable[[bytes], Any]:
    """Return a deserializer of records in the frame of a schema registry of Confluent's protocol (a zero byte and the
    schema's id), whose schemas come from the registry at this address.

    Avro becomes Python's values by the schema that the record was written with, and JSON is read as it is, not checked
    against its schema. The password of the registry is in the environment, as ``SHARDWAY_SCHEMA_REGISTRY_AUTH``
    (``USER:PASSWORD``); it goes to no other host. Raises OptionError for what is no address.

    Each schema is fetched once, and 500 are kept. What is in no frame, names a schema that the registry does not have,
    or has one that cannot be used (Protobuf, references to other schemas, a megabyte of text) cannot be read:
    PayloadError. Where the registry is away or answers what no registry does, the deserializer raises RegistryError
    (``retryable``). It blocks while it fetches, 30 s at most; but on a thread whose event loop runs it fetches on
    another thread, and raises RegistryError with ``pending`` meanwhile. A consumer knows these errors: it keeps its
    shards, delivers the records again, and counts none of them as unreadable.
    """
    return RegistryValues(confluent_frame, confluent_schemas(registry_url, option="registry_url"))


def glue(
    *,
    region: str | None = None,
    endpoint_url: str | None = None,
    profile: str | None = None,
    connection: ConnectionOptions | None = None,
) -> Callable[[bytes], Any]:
    """Return a deserializer of records in the frame of the Glue schema registry (and in zlib inside of it, within the
    bounds of `gzip`), whose schemas Glue has. It needs the permission ``glue:GetSchemaVersion``.

    The arguments say how Glue is reached, as those of a consumer do for Kinesis. The values, the bounds and what
    happens while Glue is away are those of `confluent`. Raises OptionError.
    """
    given = {"connection": connection, "region": region, "endpoint_url": endpoint_url, "profile": profile}
    return RegistryValues(glue_frame, glue_schemas(connection_of(given)))
