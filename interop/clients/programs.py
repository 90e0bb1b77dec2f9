"""What the tests here share: the command ``shardway local`` as a process, and programs of other languages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILT = ROOT / ".cache" / "clients"
BUILD_TIMEOUT_S = 900.0
"""The first build takes minutes: it fetches and compiles all of an SDK."""
RUN_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 30.0


class Service(NamedTuple):
    """A local Kinesis that runs."""

    endpoint_url: str
    environment: dict[str, str]
    """All variables of a program that uses it."""


@contextmanager
def local_service(*options: str) -> Iterator[Service]:
    """A local Kinesis in a process of its own, as the command starts it."""
    command = [sys.executable, "-m", "shardway", "local", "--port", "0", "--output", "json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            said = json.loads(process.stdout.readline())
            environment = without_aws() | said["environment"]
            if said["ca_file"] is not None:
                environment["SSL_CERT_FILE"] = said["ca_file"]  # for what a program of Go asks of the controls
            yield Service(said["endpoint_url"], environment)
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)


def without_aws() -> dict[str, str]:
    """The variables of this process, but for those that lead an SDK anywhere."""
    return {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}


def done(command: list[str], folder: Path, timeout_s: float, environment: dict[str, str] | None = None) -> str:
    """What a command prints. It has to end well."""
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=timeout_s
    )
    assert ended.returncode == 0, f"{' '.join(command)} in {folder}:\n{ended.stdout[-2000:]}\n{ended.stderr[-4000:]}"
    return ended.stdout


def need_go() -> None:
    """Skip the test without Go."""
    if shutil.which("go") is None:
        pytest.skip("this needs Go 1.25 or newer: apt-get install golang-go")


def need_node() -> None:
    """Skip the test without Node."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("this needs Node 20 or newer, and npm: apt-get install nodejs npm")


def need_java() -> None:
    """Skip the test without Java."""
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("this needs Maven and Java 17: apt-get install maven openjdk-17-jdk-headless")
