"""What the tests of the console share: a local Kinesis, a console before it, and a browser where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shardway import Credentials
from shardway.console.asgi import console_app
from shardway.console.settings import ConsoleSettings
from shardway.local import LocalKinesis
from shardway.wiring import ConnectionOptions
from tests.console.asking import TOKEN, VIEWER_TOKEN
from tests.console.browsing import CHROMIUM, FLAGS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

    from shardway.console.security.gate import Gate

    MakeGate = Callable[..., Gate]


@pytest.fixture(scope="package")
def service() -> Iterator[LocalKinesis]:
    """One for all tests: its DynamoDB takes a while to start."""
    with LocalKinesis(streams={"orders": 2, "clicks": 1}, shard_quota=10_000) as running:
        yield running


@pytest.fixture
def connection(service: LocalKinesis) -> Iterator[ConnectionOptions]:
    """Leads to it. What a test orders of faults ends with the test."""
    yield ConnectionOptions(
        region=service.region,
        endpoint_url=service.endpoint_url,
        credentials=Credentials(access_key_id="local", secret_access_key="local"),
    )
    service.faults.clear()


@pytest.fixture
def settings(tmp_path: Path) -> ConsoleSettings:
    """A console as it is by default, with both tokens."""
    return ConsoleSettings(token=TOKEN, viewer_token=VIEWER_TOKEN, audit=str(tmp_path / "audit.jsonl"))


@pytest.fixture
async def make_gate(connection: ConnectionOptions, tmp_path: Path) -> AsyncIterator[MakeGate]:
    """Makes consoles; each ends with the test."""
    made: list[Gate] = []

    def make(**changed: Any) -> Gate:
        values = {"token": TOKEN, "viewer_token": VIEWER_TOKEN, "audit": str(tmp_path / "audit.jsonl"), **changed}
        made.append(console_app(ConsoleSettings(**values), connection))
        return made[-1]

    yield make
    for gate in made:
        await gate.console.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium, which the tests of a module share."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield found
        found.close()
