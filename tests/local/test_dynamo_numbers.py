"""Numbers of the local DynamoDB, beside those of `decimal`."""

from __future__ import annotations

from decimal import Context, Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardway.local.dynamodb import DynamoError
from shardway.local.dynamodb.numbers import (
    DIGITS_MAX,
    EXPONENT_MAX,
    EXPONENT_MIN,
    added,
    canonical,
    decimal_of,
    number_bytes,
)

EXACT = Context(prec=1000, Emax=10**9, Emin=-(10**9))
DIGITS = st.text("0123456789", min_size=1, max_size=45)
SHAPES = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-", "+"]),
    DIGITS,
    st.one_of(st.just(""), DIGITS.map(".{}".format)),
    st.one_of(st.just(""), st.integers(-200, 200).map("e{}".format), st.integers(-200, 200).map("E{:+d}".format)),
)


@given(SHAPES)
@example("0e999999999999")
@example("00000000000000000000000000000000000000000000000001")
@example(".5")
@example("5.")
def test_a_number_is_kept_exactly_or_refused(text: str) -> None:
    value = EXACT.create_decimal(text)
    digits = "".join(map(str, value.as_tuple().digits)).strip("0")
    fits = not value or (len(digits) <= DIGITS_MAX and EXPONENT_MIN <= value.adjusted() <= EXPONENT_MAX)
    if not fits:
        with pytest.raises(DynamoError):
            canonical(text)
        return
    kept = canonical(text)
    assert EXACT.create_decimal(kept) == value
    assert canonical(kept) == kept
    assert "e" not in kept.lower()
    assert 1 <= number_bytes(kept) <= 21


@given(SHAPES, SHAPES)
def test_equal_numbers_have_equal_texts_and_the_order_is_theirs(left: str, right: str) -> None:
    try:
        texts = canonical(left), canonical(right)
    except DynamoError:
        return
    values = EXACT.create_decimal(left), EXACT.create_decimal(right)
    assert (texts[0] == texts[1]) == (values[0] == values[1])
    assert (decimal_of(texts[0]) < decimal_of(texts[1])) == (values[0] < values[1])


@given(SHAPES, SHAPES, st.booleans())
def test_a_sum_is_exact_or_refused(left: str, right: str, minus: bool) -> None:
    try:
        first, second = canonical(left), canonical(right)
    except DynamoError:
        return
    a, b = Decimal(first), Decimal(second)
    exact = EXACT.subtract(a, b) if minus else EXACT.add(a, b)
    try:
        found = added(first, second, minus=minus)
    except DynamoError:
        digits = "".join(map(str, exact.as_tuple().digits)).strip("0")
        assert len(digits) > DIGITS_MAX or not EXPONENT_MIN <= exact.adjusted() <= EXPONENT_MAX
        return
    assert Decimal(found) == exact
    assert canonical(found) == found


@pytest.mark.parametrize(
    "text", ["", " ", "-", "+", ".", "e5", "1e", "1e+", "0x1", "1_000", "١", "²", "NaN", "Infinity", "1 ", "--1"]
)
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(DynamoError, match="cannot be converted to a numeric value"):
        canonical(text)
