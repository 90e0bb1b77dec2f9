"""Numbers as DynamoDB keeps them: 38 significant digits, magnitudes from 1E-130 to 9.99...E+125.

A number is text. `canonical` gives equal numbers equal texts, so that two of them are compared as texts.
"""

from __future__ import annotations

import re
from decimal import Context, Decimal
from functools import lru_cache

from shardway.local.dynamodb.errors import DynamoError, validation

DIGITS_MAX = 38
EXPONENT_MIN = -130
EXPONENT_MAX = 125
TEXT_CHARS_MAX = 1000
"""The longest text of a number. What AWS takes is not documented; no number needs 300 characters."""
_EXPONENT_DIGITS_MAX = 6
_SHAPE = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+))?")
_EXACT = Context(prec=2 * (EXPONENT_MAX - EXPONENT_MIN))
_QUICK_CHARS_MAX = 18


def canonical(text: str) -> str:
    """Return the number in plain decimal digits. Raises DynamoError for what is no number, and one out of range."""
    if len(text) <= DIGITS_MAX and text.isascii() and text.isdigit() and (text[0] != "0" or len(text) == 1):
        return text  # the usual case: a counter
    return _canonical(text)


@lru_cache(maxsize=4096)
def _canonical(text: str) -> str:
    shape = _SHAPE.fullmatch(text) if len(text) <= TEXT_CHARS_MAX else None
    if shape is None or not (shape[2] or shape[3]):
        shown = text if len(text) <= TEXT_CHARS_MAX else f"{text[:20]}..."
        raise validation(f"The parameter cannot be converted to a numeric value: {shown}")
    sign, whole, fraction, power = shape[1], shape[2], shape[3] or "", shape[4] or "0"
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return "0"
    if len(power.lstrip("+-").lstrip("0")) > _EXPONENT_DIGITS_MAX:
        raise _out_of_range(too_large=not power.startswith("-"))
    last = int(power) - len(fraction)  # the power of ten of the last digit
    short = digits.rstrip("0")
    last += len(digits) - len(short)
    first = last + len(short) - 1
    if not EXPONENT_MIN <= first <= EXPONENT_MAX:
        raise _out_of_range(too_large=first > 0)
    if len(short) > DIGITS_MAX:
        raise validation("Attempting to store more than 38 significant digits in a Number")
    return ("-" if sign == "-" else "") + _plain_text(short, last)


def _plain_text(digits: str, last: int) -> str:
    if last >= 0:
        return digits + "0" * last
    if -last < len(digits):
        return f"{digits[:last]}.{digits[last:]}"
    return "0." + "0" * (-last - len(digits)) + digits


def _out_of_range(*, too_large: bool) -> DynamoError:
    name, side = ("overflow", "larger") if too_large else ("underflow", "smaller")
    return validation(f"Number {name}. Attempting to store a number with magnitude {side} than supported range")


def decimal_of(text: str) -> Decimal:
    """Return a canonical number as one that can be ordered."""
    return Decimal(text)


def added(left: str, right: str, *, minus: bool = False) -> str:
    """Return the sum of two canonical numbers, or their difference. Raises DynamoError when it is out of range."""
    if len(left) <= _QUICK_CHARS_MAX and len(right) <= _QUICK_CHARS_MAX and left.isdigit() and right.isdigit():
        return str(int(left) - int(right) if minus else int(left) + int(right))
    operation = _EXACT.subtract if minus else _EXACT.add
    return canonical(format(operation(Decimal(left), Decimal(right)), "f"))


def number_bytes(text: str) -> int:
    """Return the bytes that a canonical number counts for: one for two digits, one more, and one for a minus."""
    digits = text.lstrip("-").replace(".", "").strip("0")
    return (len(digits) + 1) // 2 + 1 + text.startswith("-")
