"""A chunk knows what became of its records, which callers wait for them, and what they take of the buffer's bound."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.batching.chunk import ALL, RECORD_OVERHEAD_BYTES
from penstock.model import PutResult
from tests.core.batching.batching_kit import make_chunk
from tests.put_entries import Answer

if TYPE_CHECKING:
    from random import Random


def test_what_is_settled_frees_its_part_of_the_bound_and_the_last_the_rest() -> None:
    chunk = make_chunk([("a", b"1"), ("b", b"22"), ("c", b"333")])
    assert chunk.held_bytes == 3 * (1 + RECORD_OVERHEAD_BYTES) + 6
    outcome = PutResult("shard", 1, None, 1, False)
    first = chunk.settle(range(2), outcome)
    assert first == chunk.held_bytes * 2 // 3
    assert first + chunk.settle([2], outcome) == chunk.held_bytes
    assert chunk.unsettled == 0


@given(st.integers(1, 40), st.integers(0, 10_000), st.randoms(use_true_random=False))
def test_what_becomes_free_sums_up_to_what_was_held(records: int, data_bytes: int, rng: Random) -> None:
    chunk = make_chunk([("k", b"")] * records)
    chunk.close(records, records * RECORD_OVERHEAD_BYTES + data_bytes)
    left = rng.sample(range(records), records)
    freed = 0
    while left:
        some, left = left[: (cut := rng.randint(1, len(left)))], left[cut:]
        freed += chunk.settle(some, [Answer("shard", "1")] * len(some))
        assert 0 <= freed <= chunk.held_bytes
    assert freed == chunk.held_bytes


def test_each_record_has_its_own_outcome_or_shares_one() -> None:
    chunk = make_chunk([("k", b"")] * 5)
    chunk.settle(range(1, 3), [Answer("s", "1"), Answer("s", "2")])
    chunk.settle((4,), PutResult("s", 3, None, 1, False))
    numbers = [found.sequence_number if isinstance(found, PutResult) else found for found in chunk.outcomes]
    assert numbers == [None, 1, 2, None, 3]
    assert [chunk.is_settled(index) for index in range(5)] == [False, True, True, False, True]
    assert not chunk.is_settled(ALL)


def test_a_caller_that_waits_for_a_record_or_for_all_is_called_when_it_is_settled() -> None:
    chunk = make_chunk([("k", b"")] * 3)
    heard: list[int | str] = []
    for index in (0, 2, ALL):
        chunk.when_settled(index, partial(heard.append, index))
    chunk.settle(range(1), PutResult("s", 1, None, 1, False))
    assert heard == [0]
    chunk.when_settled(0, lambda: heard.append("at once"))
    assert heard == [0, "at once"]
    chunk.settle([1, 2], PutResult("s", 2, None, 1, False))
    assert heard == [0, "at once", 2, ALL]
    chunk.when_settled(ALL, lambda: heard.append("all"))
    assert heard[-1] == "all"


def test_a_record_of_a_chunk_that_is_still_open_has_no_outcome() -> None:
    chunk = make_chunk([])
    assert not chunk.is_settled(0)
