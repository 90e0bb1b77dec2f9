"""Windows of a job file over a local stream: counts are exact, and dead letters, duplicates and late rows are told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from shardway.local import LocalKinesis
from shardway.pipeline.job import ExitCode
from tests.pipeline.job.job_running import HEAD, ONCE, World

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EVENTS = """\
[decode]
format = "json"
schema = "at TIMESTAMP, customer STRING, amount INT, `a.b` STRING, `Odd name` INT"

[dead_letters]
path = "{folder}/dead"

"""
BY_CUSTOMER = """\
[window]
length = "1 minute"
late_by = "10 seconds"
time = "value.at"
keys = ["value.customer"]
aggregates = {orders = "count(*)", total = "sum(value.amount)", least = "min(value.amount)", most = "max(value.amount)"}

"""
PARQUET = '[[sinks]]\nformat = "parquet"\npath = "{folder}/minutes"\n'
JOB = HEAD + EVENTS + BY_CUSTOMER + PARQUET + ONCE
NONE: Mapping[str, Any] = {}
COLUMNS = ("window_start", "customer", "orders", "total", "least", "most")


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    with LocalKinesis(streams={"orders": 2}) as local:
        yield World(spark, local, tmp_path)


def event(second: float, customer: str | None = "ada", amount: int = 1, others: Mapping[str, Any] = NONE) -> bytes:
    """An order so many seconds after noon."""
    at = f"2026-01-01T12:{int(second // 60):02}:{second % 60:06.3f}Z"
    return json.dumps({"at": at, "customer": customer, "amount": amount, **others}).encode()


def minutes(world: World, *columns: str, folder: str = "minutes") -> list[tuple[Any, ...]]:
    """The rows of the windows, each with the minute after noon in place of its time."""
    found = world.rows(folder, "window_start", *columns)
    return sorted(((row[0].minute, *row[1:]) for row in found), key=str)


def test_a_window_comes_once_when_it_is_over(world: World) -> None:
    world.put(event(1), event(2, amount=3), event(59.999, "bob"), event(60), event(61, None), event(62, None))
    ended = world.run(JOB)
    assert (ended.code, ended.errors) == (ExitCode.DONE, "")
    assert minutes(world, "customer") == []  # the newest record is no 10 seconds behind the end
    world.put(event(70), event(71))
    ended = world.run(JOB)
    assert (ended.code, ended.errors) == (ExitCode.DONE, "")
    first = [(0, "ada", 2, 4, 1, 3), (0, "bob", 1, 1, 1, 1)]
    assert minutes(world, *COLUMNS[1:]) == first
    world.put(event(131))
    assert world.run(JOB).code is ExitCode.DONE
    assert minutes(world, *COLUMNS[1:]) == [*first, (1, "ada", 3, 3, 1, 1), (1, None, 2, 2, 1, 1)]


def test_dead_letters_come_once_in_the_batch_that_has_them(world: World) -> None:
    world.put(b"alone in its batch")
    assert world.run(JOB).summary["dead_letters"] == 1
    world.put(event(1), b"no JSON", event(2), b'{"at": null, "customer": "ada"}', b'{"amount": "three"}')
    ended = world.run(JOB)
    assert (ended.code, ended.errors) == (ExitCode.DONE, "")
    assert (ended.summary["rows"], ended.summary["dead_letters"]) == (5, 3)
    dead = world.rows("dead", "data", "reason")
    assert sorted(reason for _, reason in dead) == [
        "amount is not int",
        "not exactly one JSON object",
        "not exactly one JSON object",
        "value.at is null",
    ]
    broken = {b"alone in its batch", b"no JSON", b'{"at": null, "customer": "ada"}', b'{"amount": "three"}'}
    assert {data for data, _ in dead} == broken
    world.forget_last_commit()
    world.put(event(80))
    assert world.run(JOB).code is ExitCode.DONE
    assert world.rows("dead", "data", "reason") == dead
    assert minutes(world, "customer", "orders") == [(0, "ada", 2)]


def test_late_rows_are_counted_and_change_nothing(world: World) -> None:
    world.put(event(1), event(75))
    world.run(JOB)
    world.put(event(2), event(3), event(4, "bob"), event(120))
    ended = world.run(JOB)
    assert 2 <= ended.summary["late"] <= 3  # Spark counts those of one window and key in one task as one
    assert minutes(world, "orders") == [(0, 1)]


def test_a_batch_that_runs_again_is_written_once(world: World) -> None:
    world.put(*[event(number / 10, f"customer-{number % 5}") for number in range(700)])
    world.run(JOB)
    first = minutes(world, "customer", "orders")
    assert first == [(0, f"customer-{number}", 120) for number in range(5)] or first == []
    world.forget_last_commit()
    world.put(event(200))
    world.run(JOB)
    assert minutes(world, "customer", "orders") == [
        (minute, f"customer-{number}", 120 if minute == 0 else 20) for minute in (0, 1) for number in range(5)
    ]


ODD = """\
[window]
length = "1 minute"
late_by = "10 seconds"
time = "value.at"
keys = ["value.`a.b`", "value.`Odd name`", "partition_key"]

[window.aggregates]
"an odd. `name`" = "count(*) FILTER (WHERE value.amount > 1)"
"half \U0001f642" = "collect_list(value.`a.b`)"

"""


def test_odd_names_two_sinks_a_transform_and_duplicates(world: World) -> None:
    copies = '[[sinks]]\nformat = "json"\npath = "{folder}/copies"\npartition_by = ["hour"]\n'
    by_function = '[[sinks]]\nformat = "parquet"\npath = "{folder}/minutes"\nsql = "SELECT * FROM rows WHERE n > 0"\n'
    query = "SELECT window_start, `a.b` AS b, `Odd name` AS odd, `an odd. `name`` AS n FROM records"
    query = query.replace("`an odd. `name``", "`an odd. ``name```")
    transform = f'[transform]\nsql = "{query}"\n'
    unique = '[deduplicate]\nkeys = ["value.`a.b`"]\nwindow = "10 seconds"\ntime = "value.at"\n'
    world.put(
        event(1, amount=2, others={"a.b": "x", "Odd name": 7}),
        event(2, amount=2, others={"a.b": "x", "Odd name": 7}),  # a duplicate, also where it came with another key
        event(3, amount=1, others={"a.b": "y", "Odd name": None}),
        b"no JSON",
        event(80, others={"a.b": "z"}),
    )
    ended = world.run(HEAD + EVENTS + unique + ODD + transform + copies + by_function + ONCE)
    assert (ended.code, ended.errors) == (ExitCode.DONE, "")
    numbers = [ended.summary[name] for name in ("rows", "dead_letters", "duplicates", "late")]
    assert numbers == [5, 1, 1, 0]
    assert minutes(world, "b", "odd", "n") == [(0, "x", 7, 1)]
    (folder,) = (world.folder / "copies").iterdir()
    assert folder.name == "hour=2026-01-01-12"
    lines = [json.loads(line) for file in folder.glob("*.json") for line in file.read_text().splitlines()]
    assert sorted((line["b"], line.get("odd"), line["n"]) for line in lines) == [("x", 7, 1), ("y", None, 0)]


def test_what_spark_finds_wrong_has_its_field(world: World) -> None:
    wrong = BY_CUSTOMER.replace("value.at", "value.customer").replace('"value.customer"]', '"value.customer", "data"]')
    ended = world.run(HEAD + EVENTS + wrong + PARQUET + ONCE)
    assert ended.code is ExitCode.WRONG_JOB
    assert "window.time: value.customer is STRING, and no TIMESTAMP" in ended.message
    made = 'aggregates = {a = "count(", b = "sum(value.amont)", c = "value.amount", d = "summ(1)", e = "1, 2"}'
    ended = world.run(HEAD + EVENTS + BY_CUSTOMER.split("aggregates")[0] + made + "\n" + PARQUET + ONCE)
    assert ended.code is ExitCode.WRONG_JOB
    told = [one["message"].split("window.aggregates.")[1][:1] for one in ended.of("error")]
    assert told == ["a", "b", "c", "d", "e"]
    assert all(":22: " in one["message"] for one in ended.of("error")), ended.errors
    variants = EVENTS.replace("customer STRING", "customer VARIANT")
    ended = world.run(HEAD + variants + BY_CUSTOMER + PARQUET + ONCE)
    assert "window.keys: " in ended.message


def test_a_checkpoint_keeps_its_windows(world: World) -> None:
    world.put(event(1))
    assert world.run(JOB).code is ExitCode.DONE
    note = world.folder / "checkpoint" / "windows.json"
    before = note.read_text()
    for change, to, told in (
        ('length = "1 minute"', 'length = "5 minutes"', "length was 60000, and is 300000"),
        ("min(value.amount)", "max(value.amount)", 'aggregates was [["orders", "count(*)"]'),
        ('keys = ["value.customer"]', "keys = []", 'keys was ["value.customer"], and is []'),
        (BY_CUSTOMER, "", "it began with [window], and the job has none"),
    ):
        ended = world.run(JOB.replace(change, to))
        assert ended.code is ExitCode.WRONG_JOB
        assert told in ended.message
    assert note.read_text() == before
    world.put(event(80))
    later = JOB.replace('late_by = "10 seconds"', 'late_by = "5 seconds"').replace("1 minute", "60 seconds")
    assert world.run(later).code is ExitCode.DONE
    assert minutes(world, "orders") == [(0, 1)]
    note.unlink()
    assert "it began without [window]" in world.run(JOB).message


def test_silence_closes_nothing_and_loses_nothing(world: World) -> None:
    """By the time of arrival, which is never late: the open window waits in the state, over empty runs too."""
    by_arrival = BY_CUSTOMER.replace('time = "value.at"\n', "").replace('keys = ["value.customer"]', "keys = []")
    text = HEAD + by_arrival.replace("value.amount", "octet_length(value)") + PARQUET + ONCE
    world.put(b"one", b"three")
    assert world.run(text).code is ExitCode.DONE
    world.local.clock.advance(600)
    ended = world.run(text)
    assert (ended.code, ended.summary["rows"]) == (ExitCode.DONE, 0)
    assert world.rows("minutes", "orders") == []
    world.put(b"four")
    assert world.run(text).summary["late"] == 0
    assert world.rows("minutes", "orders", "total", "least", "most") == [(2, 8, 3, 5)]
