"""A shell in which the commands of a page are typed, one after the other."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WAIT_S = 400.0
_POLL_S = 0.1
_DONE = "shardway-docs-done"


class Terminal:
    """One bash; ``$!``, the working directory and exported variables stay from command to command.

    All that it started is killed at the end.
    """

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._bash = subprocess.Popen(
            ["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1,
            cwd=folder, env={**os.environ, **environment}, start_new_session=True,
        )  # fmt: skip

    def type(self, command: str, *, status: int = 0) -> str:
        """What a command prints, which ends with ``status``."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{command}\necho; echo {_DONE} $?\n")
        self._bash.stdin.flush()
        lines: list[str] = []
        for line in self._bash.stdout:
            if line.startswith(_DONE):
                text = "".join(lines).rstrip("\n")
                assert line.split()[1] == str(status), f"{command} ended with {line.split()[1]}: {text}"
                return f"{text}\n" if text else ""
            lines.append(line)
        raise AssertionError(f"the shell ended at {command}: {''.join(lines)}")

    def first_lines(self, command: str, until: Callable[[str], bool]) -> str:
        """What a command that goes on prints, up to a line. Nothing can be typed afterwards."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"exec {command}\n")
        self._bash.stdin.flush()
        text = ""
        for line in self._bash.stdout:
            text += line
            if until(line):
                return text
        raise AssertionError(f"{command} ended: {text}")

    def close(self) -> None:
        """End it, and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.communicate()


def until(reached: Callable[[], bool], what: str) -> None:
    """Wait until something is so."""
    deadline_s = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < deadline_s, f"not in {WAIT_S:.0f} s: {what}"
        time.sleep(_POLL_S)


def masked(text: str) -> str:
    """A text without what is another one in each run: ids, times, sizes. A page may leave a number out (…)."""
    text = text.replace("…", "0")
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", text)
    return re.sub(r"[\d.,]*\d( (ms|s|KiB|MiB)\b)?(?=/s|\b)", "N", text)
