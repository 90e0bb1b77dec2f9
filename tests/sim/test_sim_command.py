"""A seed that breaks a rule is told with a line that repeats it, whatever interpreter runs that line."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from shardway.testing.sim import __main__ as command
from tests.installed import brought_by, modules_outside

ROOT = Path(__file__).parents[2]
FAULTY = """
import runpy
import sys

import pytest
import sim_mutants

sim_mutants.the_token_does_not_grow(pytest.MonkeyPatch())
if __name__ == "__main__":
    runpy.run_module("shardway.testing.sim", run_name="__main__", alter_sys=True)
"""
"""The command, with a rule taken away: each tenure has the same token."""
DIGESTS = """
from shardway.testing import FaultPlan, Simulator

print([Simulator(FaultPlan.draw(seed)).run().digest for seed in (1000, 1003, 1008, 1011)])
"""


def run(command: list[str | Path], **env: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests" / "sim")])
    return subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths, **env}, capture_output=True, text=True, timeout=600
    )


def test_a_failing_seed_prints_the_line_that_repeats_it(tmp_path: Path) -> None:
    faulty = tmp_path / "faulty.py"
    faulty.write_text(FAULTY, encoding="utf-8")
    found = run([sys.executable, faulty, "--seeds", "3", "--jobs", "2"], PYTHONHASHSEED="1")
    assert found.returncode == 1, found.stdout + found.stderr
    lines = [line for line in found.stdout.splitlines() if "; again: " in line]
    assert lines, found.stdout + found.stderr
    assert f"3 seeds, {len(lines)} of them broke a rule" in found.stdout
    told, _, line = lines[0].partition("; again: ")
    python, option, module, *arguments = shlex.split(line)
    assert (python, option, module) == ("python", "-m", "shardway.testing.sim")
    again = run([sys.executable, faulty, *arguments], PYTHONHASHSEED="2")
    assert again.returncode == 1
    assert again.stdout.splitlines()[-1] == told
    assert "a token that does not grow" in told
    sound = run([sys.executable, "-m", "shardway.testing.sim", *arguments])
    assert sound.returncode == 0, sound.stdout
    assert re.match(r"seed \d+: .* deliveries", sound.stdout.splitlines()[-1])


def test_it_runs_without_any_extra() -> None:
    """Users simulate with what ``pip install shardway`` brings."""
    missing = dict.fromkeys(modules_outside(brought_by()))
    assert {"cbor2", "h2", "httptools", "pyspark"} <= set(missing)
    program = f"import sys\nsys.modules |= {missing!r}\nfrom shardway.testing import FaultPlan, Simulator\n"
    done = run([sys.executable, "-c", program + "print(Simulator(FaultPlan.draw(1)).run().digest)"])
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("minor", [11, 12, 13])
def test_a_seed_repeats_exactly_on_each_python(minor: int, tmp_path: Path) -> None:
    python = shutil.which(f"python3.{minor}")
    if python is None or run([python, "-c", "pass"]).returncode:
        pytest.skip(f"there is no Python 3.{minor} here")
    run([python, "-m", "venv", tmp_path / "venv"]).check_returncode()
    needed = [f"{name}=={version(name)}" for name in ("botocore", "msgspec")]
    run([tmp_path / "venv" / "bin" / "pip", "install", "--quiet", *needed]).check_returncode()
    own = run([sys.executable, "-c", DIGESTS], PYTHONHASHSEED="1")
    other = run([tmp_path / "venv" / "bin" / "python", "-c", DIGESTS], PYTHONHASHSEED="2")
    own.check_returncode()
    assert other.stdout == own.stdout, other.stderr


def test_a_long_run_says_how_far_it_has_come(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "TOLD_EVERY_SEEDS", 2)
    assert command.many(range(5), 1) == 0
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        "2 of 5 seeds, 0 of them broke a rule",
        "4 of 5 seeds, 0 of them broke a rule",
    ]
    assert "5 seeds, 0 of them broke a rule" in out
