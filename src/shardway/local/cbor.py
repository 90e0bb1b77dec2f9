"""CBOR as the Java SDK speaks it (``application/x-amz-cbor-1.1``), to and from the service model's JSON.

In CBOR blobs are raw bytes and timestamps are tag 1 around an integer of epoch *milli*seconds (the Java SDK refuses
floats there; general CBOR readers take tag 1 for seconds, so it is read here). In JSON a blob is base64 text and a
timestamp a number of seconds. Requests say their types themselves; in answers the member's name says its type:
``Data`` is the only blob of this API and all times end in ``Timestamp``.

cbor2 is imported with this module, so only requests in CBOR lead here.
"""

from __future__ import annotations

import base64
from typing import Any

import cbor2
import msgspec

_EPOCH_TAG = 1
_DEPTH_MAX = 16
_BLOB = "Data"
_TIME = "Timestamp"


def decode(body: bytes) -> Any:
    """Decode a CBOR request; times become epoch seconds. Raises ``ValueError`` when it is no CBOR."""
    try:
        return cbor2.loads(body, semantic_decoders={_EPOCH_TAG: _seconds}, max_depth=_DEPTH_MAX)
    except cbor2.CBORError as fault:
        raise ValueError("this is no CBOR") from fault


def _seconds(millis: Any, immutable: bool) -> float:  # noqa: ARG001 - cbor2's argument
    if not isinstance(millis, int | float):
        raise ValueError("a timestamp is no number")
    return millis / 1000


def encode(value: object) -> bytes:
    """Encode a value as CBOR, with its types as they are."""
    return bytes(cbor2.dumps(value))


def request_to_json(body: bytes) -> bytes:
    """Return a CBOR request as JSON. Raises ``ValueError`` when it is no CBOR or has no JSON form."""
    try:
        # msgspec writes bytes as base64 text, which is what the JSON protocol has for blobs.
        return msgspec.json.encode(decode(body))
    except (TypeError, RecursionError, OverflowError) as fault:
        raise ValueError("this CBOR has no JSON form") from fault


def answer_to_cbor(body: bytes) -> bytes:
    """Return a JSON answer as CBOR; an empty answer stays empty."""
    if not body:
        return body
    return encode(_with_types(msgspec.json.decode(body)))


def _with_types(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _member(name, member) for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_with_types(item) for item in value]
    return value


def _member(name: str, value: Any) -> Any:
    if name == _BLOB and isinstance(value, str):
        return base64.b64decode(value)
    if name.endswith(_TIME) and isinstance(value, int | float):
        return cbor2.CBORTag(_EPOCH_TAG, round(value * 1000))
    return _with_types(value)
