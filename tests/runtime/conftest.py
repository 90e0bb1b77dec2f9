"""A local stream for the tests of the producer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from producing import STREAM

from penstock.local import LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def local(request: pytest.FixtureRequest) -> Iterator[LocalKinesis]:
    """A service with a stream of four shards; ``@pytest.mark.parametrize("local", [{...}], indirect=True)`` for
    one with these settings.
    """
    with LocalKinesis(**{"streams": {STREAM: 4}, **getattr(request, "param", {})}) as service:
        yield service
