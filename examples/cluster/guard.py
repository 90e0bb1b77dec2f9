"""Ends the processes of a cluster when the program that started them is gone, however that ended.

Each node leads a session of its own, and what it starts stays in it, also when its parent was killed: so a session is
what is ended. Run as a program, this reads their numbers, and at the end of its input it kills all of them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from examples.demo.processes import ROOT, parents

if TYPE_CHECKING:
    from collections.abc import Collection

KILL_TIMEOUT_S = 30.0
POLL_S = 0.05


class Guard:
    """A process beside this one."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "examples.cluster.guard"], stdin=subprocess.PIPE, cwd=ROOT, text=True, bufsize=1,
            start_new_session=True,
        )  # fmt: skip

    def watch(self, session: int) -> None:
        """End this one too."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{session}\n")

    def close(self) -> None:
        """All has come to its end: end what is left, which is nothing, and the guard."""
        self._process.communicate(timeout=2 * KILL_TIMEOUT_S)


def sessions(leaders: Collection[int]) -> list[int]:
    """The processes of these sessions that have not ended."""
    return [pid for pid in parents() if _session_of(pid) in leaders and not _is_over(pid)]


def kill_sessions(leaders: Collection[int]) -> None:
    """SIGKILL for all of them."""
    deadline_s = time.monotonic() + KILL_TIMEOUT_S
    while (doomed := sessions(leaders)) and time.monotonic() < deadline_s:
        for pid in doomed:  # those that they start meanwhile are found by the next look
            kill(pid)
        time.sleep(POLL_S)


def kill(pid: int) -> None:
    """SIGKILL for one process."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def _is_over(pid: int) -> bool:
    """True for a process that has ended and only waits for its parent to notice."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return Path("/proc/self/stat").exists()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program
    kill_sessions([int(line) for line in sys.stdin])
