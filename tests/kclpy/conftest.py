"""A stream of one shard, a journal, and programs that can be imported by the processes that are started."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from shardway.local import LocalKinesis
from tests.kclpy.kclpy_kit import PROGRAMS, STREAM, Journal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def local() -> Iterator[LocalKinesis]:
    with LocalKinesis(streams={STREAM: 1}) as service:
        yield service


@pytest.fixture
def kinesis(local: LocalKinesis) -> Any:
    return boto3.client("kinesis", endpoint_url=local.endpoint_url, region_name=local.region)


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    monkeypatch.setenv("KCLPY_JOURNAL", str(tmp_path / "journal"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PROGRAMS), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return Journal(tmp_path / "journal")
