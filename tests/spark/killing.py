"""A Spark program in a process of its own, which comes to its end or is killed on its way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from examples.demo.processes import kill_tree

if TYPE_CHECKING:
    from collections.abc import Callable

SPARK = (
    "--master local[2] --driver-memory 512m --driver-java-options -XX:TieredStopAtLevel=1"
    " --conf spark.ui.enabled=false --conf spark.ui.showConsoleProgress=false"
    " --conf spark.driver.host=127.0.0.1 --conf spark.driver.bindAddress=127.0.0.1"
    " --conf spark.sql.session.timeZone=UTC pyspark-shell"
)
ROOT = Path(__file__).resolve().parents[2]
POLL_S = 0.005
TOO_SLOW = b"Python worker failed to connect back"
"""Spark ends a query whose Python does not answer 10 s after its start, however busy the machine is: such a run is
started once more, as a supervisor does.
"""


class Program:
    """Started anew as often as is wanted, with its output in one file."""

    def __init__(self, file: Path | str, log: Path, *, deadline_s: float) -> None:
        self._file = str(file)
        self._log = log
        self._deadline_s = deadline_s

    def killed_when(self, reached: Callable[[], bool], *arguments: str) -> bool:
        """Run until that is reached, and kill it there. False: it came to its end before."""
        end_s = time.monotonic() + self._deadline_s
        while True:
            before = self._log.stat().st_size if self._log.exists() else 0
            process = self._started(arguments)
            try:
                while process.poll() is None and not reached():
                    assert time.monotonic() < end_s, f"it does not come to that: {self._said()}"
                    time.sleep(POLL_S)
            finally:
                ended = process.returncode
                kill_tree(process)
            if ended in (None, 0):
                return ended is None
            assert TOO_SLOW in self._log.read_bytes()[before:], self._said()

    def finished(self, *arguments: str) -> None:
        """Run to the end."""
        self.killed_when(lambda: False, *arguments)

    def _started(self, arguments: tuple[str, ...]) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "PYSPARK_SUBMIT_ARGS": SPARK,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        environment.pop("SPARK_HOME", None)
        environment.pop("PYSPARK_GATEWAY_PORT", None)
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, self._file, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]
