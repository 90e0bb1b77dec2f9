"""Gives all benchmarks one form: cases with a goal, measured in alternating rounds, shown as a table or as JSON.

A case compares our figure with a peer's where there is one, and then its goal bounds the ratio ours / peer. Without a
peer the goal bounds our own figure. Both sides are measured in the same run, turn by turn, so that a slower minute of
the machine hits both. The median of the rounds counts.

A program defines its cases and ends with ``main("name", "what it measures", cases)``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import resource
import statistics
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Sense = Literal["at_least", "at_most"]

WARM_UP_ROUNDS = 1
DIGITS = 6
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One figure and its goal. ``ours`` and ``peer`` measure one round each and return the figure in ``unit``."""

    name: str
    unit: str
    goal: float
    sense: Sense
    ours: Callable[[], float]
    peer: Callable[[], float] | None = None
    peer_name: str | None = None
    rounds: int = 5
    warm_up: int = WARM_UP_ROUNDS


@dataclass(frozen=True, kw_only=True)
class Result:
    """A measured case, in the fields that ``--json`` prints."""

    case: str
    ours: float
    peer: float | None
    peer_name: str | None
    unit: str
    ratio: float | None
    goal: float
    sense: Sense
    holds: bool
    spread: dict[str, list[float]] = field(default_factory=dict)
    """All rounds by side, from which a reader sees how steady the figures are. The JSON form does not have them."""

    def as_json(self) -> dict[str, Any]:
        """Return the fields that ``--json`` prints."""
        names = ("case", "ours", "peer", "peer_name", "unit", "ratio", "goal", "sense", "holds")
        return {name: getattr(self, name) for name in names}


def judge(
    name: str,
    ours: Sequence[float],
    peer: Sequence[float] = (),
    *,
    unit: str,
    goal: float,
    sense: Sense,
    peer_name: str | None = None,
) -> Result:
    """Make the result of a case from the figures of its rounds, for programs that measure in their own way."""
    our_median = statistics.median(ours)
    peer_median = statistics.median(peer) if peer else None
    ratio = our_median / peer_median if peer_median else None
    judged = our_median if ratio is None else ratio
    return Result(
        case=name,
        ours=_rounded(our_median),
        peer=None if peer_median is None else _rounded(peer_median),
        peer_name=peer_name,
        unit=unit,
        ratio=None if ratio is None else _rounded(ratio),
        goal=goal,
        sense=sense,
        holds=judged >= goal if sense == "at_least" else judged <= goal,
        spread={"ours": list(ours), "peer": list(peer)},
    )


def measure(case: Case) -> Result:
    """Run the rounds of a case in the order ours, peer, ours, peer, ..., and return its result. Rounds of the warm-up
    do not count.
    """
    ours: list[float] = []
    peer: list[float] = []
    for number in range(case.warm_up + case.rounds):
        our_figure = case.ours()
        peer_figure = case.peer() if case.peer is not None else None
        if number >= case.warm_up:
            ours.append(our_figure)
            if peer_figure is not None:
                peer.append(peer_figure)
    return judge(case.name, ours, peer, unit=case.unit, goal=case.goal, sense=case.sense, peer_name=case.peer_name)


def options(about: str, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line that all programs share: ``--json`` and ``--only CASE`` (more than once)."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--only", action="append", metavar="CASE", help="measure this case only (repeatable)")
    return parser.parse_args(argv)


def main(bench: str, about: str, cases: Iterable[Case], argv: Sequence[str] | None = None) -> None:
    """Measure the cases that the command line asks for and print them."""
    asked = options(about, argv)
    report(bench, [measure(case) for case in cases if wanted(case.name, asked)], as_json=asked.json)


def wanted(name: str, asked: argparse.Namespace) -> bool:
    """Return True when the command line asks for this case, or for no case by name."""
    return not asked.only or name in asked.only


def report(bench: str, results: Sequence[Result], *, as_json: bool, text: str = "") -> None:
    """Print results in the fixed form. ``text`` is Markdown that the page of all benchmarks has below them."""
    if as_json:
        print(json.dumps({"bench": bench, "results": [result.as_json() for result in results], "text": text}))
        return
    rows = [HEADINGS, *(row(result.as_json()) for result in results)]
    widths = [max(len(line[column]) for line in rows) for column in range(len(HEADINGS))]
    print(f"bench/{bench}.py on {machine()}")
    for line in rows:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
    for result in results:
        for side, figures in result.spread.items():
            if len(figures) > 1:
                print(f"  {result.case} {side}: {', '.join(number(figure) for figure in figures)}")


HEADINGS = ("case", "ours", "peer", "unit", "ratio", "goal", "holds")


def row(result: dict[str, Any]) -> tuple[str, ...]:
    """Return one line of the table, made of the JSON form."""
    peer = "-" if result["peer"] is None else f"{number(result['peer'])} ({result['peer_name']})"
    bound = "≥" if result["sense"] == "at_least" else "≤"
    return (
        result["case"],
        number(result["ours"]),
        peer,
        result["unit"],
        "-" if result["ratio"] is None else number(result["ratio"]),
        f"{bound} {number(result['goal'])}",
        "yes" if result["holds"] else "NO",
    )


def number(value: float) -> str:
    """Return a figure as a reader sees it, such as 1,234,567 or 0.1234."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def machine() -> str:
    """Return a line that names processor, cores, system and Python."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return (
        f"{os.cpu_count()} x {model}, {platform.system()} {platform.release()}, "
        f"{platform.python_implementation()} {platform.python_version()}"
    )


def cpu_s() -> float:
    """Return the user and system CPU seconds of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def cpu_of_s(pid: int) -> float:
    """Return the user and system CPU seconds of another process so far (Linux; in steps of one clock tick)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def tree_of(pid: int) -> list[int]:
    """Return the ids of a process and its living descendants."""
    found, waiting = [], [pid]
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            children.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found


def cpu_of_tree_s(pid: int) -> float:
    """Return the CPU seconds of a process and its living descendants, and of children that they have waited for."""
    total = 0.0
    for one in tree_of(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            total += sum(int(text) for text in fields[11:15]) / CLOCK_TICKS
    return total


def cores() -> list[int]:
    """Return the cores that this process may use; an empty list where the system cannot say or pin."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def pin(pid: int, core: int) -> None:
    """Keep a process (0 is this one) on one core, where that can be done."""
    if core in cores() or pid != 0:
        with contextlib.suppress(OSError, AttributeError):
            os.sched_setaffinity(pid, {core})


def aside(server_pid: int) -> None:
    """Keep a server on the last core, if there are two. The client may use all, as it may where it really runs."""
    if len(before := cores()) > 1:
        pin(server_pid, before[-1])


@contextlib.contextmanager
def apart(server_pid: int) -> Iterator[None]:
    """Keep this process on the first core and a server on the last, if there are two; undo it at the end."""
    before = cores()
    if len(before) > 1:
        pin(server_pid, before[-1])
        pin(0, before[0])
    try:
        yield
    finally:
        if len(before) > 1:
            os.sched_setaffinity(0, set(before))


@contextlib.contextmanager
def looking(look: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call ``look`` every ``every_s`` seconds in a thread of its own, until the block ends."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(every_s):
            look()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def per_second(work: Callable[[], object], amount: float, seconds: float = 0.5) -> float:
    """Call ``work`` for about ``seconds``, and return how much it does per second of wall time. One call does
    ``amount``.
    """
    began = time.perf_counter()
    calls = 0
    while (took := time.perf_counter() - began) < seconds or calls == 0:
        work()
        calls += 1
    return calls * amount / took


def say(text: str) -> None:
    """Print a remark to standard error, which is never part of the JSON."""
    print(text, file=sys.stderr)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
