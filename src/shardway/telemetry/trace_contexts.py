"""Find the contexts of traces that records carry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway.model import Record, Tags


TRACEPARENT = "traceparent"
DATADOG = "_datadog"
JSON_BYTES_MAX = 1024 * 1024
"""The largest record that is searched for a context."""
MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NAMES = (f'"{TRACEPARENT}"'.encode(), f'"{DATADOG}"'.encode())


class _Carriers(msgspec.Struct):
    """The members of a JSON body in which contexts stand."""

    traceparent: Any = None
    datadog: Any = msgspec.field(name=DATADOG, default=None)


_CARRIERS = msgspec.json.Decoder(_Carriers)


def contexts_of(records: Sequence[Record], contexts_max: int) -> Sequence[Tags]:
    """Return the contexts that these records carry, each once, and at most ``contexts_max`` of them."""
    found: dict[Tags, None] = {}
    for record in records:
        if len(found) >= contexts_max:
            break
        if context := carried_by(record):
            found[context] = None
    return tuple(found)


def carried_by(record: Record) -> Tags:
    """Return the context that a record carries, as the headers of W3C's Trace Context; nothing where it carries
    none.
    """
    for key, _ in record.tags:
        if key == TRACEPARENT:
            return tuple((key, value) for key, value in record.tags if key in ("traceparent", "tracestate"))
    data = record.data
    if len(data) > JSON_BYTES_MAX or not any(name in data for name in _NAMES):
        return ()
    try:
        found = _CARRIERS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ()
    if isinstance(found.traceparent, str):
        return ((TRACEPARENT, found.traceparent),)
    return _of_datadog(found.datadog) if isinstance(found.datadog, dict) else ()


def _of_datadog(members: dict[str, Any]) -> Tags:
    """Return the context in what Datadog's libraries write: W3C's header, or their own two numbers of 64 bits in
    decimal, with the upper half of the trace's id beside them in hexadecimal.
    """
    if isinstance(given := members.get(TRACEPARENT), str):
        return ((TRACEPARENT, given),)
    try:
        trace_id, parent_id = int(members["x-datadog-trace-id"]), int(members["x-datadog-parent-id"])
        tags = dict(pair.split("=", 1) for pair in str(members.get("x-datadog-tags", "")).split(",") if "=" in pair)
        upper = int(tags.get("_dd.p.tid", "0"), 16)
        is_kept = int(members.get("x-datadog-sampling-priority", 1)) > 0
    except (KeyError, TypeError, ValueError):
        return ()
    if not (0 <= trace_id < 1 << 64 and 0 < parent_id < 1 << 64 and 0 <= upper < 1 << 64):
        return ()
    return ((TRACEPARENT, f"00-{upper:016x}{trace_id:016x}-{parent_id:016x}-{int(is_kept):02x}"),)
