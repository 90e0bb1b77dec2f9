"""A consumer on the local service as users write it, with quick intervals."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from shardway import (
    ConnectionOptions,
    Consumer,
    Credentials,
    PollingOptions,
    Retry,
    StartingPosition,
)
from tests.options_kit import arguments_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.local import LocalKinesis

STREAM = "orders"
DEADLINE_S = 60.0
POLL = PollingOptions(interval_s=0.02, idle_interval_s=0.05)
QUICK_LEASES = {"failover_s": 2.0, "renew_interval_s": 0.2, "look_interval_s": 0.1}
"""Settings under which a lease's counter moves several times a second."""
QUICK_RETRIES = Retry(failures_max=None, base_s=0.001, cap_s=0.01)
"""What fails is tried again at once, and for ever."""


def wire(local: LocalKinesis) -> ConnectionOptions:
    return ConnectionOptions(
        endpoint_url=local.endpoint_url, region=local.region, credentials=Credentials("local", "local")
    )


def settings(**given: Any) -> dict[str, Any]:
    """Options by the names of their fields; for `arguments_of`."""
    return {
        "failover_s": 20.0,  # a busy machine is no dead one
        "look_interval_s": 0.1,
        "wait_interval_s": 0.02,
        "starting_position": StartingPosition.TRIM_HORIZON,
        "polling": POLL,
        "drain_deadline_s": 5.0,
        **given,
    }


def consumer_of(local: LocalKinesis, leases: Any, *, stream: Any = STREAM, face: Any = Consumer, **given: Any) -> Any:
    """What is given goes before the test's own options."""
    options = arguments_of(leases=leases, **settings(**given))
    return face(stream, application="billing", connection=wire(local), **options)


def put(kinesis: Any, datas: Any, *, key: Callable[[bytes], str] = bytes.decode, stream: str = STREAM) -> list[bytes]:
    """One record after another, in this order."""
    listed = [b"%d" % one if isinstance(one, int) else one for one in datas]
    for at in range(0, len(listed), 100):
        found = kinesis.put_records(
            StreamName=stream,
            Records=[{"Data": data, "PartitionKey": key(data)} for data in listed[at : at + 100]],
        )
        assert found["FailedRecordCount"] == 0
    return listed


async def until(condition: Callable[[], object]) -> None:
    """Wait for it; the test's own deadline bounds it."""
    while not condition():
        await asyncio.sleep(0.01)
