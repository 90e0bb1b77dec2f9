"""Expectations of a job: what each action does with a row, how rows count, and that nothing is lost or doubled."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from shardway.events import QueryMetrics
from shardway.local import LocalKinesis
from shardway.pipeline.job import ExitCode, JobFileError, load_job
from shardway.pipeline.job.batch.observations import LETTER_BYTES_MAX
from tests.pipeline.job.job_running import HEAD, JSON, ONCE, World, order

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LOOSE = JSON.replace(" NOT NULL", "")
PARQUET = '[[sinks]]\nformat = "parquet"\npath = "{folder}/orders"\n'
SECOND = '[[sinks]]\nformat = "json"\npath = "{folder}/copies"\n'
UNIQUE = '[deduplicate]\nkeys = ["value.order_id"]\nwindow = "1 hour"\n'
SELECTED = '[transform]\nsql = "SELECT * FROM records"\n'


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    with LocalKinesis(streams={"orders": 2}) as local:
        yield World(spark, local, tmp_path)


def expect(name: str, sql: str, action: str = "count") -> str:
    return f'[[expect]]\nname = "{name}"\nsql = """{sql}"""\naction = "{action}"\n'


def ids(*numbers: int) -> list[tuple[str]]:
    return sorted((f"order-{number}",) for number in numbers)


def counts(event: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {name: (one["met"], one["not_met"]) for name, one in event["expectations"].items()}


RULES = (
    expect("small", "value.amount < 100")
    + expect("not_free", "value.amount <> 0", "drop")
    + expect("positive", "value.amount >= 0", "dead-letter")
    + expect("known", "value.order_id IS NOT NULL", "dead-letter")
    + expect("sane", "value.amount < 1000000", "stop")
)


@pytest.mark.parametrize("steps", ["", UNIQUE, UNIQUE + "exact = true\n", SELECTED, SECOND])
def test_each_action_has_its_rows_and_its_counts(world: World, steps: str) -> None:
    """In one pass, behind a de-duplication, with a transform, and with two sinks."""
    nameless = b'{"amount": -5}'
    data = [*(order(number) for number in range(10)), order(10, 500), order(11, 0), order(12, -1), nameless, b"no json"]
    world.put(*data)
    text = HEAD + LOOSE + RULES + (steps if steps != SECOND else "") + PARQUET + (SECOND if steps == SECOND else "")
    ended = world.run(text + ONCE)
    assert ended.errors == ""
    columns = ["value"] if steps == SELECTED else ["order_id"]
    found = ds.dataset(world.folder / "orders").to_table()
    assert "_shardway_unmet" not in found.column_names
    rows = found[columns[0]].to_pylist()
    assert sorted(row["order_id"] if steps == SELECTED else row for row in rows) == [one for (one,) in ids(*range(11))]
    assert world.rows("dead", "data", "reason") == sorted(
        [
            (order(12, -1), "expectation positive"),
            (nameless, "expectation positive, expectation known"),
            (b"no json", "not exactly one JSON object"),
        ],
        key=str,
    )
    assert "_shardway_unmet" not in ds.dataset(world.folder / "dead").schema.names
    summary = ended.summary
    assert (summary["rows"], summary["dead_letters"], summary["dropped"]) == (len(data), 3, 1)
    assert counts(summary) == {
        "small": (13, 1), "not_free": (13, 1), "positive": (12, 2), "known": (13, 1), "sane": (14, 0),
    }  # fmt: skip
    if steps == SECOND:
        copies = ds.dataset(world.folder / "copies", format="json").to_table()
        assert sorted(copies["order_id"].to_pylist()) == sorted(rows)

    world.forget_last_commit()
    again = world.run(text + ONCE)
    assert again.code is ExitCode.DONE
    if steps != UNIQUE:  # there the newest batch is one without rows, which moves the watermark
        assert counts(again.summary) == counts(summary)
    assert ds.dataset(world.folder / "orders").to_table().num_rows == 11
    assert len(world.rows("dead", "reason")) == 3


def test_a_row_that_fails_several_counts_in_each_and_is_kept_rather_than_dropped(world: World) -> None:
    rules = (
        expect("a.b", "value.amount > 0", "drop")
        + expect("Upper-Case", "value.amount > 1", "dead-letter")
        + expect("only_counted", "value.amount > 2")
    )
    world.put(order(0, 0), order(1, 1), order(2, 2), order(3, 3))
    ended = world.run(HEAD + LOOSE + rules + PARQUET + ONCE)
    assert counts(ended.summary) == {"a.b": (3, 1), "Upper-Case": (2, 2), "only_counted": (1, 3)}
    assert ended.summary["dropped"] == 0
    assert world.rows("orders", "order_id") == ids(2, 3)
    assert [row[0] for row in world.rows("dead", "reason")] == ["expectation Upper-Case"] * 2


def test_null_and_what_cannot_be_computed_count_as_not_met(world: World) -> None:
    """Rules share parts that raise for a value: no rule ends the job, and none hides another one's result."""
    rules = "".join(
        expect(name, sql)
        for name, sql in {
            "null": "value.amount > 0",
            "divided": "100 / value.amount > 1",
            "divided_more": "100 / value.amount > 2",
            "cast": "CAST(value.order_id AS INT) > 0",
            "cast_more": "CAST(value.order_id AS INT) > 1",
            "overflow": "value.amount + 2147483647 > 0",
            "raised": "raise_error(value.order_id) IS NULL",
            "either": "value.amount IS NULL OR value.amount >= 0",
            "of_the_record": "octet_length(data) > 0 AND partition_key LIKE 'key-%' -- a remark",
        }.items()
    )
    data = [order(1, 0), order(2, 1), b'{"order_id": "canary"}', b"no json"]
    world.put(*data)
    for text, folder in ((rules, "one"), (rules + SELECTED, "two")):
        ended = world.run((HEAD + LOOSE).replace("{folder}", "{folder}/" + folder) + text + PARQUET + ONCE)
        assert (ended.code, ended.errors) == (ExitCode.DONE, "")
        assert counts(ended.summary) == {
            "null": (1, 2), "divided": (1, 2), "divided_more": (1, 2), "cast": (0, 3), "cast_more": (0, 3),
            "overflow": (1, 2), "raised": (0, 3), "either": (3, 0), "of_the_record": (3, 0),
        }  # fmt: skip


def test_raw_data_is_judged_too(world: World) -> None:
    """Without a format nothing is undecodable, and no part of the conditions is protected by that."""
    rules = (
        expect("number", "CAST(CAST(value AS STRING) AS INT) > 0", "drop")
        + expect("large", "CAST(CAST(value AS STRING) AS INT) > 5")
        + expect("same", "CAST(CAST(data AS STRING) AS INT) > 5")
    )
    world.put(b"1", b"10", b"canary", b"")
    ended = world.run(HEAD + rules + PARQUET + ONCE)
    assert (ended.code, ended.errors) == (ExitCode.DONE, "")
    assert counts(ended.summary) == {"number": (2, 2), "large": (1, 3), "same": (1, 3)}
    assert ended.summary["dropped"] == 2
    assert world.rows("orders", "value") == [(b"1",), (b"10",)]


@pytest.mark.parametrize("sinks", [PARQUET, PARQUET + SECOND])
def test_a_row_stops_the_job_before_its_batch_is_written(world: World, sinks: str) -> None:
    """The message leads to the record and shows nothing of it. With a mended rule the same batch is done, once."""
    rules = expect("positive", "value.amount > 0", "stop") + expect("known", "value.order_id <> 'order-9'", "stop")
    world.put(order(1), order(2))
    text = HEAD + LOOSE + UNIQUE + rules + sinks + ONCE
    assert world.run(text).code is ExitCode.DONE
    before = sorted(path.name for path in (world.folder / "orders").iterdir())
    world.put(order(3), order(4, -4111), order(5, -4111), b"no json", order(1, -4111))
    ended = world.run(text)
    assert ended.code is ExitCode.EXPECTATION
    assert ended.message.startswith(f"{world.folder}/job.toml:")
    assert "expect[0]: the job stops at batch " in ended.message
    assert ": expectation positive was not met by 3 rows, the first in shard" in ended.message
    assert "the first in shard shardId-00000000000" in ended.message
    assert " at sequence number 4" in ended.message
    assert "4111" not in ended.message.replace(str(world.folder), "").split("sequence number")[0]
    assert "known" not in ended.message
    assert sorted(path.name for path in (world.folder / "orders").iterdir()) == before
    assert not (world.folder / "dead").exists()
    assert not [path for path in world.folder.glob("*.staging/*") if "batch" in path.name]
    assert world.run(text).code is ExitCode.EXPECTATION  # as often as it is started

    mended = text.replace('value.amount > 0"""\naction = "stop"', 'value.amount > 0"""\naction = "dead-letter"')
    ended = world.run(mended)
    assert (ended.code, ended.errors) == (ExitCode.DONE, "")
    assert world.rows("orders", "order_id") == ids(1, 2, 3)
    assert [row[0] for row in world.rows("dead", "reason")] == ["expectation positive"] * 3 + [
        "not exactly one JSON object"
    ]
    assert counts(ended.summary) == {"positive": (1, 3), "known": (4, 0)}


def test_a_row_that_is_set_apart_removes_no_good_one_as_its_duplicate(world: World) -> None:
    """The de-duplication does not see it; and rules may come and go between two runs of one checkpoint directory."""
    text = HEAD + LOOSE + UNIQUE + PARQUET + ONCE
    world.put(order(1))
    assert world.run(text).code is ExitCode.DONE
    world.put(order(2, -1), order(3, -3), order(1))
    world.put(order(2, 2), order(2, 2), order(3, 3))
    rules = expect("a", "value.amount <> -1", "drop") + expect("b", "value.amount <> -3", "dead-letter")
    ended = world.run(HEAD + LOOSE + UNIQUE + rules + PARQUET + ONCE)
    assert (ended.code, ended.errors) == (ExitCode.DONE, "")
    assert world.rows("orders", "order_id", "amount") == [("order-1", 1), ("order-2", 2), ("order-3", 3)]
    assert (ended.summary["duplicates"], ended.summary["dropped"], ended.summary["dead_letters"]) == (2, 1, 1)
    assert counts(ended.summary) == {"a": (3, 1), "b": (3, 1)}
    assert world.run(text).code is ExitCode.DONE


def test_letters_that_do_not_come_with_the_write_are_read_once_more_and_count_once(world: World) -> None:
    rules = expect("short", f"octet_length(data) <= {LETTER_BYTES_MAX}", "dead-letter")
    world.put(order(1), order(2), order(3, "x" * LETTER_BYTES_MAX))
    text = HEAD + LOOSE.replace("amount INT", "amount STRING") + rules + expect("any", "value.amount <> '0'", "drop")
    world.put(*(f'{{"order_id": "order-{number}", "amount": "{number}"}}'.encode() for number in range(4)))
    ended = world.run(text + PARQUET + ONCE)
    assert (ended.code, ended.errors) == (ExitCode.DONE, "")
    assert counts(ended.summary) == {"short": (4, 1), "any": (4, 1)}
    assert (ended.summary["dead_letters"], ended.summary["dropped"]) == (3, 1)  # two have a number for a text
    assert world.rows("orders", "order_id") == ids(1, 2, 3)


@pytest.mark.parametrize("sinks", [PARQUET, PARQUET + SECOND])
def test_a_batch_of_which_no_row_is_left(world: World, sinks: str) -> None:
    text = HEAD + LOOSE + expect("large", "value.amount > 5", "drop") + sinks + ONCE
    world.put(order(1), order(2))
    ended = world.run(text)
    assert (ended.code, ended.summary["dropped"], ended.summary["dead_letters"]) == (ExitCode.DONE, 2, 0)
    assert not (world.folder / "orders").exists()
    assert not (world.folder / "dead").exists()
    ended = world.run(text)  # and one without records at all
    assert (ended.code, ended.summary["dropped"]) == (ExitCode.DONE, 0)


def test_the_numbers_go_to_exporters(world: World) -> None:
    told: list[Any] = []
    rules = expect("positive", "value.amount > 0", "drop") + expect("small", "value.amount < 5")
    world.put(order(1), order(2, -1), order(3, 7))
    ended = world.run(HEAD + LOOSE + rules + PARQUET + ONCE, on_event=told.append)
    assert ended.code is ExitCode.DONE
    assert told[0].snapshot.expectations_not_met == {"positive": 0, "small": 0}  # so that a rise from nothing shows
    whole = functools.reduce(operator.add, (one.snapshot for one in told if isinstance(one, QueryMetrics)))
    assert whole.expectations_met == {"positive": 2, "small": 2}
    assert whole.expectations_not_met == {"positive": 1, "small": 1}
    assert whole.records_dropped == 1


WRONG = {
    "value.amount >": "[PARSE_SYNTAX_ERROR]",
    "value.amount > 0; DROP TABLE orders": "[PARSE_SYNTAX_ERROR]",
    "amuont > 0": "[UNRESOLVED_COLUMN",
    "value.customer > 0": "value has no field customer",
    "reason IS NULL": "[UNRESOLVED_COLUMN",
    "value.amount": "is INT, and not BOOLEAN: write a condition, such as value.amount > 0",
    "*": "is several columns, and not BOOLEAN",
    "raise_error('x')": "is VOID, and not BOOLEAN",
    "1 = 1": "names no column, so it is the same for every row",
    "value.amount > bit_or(value.amount)": "[MISSING_GROUP_BY]",
    "bool_and(value.amount > 0)": "has an aggregate: an expectation holds for each row by itself",
    "sum(value.amount) > 0": "has the aggregate sum: an expectation holds for each row by itself",
    "row_number() OVER (ORDER BY value.amount) = 1": "has a window function: an expectation holds",
    "explode(array(value.amount > 0))": "has a function that makes rows: an expectation holds",
    "value.amount > rand()": "is not deterministic: a batch that runs again",
    "value.amount > length(uuid())": "is not deterministic: a batch that runs again",
    "value.amount IN (SELECT 1)": "has a subquery, whose result may differ",
    "value.amount > `open": "has a ` that is not closed",
    "(value.amount > 0": "has brackets that do not match",
    "-- nothing": "is empty",
}


def test_conditions_that_are_none_are_found_before_the_stream_is_read(world: World) -> None:
    """Those that the file's own check does not find are found by Spark, all at once, each on its line."""
    with pytest.raises(JobFileError) as raised:
        load_job(world.write(HEAD + LOOSE + PARQUET + rules_of(list(WRONG))), {})
    found = faults_by_sql(world, raised.value.faults)
    left = [sql for sql in WRONG if sql not in found]
    assert len(left) == 11
    ended = world.run(HEAD + LOOSE + PARQUET + ONCE + rules_of(left))
    assert ended.code is ExitCode.WRONG_JOB
    found |= faults_by_sql(world, [line.removeprefix("shardway: ") for line in ended.errors.splitlines()])
    assert sorted(found) == sorted(WRONG)
    assert {sql: told for sql, told in found.items() if not told.startswith(WRONG[sql])} == {}


def rules_of(conditions: list[str]) -> str:
    return "".join(expect(f"rule-{number}", sql, "stop") for number, sql in enumerate(conditions))


def faults_by_sql(world: World, faults: list[str]) -> dict[str, str]:
    """What is said of each condition, by the line that the fault names."""
    lines = (world.folder / "job.toml").read_text().splitlines()
    found = {}
    for fault in faults:
        _, at, place, what = fault.split(":", 3)
        assert place.strip().startswith("expect[")
        found[lines[int(at) - 1].removeprefix('sql = """').removesuffix('"""')] = what.strip()
    return found
