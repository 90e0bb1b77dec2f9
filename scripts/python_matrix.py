#!/usr/bin/env python3
"""Runs the tests on each Python that the package supports, or with the oldest or the newest packages that it allows,
and prints a table.

::

    scripts/run python -m scripts.python_matrix                        # Python 3.11 to 3.14, with locked packages
    scripts/run python -m scripts.python_matrix --only 3.13 -- -k leases
    scripts/run python -m scripts.python_matrix --packages lowest      # the oldest version of each direct requirement
    scripts/run python -m scripts.python_matrix --packages newest      # the newest version of every package

Each environment lies in ``.venvs`` (``python-3.13``, ``packages-lowest``) and is made once. An interpreter is looked
for on ``PATH``, below pyenv's folder, and by uv, which downloads one where it can. One that cannot be had is said in
the table, and counts as a failure only if ``--only`` names it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.environments import HOME, INSTALL_TIMEOUT_S, LOCKED, PROJECT, ROOT, Outcome, report, run_pytest, uv

if TYPE_CHECKING:
    from collections.abc import Sequence

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
TOOLS = ROOT / "requirements" / "dev.in"
MARKS = {"locked": "not slow", "newest": "not slow", "lowest": "not slow and not spark and not search"}
"""The tests that run. PySpark's oldest versions have the smoke tests of ``scripts/pyspark_matrix.py``: the pages and
tests of the others speak of what came later.
"""
FOLLOWERS = {
    "boto3": "boto3>=1.37",
    "moto": "moto[server]",
    "opentelemetry-sdk": "opentelemetry-sdk>=1.28",
    "pyspark": "pyspark[connect]",
}
"""The tools that have to fit a requirement of the package, so that the oldest of that would not go with them."""
BOOTSTRAP = [str(ROOT / "scripts" / "bootstrap"), "dev"]
FIND_TIMEOUT_S = 30
TESTS_TIMEOUT_S = 3 * 3600


def interpreter(version: str) -> Path | None:
    """Return a Python of this version, or None. It starts: pyenv's shims on PATH may not."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [shutil.which(f"python{version}"), *sorted(map(str, pyenv.glob(f"{version}.*/bin/python3")))]
    found = next((Path(one) for one in candidates if one and _starts(one, version)), None)
    tool = uv()
    if found is None and tool is not None:
        for command in (["find"], ["install", "--quiet"], ["find"]):
            done = _quiet([tool, "python", *command, version], INSTALL_TIMEOUT_S)  # an interpreter is downloaded
            if command == ["find"] and done is not None and _starts(path := done.strip(), version):
                return Path(path)
    return found


def _starts(path: str, version: str) -> bool:
    said = _quiet([path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
    return said is not None and said.strip() == version


def _quiet(command: list[str], timeout_s: float = FIND_TIMEOUT_S) -> str | None:
    """Return what a command printed; None where it failed."""
    try:
        done = subprocess.run(  # noqa: S603
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def pins() -> dict[str, str]:
    """Return the locked version of each package, by its name. Of a package with several the newest Python's counts."""
    joined = LOCKED.read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9][a-z0-9-]*)==([^\s;]+)", joined, flags=re.MULTILINE))


def requirements(packages: str) -> list[str]:
    """Return the direct requirements of the package, of its extras, and of the tests.

    With ``lowest``, a tool of the tests has its locked version: the oldest of these is nothing that the package says.
    """
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = [one for name, some in project["optional-dependencies"].items() if name != "all" for one in some]
    tools = [line.split("#")[0].strip() for line in TOOLS.read_text(encoding="utf-8").splitlines()]
    if packages == "newest":
        return sorted({*project["dependencies"], *extras, *filter(None, tools)})
    locked, fixed = pins(), set()
    for tool in filter(None, tools):
        name = re.split(r"[\[<>=~!; ]", tool)[0]
        plain = re.split(r"[<>=~!; ]", tool)[0]
        fixed.add(FOLLOWERS.get(name) or f"{plain}=={locked[name]}")
    return sorted({*project["dependencies"], *extras, *fixed})


def make_environment(home: Path, packages: str) -> None:
    """Make an environment with the oldest or the newest packages. Raises an error where that cannot be done."""
    tool = uv()
    if tool is None:
        raise RuntimeError("uv is needed to choose versions: pip install uv")
    wanted = HOME / f"{home.name}.in"
    wanted.write_text("\n".join(requirements(packages)) + "\n", encoding="utf-8")
    how = ["--resolution", "lowest-direct"] if packages == "lowest" else ["--upgrade"]
    python = str(home / "bin" / "python")
    for command in (
        [tool, "venv", "--quiet", "--clear", "--seed", "--python", sys.executable, str(home)],
        [tool, "pip", "install", "--quiet", "--python", python, *how, "-r", str(wanted)],
        [tool, "pip", "install", "--quiet", "--python", python, "--no-deps", "--editable", str(ROOT)],
    ):
        subprocess.run(command, check=True, timeout=INSTALL_TIMEOUT_S, stdin=subprocess.DEVNULL)  # noqa: S603


def run_tests(home: Path, packages: str, arguments: Sequence[str]) -> tuple[str, bool]:
    """Run the tests with the environment's Python. Return pytest's last line, and True when they passed."""
    command = [
        str(ROOT / "scripts" / "run"),
        "python",
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-n",
        "4",
        "--dist",
        "loadgroup",
    ]
    command += ["-q", "-m", MARKS[packages], *arguments]
    return run_pytest(home, command, {**os.environ, "VENV": str(home)}, TESTS_TIMEOUT_S)


def run(name: str, packages: str, arguments: Sequence[str], python: Path | None = None) -> Outcome:
    """Make an environment, run the tests in it, and return the outcome."""
    print(f"{name} ...", file=sys.stderr, flush=True)
    home, began_s = HOME / name, time.monotonic()
    HOME.mkdir(exist_ok=True)
    try:
        if python is None:
            make_environment(home, packages)
        else:
            variables = {**os.environ, "VENV": str(home), "PYTHON": str(python)}
            subprocess.run(BOOTSTRAP, cwd=ROOT, env=variables, check=True, timeout=INSTALL_TIMEOUT_S)  # noqa: S603
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        return Outcome(name, f"not installed: {error}", False, time.monotonic() - began_s)
    installed_s = time.monotonic()
    result, passed = run_tests(home, packages, arguments)
    return Outcome(name, result, passed, installed_s - began_s, time.monotonic() - installed_s)


def main() -> int:
    """Run the tests as the command line says. Return 0 when all passed, and else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PYTHONS, help="this Python only (repeatable)")
    parser.add_argument("--packages", choices=("lowest", "newest"), help="with these packages, on this Python")
    parser.add_argument("arguments", nargs="*", metavar="PYTEST-ARGUMENT", help="after --: goes to pytest")
    given = parser.parse_args()
    if given.packages:
        outcomes = [run(f"packages-{given.packages}", given.packages, given.arguments)]
    else:
        outcomes = []
        for version in given.only or PYTHONS:
            python = interpreter(version)
            if python is None:
                why = "no interpreter is here, and uv brings none: install one, or name its folder in PATH"
                outcomes.append(Outcome(f"python-{version}", why, False if given.only else None))
            else:
                outcomes.append(run(f"python-{version}", "locked", given.arguments, python))
    return report("environment", outcomes)


if __name__ == "__main__":
    sys.exit(main())
