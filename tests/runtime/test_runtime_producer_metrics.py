from __future__ import annotations

import functools
import json
import operator
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardway.core.histogram import Histogram
from shardway.events.producer_snapshot import ProducerSnapshot, ShardSnapshot
from shardway.runtime.producer import meter as producer_meter
from shardway.runtime.producer.meter import OTHER_SHARDS, ProducerMeter

counts = st.integers(1, 500)
times = st.floats(0, 30)
shards = st.sampled_from(["shardId-1", "shardId-2", "shardId-3"])
codes = st.sampled_from(["ProvisionedThroughputExceededException", "InternalFailure"])

calls = st.one_of(
    st.tuples(st.just("count_accepted"), st.fixed_dictionaries({"count": counts})),
    st.tuples(st.just("count_buffering"), st.fixed_dictionaries({"buffering_s": times, "count": counts})),
    st.tuples(
        st.just("count_put"),
        st.fixed_dictionaries(
            {
                "count": counts,
                "payload_bytes": st.integers(0, 10**7),
                "latency_s": times,
                "attempts": st.integers(1, 9),
                "shard_id": shards,
                "duplicates_possible": st.booleans(),
            }
        ),
    ),
    st.tuples(
        st.sampled_from(["count_failed", "count_expired"]),
        st.fixed_dictionaries({"count": counts, "latency_s": times, "attempts": st.integers(0, 9)}),
    ),
    st.tuples(st.just("count_withdrawn"), st.fixed_dictionaries({"count": counts})),
    st.tuples(
        st.just("count_records"),
        st.fixed_dictionaries(
            {
                "record_bytes": st.integers(1, 10**6),
                "user_records": counts,
                "aggregate": st.booleans(),
                "shard_id": shards,
            }
        ),
    ),
    st.tuples(
        st.just("count_errors"),
        st.fixed_dictionaries({"count": counts, "error_code": codes, "refused": st.booleans(), "shard_id": shards}),
    ),
    st.tuples(st.just("count_repeated"), st.fixed_dictionaries({"count": counts})),
    st.tuples(
        st.just("count_request"),
        st.fixed_dictionaries(
            {
                "records": counts,
                "user_records": counts,
                "request_bytes": st.integers(0, 10**7),
                "duration_s": times,
                "error_code": st.none() | codes,
            }
        ),
    ),
)
intervals = st.lists(
    st.tuples(st.floats(-1, 60), st.integers(0, 10**6), st.lists(calls, max_size=12)), min_size=1, max_size=6
)


def play(meter: ProducerMeter, played: list[tuple[str, dict[str, Any]]]) -> None:
    for name, arguments in played:
        getattr(meter, name)(**arguments)


def busy() -> ProducerMeter:
    """A meter that every method was called on, 100 s after its start at 1000."""
    meter = ProducerMeter(1000.0, per_shard=True)
    meter.count_accepted(1000)
    meter.count_buffering(0.05, 900)
    meter.count_errors(3, "ProvisionedThroughputExceededException", refused=True, shard_id="shardId-1")
    meter.count_errors(1, "InternalFailure", shard_id="shardId-1")
    meter.count_records(50_000, 800, aggregate=True, shard_id="shardId-1")
    meter.count_records(100, shard_id="shardId-2")
    meter.count_put(800, 40_000, 0.2, 2, shard_id="shardId-1", duplicates_possible=True)
    meter.count_put(1, 90, 0.1, 1, shard_id="shardId-2")
    meter.count_failed(9, 0.3, 1)
    meter.count_expired(90, 30.0, 0)
    meter.count_withdrawn(10)
    meter.count_repeated(2)
    meter.count_request(5, 804, 60_000, 0.03)
    meter.count_request(1, 90, 6_000, 5.0, "TransportError")
    meter.buffer_bytes = 4321
    return meter


@settings(max_examples=60)
@given(intervals)
def test_intervals_add_up_exactly_to_the_snapshot(parts: list[tuple[float, int, list[Any]]]) -> None:
    meter, whole = ProducerMeter(0.0, per_shard=True), ProducerMeter(0.0, per_shard=True)
    now_s, found = 0.0, []
    for step_s, buffer_bytes, played in parts:  # also steps of 0, and a clock that goes back
        now_s += step_s
        play(meter, played)
        play(whole, played)
        meter.buffer_bytes = whole.buffer_bytes = buffer_bytes
        found.append(meter.interval(now_s))
    total = functools.reduce(operator.add, found)
    assert total == meter.snapshot(now_s)
    assert functools.reduce(lambda later, earlier: earlier + later, found[::-1]) == total
    expected = whole.snapshot(total.period_end_s)
    assert total == expected
    assert total.to_dict() == expected.to_dict()
    assert [one.period_start_s for one in found[1:]] == [one.period_end_s for one in found[:-1]]


@settings(max_examples=60)
@given(intervals)
def test_producers_add_in_any_order(parts: list[tuple[float, int, list[Any]]]) -> None:
    snapshots = []
    for end_s, buffer_bytes, played in [*parts, *parts]:
        meter = ProducerMeter(-10.0, per_shard=True)
        play(meter, played)
        meter.buffer_bytes = buffer_bytes
        snapshots.append(meter.snapshot(end_s))
    a, b = snapshots[: len(parts)], snapshots[len(parts) :]
    left = functools.reduce(operator.add, a + b)
    assert left == functools.reduce(operator.add, b[::-1] + a[::-1])
    assert left == functools.reduce(operator.add, a) + functools.reduce(operator.add, b)
    assert left.user_records_accepted == 2 * sum(one.user_records_accepted for one in a)


def test_what_is_counted_where() -> None:
    found = busy().snapshot(1100.0)
    counters = {
        name: value
        for name in found.__struct_fields__
        if not isinstance(value := getattr(found, name), Histogram) and name != "per_shard"
    }
    assert counters == {
        "period_start_s": 1000.0,
        "period_end_s": 1100.0,
        "user_records_accepted": 1000,
        "user_records_put": 801,
        "user_records_failed": 9,
        "user_records_expired": 90,
        "user_records_withdrawn": 10,
        "user_bytes_put": 40_090,
        "records_put": 2,
        "record_bytes_put": 50_100,
        "records_refused": 3,
        "records_failed_attempts": {"ProvisionedThroughputExceededException": 3, "InternalFailure": 1},
        "requests": 2,
        "requests_failed": {"TransportError": 1},
        "aggregates": 1,
        "aggregates_repeated": 2,
        "duplicates_possible": 800,
        "user_records_pending": 90,
        "buffer_bytes": 4321,
    }
    assert (found.latency_s.count, found.latency_s.max) == (900, 30.0)
    assert (found.attempts.count, found.attempts.sum, found.attempts.min) == (900, 1610, 0)
    assert found.buffering_s.count == 900
    assert found.buffering_s.mean == pytest.approx(0.05)
    assert (found.request_s.count, found.request_s.max) == (2, 5.0)
    assert (found.request_records.sum, found.request_user_records.sum, found.request_bytes.sum) == (6, 894, 66_000)
    assert (found.record_bytes.sum, found.user_records_per_record.sum) == (50_100, 801)
    assert found.per_shard == {
        "shardId-1": ShardSnapshot(
            records_put=1,
            record_bytes_put=50_000,
            records_refused=3,
            records_failed_attempts=4,
            user_records_put=800,
            user_bytes_put=40_000,
            attempts=1600,
        ),
        "shardId-2": ShardSnapshot(
            records_put=1, record_bytes_put=100, user_records_put=1, user_bytes_put=90, attempts=1
        ),
    }


def test_what_is_derived() -> None:
    found = busy().snapshot(1100.0)
    assert found.period_s == 100.0
    assert found.success_rate == 801 / 900
    assert found.records_per_s == 8.01
    assert found.bytes_per_s == 400.9
    assert found.attempts_mean == 1610 / 900
    assert found.errors == 5


def test_records_of_a_request_are_counted_at_once() -> None:
    meter = ProducerMeter(0.0, per_shard=True)
    meter.count_records(1000, 4, records=4, shard_id="shardId-1")
    found = meter.snapshot(1.0)
    assert (found.records_put, found.record_bytes_put, found.aggregates) == (4, 1000, 0)
    assert (found.record_bytes.count, found.record_bytes.mean, found.user_records_per_record.max) == (4, 250.0, 1.0)
    assert found.per_shard == {"shardId-1": ShardSnapshot(records_put=4, record_bytes_put=1000)}


def test_outcomes_of_which_little_is_known() -> None:
    meter = ProducerMeter(0.0)
    meter.count_accepted(5)
    meter.count_failed(3)
    meter.count_expired(2, attempts=1)
    found = meter.snapshot(1.0)
    assert (found.user_records_failed, found.user_records_expired, found.user_records_pending) == (3, 2, 0)
    assert (found.latency_s.count, found.attempts.count) == (0, 2)


def test_nothing_yet() -> None:
    found = ProducerMeter(5.0).interval(5.0)
    assert (found.success_rate, found.attempts_mean, found.records_per_s, found.bytes_per_s) == (None, None, 0.0, 0.0)
    empty = ProducerSnapshot(period_start_s=5.0, period_end_s=5.0)
    assert (empty.records_per_s, empty.bytes_per_s, empty.errors) == (0.0, 0.0, 0)


def test_a_snapshot_does_not_change_afterwards() -> None:
    meter = busy()
    first, interval = meter.snapshot(1100.0), meter.interval(1100.0)
    kept = first.to_dict(), interval.to_dict()
    play(
        meter,
        [("count_put", {"count": 1, "payload_bytes": 1, "latency_s": 1.0, "attempts": 1, "shard_id": "shardId-1"})],
    )
    play(meter, [("count_errors", {"count": 1, "error_code": "InternalFailure", "shard_id": "shardId-9"})])
    later = meter.snapshot(1200.0)
    meter.count_errors(1, "InternalFailure", shard_id="shardId-9")
    assert (first.to_dict(), interval.to_dict()) == kept
    assert later.per_shard["shardId-9"].records_failed_attempts == 1
    assert later.user_records_put == 802


def test_it_comes_back_from_json() -> None:
    found = busy().snapshot(1100.0)
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert ProducerSnapshot.from_dict(json.loads(text)) == found
    earlier = {name: value for name, value in found.to_dict().items() if name != "request_user_records"}
    assert ProducerSnapshot.from_dict(earlier).request_user_records == Histogram()


@pytest.mark.parametrize("given", [{}, {"period_start_s": 1}, {"latency_s": {"count": 1}}], ids=str)
def test_a_dict_that_is_no_snapshot_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="this is no snapshot of a producer"):
        ProducerSnapshot.from_dict(given)
    with pytest.raises(ValueError, match="no snapshot of a producer: this is no histogram"):
        ProducerSnapshot.from_dict({"period_start_s": 0, "period_end_s": 1, "latency_s": {}})


def test_the_summary_is_short_and_fits_json() -> None:
    shown = json.loads(json.dumps(busy().snapshot(1100.0).summary(), allow_nan=False))
    assert shown["period_s"] == 100
    assert shown["success_rate"] == 0.89
    assert shown["latency_s"]["p50"] == pytest.approx(0.2, rel=0.02)
    assert shown["per_shard"]["shardId-2"]["records_put"] == 1


def test_shards_are_counted_on_request_only() -> None:
    meter = ProducerMeter(0.0)
    meter.count_put(1, 1, 0.1, 1, shard_id="shardId-1")
    meter.count_records(1, shard_id="shardId-1")
    meter.count_errors(1, "InternalFailure", shard_id="shardId-1")
    assert meter.snapshot(1.0).per_shard == {}


def test_shards_are_bounded_over_all_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_meter, "SHARDS_MAX", 3)
    meter = ProducerMeter(0.0, per_shard=True)
    for number in range(10):
        meter.count_records(10, shard_id=f"shardId-{number % 5}")
        meter.interval(float(number))
    put = {name: shard.records_put for name, shard in meter.snapshot(10.0).per_shard.items()}
    assert put == {"shardId-0": 2, "shardId-1": 2, "shardId-2": 2, OTHER_SHARDS: 4}


def test_pending_is_a_level_also_in_an_interval() -> None:
    meter = ProducerMeter(0.0)
    meter.count_accepted(10)
    assert meter.interval(1.0).user_records_pending == 10
    meter.count_put(4, 4, 0.1, 1)
    assert meter.interval(2.0).user_records_pending == 6
    assert meter.user_records_pending == 6
    meter.count_withdrawn(6)
    assert meter.snapshot(2.0).user_records_pending == 0, "no time passed since the interval"


def test_every_metric_of_the_kpl_has_its_counterpart() -> None:
    lines = re.findall(r"^(\w+) {2,}(.*)$", producer_meter.__doc__ or "", flags=re.MULTILINE)
    assert [kpl for kpl, here in lines if "``" not in here] == ["KPL", "UnhealthyDaemon"]
    assert len(lines) == 17
    named = {name for _, here in lines for name in re.findall(r"``(\w+)``", here)}
    assert named - {*ProducerSnapshot.__struct_fields__, *dir(ProducerSnapshot)} == set()
