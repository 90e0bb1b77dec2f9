"""Make records of lines: raw data, JSON with fields for the key and the data, or whole records."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import random
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from shardway.core.unicode import writable
from shardway.errors import OptionError, ShardwayError
from shardway.model import HASH_KEY_MAX, OutRecord
from shardway.tasks import thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


READ_BYTES = 256 * 1024
"""The bytes that are read at a time; a pipe gives what it has."""
LINE_BYTES_MAX = 16 * 1024 * 1024
"""The longest line that is no bad line. A record is up to 10 MiB, and its JSON may be longer."""
RECORD_BYTES_MAX = 10 * 1024 * 1024
"""The bytes of data and partition key together (AWS API reference, PutRecordsRequestEntry)."""
PARTITION_KEY_CHARACTERS_MAX = 256


class BadLineError(ShardwayError):
    """A line that cannot be made a record. The message does not show the line."""


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """How a line becomes a record. Fields are paths with dots: ``order.customer``.

    Raises OptionError when the choices contradict each other.
    """

    records: bool = False
    """True: each line is a record as ``shardway records`` writes it: its own key, hash key and data, byte for byte."""
    jsonl: bool = False
    """True: each line is a JSON value, and blank lines are passed over. False: each line is data, an empty one, too."""
    key_text: str | None = None
    """The partition key of all records; without it and ``key`` each record has a random one."""
    key: str | None = None
    explicit_hash_key: str | None = None
    data: str | None = None
    """The field that is the data; None: the line itself is the data."""

    def __post_init__(self) -> None:
        fields = {"--key": self.key, "--explicit-hash-key": self.explicit_hash_key, "--data": self.data}
        faults = [
            f"{name} names a field of JSON, for --format jsonl"
            if self.records
            else f"{name} names a field of JSON: add --format jsonl"
            for name, field in fields.items()
            if field is not None and not self.jsonl
        ]
        faults += [
            f"{name}: write a field, or a path as in order.id"
            for name, field in fields.items()
            if field is not None and not all(field.split("."))
        ]
        if self.records and self.key_text is not None:
            faults.append("--key-text: lines of --format records have keys of their own")
        if self.key is not None and self.key_text is not None:
            faults.append("--key and --key-text contradict each other")
        if self.key_text is not None and not 1 <= len(self.key_text) <= PARTITION_KEY_CHARACTERS_MAX:
            faults.append(f"--key-text: a partition key has 1 to {PARTITION_KEY_CHARACTERS_MAX} characters")
        if faults:
            raise OptionError(faults)


def record_maker(form: Form, rng: random.Random) -> Callable[[bytes], OutRecord | None]:
    """Return a function from a line (without its end) to a record, or to None for a line to pass over.

    The function raises `BadLineError`. ``rng`` makes the random keys.
    """

    def random_key() -> str:
        return f"{rng.getrandbits(32):08x}"

    def from_text(line: bytes) -> OutRecord:
        return _check(OutRecord(line, form.key_text or random_key()))

    def from_json(line: bytes) -> OutRecord | None:
        if not line or line.isspace():
            return None
        value = _decode(line)
        key = form.key_text or (_key(_field(value, form.key)) if form.key else random_key())
        hash_key = _hash_key(_field(value, form.explicit_hash_key)) if form.explicit_hash_key else None
        data = _data(_field(value, form.data)) if form.data else line
        return _check(OutRecord(data, key, hash_key))

    if form.records:
        return _from_record
    return from_json if form.jsonl else from_text


def _from_record(line: bytes) -> OutRecord | None:
    """Return the record of a line that ``shardway records`` has written; None for a blank line."""
    if not line or line.isspace():
        return None
    value = _decode(line)
    if not isinstance(value, dict):
        raise BadLineError("it is no object")
    key = _key(_field(value, "partition_key"))
    hash_key = _hash_key(_field(value, "explicit_hash_key")) if "explicit_hash_key" in value else None
    if ("data" in value) == ("data_base64" in value):
        raise BadLineError("it needs one of data and data_base64")
    name = "data" if "data" in value else "data_base64"
    if not isinstance(value[name], str):
        raise BadLineError(f"its field {name} is no text")
    if name == "data":
        return _check(OutRecord(_text(name, value[name]).encode(), key, hash_key))
    try:
        return _check(OutRecord(base64.b64decode(value[name], validate=True), key, hash_key))
    except ValueError:
        raise BadLineError("its field data_base64 is no base64") from None


class Line(NamedTuple):
    """One line: its number, counted from 1, and its bytes without the line feed; None when it is too long."""

    number: int
    text: bytes | None


class Lines:
    """Cuts chunks of bytes into lines. The last one may do without a line feed."""

    def __init__(self, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        self.number = 0
        """The number of the last line that was returned."""
        self._max = line_bytes_max
        self._parts: list[bytes] = []
        self._bytes = 0

    def feed(self, chunk: bytes) -> list[Line]:
        """Return the lines that end in this chunk."""
        *ended, rest = chunk.split(b"\n")
        found = [self._end(part) for part in ended]
        self._keep(rest)
        return found

    def end(self) -> list[Line]:
        """Return what is left after the last line feed: a line, or nothing."""
        return [self._end(b"")] if self._bytes else []

    def _keep(self, part: bytes) -> None:
        self._bytes += len(part)
        if self._bytes > self._max:
            self._parts.clear()
        elif part:
            self._parts.append(part)

    def _end(self, part: bytes) -> Line:
        self._keep(part)
        text = b"".join(self._parts) if self._bytes <= self._max else None
        self._parts.clear()
        self._bytes = 0
        self.number += 1
        return Line(self.number, text)


async def read_chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Yield what a file or pipe holds, in pieces of at most `READ_BYTES`, as it comes. Raises OSError."""
    while chunk := await _read(descriptor):
        yield chunk


async def _read(descriptor: int) -> bytes:
    """Call ``os.read`` in a thread of its own.

    The thread is a daemon: the process may end while the read still waits for a pipe or a terminal. The process would
    wait for the loop's own threads, and standard input's buffer would be locked.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bytes] = loop.create_future()

    def settle(data: bytes, fault: BaseException | None) -> None:
        if done.cancelled():
            return
        if fault is None:
            done.set_result(data)
        else:
            done.set_exception(fault)

    def tell(data: bytes, fault: BaseException | None = None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, data, fault)

    thread(lambda: tell(os.read(descriptor, READ_BYTES)), "shardway-input", lambda error: tell(b"", error))
    return await done


def _decode(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except msgspec.DecodeError as fault:
        found = _decode_with_halves(line)
        if found is None:
            raise BadLineError(f"it is not JSON: {fault}") from None
        return found
    except UnicodeDecodeError as fault:
        raise BadLineError(f"it is not JSON: no UTF-8 at byte {fault.start} of a text") from None
    except RecursionError:
        raise BadLineError("it is not JSON that can be read: too many levels") from None


def _decode_with_halves(line: bytes) -> Any:
    """Return the value of valid JSON in which half of a surrogate pair stands, as JavaScript cuts texts: msgspec reads
    none of it. None: it is no such JSON.
    """
    if b"\\u" not in line:
        return None

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is no JSON")

    try:
        return json.loads(line.decode(), parse_constant=refuse)
    except ValueError:
        return None


def _field(value: Any, path: str) -> tuple[str, Any]:
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            raise BadLineError(f"it has no field {path}")
        value = value[name]
    return path, value


def _key(field: tuple[str, Any]) -> str:
    path, value = field
    if value is None or isinstance(value, dict | list):
        kind = {type(None): "null", dict: "an object", list: "an array"}[type(value)]
        raise BadLineError(f"its field {path} is {kind}; a partition key is a text, a number or a boolean")
    return _text(path, value) if isinstance(value, str) else msgspec.json.encode(value).decode()


def _text(path: str, value: str) -> str:
    if writable(value) != value:
        raise BadLineError(f"its field {path} has half of a surrogate pair, which UTF-8 cannot write")
    return value


def _hash_key(field: tuple[str, Any]) -> int:
    path, value = field
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= len(str(HASH_KEY_MAX)):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= HASH_KEY_MAX:
        raise BadLineError(f"its field {path} is no hash key: a whole number from 0 to 2^128-1, also as text")
    return value


def _data(field: tuple[str, Any]) -> bytes:
    path, value = field
    if isinstance(value, str):
        return _text(path, value).encode()
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # half of a surrogate pair: it stays as it was, as an escape
        return json.dumps(value, separators=(",", ":")).encode()


def _check(record: OutRecord) -> OutRecord:
    if not 1 <= len(record.partition_key) <= PARTITION_KEY_CHARACTERS_MAX:
        raise BadLineError(
            f"its partition key has {len(record.partition_key)} characters, not 1 to {PARTITION_KEY_CHARACTERS_MAX}"
        )
    try:
        size = len(record.data) + len(record.partition_key.encode())
    except UnicodeEncodeError:
        raise BadLineError("its partition key is no valid Unicode") from None
    if size > RECORD_BYTES_MAX:
        raise BadLineError(f"it has {size} bytes with its partition key; a record has at most {RECORD_BYTES_MAX}")
    return record
