"""Start Spark's Java, end it where a mistake is found meanwhile, and say why it ended by itself."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark import SparkConf, SparkContext, java_gateway

from shardway.pipeline.job.errors.exit_codes import ExitCode, StepError
from shardway.pipeline.job.run.stream_check import in_thread
from shardway.pipeline.job.session.packages import packages_named

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from subprocess import Popen

    from shardway.pipeline.job.run.stream_check import StreamCheck


JAVA_MIN = 17
JAVA_TIMEOUT_S = 30.0
TOLD_EVERY_S = 60.0
"""Every so many seconds a line says that the start is not done yet."""
START_MAX_S = 600.0
PACKAGES_START_MAX_S = 3600.0
"""Seconds after which a Java that has not answered is ended; it may fetch packages first, over any line."""
_STANDARD_ERROR = 2
log = logging.getLogger("shardway.pipeline")


def start_java(settings: Mapping[str, str], check: StreamCheck) -> None:
    """Start Spark's Java, which may fetch packages first, and wait for it, or for a mistake that ``check`` finds: that
    is raised at once, and the Java is ended. A Java that does not answer is told every minute, and ended after
    `START_MAX_S`, or `PACKAGES_START_MAX_S`. Raises StepError.
    """
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(settings.items()))
    processes = _JavaProcesses()

    def start() -> None:
        with processes.recorded():
            SparkContext._ensure_initialized(conf=conf)

    java = in_thread(start, "shardway-java")
    try:
        either: list[Future[Any]] = [java, check.mistake]
        wait(either, TOLD_EVERY_S, FIRST_COMPLETED)
        check.raise_mistake()
        _wait(java, packages_named(settings))
        java.result()
        check.raise_mistake()
    except StepError:
        processes.end()
        raise


def _wait(java: Future[None], packages: list[str]) -> None:
    """Wait for a Java that starts. Raises StepError (NOT_READY) where it takes too long."""
    begun_s, max_s = time.monotonic(), PACKAGES_START_MAX_S if packages else START_MAX_S
    while not wait([java], min(TOLD_EVERY_S, max_s)).done:
        passed_s = time.monotonic() - begun_s
        doing = f"it may be fetching packages ({', '.join(packages)})" if packages else "it has nothing to fetch"
        told = f"Spark's Java has not answered for {passed_s:.0f} s; {doing}, and what it said stands above"
        if passed_s >= max_s:
            ended = f"{told}. It was ended. See whether {_java()} -version answers, and the machine's memory"
            raise StepError(ended, step="spark", code=ExitCode.NOT_READY)
        log.warning("%s. It is ended after %.0f s", told, max_s)


class _JavaProcesses:
    """The processes that PySpark starts for its Java. Each is a shell at first, and Java itself in the shell's place
    later. `end` ends them all, also one that begins after it.

    They stay in the process group of the program. So Ctrl-Z stops Java together with the program, a signal to the group
    reaches both, and a terminal that stops background groups at their output (`stty tostop`) does not stop Java.
    """

    def __init__(self) -> None:
        self._processes: list[Popen[bytes]] = []
        self._is_ended = False

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record what PySpark starts meanwhile. PySpark itself gives its process away only once Java is up."""
        module: Any = java_gateway  # Any: the name that is replaced is one that the module imports.
        launch = module.Popen

        def launch_recorded(*args: Any, **kwargs: Any) -> Popen[bytes]:
            # What Java says, such as how packages are fetched, goes to standard error: standard output has our lines.
            process: Popen[bytes] = launch(*args, stdout=_STANDARD_ERROR, **kwargs)
            self._processes.append(process)
            # The list is longer by now: either this sees that `end` was called, or `end` sees the process.
            if self._is_ended:
                self.end()
            return process

        module.Popen = launch_recorded
        try:
            yield
        finally:
            module.Popen = launch

    def end(self) -> None:
        """Ask all of them to end. Spark's launcher, the shell's own child, only prints a command to the shell, and ends
        by itself when the shell is gone.
        """
        self._is_ended = True
        for process in self._processes:
            process.terminate()


def java_version() -> int | None:
    """Return the major version of the Java that Spark would start; None where there is none that runs."""
    try:
        said = subprocess.run(  # noqa: S603
            [_java(), "-version"],
            capture_output=True, text=True, errors="replace", timeout=JAVA_TIMEOUT_S, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(found[1]) if found else None


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else "java"


def why_java_ended(version: int | None, packages: list[str]) -> str:
    """Return what is known of a JVM that ended while it started. The JVM wrote the reason to standard error itself."""
    if version is None or version < JAVA_MIN:
        found = "none runs here" if version is None else f"here it is Java {version}"
        return f"Spark cannot start its Java: it needs Java 17 or newer, on PATH or where JAVA_HOME says; {found}"
    if packages:
        return (
            f"Spark's Java ended while it started; what it said stands above. Java {version} is there, so look at the "
            f"packages first: {', '.join(packages)}. Each must exist under this name and version in a repository that "
            "this machine reaches; else at the other settings under [spark]"
        )
    return (
        f"Spark's Java ended while it started; what it said stands above. Java {version} is there, so it does not take "
        "one of the settings under [spark], or of Spark's own files"
    )
