"""What the runs of the tests in other environments share: the folder below which these lie, a run of pytest whose
output goes to a file beside the environment, and the table of outcomes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".venvs"
PROJECT = ROOT / "pyproject.toml"
LOCKED = ROOT / "requirements" / "dev.txt"
INSTALL_TIMEOUT_S = 1800
LINES_SHOWN = 80
"""The last lines of a run's output that are shown when it failed."""


class Outcome(NamedTuple):
    """The result of one environment, with the seconds that making it and its tests took."""

    name: str
    result: str
    passed: bool | None
    """None where the environment cannot be made here."""
    install_s: float = 0.0
    tests_s: float = 0.0


def uv() -> str | None:
    """Return the path of uv: that of this environment, or one on PATH."""
    return shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")


def run_pytest(home: Path, command: Sequence[str], variables: Mapping[str, str], timeout_s: float) -> tuple[str, bool]:
    """Run a command that runs pytest. Return pytest's last line, and True when the tests passed."""
    log = HOME / f"{home.name}.log"
    with log.open("wb") as output:
        try:
            code = subprocess.run(  # noqa: S603
                command, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                timeout=timeout_s, check=False,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"did not end within {timeout_s:g} s, see {log.relative_to(ROOT)}", False
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    if code != 0:
        print("\n".join(lines[-LINES_SHOWN:]), file=sys.stderr)
    return next((line.strip("= ") for line in reversed(lines) if " in " in line), "no result"), code == 0


def report(title: str, outcomes: Sequence[Outcome]) -> int:
    """Print the table. Return 1 when one of the environments failed, and else 0."""
    width = max(len(name) for name in (title, *(one.name for one in outcomes))) + 2
    print(f"\n{title:<{width}}{'install s':>10}{'tests s':>9}  result")
    for one in outcomes:
        mark = {True: "", False: "FAILED: ", None: "not run: "}[one.passed]
        print(f"{one.name:<{width}}{one.install_s:>10.0f}{one.tests_s:>9.0f}  {mark}{one.result}")
    return 1 if any(one.passed is False for one in outcomes) else 0
