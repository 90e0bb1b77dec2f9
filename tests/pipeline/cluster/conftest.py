from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from examples.cluster.standalone import Cluster

from shardway.local import LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def local() -> Iterator[LocalKinesis]:
    with LocalKinesis(streams={"orders": 4, "copy": 2}) as local:
        yield local


@pytest.fixture
def cluster(local: LocalKinesis, tmp_path: Path) -> Iterator[Cluster]:
    """Two workers. All that it started is gone afterwards, also what lost its parent."""
    with Cluster(tmp_path / "cluster", local.environment()) as cluster:
        yield cluster
        family = cluster.family()
    assert len(family) >= 3
    assert cluster.family() == []
    assert [pid for pid in family if os.path.exists(f"/proc/{pid}/fd/0")] == []
