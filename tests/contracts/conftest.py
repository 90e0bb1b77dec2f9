"""One suite, many services: ours always, other emulators where they are asked for.

They are asked for by ``make test-all``, or by ``SHARDWAY_CONTRACT_EMULATORS`` (names with commas, or ``all``). What an
emulator gets wrong stands in ``deviations.py``, with the reason; once it gets it right, the test says so.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config

from shardway.local.embedded import LocalKinesis
from tests.contracts.contract_stream import Stream
from tests.contracts.deviations import DEVIATIONS
from tests.contracts.emulators import EMULATORS, UnavailableError, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OURS = "shardway"
ASKED = os.environ.get("SHARDWAY_CONTRACT_EMULATORS", "")


def _services() -> list[Any]:
    asked = set(EMULATORS) if ASKED in ("", "all") else set(ASKED.split(","))
    unknown = asked - set(EMULATORS)
    if unknown:
        raise pytest.UsageError(f"SHARDWAY_CONTRACT_EMULATORS: unknown {unknown}, there are {set(EMULATORS)}")
    slow = () if ASKED else (pytest.mark.slow,)
    others = [pytest.param(name, marks=[*slow, pytest.mark.xdist_group(name)]) for name in EMULATORS if name in asked]
    return [pytest.param(OURS, marks=pytest.mark.xdist_group(OURS)), *others]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Expect of each emulator what it is known to get wrong."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is None or Path(__file__).parent not in item.path.parents:
            continue
        name = callspec.params["service"]
        case = callspec.id.removeprefix(name).removeprefix("-")
        test = getattr(item, "originalname", "") + (f"[{case}]" if case else "")
        deviation = DEVIATIONS.get(name, {}).get(test)
        if deviation is not None:
            expected = pytest.mark.xfail(reason=deviation.reason, strict=deviation.always, run=deviation.run)
            item.add_marker(expected)


@pytest.fixture(scope="session", params=_services())
def service(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a service."""
    if request.param == OURS:
        with LocalKinesis() as local:
            yield local.endpoint_url
        return
    try:
        with running(request.param) as url:
            yield url
    except UnavailableError as reason:
        pytest.skip(str(reason))


@pytest.fixture
def make_client(service: str) -> Iterator[Callable[[], Any]]:
    """Makes boto3 clients that repeat nothing, closed at the end."""
    clients = []

    def make() -> Any:
        config = Config(retries={"total_max_attempts": 1}, read_timeout=15, connect_timeout=5)
        clients.append(
            boto3.client(
                "kinesis",
                endpoint_url=service,
                region_name="us-east-1",
                aws_access_key_id="local",
                aws_secret_access_key="local",
                config=config,
            )
        )
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def kinesis(make_client: Callable[[], Any]) -> Any:
    return make_client()


@pytest.fixture
def make_stream(kinesis: Any) -> Iterator[Callable[[int], Stream]]:
    """Makes streams with so many shards, deleted at the end."""
    streams = []

    def make(shards: int = 1) -> Stream:
        stream = Stream(kinesis, f"contract-{uuid.uuid4().hex[:12]}")
        kinesis.create_stream(StreamName=stream.name, ShardCount=shards)
        streams.append(stream)
        stream.wait()
        return stream

    yield make
    for stream in streams:
        try:
            kinesis.delete_stream(StreamName=stream.name, EnforceConsumerDeletion=True)
        except kinesis.exceptions.ClientError:
            continue
