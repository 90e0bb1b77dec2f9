"""Clients for the tests of the local service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shardway.local.embedded import LocalKinesis
from tests.local.botoclient import client_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def local(request: pytest.FixtureRequest) -> Iterator[LocalKinesis]:
    """A service; ``@pytest.mark.parametrize("local", [{...}], indirect=True)`` for one with these settings."""
    with LocalKinesis(**getattr(request, "param", {})) as service:
        yield service


@pytest.fixture
def boto(local: LocalKinesis) -> Iterator[Callable[..., Any]]:
    """Makes boto3 clients of ``local``, closed at the end."""
    clients = []

    def make(service: str = "kinesis", **settings: Any) -> Any:
        clients.append(client_of(local.endpoint_url, service, **settings))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def kinesis(boto: Callable[..., Any]) -> Any:
    return boto()
