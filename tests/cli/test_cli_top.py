"""``shardway top`` on a terminal that the test holds, and where there is none."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from shardway.cli.lag_table import RED
from shardway.cli.tables import Line, cut
from shardway.cli.terminal import ENTER, LEAVE
from shardway.cli.top import BEGIN_FRAME, frame
from shardway.core.leases import Checkpoint, LeaseRow
from shardway.model import Position
from shardway.stores.sqlite import SqliteLeaseTable

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from shardway.local import LocalKinesis

    Run = Callable[..., Any]

DEADLINE_S = 60.0
SHARDS = ["shardId-000000000000", "shardId-000000000001"]


@pytest.fixture
async def words(local: LocalKinesis, tmp_path: Path) -> list[str]:
    """The command, for an application whose owner has a name with an escape sequence in it."""
    client = boto3.client("kinesis", endpoint_url=local.endpoint_url, region_name=local.region)
    table = SqliteLeaseTable(tmp_path / "leases.sqlite").of("billing")
    await table.ensure()
    for shard, hash_key in zip(SHARDS, ("0", str(2**128 - 1)), strict=True):
        put = client.put_record(StreamName="orders", PartitionKey="k", ExplicitHashKey=hash_key, Data=b"x")
        at = Checkpoint.at(Position(int(put["SequenceNumber"]), 0))
        await table.create(LeaseRow(key=shard, checkpoint=at, owner="w\x1b[2J1", counter=1))
    await table.close()
    client.close()
    return ["top", "billing", "--stream", "orders", "--store", f"sqlite:{tmp_path}/leases.sqlite", "--interval", "1s"]


class Terminal:
    """The other end of a command's terminal."""

    def __init__(self, start: Callable[..., subprocess.Popen[bytes]], words: list[str], lines: int = 24) -> None:
        self.text = ""
        self._master, slave = pty.openpty()
        self.resize(lines, 100, of=slave)
        self.before = termios.tcgetattr(slave)
        self.process = start(*words, stdin=slave, stdout=slave, stderr=slave)
        self._slave = slave

    def resize(self, lines: int, columns: int, of: int | None = None) -> None:
        """As a window that is drawn larger or smaller does."""
        fcntl.ioctl(self._master if of is None else of, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def until(self, pattern: str) -> str:
        """What is written up to that."""
        end_s = time.monotonic() + DEADLINE_S
        while (found := re.search(pattern, self.text, re.DOTALL)) is None:
            ready, _, _ = select.select([self._master], [], [], max(0.0, end_s - time.monotonic()))
            assert ready, f"{pattern!r} does not come: {self.text[-2000:]!r}"
            self.text += os.read(self._master, 65536).decode(errors="replace")
        text, self.text = self.text[: found.end()], self.text[found.end() :]
        return text

    def end(self, status: int) -> None:
        """The command has ended, and the terminal is as it was."""
        self.until(re.escape(LEAVE))
        assert self.process.wait(DEADLINE_S) == status
        assert termios.tcgetattr(self._slave)[3] == self.before[3]
        os.close(self._master)
        os.close(self._slave)


def test_a_screen_until_q(start: Callable[..., Any], words: list[str]) -> None:
    terminal = Terminal(start, words)
    text = terminal.until("q quit")
    assert ENTER in text
    assert "billing on orders: ok, 0 s behind" in text
    assert SHARDS[1] in text
    assert "w\x1b[2J1" not in text
    assert "\x1b[2J" not in text  # nothing is cleared, so nothing flickers
    terminal.until("q quit")  # the next look
    terminal.type("q")
    terminal.end(0)


def test_a_screen_takes_the_size_of_its_window(start: Callable[..., Any], words: list[str]) -> None:
    terminal = Terminal(start, [*words, "--interval", "10m"], lines=24)
    first = terminal.until("q quit").rpartition(BEGIN_FRAME)[2]
    assert first.count("\r\n") == 23
    terminal.resize(3, 30)
    terminal.process.send_signal(signal.SIGWINCH)  # the terminal is not this command's own
    small = terminal.until(r"q quit[^\x1b]*\x1b\[0m").rpartition(BEGIN_FRAME)[2]
    assert small.count("\r\n") == 2
    assert SHARDS[0][-3:] not in small
    terminal.type("jjj")
    terminal.until(SHARDS[0][-3:])  # an id is cut to what tells it from the others
    terminal.type("\x1b[A ")
    terminal.process.send_signal(signal.SIGTERM)
    terminal.end(143)


def test_a_look_that_fails_is_told_below_and_the_last_one_stays(
    start: Callable[..., Any], words: list[str], local: LocalKinesis
) -> None:
    from shardway.testing import Fault

    terminal = Terminal(start, words)
    terminal.until("q quit")
    local.faults.add(Fault(how="error", code="ResourceNotFoundException", operation="DescribeStreamSummary"))
    told = terminal.until("ResourceNotFoundException").rpartition(BEGIN_FRAME)[2]
    assert SHARDS[0] in told
    local.faults.clear()
    terminal.until("q quit")
    terminal.type("Q")
    terminal.end(0)


def test_without_a_terminal_there_is_a_table_or_lines(run: Run, words: list[str]) -> None:
    done = run(*words)
    assert (done.status, done.stderr) == (0, "")
    assert done.stdout.startswith("billing on orders: ok, 0 s behind")
    assert "\x1b" not in done.stdout
    lines = run(*words, "--frames", "2", "-o", "jsonl").stdout.splitlines()
    assert [json.loads(one)["schema"] for one in lines] == ["shardway.lag/1"] * 2
    since = run(*words, "--frames", "2", "--since", "1m", "-o", "jsonl")
    assert [json.loads(one)["state"] for one in since.stdout.splitlines()] == ["ok", "ok"]
    assert "is no time" in run(*words, "--since", "noon").stderr
    assert "too often" in run(*words, "--interval", "10ms").stderr
    assert run("top", "other", *words[2:]).status == 1


def test_a_frame_fits_its_window() -> None:
    text = frame([Line("a" * 10), Line("b"), Line("c")], "foot", 4, 3)
    assert text.count("\r\n") == 2
    assert "aaaa\x1b[K" in text
    assert "c\x1b" not in text
    assert frame([], "foot", 2, 1).count("fo") == 1
    red = frame([Line("a" * 10, tone=RED)], "foot", 4, 3, is_coloured=True)
    assert f"{RED}aaaa\x1b[0m\x1b[K" in red
    assert RED not in frame([Line("a" * 10, tone=RED)], "foot", 4, 3)
    assert (cut("日本語", 5), cut("e\u0301ab", 2)) == ("日本", "e\u0301a")
