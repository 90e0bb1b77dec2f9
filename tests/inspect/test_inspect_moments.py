"""Times and places as people write them."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.errors import OptionError
from shardway.inspect.moments import moment_s, place, span_s, span_text
from shardway.model import IteratorAt

NOW_S = 1_800_000_000.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("10m", 600), ("1h30m", 5400), ("2d", 172_800), ("1.5h", 5400), ("250ms", 0.25), ("1w", 604_800)],
)
def test_spans(text: str, seconds: float) -> None:
    assert span_s(text) == seconds
    assert moment_s(f"{text} ago", NOW_S) == NOW_S - seconds


@pytest.mark.parametrize("text", ["", "10", "m", "10 minutes", "-3m", "10m later", "1e9s", "٣m"])
def test_what_is_no_span_is_said_so(text: str) -> None:
    with pytest.raises(OptionError, match="no span of time"):
        span_s(text)


def test_times_with_and_without_a_zone() -> None:
    at = dt.datetime(2026, 11, 22, 10, tzinfo=dt.UTC).timestamp()
    assert moment_s("2026-11-22T10:00Z", NOW_S) == moment_s("2026-11-22T10:00", NOW_S) == at
    assert moment_s("2026-11-22T12:00+02:00", NOW_S) == at


def test_places() -> None:
    assert place("latest", NOW_S) == IteratorAt.latest()
    assert place("TRIM_HORIZON", NOW_S) == IteratorAt.trim_horizon()
    assert place("10m ago", NOW_S) == IteratorAt.at_timestamp(NOW_S - 600)
    assert place("seq:4957", NOW_S) == IteratorAt.at_sequence(4957)
    assert place("after:4957", NOW_S) == IteratorAt.after_sequence(4957)
    with pytest.raises(OptionError, match="is no time: write a span"):
        place("yesterday", NOW_S)


@given(st.floats(0, 1e8))
def test_a_span_is_shown_within_a_sixtieth_of_what_it_is(seconds: float) -> None:
    shown = span_text(seconds)
    if seconds >= 1:
        assert abs(span_s(shown) - seconds) <= max(0.5, seconds / 24)
