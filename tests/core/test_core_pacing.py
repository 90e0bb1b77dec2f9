from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.core.pacing import Backoff, TokenBucket, full_jitter_s

MIB = 1024 * 1024


def shard_bucket() -> TokenBucket:
    return TokenBucket(records_per_s=1000, bytes_per_s=MIB)


def test_starts_full_and_refuses_when_records_are_out() -> None:
    bucket = shard_bucket()
    assert bucket.take(0.0, records=1000, payload_bytes=1000)
    assert not bucket.take(0.0, records=1)
    assert bucket.take(0.001, records=1)


def test_bytes_bound_as_well_and_a_refusal_takes_nothing() -> None:
    bucket = shard_bucket()
    assert bucket.take(0.0, records=1, payload_bytes=MIB)
    assert not bucket.take(0.0, records=1, payload_bytes=1)
    assert bucket.level(0.0) == (999.0, 0.0)


def test_wait_is_that_of_the_scarcer_dimension() -> None:
    bucket = shard_bucket()
    bucket.take(0.0, records=500, payload_bytes=MIB)
    assert math.isclose(bucket.wait_s(0.0, records=1, payload_bytes=MIB // 4), 0.25, rel_tol=1e-3)
    assert bucket.wait_s(0.0, records=1) == 0.0


def test_larger_than_the_burst_goes_when_full_and_is_paid_for_afterwards() -> None:
    bucket = shard_bucket()
    assert bucket.take(0.0, records=1, payload_bytes=10 * MIB)
    assert bucket.level(0.0)[1] == -9 * MIB
    assert math.isclose(bucket.wait_s(0.0, payload_bytes=10 * MIB), 10.0, rel_tol=1e-3)
    assert not bucket.take(9.0, payload_bytes=1)
    assert bucket.take(9.1, payload_bytes=1000)


def test_never_gathers_more_than_the_burst() -> None:
    bucket = TokenBucket(records_per_s=10, bytes_per_s=100, records_burst=20, bytes_burst=50)
    assert bucket.level(1e6) == (20, 50)


def test_a_clock_that_goes_back_refills_nothing_and_the_wait_includes_the_way_back() -> None:
    bucket = TokenBucket(records_per_s=10, bytes_per_s=math.inf, now_s=100.0)
    assert bucket.take(100.0, records=10)
    assert not bucket.take(90.0, records=1)
    assert math.isclose(bucket.wait_s(90.0, records=1), 10.1, rel_tol=1e-3)


def test_what_was_not_used_is_given_back() -> None:
    bucket = shard_bucket()
    bucket.take(0.0, records=10, payload_bytes=100)
    bucket.give_back(records=10, payload_bytes=100)
    assert bucket.level(0.0) == (1000, MIB)
    bucket.give_back(records=10, payload_bytes=100)
    assert bucket.level(0.0) == (1000, MIB)


def test_what_is_charged_may_become_debt() -> None:
    bucket = shard_bucket()
    bucket.charge(0.0, records=1500, payload_bytes=1000)
    assert bucket.level(0.0) == (-500, MIB - 1000)
    assert math.isclose(bucket.wait_s(0.0, records=1), 0.501, rel_tol=1e-3)


def test_rates_change_from_now_on() -> None:
    bucket = TokenBucket(records_per_s=10, bytes_per_s=100)
    bucket.take(0.0, records=10, payload_bytes=100)
    bucket.set_rates(0.5, records_per_s=2, bytes_per_s=20)
    assert bucket.level(1.5) == (7, 70)


def test_emptied_keeps_its_debt() -> None:
    bucket = TokenBucket(records_per_s=10, bytes_per_s=100)
    bucket.take(0.0, records=1, payload_bytes=300)
    bucket.empty(0.0)
    assert bucket.level(0.0) == (0, -200)


@pytest.mark.parametrize("rates", [(0, 1), (1, 0), (-1, 1)])
def test_rates_must_be_above_zero(rates: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="above zero"):
        TokenBucket(records_per_s=rates[0], bytes_per_s=rates[1])
    with pytest.raises(ValueError, match="above zero"):
        shard_bucket().set_rates(0.0, records_per_s=rates[0], bytes_per_s=rates[1])


amounts = st.tuples(st.integers(0, 50), st.integers(0, 5000))


@given(st.lists(amounts, max_size=30), st.sampled_from([0.0, 1.7e9]))
def test_a_caller_that_waits_as_told_is_served_and_stays_within_the_rate(
    requests: list[tuple[int, int]], start: float
) -> None:
    bucket = TokenBucket(records_per_s=20, bytes_per_s=1000, now_s=start)
    now, records_taken, bytes_taken = start, 0, 0
    for records, payload_bytes in requests:
        now += bucket.wait_s(now, records=records, payload_bytes=payload_bytes)
        assert bucket.take(now, records=records, payload_bytes=payload_bytes)
        # Not more than one burst, the time passed, and the debt of the request just made.
        assert records_taken <= 20 + 20 * (now - start) + 1e-3
        assert bytes_taken <= 1000 + 1000 * (now - start) + 1e-3
        records_taken += min(records, 20)
        bytes_taken += min(payload_bytes, 1000)


def test_an_unlimited_dimension_never_waits() -> None:
    bucket = TokenBucket(records_per_s=5, bytes_per_s=math.inf)
    assert bucket.take(0.0, records=5, payload_bytes=10**12)
    assert math.isclose(bucket.wait_s(0.0, records=1, payload_bytes=10**12), 0.2, rel_tol=1e-3)


@given(st.integers(1, 10**6), st.integers())
def test_jitter_lies_between_zero_and_the_doubled_base_under_the_cap(attempt: int, seed: int) -> None:
    wait = full_jitter_s(attempt, base_s=0.1, cap_s=5.0, rng=Random(seed))
    assert 0.0 <= wait <= min(5.0, 0.1 * 2.0 ** min(attempt - 1, 100))


def test_jitter_uses_the_whole_interval() -> None:
    rng = Random(1)
    waits = [full_jitter_s(4, base_s=0.1, cap_s=5.0, rng=rng) for _ in range(2000)]
    assert min(waits) < 0.01
    assert max(waits) > 0.79
    assert abs(sum(waits) / len(waits) - 0.4) < 0.02


def test_attempts_count_from_one() -> None:
    with pytest.raises(ValueError, match="from 1"):
        full_jitter_s(0, base_s=1, cap_s=1, rng=Random(0))


def test_backoff_grows_with_failures_and_starts_anew_after_a_success() -> None:
    class Highest(Random):
        def uniform(self, a: float, b: float) -> float:
            return b

    backoff = Backoff(base_s=0.5, cap_s=3.0, rng=Highest())
    assert [backoff.next_s() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert backoff.attempt == 5
    backoff.reset()
    assert backoff.next_s() == 0.5


@pytest.mark.parametrize(("base", "cap"), [(0, 1), (2, 1), (-1, 1)])
def test_backoff_refuses_a_base_above_its_cap(base: float, cap: float) -> None:
    with pytest.raises(ValueError, match="base_s"):
        Backoff(base_s=base, cap_s=cap, rng=Random(0))
