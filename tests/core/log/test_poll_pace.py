"""Polling: eager when behind, slower when nothing comes, and no more than others leave."""

from __future__ import annotations

import random
import statistics
from collections import Counter, deque
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from shardway.core.log.pace import (
    BACKOFF_MAX_S,
    CALLS_PER_S_MIN,
    IDLE_GROWTH,
    IDLE_JITTER,
    IDLE_MOMENTS,
    LATE_PART,
    PollingOptions,
    PollPace,
)
from shardway.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

TIMES = PollingOptions()


def new(times: PollingOptions = TIMES) -> PollPace:
    return PollPace(times, random.Random(1))


def test_the_first_call_may_go_at_once_and_a_reader_that_is_behind_does_not_wait() -> None:
    pace = new()
    assert pace.wait_s(5.0) == 0
    pace.answered(sent_s=5.0, payload_bytes=10 * 2**20, at_tip=False)
    assert pace.wait_s(5.0) == 0


def test_at_the_tip_calls_are_an_interval_apart_and_become_rare_in_silence() -> None:
    pace, now_s, gaps = new(), 0.0, []
    for _ in range(8):
        pace.answered(sent_s=now_s, payload_bytes=0, at_tip=True)
        gaps.append(pace.wait_s(now_s))
        now_s += gaps[-1]
    wanted = [min(TIMES.idle_interval_s, TIMES.interval_s * IDLE_GROWTH ** (n + 1)) for n in range(8)]
    moment_s = TIMES.idle_interval_s / IDLE_MOMENTS
    assert all(
        (1 - IDLE_JITTER) * most - 1e-9 <= gap <= most + moment_s for gap, most in zip(gaps, wanted, strict=True)
    )
    pace.answered(sent_s=now_s, payload_bytes=100, at_tip=True)
    assert pace.wait_s(now_s) == pytest.approx(TIMES.interval_s)


def test_silent_shards_that_begin_together_are_polled_at_all_of_the_moments_and_some_at_each() -> None:
    moments: Counter[float] = Counter()
    rng = random.Random(3)
    for _ in range(1000):
        pace, now_s = PollPace(TIMES, rng), 0.0
        while now_s < 30:
            pace.answered(sent_s=now_s, payload_bytes=0, at_tip=True)
            now_s += pace.wait_s(now_s)
        moments[round(now_s, 6)] += 1
    assert len(moments) >= IDLE_MOMENTS / 2
    assert max(moments.values()) <= 200


def test_calls_that_are_sent_late_are_no_fewer_and_five_never_fall_into_a_second() -> None:
    pace, rng = new(), random.Random(4)
    sent: list[float] = []
    now_s = 0.0
    for _ in range(1000):
        sent.append(now_s)
        pace.answered(sent_s=now_s, payload_bytes=100, at_tip=True)
        late_s = rng.uniform(0, 0.029) if rng.random() < 0.9 else rng.uniform(0, 3)
        now_s += pace.wait_s(now_s) + late_s
    gaps = [later - one for one, later in pairwise(sent)]
    assert min(gaps) >= TIMES.interval_s * (1 - LATE_PART)
    assert min(later - one for one, later in zip(sent, sent[5:], strict=False)) > 1.0
    assert statistics.median(gaps) == pytest.approx(TIMES.interval_s, rel=0.02)


def test_after_a_refusal_the_shards_bytes_are_waited_for() -> None:
    pace = new()
    pace.refused(0.0)
    pace.answered(sent_s=10.0, payload_bytes=8 * 2**20, at_tip=False)
    assert pace.wait_s(10.0) == pytest.approx(4.0)


def test_failures_are_repeated_later_and_later_within_a_bound() -> None:
    pace, waits = new(), []
    for _ in range(30):
        pace.failed(0.0)
        waits.append(pace.wait_s(0.0))
    assert all(TIMES.interval_s / 2 <= wait <= BACKOFF_MAX_S for wait in waits)
    assert max(waits) > 4 > waits[0]


def shard(calls_per_s: int) -> Callable[[float], bool]:
    """Whether a call at this time is taken: so many in any second."""
    times: deque[float] = deque()

    def take(now_s: float) -> bool:
        while times and times[0] <= now_s - 1:
            times.popleft()
        if len(times) >= calls_per_s:
            return False
        times.append(now_s)
        return True

    return take


@pytest.mark.parametrize("taken_by_strangers_per_s", [0.0, 1.0, 2.5])
def test_what_strangers_leave_of_the_calls_is_used_and_few_are_refused(taken_by_strangers_per_s: float) -> None:
    take, pace, rng = shard(5), new(), random.Random(2)
    now_s, answered, refused, stranger_s = 0.0, 0, 0, 0.0
    seconds = 300.0
    while now_s < seconds:
        while taken_by_strangers_per_s and stranger_s <= now_s:
            take(stranger_s)
            stranger_s += rng.uniform(0.5, 1.5) / taken_by_strangers_per_s
        if take(now_s):
            pace.answered(sent_s=now_s, payload_bytes=1000, at_tip=True)
            answered += now_s > 30
        else:
            pace.refused(now_s)
            refused += now_s > 30
        now_s += max(0.001, pace.wait_s(now_s))
    left_per_s = min(1 / TIMES.interval_s, 5 - taken_by_strangers_per_s)
    assert answered / (seconds - 30) >= 0.6 * left_per_s
    assert refused / (answered + refused) <= 0.1


def test_when_the_strangers_have_gone_the_rate_comes_back() -> None:
    pace = new()
    for number in range(20):
        pace.refused(float(number))
    assert pace.calls_per_s == CALLS_PER_S_MIN
    for number in range(300):
        pace.answered(sent_s=100.0 + number, payload_bytes=1, at_tip=True)
    assert pace.calls_per_s == pytest.approx(1 / TIMES.interval_s)


def test_a_reader_that_calls_seldom_is_not_made_to_call_more_often_by_refusals() -> None:
    pace = new(PollingOptions(interval_s=10.0, idle_interval_s=10.0))
    for number in range(20):
        pace.refused(float(number))
        assert pace.calls_per_s <= 1 / 10


def test_times_that_cannot_be_are_told_at_once() -> None:
    wrong = {"interval_s": 0, "idle_interval_s": -1}
    with pytest.raises(OptionError) as told:
        PollingOptions(**wrong, request_records_max=0)
    assert {fault.split()[0] for fault in told.value.faults} == {*wrong, "request_records_max"}
    with pytest.raises(OptionError, match="request_records_max must be from 1 to 10000, not 10001"):
        PollingOptions(request_records_max=10_001)
