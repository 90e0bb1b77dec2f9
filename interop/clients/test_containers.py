"""Tests with Testcontainers in Python, Java and Go, as the guide to tests shows them.

Where a container engine answers, each starts the image that is made from the Dockerfile. Elsewhere the same programs
run against the service as a process, which they find by ``SHARDWAY_ENDPOINT_URL``; the output says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from interop.clients.programs import (
    BUILD_TIMEOUT_S,
    BUILT,
    HERE,
    ROOT,
    RUN_TIMEOUT_S,
    done,
    local_service,
    need_go,
    need_java,
    without_aws,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

IMAGE = "shardway-local:interop"
TESTCONTAINERS_FOR_PYTHON = "4.15.0"
FOLDER = HERE / "containers"

pytestmark = pytest.mark.timeout(2 * BUILD_TIMEOUT_S + RUN_TIMEOUT_S)


def engine_answers() -> bool:
    if shutil.which("docker") is None:
        return False
    asked = subprocess.run(["docker", "version"], capture_output=True, check=False, timeout=RUN_TIMEOUT_S)
    return asked.returncode == 0


@pytest.fixture(scope="module")
def variables() -> Iterator[dict[str, str]]:
    """What leads the programs to a container, or to a process."""
    if engine_answers():
        done(["docker", "build", "--quiet", "--tag", IMAGE, "."], ROOT, BUILD_TIMEOUT_S)
        yield without_aws() | {"SHARDWAY_IMAGE": IMAGE}
    else:
        with local_service("--stream", "orders:4") as service:
            yield without_aws() | {"SHARDWAY_ENDPOINT_URL": service.endpoint_url}


def in_python(variables: dict[str, str]) -> str:
    """Testcontainers stands in a folder of its own: nothing else here needs it."""
    folder = BUILT / "python"
    if not (folder / f"testcontainers-{TESTCONTAINERS_FOR_PYTHON}.dist-info").exists():
        wanted = f"testcontainers=={TESTCONTAINERS_FOR_PYTHON}"
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(folder), wanted]
        done(install, ROOT, BUILD_TIMEOUT_S)
    program = [sys.executable, str(FOLDER / "python" / "orders.py")]
    return done(program, FOLDER, RUN_TIMEOUT_S, variables | {"PYTHONPATH": str(folder)})


def in_java(variables: dict[str, str]) -> str:
    need_java()
    folder = FOLDER / "java"
    done(["mvn", "-q", "-B", "compile"], folder, BUILD_TIMEOUT_S)
    classes = os.pathsep.join(("target/classes", "target/libraries/*"))
    program = ["java", "-XX:TieredStopAtLevel=1", "-cp", classes, "shardway.interop.Orders"]
    return done(program, folder, RUN_TIMEOUT_S, variables)


def in_go(variables: dict[str, str]) -> str:
    need_go()
    return done(["go", "test", "-count", "1", "-v", "."], FOLDER / "go", BUILD_TIMEOUT_S + RUN_TIMEOUT_S, variables)


@pytest.mark.parametrize("program", [in_python, in_java, in_go])
def test_a_test_of_the_guide_runs(
    program: Callable[[dict[str, str]], str], variables: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    printed = program(variables)
    running = variables.get("SHARDWAY_ENDPOINT_URL")
    assert f"ok, against {running or 'http://'}" in printed
    where = "in a container" if running is None else "against the process, because no container engine answers here"
    with capsys.disabled():
        print(f"\n{program.__name__}: {where}")
