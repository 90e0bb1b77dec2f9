"""Runs the benchmarks and writes their figures down: ``python -m bench``, or ``make bench``.

Each program runs by itself (``python -m bench.NAME --json``), one after the other. All results go to
docs/BENCHMARKS.md with machine, versions and date. The exit status is 1 when a program fails, not when a goal is
missed: that is for the reader of the page.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench._form import HEADINGS, machine, row, say

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "BENCHMARKS.md"
PROGRAM_MINUTES_MAX = 60
HELPERS = {"__init__", "__main__", "canned", "spark_peers"}
"""Modules of this folder that are no programs, beside those that begin with an underscore."""
PACKAGES = ("penstock", "msgspec", "httptools", "boto3", "botocore", "pyspark", "pyarrow", "cbor2", "uvloop")
"""Those whose versions bear on the figures."""


def programs() -> list[str]:
    """The names of all benchmarks, in the order of the alphabet."""
    names = (path.stem for path in Path(__file__).parent.glob("*.py"))
    return sorted(name for name in names if name not in HELPERS and not name.startswith("_"))


def run(name: str) -> dict[str, Any] | None:
    """Run one program; None when it fails."""
    say(f"bench.{name} ...")
    try:
        done = subprocess.run(
            [sys.executable, "-m", f"bench.{name}", "--json"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            check=True,
            timeout=PROGRAM_MINUTES_MAX * 60,
        )
        # The last line is the object: programs may be started by tools that print lines of their own before.
        printed: dict[str, Any] = json.loads(done.stdout.decode().strip().splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        say(f"bench.{name} failed: {error}")
        return None
    return printed


def first_line(name: str) -> str:
    """What a program measures: the first sentence of its docstring."""
    text = (Path(__file__).parent / f"{name}.py").read_text()
    return text.split('"""')[1].strip().partition("\n")[0]


def versions() -> str:
    """The installed versions of what bears on the figures."""
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def page(results: dict[str, dict[str, Any] | None]) -> str:
    """The page, in Markdown."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`; do not edit. Both sides of a comparison are measured in the same run, turn by",
        "turn, and the median of the rounds counts. The goal bounds the ratio ours / peer where there is a peer,",
        "else our figure. A program run alone prints its table with all rounds: `python -m bench.wire`.",
        "",
        f"- date: {dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC",
        f"- machine: {machine()}",
        f"- versions: {versions()}",
        "",
    ]
    for name, result in results.items():
        lines += [f"## bench/{name}.py", "", first_line(name), ""]
        if result is None:
            lines += ["This program failed in this run.", ""]
            continue
        lines += ["| " + " | ".join(HEADINGS) + " |", "| " + " | ".join("---" for _ in HEADINGS) + " |"]
        lines += ["| " + " | ".join(row(case)) + " |" for case in result["results"]]
        lines.append("")
        if result.get("text"):
            lines += [result["text"], ""]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the benchmarks and write docs/BENCHMARKS.md.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these; writes no page: {', '.join(programs())}")
    asked = parser.parse_args().names
    unknown = sorted(set(asked) - set(programs()))
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}")
    results = {name: run(name) for name in asked or programs()}
    text = page(results)
    print(text)
    if not asked:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(text)
        say(f"written: {PAGE.relative_to(ROOT)}")
    return 1 if None in results.values() else 0


if __name__ == "__main__":
    sys.exit(main())
