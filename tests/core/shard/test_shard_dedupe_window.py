"""Duplicates over a window."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.core.shard.duplicates import KEY_OVERHEAD_BYTES, DedupeWindow, KeyedRecord
from shardway.events import DedupeWindowCut

if TYPE_CHECKING:
    from collections.abc import Iterable

BEGAN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Came(NamedTuple):
    key: Any
    at_s: float

    @property
    def approximate_arrival_timestamp(self) -> dt.datetime:
        return BEGAN + dt.timedelta(seconds=self.at_s)


def keyed(record: Came) -> KeyedRecord | None:
    return None if record.key is None else KeyedRecord.of(record.key, record.approximate_arrival_timestamp.timestamp())


class Keys:
    """A window that takes records."""

    def __init__(self, **options: Any) -> None:
        self.window = DedupeWindow(
            "orders", "shardId-000000000000", **{"window_s": 60.0, "skew_s": 2.0} | options
        )  # fmt: skip
        self.since = self.window.since

    def __len__(self) -> int:
        return len(self.window)

    @property
    def key_bytes(self) -> int:
        return self.window.key_bytes

    def duplicates(self, records: Iterable[Came]) -> list[int]:
        return self.window.duplicates(map(keyed, records))

    def learn(self, records: Iterable[Came]) -> None:
        self.window.learn(map(keyed, records))


def window(**options: Any) -> Keys:
    return Keys(**options)


def test_the_same_key_within_the_window_is_a_duplicate() -> None:
    keys = window()
    assert keys.duplicates([Came("a", 0), Came("b", 1), Came("a", 2)]) == [2]
    assert keys.duplicates([Came("a", 62), Came("b", 61.001)]) == [0]
    assert keys.duplicates([Came("b", 121)]) == [0]
    assert keys.duplicates([Came("b", 181.001)]) == []


def test_each_occurrence_counts_also_a_duplicate() -> None:
    keys = window()
    found = [bool(keys.duplicates([Came("a", at_s)])) for at_s in (0, 50, 100, 150, 211)]
    assert found == [False, True, True, True, False]


def test_text_and_bytes_and_long_keys_and_none() -> None:
    keys = window()
    long = b"k" * 10_000
    assert keys.duplicates([Came("é", 0), Came("é".encode(), 0), Came(long, 0), Came(long, 1)]) == [1, 3]
    assert keys.key_bytes == 2 + 32 + 2 * KEY_OVERHEAD_BYTES
    assert keys.duplicates([Came(None, 0), Came(None, 0)]) == []


def test_what_is_out_of_the_window_is_forgotten() -> None:
    keys = window()
    for number in range(1000):
        keys.duplicates([Came(f"{number}", number)])
    assert len(keys) == 63
    assert keys.key_bytes == 63 * (3 + KEY_OVERHEAD_BYTES)


def test_arrival_times_may_go_back_a_little() -> None:
    keys = window()
    keys.duplicates([Came("a", 0), Came("b", 61.9)])
    assert keys.duplicates([Came("a", 60)]) == [0]
    assert keys.duplicates([Came("b", 61)]) == [0]


def test_what_is_read_again_late_is_forgotten_first() -> None:
    keys = window()
    keys.duplicates([Came("new", 100)])
    keys.learn([Came(f"{number}", 50 + number) for number in range(10)])
    assert keys.duplicates([Came("newer", 115)]) == []
    assert len(keys) == 2 + 7
    assert keys.duplicates([Came("9", 119), Came("3", 119), Came("new", 119), Came("9", 119)]) == [0, 2, 3]
    keys.window.keys_max = 5
    keys.duplicates([])
    assert len(keys) == 5
    assert keys.duplicates([Came("newer", 119)]) == [0]
    assert keys.key_bytes == sum(len(key) + KEY_OVERHEAD_BYTES for key in ("8", "3", "new", "9", "newer"))


def test_at_a_bound_the_oldest_are_forgotten_and_it_is_told() -> None:
    keys = window(keys_max=10)
    keys.duplicates([Came(f"{number}", number) for number in range(30)])
    assert len(keys) == 10
    cut = DedupeWindowCut("orders", "shardId-000000000000", 10, 20 + 10 * KEY_OVERHEAD_BYTES, 9.0)
    assert keys.window.take_events() == [cut]
    keys.duplicates([Came("x", 31)])
    assert keys.window.take_events() == []
    assert keys.duplicates([Came("29", 32), Came("5", 32)]) == [0]
    by_bytes = window(bytes_max=5 * (1 + KEY_OVERHEAD_BYTES))
    by_bytes.duplicates([Came(f"{number}", number) for number in range(10)])
    assert len(by_bytes) == 5
    assert len(by_bytes.window.take_events()) == 1


@pytest.mark.parametrize("wrong", [{"window_s": 0}, {"keys_max": 0}, {"bytes_max": 0}, {"skew_s": -1}])
def test_what_is_no_window_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a window needs"):
        window(**wrong)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 100), st.floats(-1, 1)), max_size=60),
    st.data(), st.booleans(),
)  # fmt: skip
def test_a_new_owner_that_reads_the_window_again_gives_the_same_answers(
    steps: list[tuple[str, float, float]], data: st.DataObject, early: bool
) -> None:
    """``early``: it delivers before it has read all; then it may let duplicates pass, and drops nothing more."""
    at_s = 0.0
    log: list[Came] = []
    for key, gap_s, wobble_s in steps:
        at_s += gap_s / 3
        log.append(Came(key, max(0.0, at_s + wobble_s)))
    first_owner = window()
    expected = {place for place, record in enumerate(log) if first_owner.duplicates([record])}

    checkpoint = data.draw(st.integers(0, len(log)))
    behind = log[checkpoint:]
    if not behind:
        return
    second = window()
    since = second.since(behind[0].approximate_arrival_timestamp)
    again = [record for record in log[:checkpoint] if record.approximate_arrival_timestamp >= since]
    cut = data.draw(st.integers(0, len(behind))) if early else 0
    found = set(second.duplicates(behind[:cut]))
    second.learn(again)
    found |= {cut + place for place in second.duplicates(behind[cut:])}
    expected = {place - checkpoint for place in expected if place >= checkpoint}
    assert found <= expected
    assert {place for place in found if place >= cut} == {place for place in expected if place >= cut}
