"""Where output goes: to a locale or a terminal of another encoding than UTF-8, in which no letter ends a command or
spoils its JSON, and to a disk that is full.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

KEYS = ["schlüssel", "😀"]
DATA = {"city": "Zürich 中文", "half": "\ud83d"}
TAIL = ("records", "tail", "orders", "--starting-position", "trim-horizon", "--no-follow", "--decode")
ENCODINGS = ["ascii", "latin-1", "utf-16"]


@pytest.fixture
def put(kinesis: Any) -> None:
    for key in KEYS:
        for is_escaped in (False, True):
            data = json.dumps(DATA, ensure_ascii=is_escaped).encode(errors="replace")
            kinesis.put_record(StreamName="orders", PartitionKey=key, Data=data)


@pytest.mark.usefixtures("put")
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_file_or_a_pipe_gets_utf_8(start: Callable[..., subprocess.Popen[bytes]], encoding: str) -> None:
    command = start(*TAIL, "-o", "jsonl", env={**os.environ, "PYTHONIOENCODING": encoding})
    out, errors = command.communicate()
    assert (command.returncode, errors) == (0, b"")
    found = [json.loads(line) for line in out.decode().splitlines()]
    assert sorted(one["partition_key"] for one in found) == sorted(KEYS * 2)
    assert {json.loads(one["data"])["city"] for one in found} == {DATA["city"]}


@pytest.mark.usefixtures("put")
@pytest.mark.parametrize("encoding", ENCODINGS[:2])
def test_a_terminal_gets_what_it_lacks_as_an_escape(
    start: Callable[..., subprocess.Popen[bytes]], encoding: str
) -> None:
    ours, terminal = pty.openpty()
    told = {"PYTHONIOENCODING": encoding, "COLUMNS": "200"}
    command = start(*TAIL, stdout=terminal, stderr=terminal, env={**os.environ, **told})
    assert command.wait() == 0
    os.close(terminal)
    shown = os.read(ours, 100_000).decode(encoding)
    os.close(ours)
    assert len(shown.splitlines()) == 4
    assert r"\ud83d\ude00" in shown
    assert ("schlüssel" if encoding == "latin-1" else r"schl\u00fcssel") in shown


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is always full")
@pytest.mark.usefixtures("put")
@pytest.mark.parametrize("words", [(*TAIL, "-o", "jsonl"), TAIL, ("stream", "ls"), ("--version",)])
def test_a_full_disk_is_one_line(start: Callable[..., subprocess.Popen[bytes]], words: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        command = start(*words, stdout=full)
        errors = command.stderr.read()  # type: ignore[union-attr]  # it is a pipe
        assert command.wait() == 1
    assert errors == b"shardway: the output cannot be written: No space left on device\n"
