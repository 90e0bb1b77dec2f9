"""Fixtures for pytest, found by themselves once Penstock is installed.

Nothing is imported before a fixture is used: every run of pytest loads the plugin where Penstock is
installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.local.embedded import LocalKinesis


@pytest.fixture
def local_kinesis() -> Iterator[LocalKinesis]:
    """An empty local Kinesis in this process: endpoint, clock, faults, counts. See :class:`LocalKinesis`."""
    from penstock.local.embedded import LocalKinesis

    with LocalKinesis() as local:
        yield local


@pytest.fixture
def kinesis_endpoint(local_kinesis: LocalKinesis, monkeypatch: pytest.MonkeyPatch) -> str:
    """The local Kinesis's address; the environment makes every AWS SDK, here and in children, use it."""
    for name, value in local_kinesis.environment().items():
        monkeypatch.setenv(name, value)
    return local_kinesis.endpoint_url
