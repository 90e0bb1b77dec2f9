"""A local stream of one shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from reading_kit import STREAM

from penstock.local import LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def local() -> Iterator[LocalKinesis]:
    with LocalKinesis(streams={STREAM: 1}) as service:
        yield service
