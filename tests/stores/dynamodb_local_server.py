"""Amazon's DynamoDB Local: from Maven into ``.cache/dynamodb-local``, in memory, ended by its process."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".cache" / "dynamodb-local"
INSTALL_TIMEOUT_S = 600
START_TIMEOUT_S = 60


class UnavailableError(Exception):
    """It cannot be had on this machine. The message says why."""


def install() -> None:
    """Copy the jars unless they are there. Raises UnavailableError."""
    if any(CACHE.glob("DynamoDBLocal-*.jar")):
        return
    missing = [name for name in ("mvn", "java") if shutil.which(name) is None]
    if missing:
        raise UnavailableError(f"DynamoDB Local needs Maven and Java 17; not found: {', '.join(missing)}")
    command = [
        "mvn",
        "-q",
        "-B",
        "dependency:copy-dependencies",
        "-DincludeScope=runtime",
        f"-DoutputDirectory={CACHE}",
    ]
    try:
        subprocess.run(
            command, cwd=HERE / "dynamodb_local", check=True, timeout=INSTALL_TIMEOUT_S, stdout=subprocess.DEVNULL
        )
    except (subprocess.SubprocessError, OSError) as fault:
        raise UnavailableError(f"DynamoDB Local cannot be installed: {fault}") from fault


@contextlib.contextmanager
def running(*, tables_take_time: bool = True) -> Iterator[str]:
    """A server for as long as the context lasts: its address. Raises UnavailableError.

    ``tables_take_time``: tables and indexes are made in seconds, an index of a table with rows in most of a minute, as
    at AWS; else at once.
    """
    install()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = ["java", "-Xmx256m", f"-Djava.library.path={CACHE}", "-cp", f"{CACHE}/*"]
    process = subprocess.Popen(
        [
            *command,
            "dynamodb_local/Loopback.java",
            "-inMemory",
            *["-delayTransientStatuses"] * tables_take_time,
            "-disableTelemetry",
            "-port",
            str(port),
        ],
        cwd=HERE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise UnavailableError(f"DynamoDB Local ended with status {process.returncode}")
        with contextlib.suppress(OSError), contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, 1)) as one:
            one.request("GET", "/")
            one.getresponse()
            return
        time.sleep(0.05)
    raise UnavailableError(f"DynamoDB Local does not answer after {START_TIMEOUT_S} s")
