"""A run is a stretch of a chunk's records: it is cut, picked from, put into aggregates, and knows which they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.core.aggregation import Aggregator
from penstock.core.batching.chunk import Run, chosen
from tests.core.batching.batching_kit import make_run

if TYPE_CHECKING:
    from collections.abc import Sequence


def test_records_are_cut_off_the_front() -> None:
    run = make_run(("a", b"1"), ("b", b"2"), ("c", b"3"))
    first = run.cut(2)
    assert (first.keys, first.datas, list(first.indices)) == (["a", "b"], [b"1", b"2"], [0, 1])
    assert len(run) == 1
    last = run.cut(1)
    assert (list(last.indices), last.datas, len(run)) == ([2], [b"3"], 0)


def test_what_a_run_went_through_stays_with_its_parts() -> None:
    run = Run(make_run(("a", b"1")).chunk, ["a", "b"], [b"1", b"2"], [4, 7])
    run.attempts, run.doubtful, run.reason = 2, True, "why"
    for part in (run.only((1,)), run.cut(1)):
        assert (part.attempts, part.doubtful, part.reason) == (2, True, "why")


@pytest.mark.parametrize("indices", [range(4), [3, 5, 8, 9], (0, 1, 2, 4)])
def test_records_are_picked_by_their_places(indices: Sequence[int]) -> None:
    run = Run(make_run(("a", b"1")).chunk, list("abcd"), [b"1", b"2", b"3", b"4"], indices)
    picked = run.only([1, 3])
    assert (list(picked.keys), list(picked.datas)) == (["b", "d"], [b"2", b"4"])
    assert list(picked.indices) == [indices[1], indices[3]]


@pytest.mark.parametrize(("places", "found"), [([], []), ([2], ["c"]), ([0, 2], ["a", "c"])])
def test_a_column_is_picked_from(places: list[int], found: list[str]) -> None:
    assert list(chosen("abc", places)) == found


def test_what_was_withdrawn_is_left_out() -> None:
    run = make_run(("a", b"1"), ("b", b"2"), ("c", b"3"))
    assert run.without_withdrawn() == 0
    run.cut(1)
    run.chunk.withdrawn = {0, 1}
    assert run.without_withdrawn() == 1  # the other one is not here any more
    assert (list(run.indices), list(run.datas), len(run)) == ([2], [b"3"], 1)


def test_explicit_hash_keys_are_those_of_the_records_that_are_left() -> None:
    run = make_run(("a", b"1"), ("b", b"2"), ("c", b"3"), hash_keys={0: 7, 2: 9})
    assert list(run.hash_keys()) == [7, None, 9]
    run.cut(1)
    assert list(run.hash_keys()) == [None, 9]
    assert list(run.only((2,)).hash_keys()) == [9]
    assert list(make_run(("a", b"1")).hash_keys()) == [None]


def test_payload_is_data_and_keys_in_utf_8() -> None:
    run = make_run(("ü", b"12"), ("b", b"3"))
    assert run.payload_bytes() == 6
    assert run.record_bytes(0) == 4
    run.cut(1)
    assert run.payload_bytes() == 2


@pytest.mark.parametrize("hash_keys", [None, {1: 5}])
def test_an_aggregate_takes_as_many_records_as_it_has_room_for(hash_keys: dict[int, int] | None) -> None:
    run = make_run(*[(f"k{number}", b"x" * 20) for number in range(20)], hash_keys=hash_keys)
    aggregator = Aggregator(bytes_max=200)
    added, is_full = run.add_to(aggregator)
    assert 0 < added < 20
    assert is_full
    assert aggregator.user_records == added
    run.cut(20 - 1)
    aggregator.finish()
    assert run.add_to(aggregator) == (1, False)
