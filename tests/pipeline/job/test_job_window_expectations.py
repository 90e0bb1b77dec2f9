"""Expectations of a job with windows: what is set apart is in no window, and the counts are exact."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from shardway.local import LocalKinesis
from shardway.pipeline.job import ExitCode
from tests.pipeline.job.job_running import HEAD, ONCE, World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DECODE = """\
[decode]
format = "json"
schema = "at TIMESTAMP, customer STRING, amount INT"

[dead_letters]
path = "{folder}/dead"

"""
WINDOW = """\
[window]
length = "1 minute"
late_by = "10 seconds"
time = "value.at"
keys = ["value.customer"]
aggregates = {orders = "count(*)", total = "sum(value.amount)"}

"""
PARQUET = '[[sinks]]\nformat = "parquet"\npath = "{folder}/minutes"\n'


def rule(name: str, sql: str, action: str) -> str:
    return f'[[expect]]\nname = "{name}"\nsql = "{sql}"\naction = "{action}"\n\n'


RULES = [
    rule("has_customer", "value.customer IS NOT NULL", "count"),
    rule("is_positive", "value.amount > 0", "dead-letter"),
    rule("is_no_test", "value.customer <> 'test'", "drop"),
]
NOT_STOPPED = RULES[:2]
STOPPING = rule("is_small", "value.amount < 1000", "stop")


def job(*rules: str) -> str:
    return HEAD + DECODE + "".join(rules) + WINDOW + PARQUET + ONCE


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    with LocalKinesis(streams={"orders": 2}) as local:
        yield World(spark, local, tmp_path)


def event(second: int, customer: str | None, amount: int | None) -> bytes:
    """An order so many seconds after noon."""
    at = f"2026-01-01T12:{second // 60:02}:{second % 60:02}Z"
    return json.dumps({"at": at, "customer": customer, "amount": amount}).encode()


def minutes(world: World) -> list[tuple[Any, ...]]:
    found = world.rows("minutes", "window_start", "customer", "orders", "total")
    return sorted(((row[0].minute, *row[1:]) for row in found), key=str)


def test_what_is_set_apart_is_in_no_window_and_is_counted(world: World) -> None:
    bad = [event(3, "ada", -1), event(4, "ada", None), event(5, None, 0)]
    world.put(event(1, "ada", 2), event(2, None, 3), event(6, "test", 4), *bad, b"no JSON", b'{"amount": 1}')
    ended = world.run(job(*RULES))
    assert (ended.code, ended.errors) == (ExitCode.DONE, "")
    world.put(event(75, "ada", 1))
    assert world.run(job(*RULES)).code is ExitCode.DONE
    # null is neither equal to 'test' nor different from it: what an expectation does not know is not met
    assert minutes(world) == [(0, "ada", 1, 2)]
    reasons = dict(world.rows("dead", "data", "reason"))
    assert reasons == {
        **dict.fromkeys(bad, "expectation is_positive"),
        b"no JSON": "not exactly one JSON object",
    }
    (report,) = [one for one in ended.of("batch") if one["rows"]]
    assert report["dead_letters"] == len(reasons)
    counts = {name: (one["met"], one["not_met"]) for name, one in report["expectations"].items()}
    assert counts == {"has_customer": (4, 3), "is_positive": (4, 3), "is_no_test": (3, 4)}

    world.forget_last_commit()
    assert world.run(job(*RULES)).code is ExitCode.DONE
    assert (minutes(world), dict(world.rows("dead", "data", "reason"))) == ([(0, "ada", 1, 2)], reasons)


def test_a_row_stops_the_job_before_windows_and_dead_letters_are_written(world: World) -> None:
    """The state has the batch then; the batch that runs again begins with the state before it."""
    world.put(event(1, "ada", 2))
    assert world.run(job(*NOT_STOPPED, STOPPING)).code is ExitCode.DONE
    world.put(event(2, "ada", 3), event(3, "ada", 5_000), b"no JSON", event(75, "ada", 1))
    for _ in range(2):  # as often as it is started
        ended = world.run(job(*NOT_STOPPED, STOPPING))
        assert ended.code is ExitCode.EXPECTATION
        assert "expectation is_small was not met by 1 row, the first in shard shardId-" in ended.message
        assert (minutes(world), world.rows("dead", "reason")) == ([], [])
    mended = STOPPING.replace('"stop"', '"dead-letter"')
    assert world.run(job(*NOT_STOPPED, mended)).code is ExitCode.DONE
    world.put(event(76, "ada", 1))
    assert world.run(job(*NOT_STOPPED, mended)).code is ExitCode.DONE
    assert minutes(world) == [(0, "ada", 2, 5)]
    assert sorted(reason for (reason,) in world.rows("dead", "reason")) == [
        "expectation is_small",
        "not exactly one JSON object",
    ]


def test_records_that_are_not_decoded_are_judged_too(world: World) -> None:
    """Nothing of bytes is undecodable: only the expectations set apart."""
    text = HEAD + '[decode]\nformat = "bytes"\n\n' + rule("has_data", "octet_length(value) > 1", "drop")
    text += '[window]\nlength = "1 minute"\nlate_by = "1 second"\naggregates = {records = "count(*)"}\n\n'
    text += PARQUET + ONCE
    world.put(b"ab", b"", b"c", b"de", b"fg")
    ended = world.run(text)
    assert (ended.code, ended.errors) == (ExitCode.DONE, "")
    world.local.clock.advance(120.0)
    world.put(b"later")
    assert world.run(text).code is ExitCode.DONE
    world.local.clock.advance(120.0)
    world.put(b"later still")
    assert world.run(text).code is ExitCode.DONE
    assert world.rows("minutes", "records") == [(1,), (3,)]
    (report,) = [one for one in ended.of("batch") if one["rows"]]
    assert report["expectations"]["has_data"] == {"met": 3, "not_met": 2}
