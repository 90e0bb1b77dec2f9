"""How producers share a shard, by simulation; then the rules of one rate by itself."""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.core.producer.pace import BURST_S, GROWTH_PER_S, KEPT, PORTION_S, SHARE_MIN, WAIT_MAX_S, AdaptiveRate
from tests.core.producer.shard_simulator import BYTES_PER_S, MeteredLimit, Simulation, WindowLimit, Writer

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1_048_576

sizes = pytest.mark.parametrize("size", [100, 1_500, 51_200])
round_trips = pytest.mark.parametrize("rtt_s", [0.005, 0.02, 0.05])
# (limit, the least share of a settled shard): a service that counts by the second refuses whatever is bunched at the
# end of a second, and 51,200 bytes go only 20 times into 1 MiB, so that 0.977 is the most there is.
limits = pytest.mark.parametrize(("limit", "share_min"), [(MeteredLimit, 0.98), (WindowLimit, 0.92)])


@limits
@sizes
@round_trips
def test_two_producers_use_the_shard_and_share_it(
    limit: Callable[[], MeteredLimit | WindowLimit], share_min: float, size: int, rtt_s: float
) -> None:
    fairness = []
    for seed in (1, 2):
        run = Simulation([Writer(size, rtt_s), Writer(size, rtt_s)], limit(), seed).run(60)
        assert run.share(20, 60) > share_min
        assert run.refused(20, 60) < 0.03
        assert run.refused(0, 60) < 0.04
        fairness.append(run.fairness(20, 60))
    assert min(fairness) > 0.4
    assert sum(fairness) / 2 > 0.5


@sizes
@round_trips
def test_one_alone_has_the_whole_shard_and_is_refused_nothing(size: int, rtt_s: float) -> None:
    run = Simulation([Writer(size, rtt_s)], MeteredLimit(), 1).run(30)
    assert run.share(0, 30) > 0.98
    assert run.refused(0, 30) == 0.0


@sizes
def test_one_alone_at_a_service_that_counts_by_the_second(size: int) -> None:
    run = Simulation([Writer(size)], WindowLimit(), 1).run(60)
    assert run.share(10, 60) > 0.93
    assert run.refused(0, 60) < 0.015


@limits
@sizes
def test_a_second_producer_that_comes_later(
    limit: Callable[[], MeteredLimit | WindowLimit], share_min: float, size: int
) -> None:
    run = Simulation([Writer(size), Writer(size, start_s=30)], limit(), 1).run(90)
    assert run.share(50, 90) > share_min
    assert run.refused(30, 50) < 0.06
    assert run.refused(50, 90) < 0.03
    assert run.fairness(50, 90) > 0.45


@limits
@sizes
@pytest.mark.parametrize("number", [3, 4])
def test_three_and_four_producers(
    limit: Callable[[], MeteredLimit | WindowLimit], share_min: float, size: int, number: int
) -> None:
    run = Simulation([Writer(size, start_s=start_s) for start_s in range(number)], limit(), 1).run(60)
    assert run.share(20, 60) > share_min
    assert run.refused(20, 60) < 0.05
    assert run.fairness(20, 60) > 0.25


@limits
@sizes
def test_the_greedy_one_gets_what_the_modest_one_leaves(
    limit: Callable[[], MeteredLimit | WindowLimit], share_min: float, size: int
) -> None:
    greedy, modest = Writer(size), Writer(size, demand=0.2)
    run = Simulation([greedy, modest], limit(), 1).run(60)
    assert run.share(20, 60) > share_min
    assert run.refused(20, 60) < 0.03
    # The modest one may still send what it could not send at first.
    assert 0.19 < modest.share(20, 60) < 0.27


@limits
@sizes
@pytest.mark.parametrize("leaving", [1, 3])
def test_a_producer_that_stays_has_the_shard_again_after_others_left(
    limit: Callable[[], MeteredLimit | WindowLimit], share_min: float, size: int, leaving: int
) -> None:
    stays = Writer(size)
    run = Simulation([stays, *(Writer(size, stop_s=20) for _ in range(leaving))], limit(), 1).run(50)
    assert stays.share(40, 50) > share_min - 0.01
    assert run.refused(40, 50) < 0.02


@pytest.mark.parametrize(
    "unlike",
    [
        {"rtt_s": 0.3},
        {"rtt_spread": 0.0},
        {"in_flight_max": 1},
        {"poll_s": 0.01},
        {"poll_s": 0.05},
    ],
    ids=str,
)
@sizes
def test_it_holds_for_other_ways_of_sending(unlike: dict[str, Any], size: int) -> None:
    run = Simulation([Writer(size, **unlike), Writer(size, **unlike)], MeteredLimit(), 1).run(60)
    assert run.share(20, 60) > 0.97
    assert run.refused(20, 60) < 0.03


@sizes
def test_a_near_and_a_far_producer_are_treated_alike(size: int) -> None:
    run = Simulation([Writer(size, 0.005), Writer(size, 0.1)], MeteredLimit(), 1).run(60)
    assert run.fairness(20, 60) > 0.5


def test_producers_that_are_bound_by_different_limits_hardly_meet() -> None:
    many_small, few_large = Writer(100), Writer(51_200)
    run = Simulation([many_small, few_large], MeteredLimit(), 1).run(60)
    assert many_small.share(20, 60) > 0.85
    assert few_large.share(20, 60) > 0.7
    assert run.refused(20, 60) < 0.02


def test_a_shard_is_sent_to_in_portions_and_not_record_by_record() -> None:
    writer = Writer(100)
    Simulation([writer], MeteredLimit(), 1).run(30)
    assert 15 < writer.requests / 30 < 25


# --- one rate by itself -----------------------------------------------------------------------------


def make(now_s: float = 0.0, share: float = 1.0, **more: float) -> AdaptiveRate:
    return AdaptiveRate(now_s=now_s, rng=Random(1), share=share, **more)


def test_starts_in_the_middle_and_is_at_the_limit_a_second_later() -> None:
    rate = AdaptiveRate(now_s=5.0, rng=Random(1))
    assert rate.share == 0.5
    rate.allowance(6.0)
    assert rate.share == 1.0


def test_what_may_be_sent_at_once_is_the_burst() -> None:
    assert make().allowance(0.0) == (1000 * BURST_S, MIB * BURST_S)


def test_a_long_pause_gathers_no_more_than_the_burst_and_no_rate_above_the_limit() -> None:
    rate = make(share=0.3)
    rate.note_refused(0.0, 10, 1000)
    assert rate.allowance(1e6) == (1000 * BURST_S, MIB * BURST_S)
    assert rate.share == 1.0


def test_after_all_was_sent_nothing_may_be_until_a_portion_has_gathered() -> None:
    rate = make()
    rate.take(0.0, *rate.allowance(0.0))
    wait_s = rate.wait_s(0.0, 1, 100)
    assert 0.5 * PORTION_S <= wait_s <= 1.5 * PORTION_S + 1e-3
    assert rate.allowance(0.99 * wait_s) == (0, 0)
    # What was waited for may be a few calls away: the gate is looked at again from time to time.
    records, payload_bytes = rate.allowance(wait_s + rate.wait_s(wait_s, 1, 100))
    assert records >= 0.5 * PORTION_S * 1000 - 1
    assert payload_bytes >= 0.5 * PORTION_S * MIB - 1


def test_a_little_that_was_sent_closes_nothing() -> None:
    rate = make()
    rate.take(0.0, 10, 1000)
    assert rate.allowance(0.0) == (1000 * BURST_S - 10, MIB * BURST_S - 1000)
    assert rate.wait_s(0.0, 1, 100) == 0.0


def test_the_largest_record_passes_and_is_paid_for_afterwards() -> None:
    rate = make()
    assert rate.wait_s(0.0, 1, 10 * MIB) == 0.0
    rate.take(0.0, 1, 10 * MIB)
    assert rate.wait_s(0.0, 1, 100) == WAIT_MAX_S
    assert rate.allowance(9.7) == (0, 0)
    assert rate.allowance(9.9) != (0, 0)


def test_a_record_larger_than_the_burst_waits_until_the_shard_has_room_for_it() -> None:
    rate = make()
    rate.take(10.0, 100, 200_000)
    assert rate.wait_s(10.3, 1, 10 * MIB) == pytest.approx(0.7, abs=1e-5)
    assert rate.wait_s(11.0, 1, 10 * MIB) == 0.0
    # Many records that together are more than the burst do not: each may be taken by itself.
    assert rate.wait_s(10.5, 400, 400_000) == 0.0


def test_a_refusal_costs_in_proportion_to_what_was_refused() -> None:
    rate = make()
    rate.note_refused(0.0, 10, 1000)
    assert rate.share == pytest.approx(1 - 1.5 * 0.01)
    rate.note_refused(0.0, 1, 52_429)
    assert rate.share == pytest.approx(1 - 1.5 * 0.01 - 1.5 * 0.05, rel=1e-3)


def test_many_refusals_that_tell_the_same_count_once() -> None:
    rate = make()
    now_s = 0.0
    for _ in range(40):  # half of what is sent, for two seconds
        now_s += 0.05
        rate.note_accepted(now_s, 25, 2500)
        rate.note_refused(now_s, 25, 2500)
    assert KEPT * 0.5 <= rate.share <= 0.55


def test_all_refused_for_long_leaves_the_least_share_and_comes_back() -> None:
    rate = make()
    for tenth in range(200):
        rate.note_refused(tenth / 10, 100, 1000)
    assert rate.share == SHARE_MIN
    rate.allowance(20 + 25)
    assert rate.share > 0.95


def test_grows_slowly_after_a_refusal_and_faster_after_long_quiet() -> None:
    rate = make(share=0.5)
    rate.note_refused(0.0, 1, 100)
    start = rate.share
    rate.allowance(1.0)
    assert rate.share - start == pytest.approx(GROWTH_PER_S, rel=0.02)
    for second in range(2, 21):
        rate.allowance(second)
    assert rate.share > 0.95


def test_growth_does_not_depend_on_how_often_it_is_looked_at() -> None:
    shares = []
    for steps in (4, 4000):
        rate = make(share=0.2)
        rate.note_refused(0.0, 1, 100)
        for step in range(1, steps + 1):
            rate.wait_s(8.0 * step / steps, 1, 100)
        shares.append(rate.share)
    assert shares[0] == pytest.approx(shares[1], abs=1e-3)


def test_other_limits() -> None:
    rate = make(records_per_s=2, bytes_per_s=1000)
    assert rate.allowance(0.0) == (1, 250)
    rate.take(0.0, 1, 250)
    assert rate.allowance(0.4) == (0, 0)
    assert rate.allowance(0.55) == (1, 250)


@pytest.mark.parametrize("wrong", [{"records_per_s": 0}, {"bytes_per_s": math.inf}, {"share": 0.0}, {"share": 1.1}])
def test_limits_and_share_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="above"):
        make(**wrong)


def test_a_clock_that_goes_back_neither_grows_nor_fills() -> None:
    rate = make(now_s=100.0, share=0.5)
    rate.note_refused(100.0, 1, 100)
    rate.take(100.0, *rate.allowance(100.0))
    share = rate.share
    assert rate.allowance(50.0) == (0, 0)
    assert rate.wait_s(50.0, 1, 100) == WAIT_MAX_S
    rate.note_accepted(50.0, 1, 100)
    rate.note_refused(50.0, 1, 100)
    assert rate.share < share


steps = st.tuples(st.integers(1, 120), st.integers(1, 400_000), st.sampled_from(["taken", "refused", "lost"]))


@given(st.lists(steps, max_size=40), st.sampled_from([0.0, 1.7e9]), st.integers(0, 1000))
def test_a_producer_that_waits_as_told_may_send_and_stays_within_the_limit(
    requests: list[tuple[int, int, str]], start_s: float, seed: int
) -> None:
    rate = AdaptiveRate(now_s=start_s, rng=Random(seed))
    now_s, records_sent, bytes_sent = start_s, 0, 0
    for records, payload_bytes, outcome in requests:
        waits = 0
        while (wait_s := rate.wait_s(now_s, records, payload_bytes)) > 0:
            assert wait_s <= WAIT_MAX_S
            now_s += wait_s
            waits += 1
            assert waits < 1000
        assert rate.allowance(now_s) >= (min(records, int(1000 * BURST_S)), 0)
        # The debt of the request before is paid: no more than a burst and what the time brought.
        assert records_sent <= 1000 * (BURST_S + now_s - start_s) + 1e-3
        assert bytes_sent <= BYTES_PER_S * (BURST_S + now_s - start_s) + 1
        rate.take(now_s, records, payload_bytes)
        records_sent += records
        bytes_sent += payload_bytes
        if outcome == "taken":
            rate.note_accepted(now_s, records, payload_bytes)
        elif outcome == "refused":
            rate.note_refused(now_s, records, payload_bytes)
        assert SHARE_MIN <= rate.share <= 1.0
