"""Runs the benchmarks and writes their figures down: ``python -m bench``, or ``make bench``.

Each program runs by itself (``python -m bench.NAME --json``), one after the other. Its results go to its section of
docs/BENCHMARKS.md, with machine, versions and date. The sections of programs that did not run stay as they are. The
exit status is 1 when a program fails. A goal that is missed does not change it: the reader of the page judges that.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.metadata
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from bench._form import HEADINGS, machine, row, say

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "BENCHMARKS.md"
PROGRAM_MINUTES_MAX = 60
HELPERS = {"__init__", "__main__", "canned", "spark_peers"}
"""The modules of this folder that are no programs, beside those that begin with an underscore."""
PACKAGES = ("shardway", "msgspec", "httptools", "boto3", "botocore", "pyspark", "pyarrow", "cbor2", "uvloop")
"""The packages whose versions bear on the figures."""


def programs() -> list[str]:
    """Return the names of all benchmarks, in the order of the alphabet."""
    names = (path.stem for path in Path(__file__).parent.glob("*.py"))
    return sorted(name for name in names if name not in HELPERS and not name.startswith("_"))


def run(name: str) -> dict[str, Any] | None:
    """Run one program, and return the JSON object that it prints; None when it fails."""
    say(f"bench.{name} ...")
    try:
        done = subprocess.run(
            [sys.executable, "-m", f"bench.{name}", "--json"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            check=True,
            timeout=PROGRAM_MINUTES_MAX * 60,
        )
        # The last line is the object. A tool that starts the program may print lines of its own before it.
        printed: dict[str, Any] = json.loads(done.stdout.decode().strip().splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        say(f"bench.{name} failed: {error}")
        return None
    return printed


def first_line(name: str) -> str:
    """Return what a program measures: the first line of its docstring, which is a sentence."""
    text = (Path(__file__).parent / f"{name}.py").read_text()
    return text.split('"""')[1].strip().partition("\n")[0]


def versions() -> str:
    """Return the installed versions of the packages that bear on the figures."""
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


HEAD = """# Benchmarks

`make bench` writes this page; do not edit it. Each program has a section, with the day of its last run. A program
measures both sides of a comparison in the same run, turn by turn, and reports the median of the rounds. The goal
bounds the ratio of our figure to the peer's, or our figure where there is no peer. `python -m bench.wire` runs one
program and prints its table with all rounds; `make bench ARGS="wire"` runs it and writes its section anew.
"""


def section(name: str, result: dict[str, Any]) -> str:
    """Return the section of the page about a program, with what a run of it found."""
    lines = [
        f"## bench/{name}.py",
        "",
        first_line(name),
        "",
        f"- date: {dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC",
        f"- machine: {machine()}",
        textwrap.fill(f"- versions: {versions()}", 118, subsequent_indent="  ", break_on_hyphens=False),
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "| " + " | ".join("---" for _ in HEADINGS) + " |",
        *("| " + " | ".join(row(case)) + " |" for case in result["results"]),
        "",
    ]
    if result.get("text"):
        lines += [result["text"], ""]
    return "\n".join(lines)


def sections_of(text: str) -> dict[str, str]:
    """Return the sections of a page, by the name of the program."""
    found = {}
    for part in text.split("\n## bench/")[1:]:
        found[part.partition(".py\n")[0]] = "## bench/" + part.rstrip("\n") + "\n"
    return found


def page(sections: dict[str, str]) -> str:
    """Return the page, with a section for each program that has been run and is there still."""
    return "\n".join([HEAD, *(sections[name] for name in programs() if name in sections)])


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the benchmarks and write docs/BENCHMARKS.md.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these: {', '.join(programs())}")
    asked = parser.parse_args().names
    unknown = sorted(set(asked) - set(programs()))
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}")
    failed = False
    for name in asked or programs():
        result = run(name)
        failed = failed or result is None
        if result is not None:
            found = section(name, result)
            print(found)
            known = sections_of(PAGE.read_text()) if PAGE.exists() else {}
            PAGE.write_text(page(known | {name: found}))
            say(f"written: {PAGE.relative_to(ROOT)}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
