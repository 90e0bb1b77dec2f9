"""Take the frame of a schema registry off a record: a few bytes that name the schema of what follows."""

from __future__ import annotations

import math
import uuid
import zlib

from shardway.errors import PayloadError
from shardway.payloads.opening import OPENED_BYTES_MAX, BoundError, OpeningBudget, inflated

CONFLUENT, GLUE = "confluent", "glue"
"""The frames of schema registries, by their names in a job file."""
_CONFLUENT_BYTES = 5
_GLUE_BYTES = 18
_PLAIN, _ZLIB = 0, 5


def confluent_frame(data: bytes) -> tuple[str, bytes]:
    """Return the id of the schema and what it describes. Raises PayloadError for data in no frame of a registry of
    Confluent's protocol: a zero byte, and the id in four bytes.
    """
    if len(data) < _CONFLUENT_BYTES or data[0] != 0:
        raise PayloadError("it is in no frame of a schema registry: that is a zero byte and an id of four bytes")
    return str(int.from_bytes(data[1:_CONFLUENT_BYTES], "big")), data[_CONFLUENT_BYTES:]


def glue_frame(data: bytes, *, opened_bytes_max: int = OPENED_BYTES_MAX) -> tuple[str, bytes]:
    """Return the id of the schema's version and what it describes, opened where it is compressed. Raises PayloadError
    for data in no frame of the Glue registry: the bytes 3 and 0 (or 5, for zlib), and the id in sixteen bytes.
    """
    if len(data) < _GLUE_BYTES or data[0] != 3 or data[1] not in (_PLAIN, _ZLIB):
        raise PayloadError("it is in no frame of the Glue registry: that is two bytes and an id of sixteen bytes")
    identity, inner = str(uuid.UUID(bytes=data[2:_GLUE_BYTES])), data[_GLUE_BYTES:]
    if data[1] == _PLAIN:
        return identity, inner
    budget = OpeningBudget(bytes_max=opened_bytes_max, time_max_s=math.inf)
    try:
        return identity, inflated(inner, zlib.MAX_WBITS, budget)
    except BoundError as fault:
        raise PayloadError(f"it is in a frame of the Glue registry, and {fault}") from None
    except (zlib.error, EOFError):
        raise PayloadError("it is in a frame of the Glue registry, and its zlib is broken or cut off") from None
