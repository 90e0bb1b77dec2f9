"""A chunk knows what became of its records, which callers wait for them, and what they take of the buffer's bound; a
run is a stretch of it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.core.aggregation.writer import Aggregator
from shardway.core.producer.chunk import ALL, RECORD_OVERHEAD_BYTES
from shardway.core.producer.outcome import NotWritten, outcomes_of
from shardway.core.producer.run import Run, values_at
from shardway.errors import RecordExpiredError
from shardway.model import PutResult
from tests.core.producer.producer_kit import cut, make_chunk, make_run, result_of
from tests.put_entries import Answer

if TYPE_CHECKING:
    from collections.abc import Sequence
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


LATE = NotWritten(RecordExpiredError, "too late", 3, True, "shard", "why")


def test_the_answer_itself_stands_for_what_was_taken_at_once() -> None:
    assert list(outcomes_of([Answer("shard", "17"), Answer("other", "18")], 2)) == [
        PutResult("shard", 17, None, 1, False),
        PutResult("other", 18, None, 1, False),
    ]


def test_records_of_an_aggregate_are_numbered_by_their_place_in_it() -> None:
    chunk = make_chunk([("k", b"")] * 9)
    chunk.settle((3, 5, 8), PutResult("shard", 17, 10, 2, True))
    assert [result_of(chunk, index).sub_sequence_number for index in (3, 5, 8)] == [10, 11, 12]
    assert chunk.outcomes[5] == PutResult("shard", 17, 11, 2, True)
    assert chunk.outcomes[4] is None


def test_records_on_their_own_have_no_number() -> None:
    assert list(outcomes_of(PutResult("shard", 17, None, 2, False), 2)) == [PutResult("shard", 17, None, 2, False)] * 2


def test_outcomes_of_a_stretch_and_of_scattered_records_stand_where_they_belong() -> None:
    chunk = make_chunk([("k", b"")] * 5)
    chunk.settle(range(1, 3), PutResult("shard", 1, 0, 1, False))
    chunk.settle((0,), LATE)
    chunk.settle(range(3, 5), [Answer("shard", "2"), Answer("shard", "3")])
    assert chunk.outcomes == [
        LATE,
        PutResult("shard", 1, 0, 1, False),
        PutResult("shard", 1, 1, 1, False),
        PutResult("shard", 2, None, 1, False),
        PutResult("shard", 3, None, 1, False),
    ]


def test_an_error_is_made_anew_each_time() -> None:
    error = LATE.error()
    assert isinstance(error, RecordExpiredError)
    assert str(error).startswith("too late (shard shard); 3 attempts, the last met why; it may")
    assert LATE.error() is not error


def test_records_are_cut_off_the_front() -> None:
    run = make_run(("a", b"1"), ("b", b"2"), ("c", b"3"))
    first = cut(run, 2)
    assert (first.keys, first.datas, list(first.indices)) == (["a", "b"], [b"1", b"2"], [0, 1])
    assert len(run) == 1
    last = cut(run, 1)
    assert (list(last.indices), last.datas, len(run)) == ([2], [b"3"], 0)


def test_what_a_run_went_through_stays_with_its_parts() -> None:
    run = Run(make_run(("a", b"1")).chunk, ["a", "b"], [b"1", b"2"], [4, 7])
    run.attempts, run.doubtful, run.reason = 2, True, "why"
    for part in (run.pick((1,)), cut(run, 1)):
        assert (part.attempts, part.doubtful, part.reason) == (2, True, "why")


@pytest.mark.parametrize("indices", [range(4), [3, 5, 8, 9], (0, 1, 2, 4)])
def test_records_are_picked_by_their_places(indices: Sequence[int]) -> None:
    run = Run(make_run(("a", b"1")).chunk, list("abcd"), [b"1", b"2", b"3", b"4"], indices)
    picked = run.pick([1, 3])
    assert (list(picked.keys), list(picked.datas)) == (["b", "d"], [b"2", b"4"])
    assert list(picked.indices) == [indices[1], indices[3]]


@pytest.mark.parametrize(("places", "found"), [([], []), ([2], ["c"]), ([0, 2], ["a", "c"])])
def test_a_column_is_picked_from(places: list[int], found: list[str]) -> None:
    assert list(values_at("abc", places)) == found


def test_what_was_withdrawn_is_left_out() -> None:
    run = make_run(("a", b"1"), ("b", b"2"), ("c", b"3"))
    assert run.drop_withdrawn() == 0
    cut(run, 1)
    run.chunk.withdrawn = {0, 1}
    assert run.drop_withdrawn() == 1  # the other one is not here any more
    assert (list(run.indices), list(run.datas), len(run)) == ([2], [b"3"], 1)


def test_explicit_hash_keys_are_those_of_the_records_that_are_left() -> None:
    run = make_run(("a", b"1"), ("b", b"2"), ("c", b"3"), hash_keys={0: 7, 2: 9})
    assert list(run.hash_keys()) == [7, None, 9]
    cut(run, 1)
    assert list(run.hash_keys()) == [None, 9]
    assert list(run.pick((2,)).hash_keys()) == [9]
    assert list(make_run(("a", b"1")).hash_keys()) == [None]


def test_payload_is_data_and_keys_in_utf_8() -> None:
    run = make_run(("ü", b"12"), ("b", b"3"))
    assert run.payload_bytes() == 6
    assert run.record_bytes(0) == 4
    cut(run, 1)
    assert run.payload_bytes() == 2


@pytest.mark.parametrize("hash_keys", [None, {1: 5}])
def test_an_aggregate_takes_as_many_records_as_it_has_room_for(hash_keys: dict[int, int] | None) -> None:
    run = make_run(*[(f"k{number}", b"x" * 20) for number in range(20)], hash_keys=hash_keys)
    aggregator = Aggregator(bytes_max=200)
    added, is_full = run.add_to(aggregator)
    assert 0 < added < 20
    assert is_full
    assert aggregator.user_records == added
    cut(run, 20 - 1)
    aggregator.finish()
    assert run.add_to(aggregator) == (1, False)
