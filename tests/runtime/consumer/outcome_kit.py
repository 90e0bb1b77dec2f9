"""Consumers of a local stream, with the choices of a test, and what they tell."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from shardway.aws.options import ConnectionOptions, Credentials
from shardway.model import StartingPosition
from shardway.policies import Retry
from shardway.runtime.consumer.consumer import Consumer
from tests.options_kit import arguments_of
from tests.runtime.consumer.fleet_kit import DEADLINE_S, POLL, STREAM

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.local import LocalKinesis

SHARD_ID = "shardId-000000000000"
FAST = Retry(batch_failures_max=1, failures_max=2, base_s=0.001, cap_s=0.002)
"""Two tries of a record, and it is given up."""
FOR_EVER = Retry(failures_max=None, base_s=0.01, cap_s=0.05)


def wire_of(local: LocalKinesis) -> ConnectionOptions:
    return ConnectionOptions(
        endpoint_url=local.endpoint_url, region=local.region, credentials=Credentials("local", "local")
    )


def consumer_of(
    local: LocalKinesis,
    leases: Any,
    *,
    events: list[Any] | None = None,
    worker_id: str | None = None,
    **settings: Any,
) -> Consumer[Any]:
    """``events`` hears all that the consumer tells."""
    return Consumer(
        STREAM,
        application="billing",
        worker_id=worker_id,
        connection=wire_of(local),
        on_event=None if events is None else events.append,
        **arguments_of(
            leases=leases,
            **{
                "failover_s": 10.0,
                "look_interval_s": 0.1,
                "wait_interval_s": 0.02,
                "drain_deadline_s": 5.0,
                "starting_position": StartingPosition.TRIM_HORIZON,
                "polling": POLL,
                "retry": FOR_EVER,
                **settings,
            },
        ),
    )


def put(kinesis: Any, *datas: bytes, key: str | None = None, stream: str = STREAM) -> list[int]:
    """One after the other; their sequence numbers."""
    return [
        int(
            kinesis.put_record(StreamName=stream, PartitionKey=key or data.decode(), Data=data)["SequenceNumber"]
        )
        for data in datas
    ]  # fmt: skip


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def checkpoint_reaches(leases: Any, number: int, shard_id: str = SHARD_ID) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            row = await leases.get(shard_id)
            if row is not None and row.checkpoint.is_position and row.checkpoint.position.sequence_number >= number:
                return
            await asyncio.sleep(0.01)


def of(events: list[Any], kind: type) -> list[Any]:
    return [event for event in events if type(event) is kind]
