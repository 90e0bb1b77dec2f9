"""What a consumer counts adds up, whatever the order, and comes back from JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway import Position, events
from shardway.events.consumer_snapshot import CODES_MAX, OTHERS, ShardLevels, Spread, WorkerLevels
from shardway.statistics import ConsumerSnapshot
from shardway.telemetry.consumer_meter import ConsumerMeter, ShardCounts

AT = Position(1, 0)
calls = st.lists(
    st.one_of(
        st.tuples(st.just("fetched"), st.integers(0, 9), st.integers(0, 999)),
        st.tuples(
            st.just("delivered"), st.just("s"), st.sampled_from(["a", "b"]), st.integers(1, 9), st.integers(0, 99)
        ),
        st.tuples(st.just("settled"), st.integers(0, 9), st.integers(0, 99)),
        st.tuples(st.just("handled"), st.just("s"), st.sampled_from(["a", "b"]), st.floats(0, 100)),
        st.tuples(st.just("read"), st.just("s"), st.sampled_from(["a", "b"]), st.floats(0, 100)),
        st.tuples(
            st.just("count"),
            st.sampled_from(
                [
                    events.BatchFailed("s", "a", AT, 3, 1, "KeyError", "Again", 0.1),
                    events.ReadFailed("s", "a", "InternalFailure", 0.1, "why"),
                    events.ReadRefused("s", "b", 2.0, 0.1),
                    events.RecordsSkipped("s", "a", AT, AT, 4, "why"),
                    events.ShardBegun("s", "a", 1, "new"),
                    events.ShardLeft("s", "a", 1, "why"),
                    events.CheckpointTrimmed("s", "a", AT, None, False),
                    events.CheckpointTrimmed("s", "a", AT, None, True),
                    events.KeysIgnored("s"),
                ]
            ),
        ),
    ),
    max_size=20,
)


def play(meter: ConsumerMeter, played: list[tuple[Any, ...]]) -> None:
    for name, *arguments in played:
        getattr(meter, name)(*arguments)


def levels(at_s: float, shards: int = 1) -> WorkerLevels:
    return WorkerLevels(at_s=at_s, shards=tuple(shard(f"shardId-{n}", lag_s=n + at_s) for n in range(shards)))


def shard(shard_id: str, lag_s: float = 1.0) -> ShardLevels:
    return ShardLevels(
        stream="s", shard_id=shard_id, millis_behind_latest=0, since_read_s=0.5, oldest_unsettled_s=None, lag_s=lag_s,
        retention_used=lag_s / 86_400, records_held=2, bytes_held=100, records_in_flight=1,
    )  # fmt: skip


@given(st.lists(calls, max_size=5))
def test_intervals_add_up_to_what_there_is_since_the_start(periods: list[list[tuple[Any, ...]]]) -> None:
    meter, sums = ConsumerMeter(100.0, per_shard=True), []
    for number, played in enumerate(periods):
        play(meter, played)
        sums.append(meter.interval(101.0 + number, "w", levels(101.0 + number)))
    whole = meter.snapshot(200.0, "w", levels(200.0))
    sums.append(meter.interval(200.0, "w", levels(200.0)))
    forward, backward = sums[0], sums[-1]
    for one in sums[1:]:
        forward += one
    for one in sums[-2::-1]:
        backward += one
    # Sums of floats depend on their order in the last digits: those of a shard's spreads alone.
    assert _rounded(forward) == _rounded(backward) == _rounded(whole)
    assert ConsumerSnapshot.from_dict(json.loads(json.dumps(whole.to_dict(), allow_nan=False))) == whole


def _rounded(snapshot: ConsumerSnapshot) -> dict[str, Any]:
    told = snapshot.to_dict()
    for one in told["per_shard"].values():
        for name in ("fetch_s", "handler_s"):
            one[name]["sum"] = round(one[name]["sum"], 6)
    return told


def test_the_levels_of_workers_stand_side_by_side_and_the_later_one_counts() -> None:
    one, other = ConsumerMeter(0.0), ConsumerMeter(0.0)
    early, late = one.interval(10.0, "w1", levels(10.0, 2)), one.interval(20.0, "w1", levels(20.0))
    beside = other.interval(15.0, "w2", levels(15.0))
    summed = late + beside + early
    assert summed.workers == {"w1": levels(20.0), "w2": levels(15.0)}
    assert summed.lag_s == 20.0
    assert summed.retention_used == 20.0 / 86_400
    assert (summed.period_start_s, summed.period_end_s) == (0.0, 20.0)


def test_what_was_given_out_does_not_change_with_what_is_counted_later() -> None:
    meter = ConsumerMeter(0.0, per_shard=True)
    meter.handled("s", "a", 1.0)
    meter.count(events.ReadFailed("s", "a", "InternalFailure", 0.1, "why"))
    first, interval = meter.snapshot(1.0, "w", levels(1.0)), meter.interval(1.0, "w", levels(1.0))
    kept = first.to_dict(), interval.to_dict()
    meter.handled("s", "a", 5.0)
    meter.count(events.ReadFailed("s", "a", "InternalFailure", 0.1, "why"))
    later = meter.snapshot(2.0, "w", levels(2.0))
    meter.handled("s", "a", 7.0)
    assert (first.to_dict(), interval.to_dict()) == kept
    assert later.per_shard["s/a"].handler_s == Spread(2, 6.0, 1.0, 5.0)
    assert later.fetches_failed == {"InternalFailure": 2}


def test_codes_and_classes_of_errors_are_a_bounded_set() -> None:
    meter = ConsumerMeter(0.0)
    for number in range(CODES_MAX + 10):
        meter.count(events.ReadFailed("s", "a", f"Code{number}", 0.1, "why"))
    meter.interval(1.0, "w", levels(1.0))
    meter.count(events.ReadFailed("s", "a", "Code0", 0.1, "why"))
    meter.count(events.ReadFailed("s", "a", "OneMore", 0.1, "why"))
    failed = meter.snapshot(2.0, "w", levels(2.0)).fetches_failed
    assert len(failed) == CODES_MAX + 1
    assert (failed["Code0"], failed[OTHERS]) == (2, 11)


def test_the_time_to_the_store_is_that_of_the_first_record_that_waits() -> None:
    meter = ConsumerMeter(0.0)
    counts = ShardCounts(meter, "s", "a")
    counts.settled_to(5, 10.0)
    counts.settled_to(7, 12.0)
    counts.settled_to(7, 13.0)
    counts.stored(6, 14.0)
    counts.stored(6, 15.0)
    assert (meter.snapshot(20.0, "w", levels(20.0)).store_s.count, meter._interval.store_s.max) == (1, 4.0)
    counts.stored(9, 18.0)
    assert (meter._interval.store_s.count, meter._interval.store_s.max) == (2, 6.0)


def test_writes_of_a_lease_are_told_apart() -> None:
    meter = ConsumerMeter(0.0)
    meter.wrote(0.25, stores=False, confirmed=True)
    meter.wrote(0.5, stores=True, confirmed=True)
    meter.wrote(9.0, stores=False, confirmed=False)
    meter.wrote(9.0, stores=True, confirmed=False)
    found = meter.snapshot(1.0, "w", levels(1.0))
    assert (found.renewal_ms.max, found.checkpoint_ms.max) == (250.0, 500.0)
    assert (found.renewals_failed, found.checkpoints_failed) == (1, 1)


@pytest.mark.parametrize("given", [{}, {"period_start_s": 1}, {"fetch_s": {"count": 1}}], ids=str)
def test_a_dict_that_is_no_snapshot_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="this is no snapshot of a consumer"):
        ConsumerSnapshot.from_dict(given)


def test_the_summary_is_short_and_fits_json() -> None:
    meter = ConsumerMeter(100.0)
    meter.settled(50, 0)
    shown = json.loads(json.dumps(meter.snapshot(110.0, "w", levels(110.0)).summary(), allow_nan=False))
    assert shown["records_per_s"] == 5.0
    assert shown["lag_s"] == 110.0
    assert shown["handler_s"]["count"] == 0
