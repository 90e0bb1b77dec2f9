"""Real queries that begin where the leases of their application say."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardway.aws.dynamodb.lease_table import DynamoLeaseTable
from shardway.aws.options import ConnectionOptions, Credentials
from tests.spark.querying import Batches, Stream, assert_exact, by_shard, reader, run, start
from tests.starts import STARTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from shardway.core.leases import LeaseRow

PROGRAM = Path(__file__).with_name("leases_process.py")
DEADLINE_S = 120.0
APPLICATION = "billing"
SINCE_S = 1.0
"""How long before now a time lies at which a query begins; the clock was moved by more than that just before."""


def leases(stream: Stream) -> dict[str, LeaseRow]:
    local = stream.local
    wire = ConnectionOptions(endpoint_url=local.endpoint_url, region=local.region, credentials=Credentials("a", "b"))

    async def scan() -> dict[str, LeaseRow]:
        table = DynamoLeaseTable(APPLICATION, wire)
        try:
            return {row.key: row for row in (await table.scan(consistent=True)).rows}
        finally:
            await table.close()

    return asyncio.run(scan())


def reached(row: LeaseRow) -> int:
    """The last record that is read by a lease."""
    return row.checkpoint.position.sequence_number


def until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end_s, "it did not come to that"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.spark
def test_a_new_directory_goes_on_behind_what_was_committed(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    with_leases: dict[str, Any] = {
        "applicationName": APPLICATION,
        "dynamodbEndpointUrl": stream.local.endpoint_url,
        "leaseIntervalMs": "100000",  # only what is written at once, and at the end
    }
    stream.put(100)
    stream.settle()
    frame, first = reader(spark, stream, **with_leases), Batches()
    query = start(frame, tmp_path / "one", first)
    try:
        until(lambda: len(first.all_rows()) == 100)
        stream.put(30)
        stream.settle()
        until(lambda: len(first.all_rows()) == 130)
        query.processAllAvailable()  # the source was asked what comes next: so the batch is committed
    finally:
        query.stop()  # Spark ends the source's process by a signal: it writes what is missing
    # Which does so on its own, when Spark has gone on: a query that looks at the leases earlier begins at the former.
    done = {shard_id: rows[-1].sequence_number for shard_id, rows in by_shard(first.all_rows()).items()}
    until(lambda: {key: reached(row) for key, row in leases(stream).items()} == done)
    assert {one.owner for one in leases(stream).values()} == {None}
    stream.put(50)
    stream.settle()
    rows = first.all_rows() + run(spark, stream, tmp_path / "two", **with_leases).all_rows()
    assert_exact(stream, rows)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("starting_position", STARTS)
def test_a_query_whose_driver_is_killed_repeats_nothing_that_its_leases_say(
    stream: Stream, tmp_path: Path, starting_position: str
) -> None:
    """SIGKILL while it reads, twice; each time with a new directory. Then the last one reads what is left."""
    output = tmp_path / "rows"
    output.touch()
    stream.put(20)
    stream.settle()
    passed = 0 if starting_position == "TRIM_HORIZON" else len(stream.written)
    since = str(stream.local.clock.now() - SINCE_S) if starting_position == "AT_TIMESTAMP" else starting_position
    done: dict[str, int] = {}
    for turn in range(3):
        before = output.read_text(encoding="utf-8")
        command = [sys.executable, str(PROGRAM), stream.local.endpoint_url, "orders", APPLICATION]
        process = subprocess.Popen(
            [*command, str(tmp_path / f"directory-{turn}"), str(output), since],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"started\n"
            if starting_position == "LATEST" and turn == 0:
                until((tmp_path / "directory-0" / "offsets" / "0").exists)  # the start is that moment, or before it
            for _ in range(4):
                size = output.stat().st_size
                stream.put(40)
                stream.settle()
                until(lambda size=size: output.stat().st_size > size)  # type: ignore[misc]
            if turn == 2:
                wanted = {data.decode() for data in stream.written[passed:]}
                until(lambda wanted=wanted: {row[2] for row in rows_of(output.read_text("utf-8"))} >= wanted)  # type: ignore[misc]
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        text = output.read_text(encoding="utf-8")
        fresh = rows_of(text.removeprefix(before))
        assert all(int(number) > done.get(shard_id, 0) for shard_id, number, _ in fresh), "what was done came again"
        done = {key: row.checkpoint.position.sequence_number for key, row in leases(stream).items()}
    assert {row[2].encode() for row in rows_of(text)} == set(stream.written[passed:])


def rows_of(text: str) -> list[list[str]]:
    """Of whole lines: the last batch may be broken off."""
    return [row for line in text.splitlines(keepends=True) if line.endswith("\n") for row in json.loads(line)]
