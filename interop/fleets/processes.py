"""Workers as processes: the KCL's, of two versions, and ours; and the services that they share."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.stores import dynamodb_local_server

from shardway.local import SpawnedKinesis
from shardway.local.options import LocalOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent / "worker"
BUILD_TIMEOUT_S = 600
STOP_TIMEOUT_S = 60.0
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.log.software.amazon.awssdk=warn",
    "-Dorg.slf4j.simpleLogger.log.io.netty=warn",
)
FAULT = re.compile(r"(?:\b[\w$]+\.)+([\w$]*(?:Exception|Error))\b|Traceback \(most recent call last\)")

KCL_2 = "2.7.2"
KCL_3 = "3.5.1"
OURS = "shardway"


@dataclass(frozen=True)
class Services:
    """Where Kinesis and DynamoDB are."""

    kinesis: SpawnedKinesis
    dynamodb_url: str

    @property
    def kinesis_url(self) -> str:
        return self.kinesis.endpoint_url


@contextlib.contextmanager
def services() -> Iterator[Services]:
    """The local Kinesis, and DynamoDB Local. Raises UnavailableError where the latter cannot be had."""
    with (
        dynamodb_local_server.running(tables_take_time=False) as dynamodb_url,
        SpawnedKinesis(LocalOptions(dynamodb_endpoint_url=dynamodb_url)) as kinesis,
    ):
        yield Services(kinesis, dynamodb_url)


@cache
def kcl_command(version: str) -> tuple[str, ...]:
    """How to run the KCL worker of a version; compiled first, from Maven."""
    if shutil.which("mvn") is None or shutil.which("java") is None:
        raise dynamodb_local_server.UnavailableError("the KCL needs Maven and Java 17")
    built = subprocess.run(
        ["mvn", "-q", "-B", f"-Dkcl.version={version}", "compile"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
    )
    assert built.returncode == 0, f"mvn compile in interop/worker:\n{built.stdout[-4000:]}\n{built.stderr[-2000:]}"
    target = PROJECT / "target" / version
    classes = f"{target / 'classes'}:{target / 'libraries'}/*"
    return ("java", *JVM, *LOGGING, "-cp", classes, "shardway.interop.Worker")


class WorkerProcess:
    """A worker: its lines, and its log."""

    def __init__(self, name: str, kind: str, command: list[str], folder: Path) -> None:
        self.name = name
        self.kind = kind
        """``2.7.2``, ``3.5.1`` or ``shardway``."""
        self.lines_file = folder / f"{name}.jsonl"
        self.log_file = folder / f"{name}.log"
        self.killed = False
        self._read_bytes = 0
        self.started_ms = now_ms()
        with self.lines_file.open("wb") as out, self.log_file.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # its end is the end of this process: then the worker ends too
                stdout=out,
                stderr=log,
                env=os.environ | {"AWS_EC2_METADATA_DISABLED": "true", "AWS_REGION": "us-east-1"},
            )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def status(self) -> int | None:
        return self._process.poll()

    def ask_to_stop(self) -> None:
        """As a deploy does."""
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        """Until it has ended. Raises subprocess.TimeoutExpired."""
        self._process.wait(STOP_TIMEOUT_S)
        self._close()

    def kill(self) -> None:
        """As a crash does. Also ends what is paused."""
        self.killed = True
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def new_lines(self) -> list[dict[str, Any]]:
        """What it has printed since the last call, whole lines only."""
        with self.lines_file.open("rb") as file:
            file.seek(self._read_bytes)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        return [json.loads(line) for line in whole.splitlines()]

    def faults(self) -> Counter[str]:
        """Names of the exceptions in its log, and how often each stands there."""
        found: Counter[str] = Counter()
        with self.log_file.open(encoding="utf-8", errors="replace") as log:
            for line in log:
                if line.lstrip().startswith("at "):  # a frame of a stack
                    continue
                for fault in FAULT.finditer(line):
                    found[fault[1] or "Traceback"] += 1
        return found


def start_kcl(version: str, name: str, folder: Path, own: dict[str, str], settings: dict[str, object]) -> WorkerProcess:
    """``own``: stream, application, kinesis, dynamodb, start, checkpoint_ms; ``settings`` of the library by their
    paths.
    """
    arguments = [f"{key}={value}" for key, value in {**own, "worker": name, **settings}.items()]
    return WorkerProcess(name, version, [*kcl_command(version), *arguments], folder)


def start_ours(name: str, folder: Path, own: dict[str, str]) -> WorkerProcess:
    """``own``: stream, application, kinesis, dynamodb, start, failover_s, kcl_report_s."""
    arguments = [f"{key}={value}" for key, value in {**own, "worker": name}.items()]
    return WorkerProcess(name, OURS, [sys.executable, str(HERE / "shardway_worker.py"), *arguments], folder)


def now_ms() -> int:
    """As the workers' lines tell the time."""
    return time.time_ns() // 1_000_000
