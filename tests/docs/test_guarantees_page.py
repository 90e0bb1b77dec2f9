"""The page on guarantees says of each sink what the check says, and every test that it points to is there."""

from __future__ import annotations

import re
import sqlite3
from typing import TYPE_CHECKING

import pytest

from shardway.pipeline.job.file.model import DeadLetters, Job, Sink
from shardway.pipeline.job.sinks.delivery import AT_LEAST_ONCE, EXACTLY_ONCE, deliveries
from shardway.pipeline.job.sinks.formats import FOLDER_FORMATS, KNOWN_FORMATS
from tests.docs.doc_pages import DOCS, ROOT, blocks, rows, section

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

PAGE = DOCS / "guarantees.md"
OTHERS = "every other format"


def promised() -> list[tuple[str, str]]:
    """For each row of the table: which sinks, and how often a row is there."""
    return [(row[0], row[1]) for row in rows(section(PAGE, "Sinks"))]


def of(format_name: str) -> str:
    found = [how for sinks, how in promised() if f"`{format_name}`" in sinks and "`stamps`" not in sinks]
    return found[0] if found else next(how for sinks, how in promised() if OTHERS in sinks)


def said(sink: Sink) -> str:
    job = Job(name="job", checkpoint="checkpoint", source={"streamName": "orders"}, sinks=(sink,))
    return deliveries(job)[0].how


@pytest.mark.parametrize("name", KNOWN_FORMATS)
def test_each_format_is_promised_what_the_check_says(name: str) -> None:
    options: dict[str, str | int | float | bool] = {"streamName": "copy"} if name == "shardway" else {}
    path = None if name in ("shardway", "console", "noop") else "lake/rows"
    assert of(name) == said(Sink(format=name, path=path, options=options))


def test_the_other_rows_are_the_checks_too() -> None:
    by_sink = dict(promised())
    assert said(Sink(function="orders:write")) == AT_LEAST_ONCE
    assert by_sink["a `function`"].startswith(AT_LEAST_ONCE)
    stamped = said(Sink(format="shardway", options={"streamName": "copy", "stamps": "position"}))
    assert by_sink["`shardway` with the option `stamps`"].startswith(stamped)
    (dead,) = (how for sinks, how in promised() if sinks == "dead letters with a `path`")
    job = Job(
        name="job",
        checkpoint="checkpoint",
        source={"streamName": "orders"},
        sinks=(Sink(format="parquet", path="lake/rows"),),
        dead_letters=DeadLetters(path="lake/dead"),
    )
    assert deliveries(job)[1].how == dead == EXACTLY_ONCE
    assert all(f"`{name}`" in next(iter(by_sink)) for name in FOLDER_FORMATS)


def test_the_tests_that_it_points_to_are_there() -> None:
    pointed = re.findall(r"`(tests/[\w/.]+)`", PAGE.read_text(encoding="utf-8"))
    assert len(pointed) >= 6
    assert [name for name in pointed if not (ROOT / name).is_file()] == []


@pytest.mark.spark
def test_the_function_of_the_page_writes_a_batch_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = [one for one in blocks(PAGE, "python") if "sqlite3" in one.text]
    names: dict[str, object] = {}
    exec(block.text, names)
    write = names["write"]
    assert callable(write)
    first = spark.createDataFrame([("anna",), ("anna",), ("bert",)], "customer STRING")
    second = spark.createDataFrame([("anna",)], "customer STRING")
    for batch, batch_id in ((first, 0), (first, 0), (second, 1), (second, 1), (first, 2)):
        write(batch, batch_id)
    database = sqlite3.connect("totals.db")
    totals = dict(database.execute("SELECT customer, orders FROM totals"))
    database.close()
    assert totals == {"anna": 5, "bert": 2}
