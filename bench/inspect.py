"""Measures the tools that look: how late ``records tail`` prints, and how long ``app lag`` takes of many shards.

The service is a local one in a process of its own, with AWS's limits on each shard. ``tail_latency`` is the time from
before a put to the line that ``shardway records tail`` prints, for 4 shards. The tool takes the default share of
calls, or all of them, or the service pushes to a consumer that is registered for enhanced fan-out.

``tail_rows``: The command writes records of 100 bytes as lines of JSON to a file. It reads them from 64 shards at the
default share of their calls and bytes, and its start counts. The peer is ``aws kinesis get-records`` of the same
records, one call after the other.

``lag_1000_shards`` is the time of one look at a table as the KCL writes it, with a lease of each shard. The start of
the command counts.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from scripts.environments import HOME
from scripts.pyspark_matrix import made

from bench._form import Case, main, say
from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.kinesis.shapes import PutEntry
from shardway.aws.wire import Wire
from shardway.local import LocalKinesis
from shardway.model import StreamName
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARDWAY = [sys.executable, "-c", "import sys; from shardway.cli import main; sys.exit(main())"]
RECORDS = 200
PUTS_INTERVAL_S = 0.043
"""The seconds between two puts. They are no multiple of the tool's own interval, so that puts fall at all of its
moments.
"""
WIDE = 1000
ROWS_SHARDS, ROWS, ROW_BYTES = 64, 1_280_000, 100
PUT_CALL_RECORDS, PUTS_AT_ONCE = 500, 4
PEER_CALLS = 8
PEER_CALL_RECORDS = 10_000


def tail_latency_p99_ms(*options: str) -> float:
    """Return the milliseconds from a put to the line that the tool prints with options, at the 99th percentile."""
    with LocalKinesis.spawn(streams={"orders": 4}) as local:
        local.set_limits(per_shard=True)
        os.environ.update(local.environment())
        kinesis = boto3.client("kinesis", endpoint_url=local.endpoint_url, region_name=local.region)
        if "--fan-out" in options:
            _register(kinesis, "looker")
        words = [*SHARDWAY, "records", "tail", "orders", "-o", "jsonl", *options]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as tail:
            try:
                assert tail.stdout is not None
                os.set_blocking(tail.stdout.fileno(), False)
                _wait_until_it_reads(kinesis, tail)
                latencies = list(_latencies(kinesis, tail))
            finally:
                tail.terminate()
    return statistics.quantiles(latencies, n=100)[98] * 1000


def _register(kinesis: Any, name: str) -> None:
    arn = kinesis.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"]["StreamARN"]
    kinesis.register_stream_consumer(StreamARN=arn, ConsumerName=name)
    while kinesis.list_stream_consumers(StreamARN=arn)["Consumers"][0]["ConsumerStatus"] != "ACTIVE":
        time.sleep(0.1)


def _wait_until_it_reads(kinesis: Any, tail: subprocess.Popen[bytes]) -> None:
    """Put one record after another, until the tail, which begins at the newest record, has printed one. Then wait
    until no more come.
    """
    quiet_since_s, seen = time.monotonic(), False
    while not seen or time.monotonic() - quiet_since_s < 2.0:
        if not seen:
            kinesis.put_record(StreamName="orders", PartitionKey="begin", Data=b"begin")
        time.sleep(0.1)
        if _lines(tail):
            seen, quiet_since_s = True, time.monotonic()


def _latencies(kinesis: Any, tail: subprocess.Popen[bytes]) -> Iterator[float]:
    put_s: dict[str, float] = {}
    next_s, left = time.monotonic(), RECORDS
    while left or put_s:
        now_s = time.monotonic()
        if left and now_s >= next_s:
            left, next_s = left - 1, next_s + PUTS_INTERVAL_S
            put_s[str(left)] = now_s
            kinesis.put_record(StreamName="orders", PartitionKey=str(left), Data=str(left).encode())
        for line in _lines(tail):
            data = json.loads(line)["data"]
            if data in put_s:
                yield time.monotonic() - put_s.pop(data)
        if tail.poll() is not None and put_s and not left:
            raise RuntimeError(f"shardway records tail has ended with {tail.returncode}")
        time.sleep(0.001)


def _lines(tail: subprocess.Popen[bytes]) -> list[bytes]:
    """Return the lines that have come. The tool writes whole lines."""
    assert tail.stdout is not None
    return tail.stdout.readlines()


# --- rows -----------------------------------------------------------------------------------------


class Rows:
    """A stream with a backlog, for both sides of ``tail_rows``."""

    def __init__(self) -> None:
        self.local = LocalKinesis.spawn(streams={"rows": ROWS_SHARDS})
        self.local.__enter__()
        os.environ.update(self.local.environment())
        asyncio.run(_fill(self.local))
        self.local.set_limits(per_shard=True)
        self.aws = made(HOME / "awscli", ["awscli"]).parent / "aws"


@cache
def rows() -> Rows:
    """Return the stream with its backlog, which is made once and ends with this process."""
    return Rows()


async def _fill(local: Any) -> None:
    data = [json.dumps({"id": number, "text": "x"}).ljust(ROW_BYTES).encode() for number in range(PUT_CALL_RECORDS)]
    numbers = iter(range(ROWS // PUT_CALL_RECORDS))

    async def put(client: KinesisClient) -> None:
        for call in numbers:
            entries = [PutEntry(one, f"key-{call}-{place}") for place, one in enumerate(data)]
            assert (await client.put_records(StreamName("rows"), entries)).failed_record_count == 0

    async with Wire(ConnectionOptions(region=local.region, endpoint_url=local.endpoint_url)) as wire:
        client = KinesisClient(wire)
        await asyncio.gather(*(put(client) for _ in range(PUTS_AT_ONCE)))


def tail_rows() -> float:
    """Return the records a second of our tool, from the start of the command to its end."""
    os.environ.update(rows().local.environment())
    words = ["records", "tail", "rows", "--starting-position", "trim-horizon", "--no-follow", "-o", "jsonl"]
    with tempfile.TemporaryFile() as file:
        began_s = time.perf_counter()
        subprocess.run([*SHARDWAY, *words], stdout=file, check=True)
        took_s = time.perf_counter() - began_s
        file.seek(0)
        lines = sum(part.count(b"\n") for part in iter(lambda: file.read(1 << 20), b""))
    if lines != ROWS:
        raise RuntimeError(f"{lines} lines of {ROWS} records")
    return lines / took_s


def aws_rows() -> float:
    """Return the records a second of AWS's command line. It makes one call after the other, each for another shard's
    oldest records.
    """
    local, aws = rows().local, str(rows().aws)
    os.environ.update(local.environment())
    kinesis = boto3.client("kinesis", endpoint_url=local.endpoint_url, region_name=local.region)
    shards = [one["ShardId"] for one in kinesis.list_shards(StreamName="rows")["Shards"]]
    found, took_s = 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.json"
        for shard in shards[:PEER_CALLS]:
            at = kinesis.get_shard_iterator(StreamName="rows", ShardId=shard, ShardIteratorType="TRIM_HORIZON")
            words = ["kinesis", "get-records", "--limit", str(PEER_CALL_RECORDS), "--output", "json"]
            with path.open("wb") as file:
                began_s = time.perf_counter()
                subprocess.run(
                    [aws, *words, "--shard-iterator", at["ShardIterator"]],
                    stdout=file,
                    check=True,
                )
                took_s += time.perf_counter() - began_s
            found += len(json.loads(path.read_bytes())["Records"])
    kinesis.close()
    say(f"aws kinesis get-records: {found:,} records in {PEER_CALLS} calls, {took_s / PEER_CALLS:.2f} s each")
    return found / took_s


def lag_1000_shards_s() -> float:
    """Return the seconds of one look of ``app lag``."""
    with LocalKinesis.spawn(streams={"wide": WIDE}) as local:
        os.environ.update(local.environment())
        _fill_table(local)
        local.set_limits(per_shard=True)
        words = [*SHARDWAY, "app", "lag", "wide-app", "--stream", "wide", "-o", "json"]
        began_s = time.perf_counter()
        out = subprocess.check_output(words)
        took_s = time.perf_counter() - began_s
    report = json.loads(out)
    if (len(report["shards"]), report["state"]) != (WIDE, "ok"):
        raise RuntimeError(f"{len(report['shards'])} shards, {report['state']}")
    return took_s


def _fill_table(local: Any) -> None:
    """Make a table as the KCL 2.x makes it, with a lease of each shard."""
    dynamodb = boto3.client("dynamodb", endpoint_url=local.endpoint_url, region_name=local.region)
    dynamodb.create_table(
        TableName="wide-app",
        KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    items = [
        {
            "leaseKey": {"S": f"shardId-{number:012d}"},
            "leaseOwner": {"S": f"worker-{number % 10}"},
            "leaseCounter": {"N": "17"},
            "checkpoint": {"S": "TRIM_HORIZON"},
            "checkpointSubSequenceNumber": {"N": "0"},
            "ownerSwitchesSinceCheckpoint": {"N": "0"},
        }
        for number in range(WIDE)
    ]
    for start in range(0, WIDE, 25):
        puts = [{"PutRequest": {"Item": row}} for row in items[start : start + 25]]
        dynamodb.batch_write_item(RequestItems={"wide-app": puts})


def tail_latency(goal: float, *options: str, name: str = "") -> Case:
    """Return the case of a tail with these options."""
    return Case(
        name=f"tail_latency_p99_ms{name}",
        unit="ms",
        goal=goal,
        sense="at_most",
        ours=lambda: tail_latency_p99_ms(*options),
        rounds=3,
        warm_up=0,
    )


CASES = [
    tail_latency(550),
    tail_latency(300, "--rate", "5", name="_rate_5"),
    tail_latency(60, "--fan-out", "looker", name="_fan_out"),
    Case(name="lag_1000_shards_s", unit="s", goal=5, sense="at_most", ours=lag_1000_shards_s, rounds=3, warm_up=0),
    Case(
        name="tail_rows",
        unit="records/s",
        goal=20,
        sense="at_least",
        ours=tail_rows,
        peer=aws_rows,
        peer_name="aws kinesis get-records",
        rounds=3,
        warm_up=0,
    ),
]

if __name__ == "__main__":
    main("inspect", __doc__ or "", CASES)
