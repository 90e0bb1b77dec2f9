"""Runs the programs of the README with an environment that has the package installed, as a reader does."""

from __future__ import annotations

import os
import re
import subprocess
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

STREAM = "orders"
REGION = "eu-west-1"
"""The region that the README's query names."""
START_TIMEOUT_S = 60.0
PROGRAM_TIMEOUT_S = 120.0
SPARK_TIMEOUT_S = 900.0
ORDER = '{"order_id": "order-4711", "amount": 12.5}'
_EXPORT = re.compile(r"export (\w+)=(\S+)")
_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
_PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def programs(readme: str) -> dict[str, str]:
    """Return the program of each section that has one, by the section's heading."""
    return {head: found[1] for head, body in _SECTION.findall(readme) if (found := _PROGRAM.search(body))}


class Quickstarts:
    """A local Kinesis, started by the installed command, and the README's programs against it."""

    def __init__(self, readme: Path, bin_folder: Path, folder: Path) -> None:
        self._programs = programs(readme.read_text(encoding="utf-8"))
        self._bin, self._folder = bin_folder, folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTHON", "PYSPARK"))}
        kept.pop("VIRTUAL_ENV", None)
        self._environment = {
            **kept,
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._ends = ExitStack()

    def __enter__(self) -> Self:
        command = ["shardway", "local", "--port", "0", "--region", REGION, "--stream", f"{STREAM}:4"]
        printed = self._start(command, self._folder / "local.log")
        exports = _wait_for(printed, "AWS_EC2_METADATA_DISABLED", START_TIMEOUT_S)
        self._environment.update(_EXPORT.findall(exports))
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def steps(self, *, spark: bool) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yield the programs in an order in which each finds what it needs: the writer before the readers."""
        yield "Write to a stream", self._write
        yield "Read a stream from a service", partial(self._read, "Read a stream from a service", '{"order": 17}')
        yield "A Kinesis for your tests", partial(self._run, "A Kinesis for your tests")
        if spark:
            yield "Read a stream with Spark", partial(self._spark, "Read a stream with Spark", "order-4711")

    def _write(self) -> None:
        """Write a record by the README's program, which prints where it stands."""
        shown = self._run("Write to a stream")
        assert re.match(r"shardId-\d+ \d+", shown), f"the producer printed no position: {shown!r}"

    def _spark(self, section: str, wanted: str) -> None:
        """Write an order that the query can decode, and read it."""
        (self._folder / "orders.jsonl").write_text(f"{ORDER}\n", encoding="utf-8")
        self._command("shardway", "put", STREAM, "orders.jsonl")
        self._read(section, wanted, SPARK_TIMEOUT_S)

    def _run(self, section: str) -> str:
        """Run a program to its end."""
        return self._command("python", "-c", self._programs[section])

    def _read(self, section: str, wanted: str, timeout_s: float = PROGRAM_TIMEOUT_S) -> None:
        """Run a program that reads for ever, until it has printed what is wanted."""
        log = self._folder / f"{section.replace(' ', '-').lower()}.log"
        with ExitStack() as ends:
            printed = self._start(["python", "-c", self._programs[section]], log, ends)
            _wait_for(printed, wanted, timeout_s)

    def _command(self, *command: str) -> str:
        done = subprocess.run(  # noqa: S603 - the README's own programs
            [str(self._bin / command[0]), *command[1:]],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PROGRAM_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{command[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def _start(self, command: list[str], log: Path, ends: ExitStack | None = None) -> Callable[[], tuple[bool, str]]:
        """Start a program that ends with the stack; return what tells whether it runs, and what it has printed."""
        with log.open("wb") as out:
            process = subprocess.Popen(  # noqa: S603 - the README's own programs
                [str(self._bin / command[0]), *command[1:]],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        (self._ends if ends is None else ends).callback(_stop, process)
        return lambda: (process.poll() is None, log.read_text(encoding="utf-8", errors="replace"))


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_for(printed: Callable[[], tuple[bool, str]], wanted: str, timeout_s: float) -> str:
    """Return what a program has printed as soon as it has printed this."""
    ends_at = time.monotonic() + timeout_s
    while True:
        runs, text = printed()
        if wanted in text:
            return text
        if not runs:
            raise AssertionError(f"the program ended before it printed {wanted!r}:\n{text}")
        if time.monotonic() > ends_at:
            raise TimeoutError(f"the program did not print {wanted!r} within {timeout_s:g} s:\n{text}")
        time.sleep(0.1)
