"""Find out what the bytes of a record are: open layer by layer, with a reason for each step.

Nothing is executed, and no registry is asked: a framing with a schema's id shows the id. A layer that would open to
more than the bound is left closed, and the step says so.
"""

from __future__ import annotations

import base64
import binascii
import json
import uuid
import zlib
from typing import Any

import msgspec

from penstock.core.aggregation import MAGIC, why_plain

OPENED_BYTES_MAX = 16 * 1024 * 1024
"""The bytes that one step may open to. A record has at most 10 MiB."""
STEPS_MAX = 8
HEX_BYTES_MAX = 64
"""The bytes of binary data that are shown."""
CONFLUENT_ID_MAX = 10_000_000
"""The largest id of a schema. A larger number behind a zero byte counts as data: registries count from 1."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One layer that was found."""

    kind: str
    """``gzip``, ``zstd``, ``zlib``, ``base64``, ``glue``, ``confluent``, ``kpl``, ``cloudwatch-logs``, ``json``,
    ``ndjson``, ``avro``, ``text`` or ``binary``."""
    why: str
    """What the layer was known by, or why it was left closed."""
    opened: bool = True
    schema_id: str | None = None
    """The id of the schema, where the layer is the framing of a registry."""


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    """What was found inside of a record."""

    steps: list[Step]
    """The layers, the outermost first; the last step says what the innermost data is."""
    data: bytes
    """The innermost bytes."""
    text: str | None = None
    """The innermost data as text; None for binary data."""
    value: Any = None
    """The value, where the data is JSON, or Avro whose schema is known."""
    framed: bytes | None = None
    """The bytes behind the framing of a schema registry (`schema`), before any further layer was opened."""

    @property
    def is_json(self) -> bool:
        """True where ``value`` holds what the data says."""
        return self.steps[-1].kind in ("json", "cloudwatch-logs", "avro")

    @property
    def schema(self) -> tuple[int, Step] | None:
        """The index of the step that is a framing with a schema's id, and the step; None: there is no such step."""
        return next(((place, one) for place, one in enumerate(self.steps) if one.schema_id is not None), None)

    @property
    def shown(self) -> str:
        """The text, or the first bytes in hexadecimal."""
        if self.text is not None:
            return self.text
        head = self.data[:HEX_BYTES_MAX].hex(" ")
        more = f" ... ({len(self.data)} bytes)" if len(self.data) > HEX_BYTES_MAX else ""
        return head + more


class _TooLargeError(Exception):
    """The layer opens to more than the bound."""


def decode(data: bytes, *, opened_bytes_max: int = OPENED_BYTES_MAX) -> Decoded:
    """Open the layers of the data, and say what is inside. Raises nothing, whatever the data is."""
    steps: list[Step] = []
    framed = None
    while len(steps) < STEPS_MAX:
        found = _layer(data, opened_bytes_max)
        if found is None:
            break
        step, inner = found
        steps.append(step)
        if inner is None:
            return Decoded(steps=steps, data=data, framed=framed)
        data = inner
        if framed is None and step.schema_id is not None:
            framed = data
    found_inside = _plain(data, steps)
    return found_inside if framed is None else msgspec.structs.replace(found_inside, framed=framed)


def _layer(data: bytes, bound: int) -> tuple[Step, bytes | None] | None:
    """Return the outermost layer, and what is in it: None in place of the latter where the layer was left closed.
    Return None where there is no layer.
    """
    if data.startswith(b"\x1f\x8b"):
        return _opened("gzip", "it begins with 1f 8b", lambda: _inflated(data, 31, bound), bound)
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        return _zstd(data, bound)
    if data.startswith(MAGIC):
        return Step(kind="kpl", why=f"it begins as an aggregate, and is none: {why_plain(data)}", opened=False), None
    if len(data) >= 18 and data[0] == 3 and data[1] in (0, 5):
        return _glue(data, bound)
    if len(data) > 5 and data[0] == 0 and 1 <= (number := int.from_bytes(data[1:5], "big")) <= CONFLUENT_ID_MAX:
        why = f"it begins with 00 and a schema's id of four bytes, {number}"
        return Step(kind="confluent", why=why, schema_id=str(number)), data[5:]
    if data.startswith(b"H4sI"):
        return _opened("base64", "it begins as gzip does in base64", lambda: _from_base64(data), bound)
    return None


def _opened(
    kind: str, why: str, open_it: Any, bound: int, schema_id: str | None = None
) -> tuple[Step, bytes | None] | None:
    try:
        return Step(kind=kind, why=why, schema_id=schema_id), open_it()
    except _TooLargeError:
        left = f"{why}; it opens to more than {bound} bytes, and is left closed"
        return Step(kind=kind, why=left, opened=False, schema_id=schema_id), None
    except (zlib.error, binascii.Error, ValueError, EOFError, OSError):
        return None  # the data only begins like this kind


def _inflated(data: bytes, window_bits: int, bound: int) -> bytes:
    parts, left = [], bound
    while data:
        machine = zlib.decompressobj(window_bits)
        part = machine.decompress(data, left + 1)
        if len(part) > left:
            raise _TooLargeError
        if not machine.eof:
            raise EOFError
        parts.append(part)
        left -= len(part)
        data = machine.unused_data  # gzip may have several members
    return b"".join(parts)


def _zstd(data: bytes, bound: int) -> tuple[Step, bytes | None] | None:
    why = "it begins with 28 b5 2f fd"
    try:
        import zstandard
    except ImportError:
        left = f"{why}; to open it, install the package zstandard"
        return Step(kind="zstd", why=left, opened=False), None

    def open_it() -> bytes:
        try:
            with zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(
                data, read_across_frames=True
            ) as reader:
                opened: bytes = reader.read(bound + 1)
        except zstandard.ZstdError as fault:
            raise ValueError("no zstd") from fault
        if len(opened) > bound:
            raise _TooLargeError
        return opened

    return _opened("zstd", why, open_it, bound)


def _glue(data: bytes, bound: int) -> tuple[Step, bytes | None] | None:
    schema = uuid.UUID(bytes=data[2:18])
    if schema.variant != uuid.RFC_4122:
        return None
    why = f"it begins with 03 {data[1]:02x} and the id of a schema version of the Glue registry"
    inner = data[18:]
    if data[1] == 0:
        return Step(kind="glue", why=why, schema_id=str(schema)), inner
    return _opened("glue", why, lambda: _inflated(inner, 15, bound), bound, str(schema))


def _from_base64(data: bytes) -> bytes:
    return base64.b64decode(data.strip(), validate=True)


def _plain(data: bytes, steps: list[Step]) -> Decoded:
    try:
        text = data.decode()
    except UnicodeDecodeError as fault:
        step = Step(kind="binary", why=f"byte {fault.start} of {len(data)} is not UTF-8")
        return Decoded(steps=[*steps, step], data=data)
    if (value := _json(text)) is not _NO_JSON:
        kind, why = "json", "it is one value of JSON"
        if isinstance(value, dict) and "messageType" in value and "logEvents" in value:
            kind, why = "cloudwatch-logs", "it is JSON with messageType and logEvents"
        return Decoded(steps=[*steps, Step(kind=kind, why=why)], data=data, text=text, value=value)
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and all(_json(line) is not _NO_JSON for line in lines):
        step = Step(kind="ndjson", why=f"each of its {len(lines)} lines is JSON")
        return Decoded(steps=[*steps, step], data=data, text=text)
    if "\0" in text:
        return Decoded(steps=[*steps, Step(kind="binary", why="it holds a zero byte")], data=data)
    return Decoded(steps=[*steps, Step(kind="text", why="it is UTF-8")], data=data, text=text)


_NO_JSON = object()


def _json(text: str) -> Any:
    """Return the value of a text that is JSON, or `_NO_JSON`. A number alone counts as text."""
    if not text[:64].lstrip().startswith(("{", "[", '"')):
        return _NO_JSON
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _NO_JSON
