"""The smoke tests use what the Spark tests have for looking at queries."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shardway.local import LocalKinesis
from shardway.model import StreamName

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "spark"))

from tests.spark.querying import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def stream() -> Iterator[Stream]:
    """A stream of two shards."""
    with LocalKinesis() as local:
        made = Stream(local, StreamName("orders"))
        made.call("CreateStream", ShardCount=2)
        yield made
        made.close()
