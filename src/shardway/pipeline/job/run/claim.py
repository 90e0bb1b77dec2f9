"""A claim on a checkpoint directory that lies elsewhere: a small file beside it, which the run that has it renews.

Kernel locks end at this machine, and the buckets of most object stores that Hadoop reaches create nothing atomically. A
file that is written again and again asks for less: a reader has to see the newest whole write. A run that finds another
run's file waits until the file changes (that run lives, and this one is refused) or has stood still for long enough
(that run is gone, and this one takes its place). No clocks of two machines are compared. Two runs that begin at the
same moment may both write; then the later write stands, and the other run finds it at its next renewal, and ends.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shardway.pipeline.hadoop_files import HadoopFiles
from shardway.pipeline.py4j_error import Py4JError
from shardway.shown import one_line
from shardway.tasks import logged, thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

RENEW_S = 5.0
"""Seconds between two writes of a claim."""
GONE_S = 20.0
"""How many seconds another run's claim has to stand still before that run is taken for gone: four renewals."""
LOOK_S = 1.0
"""Seconds between two looks at another run's claim."""
END_S = 10.0
"""The most seconds that the end of a run waits for its claim to be taken away."""
_BYTES_MAX = 1_000


class ClaimTakenError(Exception):
    """Another run has the claim. The error's text is its host and process, in words."""


class Claim:
    """One run's claim, by its file's name."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.name = name
        self.taken_by: str | None = None
        """The other run, in words, once it has taken this claim."""
        self._files = HadoopFiles(spark)
        self._run_id = uuid.uuid4().hex
        self._renewals = 0
        self._end = threading.Event()

    def take(self, waits: Callable[[str, float], object], stops: Callable[[], bool]) -> None:
        """Take the claim, once the run that had it is gone. ``waits`` is called, with that run in words and the seconds
        at most, before this waits; ``stops`` is asked meanwhile whether to give up.

        Raises ClaimTakenError where that run lives, and Py4JError where the file cannot be read or written.
        """
        before = self._read()
        if before == b"":  # it is being written, or its run was killed at that moment
            time.sleep(LOOK_S)
            before = self._read()
        if before is not None:
            waits(owner_of(before), GONE_S)
            end_s = time.monotonic() + GONE_S
            while time.monotonic() < end_s:
                time.sleep(LOOK_S)
                now = self._read()
                if now is None:
                    break
                if now != before or stops():
                    raise ClaimTakenError(owner_of(now if _claim_fields(now) else before))
        self._write()

    def renew(self) -> None:
        """Write the claim every few seconds until the run is over or another run has it, and then take it away, unless
        another run has it.
        """
        while not self._end.wait(RENEW_S):
            try:
                if not self._is_mine():
                    return
                self._write()
            except (Py4JError, OSError):  # the place cannot be reached for now: another run waits for longer than that
                continue
        try:
            if self._is_mine():
                self._files.remove(self.name)
        except (Py4JError, OSError):  # the next run waits until it has stood still for long enough
            return

    def end(self) -> None:
        """Let `renew` come to its end."""
        self._end.set()

    def _is_mine(self) -> bool:
        found = self._read()
        # Where there is none, or an unfinished one, it may be this run's own write that is not whole.
        if found and _claim_fields(found).get("run") not in (None, self._run_id):
            self.taken_by = owner_of(found)
        return self.taken_by is None

    def _read(self) -> bytes | None:
        return self._files.read(self.name, _BYTES_MAX)

    def _write(self) -> None:
        self._renewals += 1
        about = {**process_fields(), "run": self._run_id, "renewals": self._renewals}
        self._files.write(self.name, json.dumps(about).encode())


@contextmanager
def hold(claim: Claim, waits: Callable[[str, float], object], stops: Callable[[], bool]) -> Iterator[None]:
    """Hold a claim while the block runs. Raises what `Claim.take` raises."""
    claim.take(waits, stops)
    renewing = thread(claim.renew, "shardway-claim", logged(f"{claim.name} is not renewed"))
    try:
        yield
    finally:
        claim.end()
        renewing.join(END_S)


def process_fields() -> dict[str, object]:
    """Return what a lock or a claim says of this process."""
    return {"host": socket.gethostname(), "pid": os.getpid()}


def owner_of(written: bytes) -> str:
    """Return the host and process that wrote a lock or a claim, in words; what cannot be read is another run's."""
    about = _claim_fields(written)
    try:
        return f"process {int(str(about['pid']))} on {one_line(str(about['host']))}"
    except (KeyError, ValueError):
        return "another run"


def _claim_fields(written: bytes) -> dict[str, object]:
    try:
        about = json.loads(written)
    except (ValueError, RecursionError):  # any program can write the file, and brackets alone are too deep
        return {}
    return about if isinstance(about, dict) else {}
