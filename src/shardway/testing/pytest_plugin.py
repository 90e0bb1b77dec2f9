"""Pytest finds these fixtures by itself once Shardway is installed.

Nothing is imported before a fixture is used: every run of pytest loads the plugin where Shardway is
installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from shardway.local.embedded import LocalKinesis
    from shardway.testing.consumer.consumer import TestConsumer
    from shardway.testing.streams.served_stream import ServedStream


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers", "kinesis(shards=1, name=None, **options): the stream and the service that Shardway's fixtures make"
    )


@pytest.fixture
def local_kinesis(request: pytest.FixtureRequest) -> Iterator[LocalKinesis]:
    """Give an empty local Kinesis in this process: endpoint, clock, faults, counts. See :class:`LocalKinesis`, whose
    options ``@pytest.mark.kinesis(...)`` may name.
    """
    from shardway.local import LocalKinesis

    options = {name: value for name, value in _marker_options(request).items() if name not in ("shards", "name")}
    with LocalKinesis(**options) as local:
        yield local


@pytest.fixture
def kinesis_endpoint(local_kinesis: LocalKinesis, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the local Kinesis's address; the environment makes every AWS SDK, here and in children, use it."""
    for name, value in local_kinesis.environment().items():
        monkeypatch.setenv(name, value)
    return local_kinesis.endpoint_url


@pytest.fixture
def kinesis_stream(
    request: pytest.FixtureRequest,
    local_kinesis: LocalKinesis,
    kinesis_endpoint: str,  # noqa: ARG001 - it is asked for since it leads programs to the service
) -> ServedStream:
    """Give a stream of the local Kinesis, to which the environment leads: ``put``, ``records``, ``split``, ``merge``,
    ``connection``.

    ``@pytest.mark.kinesis(shards=4, name="orders")`` says how many shards, and its name; by default 1, and the test's.
    """
    from shardway.testing.streams.served_stream import ServedStream, name_of_test

    marked = _marker_options(request)
    name = marked.get("name") or name_of_test(request.node.name)
    return ServedStream.create(local_kinesis, name, shards=marked.get("shards", 1))


@pytest.fixture
def make_consumer(request: pytest.FixtureRequest) -> Callable[..., TestConsumer]:
    """Give what makes consumers without a server: ``make_consumer(records, retry=..., ...)``, see
    :class:`TestConsumer`. The consumers of one test share a stream and a lease table;
    ``@pytest.mark.kinesis(shards=4, name="orders")`` holds here too.
    """
    from shardway.stores.memory import MemoryLeaseTable
    from shardway.testing.consumer.consumer import TestConsumer
    from shardway.testing.streams.memory_stream import MemoryStream

    marked = _marker_options(request)
    stream = MemoryStream(marked.get("name") or "orders", shards=marked.get("shards", 1))
    leases = MemoryLeaseTable()

    def make(records: Any = (), **options: Any) -> TestConsumer:
        return TestConsumer(records, **{"stream": stream, "leases": leases, **options})

    return make


def _marker_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return what the markers of a test say, the nearest first."""
    found: dict[str, Any] = {}
    for marker in request.node.iter_markers("kinesis"):
        found = {**marker.kwargs, **found}
    return found
