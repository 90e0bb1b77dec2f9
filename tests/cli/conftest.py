"""What the tests of the commands share: running them, and reading back what they wrote."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple

import boto3
import pytest

from shardway.cli import main
from shardway.core.aggregation.reader import open_aggregate
from shardway.local import LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COMMAND = [sys.executable, "-c", "import sys; from shardway.cli import main; sys.exit(main())"]


class Done(NamedTuple):
    """How a command ended."""

    status: int
    stdout: str
    stderr: str


class Found(NamedTuple):
    """A user record in a stream."""

    key: str
    data: bytes
    aggregated: bool
    shard_id: str


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts the command; what still runs at the end is killed."""
    processes = []

    def run(*arguments: str, **settings: Any) -> subprocess.Popen[bytes]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings}
        process = subprocess.Popen([*COMMAND, *arguments], **pipes)
        processes.append(process)
        return process

    yield run
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Runs a command that ends by itself, in this process; ``stdin`` is what it reads there."""
    if "AWS_ENDPOINT_URL" not in os.environ:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nothing leaves this machine

    def call(*arguments: str, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "argv", ["shardway", *arguments])
        kept = os.dup(0)
        with tempfile.TemporaryFile() as file:
            file.write(stdin)
            file.seek(0)
            os.dup2(file.fileno(), 0)
            try:
                return Done(main(), *capsys.readouterr())
            finally:
                os.dup2(kept, 0)
                os.close(kept)

    return call


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalKinesis]:
    """A local Kinesis with the stream ``orders`` of two shards, to which the environment leads every command."""
    with LocalKinesis(streams={"orders": 2}) as running:
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture(scope="module")
def service() -> Iterator[LocalKinesis]:
    """One for all tests of a module: its DynamoDB takes a while to start."""
    with LocalKinesis(streams={"orders": 2}) as running:
        yield running


@pytest.fixture
def kinesis(local: LocalKinesis) -> Iterator[Any]:
    """A client of ``local``."""
    client = boto3.client("kinesis", endpoint_url=local.endpoint_url, region_name=local.region)
    yield client
    client.close()


@pytest.fixture
def dynamodb(local: LocalKinesis) -> Iterator[Any]:
    """A client of its DynamoDB; the tables are deleted behind each test."""
    client = boto3.client("dynamodb", endpoint_url=local.endpoint_url, region_name=local.region)
    yield client
    for table in client.list_tables()["TableNames"]:
        client.delete_table(TableName=table)
    client.close()


@pytest.fixture
def read_back(local: LocalKinesis) -> Callable[[], list[Found]]:
    """All user records of ``orders``, in the order of their shard."""

    def read() -> list[Found]:
        client = boto3.client("kinesis", endpoint_url=local.endpoint_url, region_name=local.region)
        found = []
        for shard in client.list_shards(StreamName="orders")["Shards"]:
            iterator = client.get_shard_iterator(
                StreamName="orders", ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
            while (page := client.get_records(ShardIterator=iterator))["Records"]:
                iterator = page["NextShardIterator"]
                for record in page["Records"]:
                    found += user_records(record, shard["ShardId"])
        client.close()
        return found

    return read


def user_records(record: dict[str, Any], shard_id: str) -> list[Found]:
    """The user records in one that GetRecords returned."""
    aggregate = open_aggregate(record["Data"])
    if aggregate is None:
        return [Found(record["PartitionKey"], record["Data"], False, shard_id)]
    return [Found(one.partition_key, one.data, True, shard_id) for one in aggregate]
