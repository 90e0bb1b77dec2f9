"""One local service for all scenes: its DynamoDB takes a while to start."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from shardway.aws.calls.retry import RetryPolicy
from shardway.local import LocalKinesis
from tests.inspect.scenes import Clients, Scene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="package")
def clients() -> Iterator[Clients]:
    """Its clock is set forward by many scenes: each takes it as it is."""
    with LocalKinesis() as running:
        found = Clients(running)
        yield found
        found.close()


@pytest.fixture
def make(
    clients: Clients, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Scene]]:
    """Makes a scene whose names are the test's own. Refusals are given up soon."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[-80:].strip("-")
    monkeypatch.setattr("shardway.inspect.reads.wire.RETRY", RetryPolicy(attempts_max=3, base_s=0.001, cap_s=0.001))
    yield lambda shards=2, kind="kcl 2.x": Scene(clients, name, shards, kind)
    clients.local.faults.clear()
