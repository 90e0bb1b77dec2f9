"""Starts DynamoDB for the benchmarks of the consumer: Amazon's DynamoDB Local, in memory, a Java process of its own.

The figures of the KCL were measured with it, too, so ours stay beside them. ``python -m bench._dynamo`` shows what a
call takes on it and on the local Kinesis's own DynamoDB.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench._form import say
from shardway.aws.dynamodb.lease_table import DynamoLeaseTable
from shardway.aws.options import ConnectionOptions
from shardway.core.leases import LeaseRow, Unknown
from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.leases.worker_row import WorkerRow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

SERVER = Path(__file__).resolve().parents[1] / "tests" / "stores" / "dynamodb_local_server.py"
REGION = "us-east-1"
CALLS = 200


def _server() -> ModuleType:
    """Return the module by which the tests start DynamoDB Local; it belongs to no package."""
    spec = importlib.util.spec_from_file_location("dynamodb_local_server", SERVER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def dynamodb() -> Iterator[str]:
    """Start a fresh DynamoDB Local, and yield its address once it is warm. A Java program takes longer for its first
    calls, as it compiles meanwhile.
    """
    with _server().running() as endpoint_url:
        asyncio.run(_latencies(endpoint_url, "warm-up"))
        yield endpoint_url


def table(endpoint_url: str, name: str, *, tag: str = "") -> DynamoLeaseTable:
    """Return the lease table of this name in the DynamoDB at ``endpoint_url``."""
    return DynamoLeaseTable(name, ConnectionOptions(endpoint_url=endpoint_url, region=REGION, user_agent_tag=tag))


async def _latencies(endpoint_url: str, name: str) -> dict[str, list[float]]:
    """Make calls one after the other, and return the milliseconds that each took, by the kind of call."""
    leases = table(endpoint_url, name)
    await leases.ensure()
    took: dict[str, list[float]] = {}

    async def timed(kind: str, call: Any) -> Any:
        began = time.perf_counter()
        answer = await call
        took.setdefault(kind, []).append((time.perf_counter() - began) * 1e3)
        return answer

    row = LeaseRow(key="shardId-000000000000", checkpoint=Checkpoint.TRIM_HORIZON)
    while isinstance(await leases.create(row), Unknown):
        say("DynamoDB did not answer in time")
    for number in range(CALLS):
        await timed(
            "put a worker's row", leases.put_worker(WorkerRow(worker_id="one", counter=number, failover_s=10.0))
        )
        await timed("read a lease", leases.get(row.key))
        await timed("scan the workers", leases.workers(consistent=True))
    await leases.close()
    return took


def main() -> None:
    from bench.wire import set_environment
    from shardway.local import LocalKinesis

    set_environment()
    with LocalKinesis.spawn() as local, _server().running() as amazon:
        for name, endpoint_url in (("the local Kinesis", local.endpoint_url), ("DynamoDB Local", amazon)):
            for turn in range(2):
                for kind, took in asyncio.run(_latencies(endpoint_url, f"table-{turn}")).items():
                    took.sort()
                    if turn:
                        print(f"{name}, {kind}: {statistics.median(took):.2f} ms, p99 {took[-len(took) // 100]:.2f} ms")


if __name__ == "__main__":
    main()
