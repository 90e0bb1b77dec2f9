from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardway.core.histogram import (
    BUCKETS_MAX,
    BUCKETS_PER_DOUBLING,
    RELATIVE_ERROR_MAX,
    VALUE_MAX,
    VALUE_MIN,
    Histogram,
)

values = st.one_of(
    st.just(0),
    st.integers(1, 10**12),
    st.floats(min_value=VALUE_MIN, max_value=VALUE_MAX, allow_nan=False),
    st.sampled_from([2.0**n for n in range(-30, 51)]),  # the ends of buckets
)
counted = st.lists(st.tuples(values, st.integers(1, 1000)), max_size=40)


def histogram(pairs: list[tuple[float, int]]) -> Histogram:
    made = Histogram()
    for value, count in pairs:
        made.add(value, count)
    return made


@given(counted, counted, counted)
def test_merging_is_associative_and_commutative_and_the_same_as_counting_all(
    a: list[tuple[float, int]], b: list[tuple[float, int]], c: list[tuple[float, int]]
) -> None:
    ha, hb, hc = histogram(a), histogram(b), histogram(c)
    assert (ha + hb) + hc == ha + (hb + hc) == (hc + ha) + hb == histogram(a + b + c)
    assert ha == histogram(a), "merging changed what was merged"
    merged = histogram(a)
    merged.merge(hb)
    assert merged == ha + hb


@given(counted.filter(bool), st.floats(0, 1))
def test_a_quantile_is_within_the_relative_error(pairs: list[tuple[float, int]], q: float) -> None:
    found = histogram(pairs).quantile(q)
    all_values = sorted(value for value, count in pairs for _ in range(count))
    exact = all_values[max(1, math.ceil(q * len(all_values))) - 1]
    assert found == pytest.approx(exact, rel=RELATIVE_ERROR_MAX * 1.000001, abs=0)


@given(counted)
def test_count_sum_mean_and_ends_are_exact(pairs: list[tuple[float, int]]) -> None:
    made = histogram(pairs)
    count = sum(count for _, count in pairs)
    assert made.count == count
    assert made.sum == pytest.approx(math.fsum(value * count for value, count in pairs), rel=1e-12, abs=count * 1e-12)
    if not pairs:
        assert (made.mean, made.min, made.max, made.quantile(0.5)) == (None, None, None, None)
        return
    assert made.mean == made.sum / count
    assert (made.quantile(0), made.quantile(1)) == (made.min, made.max)
    assert (made.min, made.max) == (min(value for value, _ in pairs), max(value for value, _ in pairs))


@given(counted)
def test_it_comes_back_from_json(pairs: list[tuple[float, int]]) -> None:
    made = histogram(pairs)
    text = json.dumps(made.to_dict(), allow_nan=False)
    back = Histogram.from_dict(json.loads(text))
    assert back == made
    assert back.to_dict() == made.to_dict() == histogram(pairs[::-1]).to_dict()
    assert back + made == made + made


@given(counted)
@example([(math.nextafter(VALUE_MIN, 1), 1)])
@example([(math.nextafter(2.0**-29, 1), 1), (math.nextafter(2.0**49, math.inf), 1)])
def test_a_bucket_holds_its_upper_bound_and_not_its_lower_one(pairs: list[tuple[float, int]]) -> None:
    found = dict(histogram(pairs).buckets())
    assert list(found) == sorted(found)
    for value, _ in pairs:
        if VALUE_MIN <= value <= VALUE_MAX:
            assert any(
                2 ** (n / BUCKETS_PER_DOUBLING) * (1 - 1e-14) < value <= 2 ** ((n + 1) / BUCKETS_PER_DOUBLING)
                for n in found
            )
    for n in range(-29, 51):  # at a power of two the cut is exact
        cut = sum(count for number, count in found.items() if number < n * BUCKETS_PER_DOUBLING)
        assert cut == sum(count for value, count in pairs if VALUE_MIN <= value <= 2.0**n)


@given(counted, counted)
def test_equal_means_the_same_counts(a: list[tuple[float, int]], b: list[tuple[float, int]]) -> None:
    same = histogram(a).to_dict() == histogram(b).to_dict()
    assert (histogram(a) == histogram(b)) is same
    assert histogram(a) != {"count": 0}


def test_the_buckets_are_bounded_whatever_the_values() -> None:
    rng = random.Random(1)
    made = Histogram()
    for _ in range(20_000):
        made.add(2.0 ** rng.uniform(-200, 200))
    assert len(made.to_dict()["buckets"]) <= BUCKETS_MAX
    assert made.count == 20_000
    assert made.max is not None
    assert made.quantile(1) == made.max > VALUE_MAX


def test_less_than_the_smallest_counts_as_zero() -> None:
    made = histogram([(VALUE_MIN / 2, 3), (0, 2), (8.0, 1)])
    assert made.to_dict()["zeros"] == 5
    assert made.quantile(0.5) == 0.0
    assert made.quantile(1) == 8.0


def test_no_count_is_nothing() -> None:
    assert histogram([(5.0, 0)]) == Histogram()


@pytest.mark.parametrize(
    ("value", "count"), [(-1e-9, 1), (math.nan, 1), (math.inf, 1), (1.0, -1), (math.nan, -1)], ids=str
)
def test_what_cannot_be_counted_is_an_error_and_changes_nothing(value: float, count: int) -> None:
    made = Histogram()
    with pytest.raises(ValueError, match="finite values from 0 on"):
        made.add(value, count)
    assert made == Histogram()


def test_a_quantile_is_between_0_and_1() -> None:
    with pytest.raises(ValueError, match="from 0 to 1, not 99"):
        histogram([(1.0, 1)]).quantile(99)


def test_the_summary_names_the_usual_figures() -> None:
    summary = histogram([(float(n), 1) for n in range(1, 1001)]).summary()
    assert list(summary) == ["count", "mean", "min", "p50", "p90", "p99", "p999", "max"]
    assert summary["count"] == 1000
    assert summary["mean"] == 500.5
    assert summary["p99"] == pytest.approx(990, rel=RELATIVE_ERROR_MAX)
    assert repr(histogram([(2.0, 4)])) == "Histogram(count=4, min=2, p50=2, p99=2, max=2)"
    assert repr(Histogram()) == "Histogram(empty)"


def test_a_copy_goes_its_own_way() -> None:
    made = histogram([(1.0, 1)])
    copied = made.copy()
    copied.add(2.0)
    assert made == histogram([(1.0, 1)])
    assert copied == histogram([(2.0, 1), (1.0, 1)])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"buckets_per_doubling": 8}, "of 8 buckets per doubling"),
        ({"count": 3}, "contradict each other"),
        ({"buckets": [[99999, 2]]}, "contradict each other"),
        ({"buckets": [[600, 3]], "zeros": -1}, "contradict each other"),
        ({"sum_2_40": "much"}, "this is no histogram"),
        ({"buckets": None}, "this is no histogram"),
    ],
    ids=str,
)
def test_a_dict_that_is_no_histogram_is_refused(change: dict[str, object], reason: str) -> None:
    given = histogram([(1.0, 2)]).to_dict()
    with pytest.raises(ValueError, match=reason):
        Histogram.from_dict({**given, **change})
    with pytest.raises(ValueError, match="this is no histogram: KeyError"):
        Histogram.from_dict({})
