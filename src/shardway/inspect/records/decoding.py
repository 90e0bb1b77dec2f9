"""Find out what the bytes of a record are: open layer by layer, with a reason for each step.

Nothing is executed, and no registry is asked: a framing with a schema's id shows the id. All layers of a record share
one budget of bytes, members and time; a layer that goes beyond it is left closed, and the step says so. JSON is read
within a bound of values and of depth. So any producer can put any record, and no look at it takes more than moments.
"""

from __future__ import annotations

import base64
import binascii
import json
import uuid
import zlib
from typing import TYPE_CHECKING, Any

import msgspec

from shardway.core.aggregation.reader import why_plain
from shardway.core.aggregation.wire_format import MAGIC
from shardway.core.unicode import writable_value
from shardway.payloads.opening import (
    OPENED_BYTES_MAX,
    BoundError,
    OpeningBudget,
    decompressed,
    inflated,
    zstd_library,
)

if TYPE_CHECKING:
    from collections.abc import Callable


JSON_VALUES_MAX = 500_000
"""The values of JSON that are read. Each takes up to 100 bytes of memory, where its text has two."""
JSON_DEPTH_MAX = 100
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


def decode(data: bytes, *, opened_bytes_max: int = OPENED_BYTES_MAX, budget: OpeningBudget | None = None) -> Decoded:
    """Open the layers of the data, and say what is inside. Raises nothing, whatever the data is.

    All layers share one budget, of ``opened_bytes_max`` bytes unless ``budget`` is given.
    """
    budget = budget or OpeningBudget(bytes_max=opened_bytes_max)
    steps: list[Step] = []
    framed = None
    while len(steps) < STEPS_MAX:
        found = _layer(data, budget)
        if found is None:
            break
        step, inner = found
        steps.append(step)
        if inner is None:
            return Decoded(steps=steps, data=data, framed=framed)
        data = inner
        if framed is None and step.schema_id is not None:
            framed = data
    found_inside = _decode_plain(data, steps)
    return found_inside if framed is None else msgspec.structs.replace(found_inside, framed=framed)


def framing(data: bytes) -> Step | None:
    """Return the step that is a framing with a schema's id, without a look at what the innermost data is."""
    budget, inner = OpeningBudget(), data
    for _ in range(STEPS_MAX):
        found = _layer(inner, budget)
        if found is None or found[0].schema_id is not None:
            return None if found is None else found[0]
        if found[1] is None:
            break
        inner = found[1]
    return None


def _layer(data: bytes, budget: OpeningBudget) -> tuple[Step, bytes | None] | None:
    """Return the outermost layer, and what is in it: None in place of the latter where the layer was left closed.
    Return None where there is no layer.
    """
    if data.startswith(b"\x1f\x8b"):
        return _open("gzip", "it begins with 1f 8b", lambda: inflated(data, 31, budget))
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        return _zstd(data, budget)
    if data.startswith(MAGIC):
        return Step(kind="kpl", why=f"it begins as an aggregate, and is none: {why_plain(data)}", opened=False), None
    if len(data) >= 18 and data[0] == 3 and data[1] in (0, 5):
        return _glue(data, budget)
    if len(data) > 5 and data[0] == 0 and 1 <= (number := int.from_bytes(data[1:5], "big")) <= CONFLUENT_ID_MAX:
        why = f"it begins with 00 and a schema's id of four bytes, {number}"
        return Step(kind="confluent", why=why, schema_id=str(number)), data[5:]
    if data.startswith(b"H4sI"):
        return _open("base64", "it begins as gzip does in base64", lambda: _from_base64(data, budget))
    return None


def _open(
    kind: str, why: str, open_it: Callable[[], bytes], schema_id: str | None = None
) -> tuple[Step, bytes | None] | None:
    try:
        return Step(kind=kind, why=why, schema_id=schema_id), open_it()
    except BoundError as fault:
        left = f"{why}; {fault}, and is left closed"
        return Step(kind=kind, why=left, opened=False, schema_id=schema_id), None
    except (zlib.error, binascii.Error, ValueError, EOFError, OSError):
        return None  # the data only begins like this kind


def _zstd(data: bytes, budget: OpeningBudget) -> tuple[Step, bytes | None] | None:
    why = "it begins with 28 b5 2f fd"
    try:
        zstd = zstd_library()
    except ImportError:
        left = f'{why}; to open it, pip install "shardway[inspect]"'
        return Step(kind="zstd", why=left, opened=False), None

    def open_it() -> bytes:
        try:
            return decompressed(data, zstd, budget)
        except zstd.ZstdError as fault:
            raise ValueError("no zstd") from fault

    return _open("zstd", why, open_it)


def _glue(data: bytes, budget: OpeningBudget) -> tuple[Step, bytes | None] | None:
    schema = uuid.UUID(bytes=data[2:18])
    if schema.variant != uuid.RFC_4122:
        return None
    why = f"it begins with 03 {data[1]:02x} and the id of a schema version of the Glue registry"
    inner = data[18:]
    if data[1] == 0:
        return Step(kind="glue", why=why, schema_id=str(schema)), inner
    return _open("glue", why, lambda: inflated(inner, 15, budget), str(schema))


def _from_base64(data: bytes, budget: OpeningBudget) -> bytes:
    budget.work()
    opened = base64.b64decode(data.strip(), validate=True)
    budget.spend(len(opened))
    return opened


def _decode_plain(data: bytes, steps: list[Step]) -> Decoded:
    try:
        text = data.decode()
    except UnicodeDecodeError as fault:
        step = Step(kind="binary", why=f"byte {fault.start} of {len(data)} is not UTF-8")
        return Decoded(steps=[*steps, step], data=data)
    unread = _unreadable(text)
    if unread is None:
        if (value := _json(text)) is not _NO_JSON:
            return _of_json(text, value, data, steps)
        lines = [line for line in text.split("\n") if line.strip()]
        if len(lines) > 1 and all(_json(line) is not _NO_JSON for line in lines):
            step = Step(kind="ndjson", why=f"each of its {len(lines)} lines is JSON")
            return Decoded(steps=[*steps, step], data=data, text=text)
    if "\0" in text:
        return Decoded(steps=[*steps, Step(kind="binary", why="it holds a zero byte")], data=data)
    why = "it is UTF-8" if unread is None else f"it is UTF-8, and is not read as JSON: {unread}"
    return Decoded(steps=[*steps, Step(kind="text", why=why)], data=data, text=text)


def _of_json(text: str, value: Any, data: bytes, steps: list[Step]) -> Decoded:
    kind, why = "json", "it is one value of JSON"
    if isinstance(value, dict) and "messageType" in value and "logEvents" in value:
        kind, why = "cloudwatch-logs", "it is JSON with messageType and logEvents"
    return Decoded(steps=[*steps, Step(kind=kind, why=why)], data=data, text=text, value=value)


def _unreadable(text: str) -> str | None:
    """Return why a text that looks like JSON is not read; None: it can be read in bounded time and memory.

    The signs between values also count where they stand in texts, so a text has this many values at most.
    """
    if not _begins_as_json(text):
        return None
    if text.count(",") + text.count("[") + text.count("{") > JSON_VALUES_MAX:
        return f"it may have more than {JSON_VALUES_MAX} values"
    return None


def _begins_as_json(text: str) -> bool:
    return text[:64].lstrip().startswith(("{", "[", '"'))


_NO_JSON = object()


def _json(text: str) -> Any:
    """Return the value of a text that is JSON, or `_NO_JSON`. A number alone counts as text, and so do values that lie
    deeper than `JSON_DEPTH_MAX`: whatever writes, copies or masks a value goes into it by recursion.
    """
    if not _begins_as_json(text):
        return _NO_JSON
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _NO_JSON
    if text.count("[") + text.count("{") > JSON_DEPTH_MAX and _is_deep(value):
        return _NO_JSON
    # Only an escape makes half of a surrogate pair, as the text itself is UTF-8.
    return writable_value(value) if "\\ud" in text or "\\uD" in text else value


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(JSON_DEPTH_MAX):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True
