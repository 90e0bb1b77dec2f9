"""Read JSON that a service wrote, with exact numbers, and with texts that are cut in the middle of a character."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from shardway.core.unicode import writable_value
from shardway.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

exact_json: Callable[[object], bytes] = msgspec.json.Encoder(decimal_format="number").encode
"""Write a value as JSON: a Decimal is a number, and binary data is base64."""
EXACT = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal)
"""Reads an object of JSON: numbers with a fraction or an exponent are a Decimal."""


def value_as(decoder: msgspec.json.Decoder[T], data: bytes, what: str) -> T:
    """Return the value of a record's JSON. Raises PayloadError; ``what`` names what it should be. The types of the
    decoder have no enum: msgspec would quote the data's value in its message.

    Half of a surrogate pair in a text becomes U+FFFD: services cut long texts, and the rest of the record is good.
    """
    try:
        try:
            return decoder.decode(data)
        except (msgspec.DecodeError, ValueError):
            if b"\\ud" not in data and b"\\uD" not in data:
                raise
            return decoder.decode(_mend(data))
    except msgspec.ValidationError as fault:
        raise PayloadError(f"it is no {what}: {fault}") from None
    except (msgspec.DecodeError, ValueError, ArithmeticError, RecursionError):
        raise PayloadError(f"it is no {what}: it is not one value of JSON") from None


def _mend(data: bytes) -> bytes:
    return exact_json(writable_value(json.loads(data, parse_float=Decimal)))
