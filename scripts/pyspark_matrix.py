#!/usr/bin/env python3
"""Runs the smoke tests on every PySpark that the source supports, and prints a table.

::

    scripts/run python -m scripts.pyspark_matrix                      # all versions
    scripts/run python -m scripts.pyspark_matrix --only 4.0 --only 4.2

Each version has an environment of its own, ``.venvs/pyspark-4.0`` and so on. The program makes it once, and makes it
again when what belongs in it changes. All packages but PySpark have the versions of ``requirements/dev.txt``. The
tests' output goes to ``.venvs/pyspark-4.0.log``, and the program shows its end where a version fails.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from scripts.environments import HOME, INSTALL_TIMEOUT_S, LOCKED, PROJECT, ROOT, Outcome, report, run_pytest, uv

VERSIONS = ("4.0.5", "4.1.4", "4.2.1", "4.3.0")
"""The newest patch of each minor version."""

TEST_TOOLS = ("hypothesis", "pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist")
LEFT_OUT = ("pyspark", "moto")
"""The packages of the project that an environment does not take. The version under test stands in the place of
PySpark. The smoke tests need no service but Kinesis, and so no moto.
"""

NOT_OURS = ("-W", "ignore::ResourceWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning")
"""The options by which pytest ignores warnings that are not ours. PySpark 4.0 leaves the sockets of ``collect()`` to
the garbage collector. Our own warnings count in `make test`.
"""

SMOKE_TIMEOUT_S = 1800
TOGETHER = 2
"""The number of versions at a time. A driver and its JVM wait for each other most of the time."""


def packages(version: str) -> list[str]:
    """Return the packages that the source, the local service and the tests need, with this version of PySpark."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["spark"], *extras["local"], *TEST_TOOLS]
    return [f"pyspark=={version}", *(one for one in needed if not one.startswith(LEFT_OUT))]


def client_environment(version: str) -> Path:
    """Return the Python of an environment that has the Connect client for this version and not Spark itself.

    The environment is made if it is not there as it should be. The client's releases are not those of PySpark: the
    newest of the minor version is installed, or else of the one before.
    """
    major, minor = version.split(".")[:2]
    client = f"pyspark-client>={major}.{max(int(minor) - 1, 0)},<={major}.{minor}.99"
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    return made(HOME / f"client-{major}.{minor}", [client, *project["dependencies"]])


def constraints() -> str:
    """Return the locked versions of all packages but PySpark and Py4J, one a line. Their hashes are left out, as pip
    checks these when ``.venv`` is made.
    """
    joined = LOCKED.read_text(encoding="utf-8").replace("\\\n", " ")
    pins = [line.split(" --hash", 1)[0].strip() for line in joined.splitlines() if re.match(r"[a-z0-9]", line)]
    return "\n".join(pin for pin in pins if not re.match(r"(pyspark|py4j)\b", pin)) + "\n"


def environment(version: str) -> Path:
    """Return the Python of this version's environment, which is made if it is not there as it should be."""
    return made(HOME / f"pyspark-{version.rpartition('.')[0]}", packages(version))


def made(home: Path, needed: list[str]) -> Path:
    """Return the Python of the environment in the folder ``home`` with the packages ``needed``. It is made if it is
    not there as it should be.
    """
    HOME.mkdir(exist_ok=True)
    with (HOME / f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests and this program may want one at the same time
        return _made(home, needed)


def _made(home: Path, needed: list[str]) -> Path:
    python = home / "bin" / "python"
    pins = constraints()
    wanted = hashlib.sha256("\n".join([sys.version, *needed, pins]).encode()).hexdigest()
    stamp = home / ".ready"
    if python.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    pinned = HOME / f"{home.name}.constraints"
    pinned.write_text(pins, encoding="utf-8")
    shutil.rmtree(home, ignore_errors=True)
    for command in commands(home, [*needed, "--constraint", str(pinned)]):
        subprocess.run(command, check=True, timeout=INSTALL_TIMEOUT_S, stdin=subprocess.DEVNULL)  # noqa: S603
    stamp.write_text(wanted, encoding="utf-8")
    return python


def commands(home: Path, what: list[str]) -> list[list[str]]:
    """Return the commands that make an environment. They use uv where there is one, as it keeps what it downloaded,
    and else venv and pip.
    """
    python = str(home / "bin" / "python")
    tool = uv()
    if tool is not None:
        return [
            [tool, "venv", "--quiet", "--python", sys.executable, str(home)],
            [tool, "pip", "install", "--quiet", "--python", python, *what],
        ]
    return [
        [sys.executable, "-m", "venv", str(home)],
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what],
    ]


def smoke(version: str, python: Path, arguments: list[str]) -> tuple[str, bool]:
    """Run the smoke tests with this Python. Return pytest's last line, and True when the tests passed."""
    variables = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SHARDWAY_SMOKE_PYSPARK": version,
    }
    for name in ("SPARK_HOME", "VIRTUAL_ENV", "PYTHONHOME"):
        variables.pop(name, None)
    command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", "-q", *NOT_OURS, "tests/smoke", *arguments]
    return run_pytest(python.parents[1], command, variables, SMOKE_TIMEOUT_S)


def run(version: str, arguments: list[str]) -> Outcome:
    """Make the environment of a version, run the smoke tests in it, and return the outcome."""
    print(f"PySpark {version} ...", file=sys.stderr, flush=True)
    began_s = time.monotonic()
    try:
        python = environment(version)
    except (OSError, subprocess.SubprocessError) as error:
        return Outcome(version, f"not installed: {error}", False, time.monotonic() - began_s, 0.0)
    installed_s = time.monotonic()
    result, passed = smoke(version, python, arguments)
    return Outcome(version, result, passed, installed_s - began_s, time.monotonic() - installed_s)


def main() -> int:
    """Run the tests on the versions that the command line names. Return 0 when all passed, and else 1."""
    minors = {version.rpartition(".")[0]: version for version in VERSIONS}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=sorted(minors), help="this minor version only (repeatable)")
    parser.add_argument("arguments", nargs="*", metavar="PYTEST-ARGUMENT", help="after --: goes to pytest")
    given = parser.parse_args()
    with ThreadPoolExecutor(TOGETHER) as pool:
        outcomes = list(pool.map(lambda minor: run(minors[minor], given.arguments), given.only or sorted(minors)))
    return report("PySpark", outcomes)


if __name__ == "__main__":
    sys.exit(main())
