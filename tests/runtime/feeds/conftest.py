"""A local stream of one shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shardway.local import LocalKinesis
from tests.runtime.feeds.feeding_kit import STREAM

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def local(request: pytest.FixtureRequest) -> Iterator[LocalKinesis]:
    """A service with a stream of one shard; with settings as in the fixture of the producer's tests."""
    with LocalKinesis(**{"streams": {STREAM: 1}, **getattr(request, "param", {})}) as service:
        yield service
