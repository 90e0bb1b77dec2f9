"""Contexts, and completion for shells."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import typer.main

from shardway.cli.app import app
from shardway.cli.write_guard import WRITES, _leaves
from shardway.core.leases import LeaseRow
from shardway.stores.sqlite import SqliteLeaseTable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shardway.local import LocalKinesis

    Run = Callable[..., Any]

READS = {
    *("app describe", "app export", "app lag", "app ls", "check lag", "check leases", "check stream", "completion"),
    *("context ls", "context rm", "context set", "context use", "cost", "dead-letters list", "doctor"),
    *("local", "records count", "records get", "records grep", "records tail"),
    *("stream describe", "stream heat", "stream ls", "stream shards", "top"),
}
"""Commands that write nothing to AWS and to no lease table."""
PROGRAM = "import sys; from shardway.cli import main; sys.exit(main())"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("SHARDWAY_CONTEXT", raising=False)
    return tmp_path


@pytest.fixture
def away(local: LocalKinesis, monkeypatch: pytest.MonkeyPatch) -> LocalKinesis:
    """A Kinesis to which nothing in the environment leads."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    return local


def test_a_context_takes_the_place_of_options(run: Run, away: LocalKinesis, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("context", "set", "here", "--endpoint-url", away.endpoint_url, "--region", away.region).status == 0
    assert run("context", "set", "there", "--endpoint-url", "http://127.0.0.1:9", "--read-only").status == 0
    assert "orders" in run("--context", "here", "stream", "ls").stdout
    monkeypatch.setenv("SHARDWAY_CONTEXT", "here")
    assert "orders" in run("stream", "describe", "orders").stdout
    assert "orders" in run("--context", "there", "stream", "ls", "--endpoint-url", away.endpoint_url).stdout
    monkeypatch.delenv("SHARDWAY_CONTEXT")
    assert run("context", "use", "here").status == 0
    assert "orders" in run("stream", "ls").stdout
    listed = json.loads(run("context", "ls", "-o", "json").stdout)
    assert (listed["current"], listed["contexts"]["there"]["read_only"]) == ("here", True)
    assert [json.loads(line)["name"] for line in run("context", "ls", "-o", "jsonl").stdout.splitlines()] == [
        "here",
        "there",
    ]
    assert run("context", "ls").stdout.splitlines()[1].startswith("*  here")
    assert run("context", "rm", "here").status == 0
    assert json.loads(run("context", "ls", "-o", "json").stdout)["current"] is None


def test_for_each_command_it_is_decided_whether_it_writes() -> None:
    commands = dict(_leaves(typer.main.get_command(app)))
    assert set(commands) == READS | set(WRITES)
    for name, writes in WRITES.items():
        defaults = {one.name: one.default for one in commands[name].params}
        assert writes(defaults) is (name not in ("app import", "app seek", "app skip", "console"))


@pytest.mark.parametrize(
    "words",
    [
        ("put", "orders"),
        ("load", "orders", "--records", "1"),
        ("dead-letters", "replay", "letters", "--to", "orders"),
        ("dead-letters", "replay", "letters", "--call", "os:getcwd"),
        ("kclpy", "x:Y"),
        ("run", "job.toml"),
        ("app", "seek", "billing", "--to", "latest", "--apply", "--yes"),
        ("app", "import", "billing", "positions.json", "--apply"),
        ("app", "apply", "plan.json"),
        ("console", "--allow-writes"),
    ],
)
def test_a_read_only_context_refuses_what_writes_before_it_begins(run: Run, words: tuple[str, ...]) -> None:
    run("context", "set", "prod", "--read-only")
    done = run("--context", "prod", *words, stdin=b"one\n")
    assert (done.status, done.stdout) == (1, "")
    name = " ".join(words[: 1 if words[0] in WRITES else 2])
    assert done.stderr.startswith(f"shardway: the context prod is read-only, and shardway {name} writes: nothing was")


def test_a_read_only_context_lets_what_reads_pass(run: Run, away: LocalKinesis) -> None:
    run("context", "set", "prod", "--endpoint-url", away.endpoint_url, "--region", away.region, "--read-only")
    assert "orders" in run("--context", "prod", "stream", "ls").stdout
    shown = run("--context", "prod", "app", "import", "billing", "none.json")  # as a plan alone
    assert "none.json" in shown.stderr
    assert "read-only" not in shown.stderr
    done = run("--context", "prod", "put", "orders", stdin=b"one\n")
    assert (done.status, away.stats().calls("PutRecords")) == (1, 0)
    run("context", "set", "mine", "--endpoint-url", away.endpoint_url, "--region", away.region)
    assert run("--context", "mine", "put", "orders", stdin=b"one\n").status == 0


def test_what_is_no_context(run: Run, home: Path) -> None:
    assert "there is no context 'none'" in run("--context", "none", "stream", "ls").stderr
    assert "there is no context 'none'" in run("context", "use", "none").stderr
    assert "there is no context 'none'" in run("context", "rm", "none").stderr
    assert "is no name of a context" in run("context", "set", "a.b").stderr
    assert run("context", "set", "x", "--region", "no region").status == 1
    assert run("context", "set", "x", "--profile", "a\nb").status == 1
    assert run("context", "use").status == 0
    file = home / "shardway" / "contexts.toml"
    for text in ("contexts = 5", "[contexts.a]\nsecret = 1", "\0", '[contexts.a]\nregion = "\\ud800"'):
        file.write_text(text)
        assert "holds no contexts" in run("stream", "ls").stderr
    assert run("completion", "bash").status == 0


@pytest.mark.parametrize("url", ["http://user:word@127.0.0.1:9", "http://user@127.0.0.1:9", "http://127.0.0.1:9?key=1"])
def test_a_context_keeps_no_secret(run: Run, home: Path, url: str) -> None:
    done = run("context", "set", "x", "--endpoint-url", url)
    assert done.status == 1
    assert not (home / "shardway").exists()


def test_the_file_is_its_owners_and_text_stays_as_it_was(run: Run, home: Path) -> None:
    assert run("context", "set", "x", "--profile", 'grün "a" \\ \U0001f600').status == 0
    file = home / "shardway" / "contexts.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(run("context", "ls", "-o", "json").stdout)["contexts"]["x"]["profile"] == 'grün "a" \\ \U0001f600'
    assert [one.name for one in file.parent.iterdir()] == ["contexts.toml"]


# --- completion -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(run: Run, shell: str, tmp_path: Path) -> None:
    done = run("completion", shell)
    assert (done.status, done.stderr) == (0, "")
    assert f"_SHARDWAY_COMPLETE=complete_{shell}" in done.stdout
    if (program := shutil.which(shell)) is not None:
        script = tmp_path / "script"
        script.write_text(done.stdout)
        subprocess.run([program, "-n", str(script)], check=True)


def asked(**words: str) -> str:
    """What a shell gets that asks for words."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], env={**os.environ, **words}, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout


def test_each_shell_gets_the_commands_that_begin_so() -> None:
    assert asked(_SHARDWAY_COMPLETE="complete_bash", COMP_WORDS="shardway app se", COMP_CWORD="2").split() == ["seek"]
    zsh = asked(_SHARDWAY_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS="shardway app se")
    assert '"seek"' in zsh
    assert '"lag"' not in zsh
    fish = {"_SHARDWAY_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    assert asked(**fish, _TYPER_COMPLETE_ARGS="shardway app se").split()[0] == "seek"
    options = asked(_SHARDWAY_COMPLETE="complete_bash", COMP_WORDS="shardway app lag --win", COMP_CWORD="3")
    assert options.split() == ["--window"]


def test_streams_and_applications_are_completed_by_their_names(
    run: Run, local: LocalKinesis, away: LocalKinesis
) -> None:
    run("context", "set", "here", "--endpoint-url", away.endpoint_url, "--region", away.region)
    for words, place in (
        (f"shardway stream describe --endpoint-url {away.endpoint_url} o", "5"),
        ("shardway --context here stream describe o", "5"),
        ("shardway --context here doctor billing --stream o", "6"),
    ):
        assert asked(_SHARDWAY_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=place).split() == ["orders"]
    nothing = asked(_SHARDWAY_COMPLETE="complete_bash", COMP_WORDS="shardway stream describe o", COMP_CWORD="3")
    assert nothing.split() == [], "what cannot be reached gives no words, and no complaint"


def test_applications_of_a_file_are_completed(run: Run, tmp_path: Path) -> None:
    async def made() -> None:
        table = SqliteLeaseTable(tmp_path / "leases.sqlite").of("billing")
        await table.ensure()
        await table.create(LeaseRow(key="shardId-000000000000"))
        await table.close()

    asyncio.run(made())
    words = f"shardway app lag --store sqlite:{tmp_path}/leases.sqlite b"
    assert asked(_SHARDWAY_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD="5").split() == ["billing"]


@pytest.mark.parametrize("module", ["shardway.cli.app", "typer", "shardway.cli.contexts"])
@pytest.mark.parametrize("completes", [False, True])
def test_ctrl_c_while_modules_are_imported_is_no_traceback(module: str, completes: bool) -> None:
    program = f"""
import sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
{PROGRAM}
"""
    words = {"_SHARDWAY_COMPLETE": "complete_bash", "COMP_WORDS": "shardway a", "COMP_CWORD": "1"} if completes else {}
    done = subprocess.run(
        [sys.executable, "-c", program, "stream", "ls"], env={**os.environ, **words}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_contexts_are_completed_by_their_names(run: Run, home: Path) -> None:
    run("context", "set", "prod")
    run("context", "set", "mine")
    for words, place in (("shardway --context p", "2"), ("shardway context use p", "3")):
        found = asked(_SHARDWAY_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=place)
        assert found.split() == ["prod"]
    (home / "shardway" / "contexts.toml").write_text("nothing")
    assert asked(_SHARDWAY_COMPLETE="complete_bash", COMP_WORDS="shardway --context p", COMP_CWORD="2").split() == []


def test_bash_itself_completes_by_the_script(run: Run, tmp_path: Path) -> None:
    script, program = tmp_path / "script", tmp_path / "shardway"
    script.write_text(run("completion", "bash").stdout)
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{PROGRAM}' \"$@\"\n")
    program.chmod(0o755)
    lines = f'. {script}; COMP_WORDS=(shardway app se); COMP_CWORD=2; _shardway_completion {program}; echo "$COMPREPLY"'
    done = subprocess.run(["bash", "-c", lines], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["seek"]
