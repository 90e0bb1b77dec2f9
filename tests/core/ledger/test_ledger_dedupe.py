"""Duplicates over a window."""

from __future__ import annotations

import datetime as dt
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.ledger.dedupe import KEY_OVERHEAD_BYTES, DedupeWindow, Rebuild
from penstock.events import DedupeWindowCut
from tests.momentary import now

BEGAN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Came(NamedTuple):
    key: Any
    at_s: float

    @property
    def approximate_arrival_timestamp(self) -> dt.datetime:
        return BEGAN + dt.timedelta(seconds=self.at_s)


def window(told: list[Any] | None = None, **options: Any) -> DedupeWindow[Came]:
    return DedupeWindow(
        "orders", "shardId-000000000000", key_of=lambda record: record.key,
        on_event=(told if told is not None else []).append, **{"window_s": 60.0, "skew_s": 2.0} | options,
    )  # fmt: skip


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
    keys.keys_max = 5
    keys.duplicates([])
    assert len(keys) == 5
    assert keys.duplicates([Came("newer", 119)]) == [0]
    assert keys.key_bytes == sum(len(key) + KEY_OVERHEAD_BYTES for key in ("8", "3", "new", "9", "newer"))


def test_at_a_bound_the_oldest_are_forgotten_and_it_is_told() -> None:
    told: list[Any] = []
    keys = window(told, keys_max=10)
    keys.duplicates([Came(f"{number}", number) for number in range(30)])
    assert len(keys) == 10
    assert told == [DedupeWindowCut("orders", "shardId-000000000000", 10, 20 + 10 * KEY_OVERHEAD_BYTES, 9.0)]
    keys.duplicates([Came("x", 31)])
    assert len(told) == 1
    assert keys.duplicates([Came("29", 32), Came("5", 32)]) == [0]
    by_bytes = window(told, bytes_max=5 * (1 + KEY_OVERHEAD_BYTES))
    by_bytes.duplicates([Came(f"{number}", number) for number in range(10)])
    assert len(by_bytes) == 5
    assert len(told) == 2


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
    """``early``: it hands out before it has read all; then it may let duplicates pass, and drops nothing more."""
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


def test_a_window_is_whole_when_its_shard_and_the_ancestors_are_read() -> None:
    rebuild = Rebuild(["shardId-1", "shardId-7"], wait=True)
    assert not now(rebuild.may_deliver)
    rebuild.read("shardId-7")
    rebuild.read("shardId-9")
    assert not now(rebuild.whole)
    rebuild.read("shardId-1")
    assert rebuild.whole
    assert rebuild.may_deliver
    assert Rebuild(["shardId-1"], wait=False).may_deliver
    assert not Rebuild(["shardId-1"], wait=False).whole
    assert Rebuild([], wait=True).may_deliver
