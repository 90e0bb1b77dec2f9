from __future__ import annotations

import math
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from shardway.core.service_clock import (
    SEARCH_CALLS_MAX,
    SEARCH_WIDTH_S,
    SERVICE_CLOCK_S,
    ClockSearch,
    ServiceClock,
    SteadyEpoch,
)


def test_knows_nothing_before_the_first_answer() -> None:
    clock = ServiceClock()
    assert not clock.known
    assert clock.lower(5.0) == -math.inf
    assert clock.upper(5.0) == math.inf
    assert clock.offset_s == 0.0


def test_one_answer_bounds_the_time_by_a_second_and_the_round_trip() -> None:
    clock = ServiceClock(drift_max=0.0)
    clock.observe(1000, sent_s=10.0, received_s=10.25)
    assert clock.lower(10.25) == 1000.0
    assert clock.upper(10.25) == 1001.25
    assert clock.offset_s == (1000 - 10.25 + 1001 - 10.0) / 2


@given(
    ahead_s=st.floats(-700.0, 700.0),
    delays=st.lists(st.tuples(st.floats(0.0, 20.0), st.floats(0.0, 20.0)), min_size=1, max_size=5),
)
def test_the_time_that_answers_tell_is_never_much_later_than_the_service_s(
    ahead_s: float, delays: list[tuple[float, float]]
) -> None:
    """``ahead_s``: by how much the local clock is ahead. Each call takes a while before, and behind, the ``Date``."""
    clock, local_s = ServiceClock(), 1_000_000.0
    for before_s, behind_s in delays:
        date = math.floor(local_s + before_s - ahead_s)
        clock.observe(date, local_s, local_s + before_s + behind_s)
        local_s += before_s + behind_s
        assert clock.near_s(local_s) - SERVICE_CLOCK_S <= local_s - ahead_s


def test_the_time_is_the_local_clock_s_before_the_first_answer_and_where_both_may_agree() -> None:
    clock = ServiceClock()
    assert clock.near_s(5.0) == 5.0
    clock.observe(1000, 1000.4, 1000.5)
    assert clock.near_s(1000.5) == 1000.5


def test_a_clock_that_is_set_during_a_call_is_not_found_out_so_the_local_clock_is_steady() -> None:
    """``wall_s`` is set an hour ahead before the answer comes: the clock still takes it for right."""
    told, steady, steady_s, wall_s = ServiceClock(), ServiceClock(), 10.0, 1000.0
    local = SteadyEpoch(lambda: steady_s, lambda: wall_s)
    for ahead_s in (0.0, 3600.0):
        sent_s, sent_steady_s = wall_s, local()
        steady_s, wall_s = steady_s + 0.5, wall_s + 0.5 + ahead_s
        told.observe(1000, sent_s, wall_s)
        steady.observe(1000, sent_steady_s, local())
    assert told.near_s(wall_s) > 1001.0 + 3500.0
    assert steady.near_s(local()) == local() == 1001.0


def test_a_date_that_ticks_between_two_answers_pins_the_second() -> None:
    clock = ServiceClock(drift_max=0.0)
    clock.observe(1000, sent_s=9.98, received_s=9.99)  # still 1000
    clock.observe(1001, sent_s=10.0, received_s=10.01)  # already 1001
    assert math.isclose(clock.lower(10.01), 1001.0)
    assert clock.upper(10.01) - clock.lower(10.01) < 0.04


def test_bounds_widen_by_the_allowed_drift() -> None:
    clock = ServiceClock(drift_max=0.001)
    clock.observe(1000, 10.0, 10.0)
    assert math.isclose(clock.lower(110.0), 1100.0 - 0.1)
    assert math.isclose(clock.upper(110.0), 1101.0 + 0.1)


def test_a_jump_of_the_service_starts_anew() -> None:
    clock = ServiceClock()
    clock.observe(1000, 10.0, 10.1)
    clock.observe(29_800, 11.0, 11.1)
    assert clock.lower(11.1) == 29_800
    clock.observe(1002, 12.0, 12.1)
    assert clock.upper(12.1) < 1004


def test_hosts_that_disagree_a_little_are_no_jump() -> None:
    clock = ServiceClock(drift_max=0.0)
    clock.observe(1000, 10.0, 10.0)  # offset at most 991.0
    clock.observe(1001, 9.99, 9.99)  # offset at least 991.01
    assert math.isclose(clock.lower(0.0), 991.0)
    assert math.isclose(clock.upper(0.0), 991.01)


def test_an_allowed_drift_is_no_jump() -> None:
    clock = ServiceClock(drift_max=0.001, host_spread_max_s=0.0)
    clock.observe(1000, 10.0, 10.0)
    clock.observe(1001, 10.0, 10.0)  # the tick: the offset is 991.0 exactly
    clock.observe(1990, 1000.5, 1000.5)  # 990 s later the local clock is half a second ahead
    assert math.isclose(clock.lower(1000.5), 1000.5 + 991.0 - 0.9905)
    assert clock.upper(1000.5) == 1991.0


def test_an_answer_from_before_its_request_is_passed_over() -> None:
    clock = ServiceClock()
    clock.observe(1000, sent_s=20.0, received_s=10.0)
    assert not clock.known


def test_a_right_local_clock_is_left_alone_and_a_wrong_one_corrected() -> None:
    right, wrong = ServiceClock(), ServiceClock()
    right.observe(1000, 1000.2, 1000.3)
    wrong.observe(1000, 400.2, 400.3)
    assert right.offset_s == 0.0
    assert abs(wrong.offset_s - 600) < 1


@given(st.integers(0, 2**32), st.floats(-1e6, 1e6), st.floats(-400e-6, 400e-6))
def test_true_time_is_always_within_the_bounds(seed: int, offset: float, drift: float) -> None:
    rng = Random(seed)
    clock = ServiceClock(host_spread_max_s=0.0)
    start = 1_700_000_000.0

    def service_time(local: float) -> float:
        return local + offset + drift * (local - start)

    now = start
    for _ in range(30):
        now += rng.expovariate(1.0)
        sent, written = now, now + rng.random() * 0.3
        now = written + rng.random() * 0.3
        low, high = clock.lower(now), clock.upper(now)
        clock.observe(math.floor(service_time(written)), sent, now)
        assert clock.lower(now) >= low - 1e-5, "what is true contradicts nothing, so no bound is given up"
        assert clock.upper(now) <= high + 1e-5
        later = now + rng.random() * 10
        for moment in (now, later):
            assert clock.lower(moment) - 1e-5 <= service_time(moment) <= clock.upper(moment) + 1e-5


def answered(clock: ServiceClock, ahead_s: float, sent_s: float, rtt_s: float) -> None:
    """The clock hears an answer of a service whose time is ``ahead_s`` before the local one."""
    clock.observe(math.floor(sent_s + rtt_s / 2 + ahead_s), sent_s, sent_s + rtt_s)


@given(
    ahead_s=st.floats(-3000.0, 3000.0),
    phase_s=st.floats(0.0, 0.5),
    rtt_s=st.floats(0.0, 0.008),
)
def test_calls_at_half_seconds_never_tell_more_and_a_search_does(ahead_s: float, phase_s: float, rtt_s: float) -> None:
    clock, search = ServiceClock(), ClockSearch()
    now_s, calls = 1e6 + phase_s, 0
    for _ in range(40):  # the looks of a busy query
        answered(clock, ahead_s, now_s, rtt_s)
        call_s = search.call_s(clock, now_s + rtt_s)
        if call_s is not None:
            assert now_s <= call_s <= now_s + 1.0 + 2 * rtt_s
            answered(clock, ahead_s, call_s, rtt_s)
            calls += 1
        now_s += 0.5
    true_s = now_s + ahead_s
    assert clock.lower(now_s) <= true_s + 1e-6 <= clock.upper(now_s) + 2e-6
    assert clock.width_s(now_s) <= SEARCH_WIDTH_S + 2 * rtt_s  # it widens by drift until the next call
    assert calls <= SEARCH_CALLS_MAX + 2


def test_a_search_rests_where_the_way_to_the_service_is_longer_than_what_it_looks_for() -> None:
    clock, search = ServiceClock(), ClockSearch()
    calls = 0
    for number in range(240):
        now_s = 50.3 + number / 2
        answered(clock, 7.7, now_s, 0.2)
        call_s = search.call_s(clock, now_s + 0.2)
        if call_s is not None:
            answered(clock, 7.7, call_s, 0.2)
            calls += 1
    assert SEARCH_CALLS_MAX <= calls <= 4 * SEARCH_CALLS_MAX  # in two minutes


def test_no_call_is_made_before_anything_is_known_of_the_clock() -> None:
    assert ClockSearch().call_s(ServiceClock(), 5.0) is None
