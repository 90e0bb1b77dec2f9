"""The three faults of a night, made by real parts: a worker whose handler hangs, a worker that is killed, a hot shard.
One look with the tools finds each of them, and does not find it where all is well.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardway.cli import main
from shardway.core.leases.worker_row import UNSETTLED_FROM_S
from shardway.inspect import Store
from shardway.inspect.applications.tables import rows_of
from tests.inspect.scenes import Scene, shard_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.inspect.scenes import Clients

    Cli = Callable[..., tuple[int, str]]

pytestmark = [pytest.mark.xdist_group("inspected-tables"), pytest.mark.timeout(180)]
DEADLINE_S = 90.0
WORKER = [sys.executable, str(Path(__file__).with_name("watched_worker.py"))]


@pytest.fixture
def scene(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    for name, value in clients.local.environment().items():
        monkeypatch.setenv(name, value)
    found = Scene(clients, "watched", 1, application="watched-app")
    yield found
    found.ask("DeleteStream", StreamName="watched")
    for name in clients.dynamodb.list_tables()["TableNames"]:
        clients.dynamodb.delete_table(TableName=name)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    def call(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["shardway", *words])
        status = main()
        return status, "".join(capsys.readouterr())

    return call


@contextlib.contextmanager
def working(scene: Scene, how: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that has settled the stream's first record."""
    words = [*WORKER, scene.application, scene.name, how]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, env={**os.environ})
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def until(scene: Scene, seen: Callable[[Any], bool]) -> None:
    """Look at the application's rows until they are so."""

    async def look() -> None:
        async with scene.inspector() as inspector:
            while not seen(await rows_of(scene.application, Store(), inspector)):
                await asyncio.sleep(0.2)

    asyncio.run(asyncio.wait_for(look(), DEADLINE_S))


def has_checkpoint(rows: Any) -> bool:
    return all(one.checkpoint.is_position for one in rows.listing.rows)


SHORT = ("--ok", "1s", "--stalled", f"{UNSETTLED_FROM_S:g}s")


def test_a_handler_that_hangs_is_found_by_one_look(scene: Scene, cli: Cli) -> None:
    scene.put()
    with working(scene, "hangs"):
        scene.put()
        until(scene, lambda rows: any(one.unsettled for one in rows.workers))
        scene.put()  # what comes meanwhile changes nothing
        names = (scene.application, "--stream", scene.name)
        _, text = cli("app", "lag", *names, *SHORT, "-o", "json")
        report = json.loads(text)
        assert (report["state"], report["window_s"]) == ("stalled", 0.0)
        assert report["shards"][0]["unsettled_s"] >= UNSETTLED_FROM_S
        assert "as its worker tells" in report["shards"][0]["why"]
        status, text = cli("doctor", *names, *SHORT, "--window", "0s")
        assert status == 1
        assert "SHW-D002 critical: shards are owned, and nothing happens" in text
        status, text = cli("check", "lag", *names, *SHORT)
        assert (status, text.split(" - ")[0]) == (2, "LAG CRITICAL")
        _, text = cli("top", *names, *SHORT)
        assert "stalled" in text


def test_a_worker_that_makes_progress_is_not_found(scene: Scene, cli: Cli) -> None:
    scene.put()
    with working(scene, "settles"):
        until(scene, has_checkpoint)
        status, text = cli("doctor", scene.application, "--stream", scene.name)
        assert "SHW-D002" not in text
        assert "not looked for" not in text, "25 seconds are enough for a worker that tells"
        status, text = cli("check", "leases", scene.application)
        assert (status, text) == (0, "LEASES OK - watched-app: 1 lease held by 1 worker | held=1 free=0;;0 workers=1\n")
        status, text = cli("check", "lag", scene.application, "--stream", scene.name)
        assert status == 0


def test_a_worker_that_was_killed_is_found_by_one_look(scene: Scene, cli: Cli) -> None:
    scene.put()
    with working(scene, "settles") as process:
        until(scene, has_checkpoint)
        process.send_signal(signal.SIGKILL)
        process.wait()
        scene.advance(24 * 60)
        names = (scene.application, "--stream", scene.name)
        begun_s = time.monotonic()
        status, text = cli("check", "leases", scene.application)
        assert time.monotonic() - begun_s < 20, "one look is enough where the worker has a row"
        assert status == 2
        assert "is named as the owner of 1 lease, and has given no sign of life for 24 m" in text
        _, text = cli("app", "lag", *names, "-o", "json")
        assert json.loads(text)["state"] == "stopped"
        status, text = cli("check", "lag", *names)
        assert (status, text.split(" - ")[0]) == (2, "LAG CRITICAL")
        status, text = cli("doctor", *names, "--window", "0s")
        assert status == 1
        assert "SHW-D018 critical: owners do not renew their leases" in text


def test_a_hot_shard_is_found_by_the_first_command(scene: Scene, cli: Cli) -> None:
    hot = Scene(scene.clients, "watched-hot", 4)
    for number in range(900):
        hot.put(2, b"x" * 9_000, f"k{number}")
    status, text = cli("doctor", "--stream", hot.name)
    assert status == 1
    assert "SHW-D009 warning: a shard is hot" in text
    assert shard_id(2) in text
