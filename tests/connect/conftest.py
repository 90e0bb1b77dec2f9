"""A stream, a Connect server that reaches it, and a client that reaches the server alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from shardway.testing import LocalKinesis
from tests.connect.connect_server import ConnectServer, client_python, run_client

if TYPE_CHECKING:
    from collections.abc import Iterator

CLIENT_TIMEOUT_S = 580.0
PROGRAMS = Path(__file__).with_name("client_programs.py")


class Scene:
    """Orders in a stream: 100, the first of them twice, and one that is none."""

    def __init__(self, local: LocalKinesis, folder: Path) -> None:
        self.local = local
        self.folder = folder
        orders = [
            {"order_id": f"o-{number}", "customer": f"customer-{number % 5}", "amount": f"{number}.50"}
            for number in range(100)
        ]
        entries = [{"Data": json.dumps(order).encode(), "PartitionKey": order["customer"]} for order in orders]
        self._kinesis = boto3.client("kinesis", endpoint_url=local.endpoint_url, region_name=local.region)
        entries += [entries[0], {"Data": b"none", "PartitionKey": "x"}]
        self._kinesis.put_records(StreamName="orders", Records=entries)
        local.clock.advance(3.0)
        self.server = ConnectServer(folder, local.environment())

    def close(self) -> None:
        self.server.stop()
        self._kinesis.close()

    def records(self, stream: str) -> list[bytes]:
        """The data of all records of a stream."""
        found: list[bytes] = []
        for shard in self._kinesis.list_shards(StreamName=stream)["Shards"]:
            iterator = self._kinesis.get_shard_iterator(
                StreamName=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
            page = self._kinesis.get_records(ShardIterator=iterator)
            assert page["MillisBehindLatest"] == 0
            found += [record["Data"] for record in page["Records"]]
        return found

    def client(self, python: Path, program: str, *, timeout_s: float = CLIENT_TIMEOUT_S) -> str:
        """What a program prints."""
        done = run_client(python, program, self.server, timeout_s=timeout_s)
        assert done.returncode == 0, "\n".join(line for line in done.stderr.splitlines() if line[:1] != "\t")[-4000:]
        return done.stdout

    def call(self, python: Path, function: str) -> dict[str, Any]:
        """What a function of ``client_programs`` returns, called in a process of the client's."""
        text = PROGRAMS.read_text(encoding="utf-8")
        printed = self.client(python, f"{text}\n\nprint(json.dumps({function}({str(self.folder)!r})))\nspark.stop()\n")
        result: dict[str, Any] = json.loads(printed.splitlines()[-1])
        return result


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """One server for all tests: it costs more to start than most of them."""
    with LocalKinesis(streams={"orders": 2, "copy": 2, "good-orders": 2}) as local:
        made = Scene(local, tmp_path_factory.mktemp("connect"))
        yield made
        made.close()


@pytest.fixture(scope="session")
def whole() -> Path:
    """A client that has Spark itself and uses it as a client only."""
    return Path(sys.executable)


@pytest.fixture(scope="session")
def thin() -> Path:
    """A client of ``pyspark-client``. Skips where it cannot be had."""
    try:
        return client_python()
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"pyspark-client cannot be installed: {error}")
