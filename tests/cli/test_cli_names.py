"""All commands name an application and a stream in one way, and a name that fits the other kind is told as that."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import typer

from shardway.cli.app import app
from shardway.stores.sqlite import SqliteLeaseTable
from tests.cli.tables_kit import SHARDS, lease, make_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from shardway.local import LocalKinesis

    from .conftest import Done

    Run = Callable[..., Done]

pytestmark = pytest.mark.xdist_group("inspected-tables")
TWO_KINDS = {"console", "kclpy", "load", "local", "put", "run"}
"""Commands that look at nothing: two of them have a stream, and the rest serve, or have a file that names it."""
OF_AN_APPLICATION = [
    "cost orders",
    "doctor orders --window 0s",
    "top orders --frames 1",
    "app lag orders",
    "app lag orders --stream orders",
    "app describe orders",
    "app export orders",
    "app seek orders --to latest",
    f"app skip orders --shard {SHARDS[0]}",
]
OF_A_STREAM = [
    "cost --stream billing",
    "doctor --stream billing",
    "stream describe billing",
    "stream shards billing",
    "stream heat billing",
    "records tail billing --no-follow",
    "records grep text billing",
    "records count billing",
    "records get billing 49680422878816985956712234883511993830675535596124897330",
    "put billing",
    "load billing --records 1",
    "dead-letters list --from billing",
    "dead-letters replay --from orders --to billing --of orders",
]


@pytest.fixture
def local(service: LocalKinesis, monkeypatch: pytest.MonkeyPatch) -> LocalKinesis:
    for name, value in service.environment().items():
        monkeypatch.setenv(name, value)
    return service


def _parameters(command: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    for one in getattr(command, "params", ()):
        yield path.strip(), one.param_type_name, one.metavar if one.param_type_name == "argument" else max(one.opts)
    for name, below in getattr(command, "commands", {}).items():
        yield from _parameters(below, f"{path} {name}")


def test_an_application_is_an_argument_and_its_stream_is_an_option() -> None:
    found = list(_parameters(typer.main.get_command(app)))
    applications = {path for path, kind, name in found if (kind, name) == ("argument", "APPLICATION")}
    streams = {path for path, kind, name in found if (kind, name) == ("argument", "STREAM")}
    assert applications >= {"cost", "doctor", "top", "app lag", "check leases"}
    assert streams >= {"put", "load", "stream heat", "records tail", "check stream"}
    assert not applications & streams
    options = {path for path, kind, name in found if (kind, name) == ("option", "--stream")} - TWO_KINDS
    assert options <= applications
    assert {path for path, kind, name in found if (kind, name) == ("option", "--application")} == {"console"}


@pytest.mark.parametrize("command", OF_AN_APPLICATION)
def test_the_name_of_a_stream_is_no_application(run: Run, local: LocalKinesis, command: str) -> None:
    done = run(*command.split())
    assert (done.status, done.stdout) == (1, "")
    said = done.stderr.splitlines()[-1]
    assert "orders is the name of a stream, and there is no application of this name" in said
    assert "--stream orders" in said


@pytest.mark.parametrize("command", OF_A_STREAM)
def test_the_name_of_an_application_is_no_stream(run: Run, dynamodb: Any, command: str) -> None:
    make_table(dynamodb, "billing", lease(SHARDS[0], "LATEST"))
    done = run(*command.split())
    assert (done.status, done.stdout) == (1, "")
    said = done.stderr.splitlines()[-1]
    assert "billing is the name of an application, and there is no stream of this name" in said
    assert "shardway app describe billing" in said


@pytest.mark.parametrize("command", ["leases orders --window 0s", "lag orders", "stream billing"])
def test_a_check_of_the_other_kind_is_unknown(run: Run, dynamodb: Any, command: str) -> None:
    make_table(dynamodb, "billing", lease(SHARDS[0], "LATEST"))
    done = run("check", *command.split())
    assert done.status == 3
    assert "UNKNOWN" in done.stdout
    assert "is the name of a" in done.stdout


def test_the_store_that_was_given_is_asked(run: Run, local: LocalKinesis, tmp_path: Path) -> None:
    async def make() -> None:
        table = SqliteLeaseTable(tmp_path / "leases.db").of("billing")
        await table.ensure()
        await table.close()

    asyncio.run(make())
    done = run("app", "describe", "orders", "--store", f"sqlite:{tmp_path / 'leases.db'}")
    assert (done.status, "orders is the name of a stream" in done.stderr) == (1, True)


def test_a_name_of_neither_kind_is_told_as_the_service_tells_it(run: Run, local: LocalKinesis) -> None:
    assert "Table: nothing not found" in run("app", "describe", "nothing").stderr
    assert "Stream nothing under account" in run("stream", "describe", "nothing").stderr
