from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.spark.driver.batch_size import (
    OVERSHOOT,
    SHARD_BYTES_PER_MS,
    SHARD_ROWS_PER_MS,
    WORST,
    CutSearch,
    Profile,
    expected_size,
    latest_cut_within,
    latest_sure_cut,
    total_share,
)
from shardway.spark.lookahead.lookahead import Bound, KnownRecord, Lookahead, Tail
from shardway.spark.options.caps import Caps
from shardway.spark.ranges import EndKind


def look(*times: int, beyond: Tail = Tail.UNKNOWN, size: int = 100) -> Lookahead:
    return Lookahead([KnownRecord(n, time_ms, 1, size) for n, time_ms in enumerate(times)], beyond)


def test_what_was_seen_counts_exactly() -> None:
    assert expected_size(look(10, 20, 30, beyond=Tail.TIP), 25) == (2, 200)
    assert expected_size(look(10, 20, 30, beyond=Tail.END), 1_000_000) == (3, 300)


def test_beyond_it_the_sampled_rate_counts() -> None:
    rows, size = expected_size(look(0, 10, 20), 120)
    assert rows == 3 + 100 * 3 / 20
    assert size == 100 * rows


def test_a_sample_behind_the_cut_is_averaged_in() -> None:
    rows, _ = expected_size(look(0, 10, 20), 120, look(120, 121, 122))
    assert rows == 3 + 100 * (3 / 20 + 3 / 2) / 2


def test_one_record_alone_counts_as_a_full_shard() -> None:
    assert expected_size(look(0), 100)[0] == 1 + 100 * SHARD_ROWS_PER_MS


@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=50), st.integers(1, 100))
def test_the_latest_cut_keeps_within_the_cap(times: list[int], rows: int) -> None:
    one = look(*sorted(times), beyond=Tail.TIP)
    cut_ms = latest_cut_within(Caps(rows, None), [one], min(times) + 1, 20_000)
    inside = sum(time_ms < cut_ms for time_ms in times)
    assert inside <= rows or cut_ms == min(times) + 1
    if cut_ms < 20_000:
        assert sum(time_ms < cut_ms + 1 for time_ms in times) > rows


def test_a_second_of_writes_may_lie_in_the_moment_behind_what_was_seen() -> None:
    """A shard takes what it may be written in a second in one millisecond too, and no sample shows that."""
    second = 1000 * SHARD_ROWS_PER_MS
    one = look(0, 10_000, 20_000)
    rows, size = Profile(one).worst_size(20_001)
    assert rows >= 3 + second
    assert size >= 300 + 1000 * SHARD_BYTES_PER_MS
    assert Profile(one).worst_size(20_000) == (2, 200), "before that, what was seen is what there is"
    assert Profile(look(0, 10, beyond=Tail.TIP)).worst_size(1_000) == (2, 200)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("cap", [100, 300, 400, 2_000])
def test_a_sure_cut_holds_for_the_worst_that_shards_may_be_written(cap: int, shards: int) -> None:
    """At the worst each shard is written a second's records behind what was seen, and then at its full rate."""
    quiet = [look(*range(0, 20_001, 1_000)) for _ in range(shards)]
    cut_ms = latest_sure_cut(Caps(cap, None), quiet, 20_001, 60_000)
    span_ms = cut_ms - 20_000
    written = shards * (21 + 1000 * SHARD_ROWS_PER_MS + span_ms * SHARD_ROWS_PER_MS)
    assert written <= WORST * cap or cut_ms == 20_001
    later = written + shards * SHARD_ROWS_PER_MS
    assert later > WORST * cap, "no later cut is sure"


def test_caps_add_up_to_the_fuller_one() -> None:
    assert total_share(Caps(100, 1000), [(10, 500), (10, 400)]) == 0.9
    assert total_share(Caps(100, None), [(10, 500), (10, 400)]) == 0.2


@given(st.floats(0.01, 50), st.integers(10, 100_000))
def test_a_cut_is_corrected_until_it_fits_an_even_rate(rate: float, rows: int) -> None:
    """On an even rate the search ends with a batch that does not exceed the cap by more than the overshoot."""
    search = CutSearch(0, 10_000_000)
    cut_ms = 1_000
    share = 0.0
    for _ in range(CutSearch.TRIES_MAX + 1):
        share = cut_ms * rate / rows
        better = search.next_cut(cut_ms, share, cut_ms)
        if better is None:
            break
        cut_ms = better
    else:
        raise AssertionError("the search does not end")
    if rate * 64 < rows < rate * 64_000:  # what four tries can reach
        assert share <= OVERSHOOT


def test_a_cut_that_takes_too_little_goes_past_the_next_record() -> None:
    search = CutSearch(0, 10_000)
    assert search.next_cut(10, 0.01, 5_000) == 5_001


def test_a_bound_is_the_first_record_behind_the_cut() -> None:
    seen = look(10, 20, 30)
    assert seen.bound(15) == Bound(EndKind.EXCLUSIVE, 1, 20)
    assert seen.bound(40) is None
    assert look(10, 20, beyond=Tail.TIP).bound(40) == Bound(EndKind.INCLUSIVE, 1, 20)
    assert look(10, 20, beyond=Tail.END).bound(40) == Bound(EndKind.SHARD_END, None, 20)


def test_arrival_times_need_not_grow() -> None:
    """All that lies before the bound in the log is in the batch, whatever its time says."""
    seen = look(10, 50, 20, 60)
    bound = seen.bound(40)
    assert bound == Bound(EndKind.EXCLUSIVE, 1, 50)
    assert [one.sequence_number for one in seen.behind(bound).records] == [1, 2, 3]


def test_behind_an_inclusive_bound_nothing_of_it_is_left() -> None:
    seen = look(10, 20, beyond=Tail.TIP)
    bound = seen.bound(40)
    assert bound is not None
    assert seen.behind(bound).records == []
