"""Simulations from the command line: ``python -m shardway.testing.sim --seeds 200``, or ``--seed 21`` for one again."""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

from shardway.testing.sim.plan import FaultPlan
from shardway.testing.sim.simulator import Simulator, simulate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardway.testing.sim.simulator import Report

SHOWN_MAX = 20
TOLD_EVERY_SEEDS = 500
"""The number of seeds after which a long run says on stderr how far it has come, so that a run that is ended early
still counts.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run simulations from the command line. Return 0 when all rules held in all of them."""
    parser = argparse.ArgumentParser(prog="python -m shardway.testing.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one, and print its plan")
    parser.add_argument("--trace", action="store_true", help="with --seed: print every fact as it happens")
    parser.add_argument("--seeds", type=int, default=200, help="run so many (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="beginning with this one (%(default)s)")
    parser.add_argument("--fresh", action="store_true", help="beginning with one that the clock says")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="side by side (%(default)s)")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return one(options.seed, trace=options.trace)
    first = options.first
    if options.fresh:
        first = time.time_ns() // 1_000_000
        print(f"the first seed is {first}: --seeds {options.seeds} --first {first} runs the same again", flush=True)
    return many(range(first, first + options.seeds), options.jobs)


def one(seed: int, *, trace: bool) -> int:
    """Run a seed, and tell all about it."""
    plan = FaultPlan.draw(seed)
    print(plan)
    report = Simulator(plan, on_note=_print_note if trace else None).run()
    for broken in report.broken:
        print(broken)
    print(report)
    return 0 if report.ok else 1


def _print_note(now_s: float, facts: tuple[object, ...]) -> None:
    print(f"{now_s:10.3f}", *facts)


def many(seeds: range, jobs: int) -> int:
    """Run seeds, and tell which of them broke a rule, with the line that repeats each."""
    begun_s = time.perf_counter()
    failed = deliveries = duplicates = tenures = 0
    virtual_s = 0.0
    for done, report in enumerate(reports(seeds, jobs), start=1):
        deliveries += report.deliveries
        duplicates += report.duplicates
        tenures += report.tenures
        virtual_s += report.virtual_s
        if not report.ok:
            failed += 1
            if failed <= SHOWN_MAX:
                print(f"{report}; again: {replay_line(report.plan.seed)}", flush=True)
        if done % TOLD_EVERY_SEEDS == 0 and done < len(seeds):
            print(f"{done:,} of {len(seeds):,} seeds, {failed} of them broke a rule", file=sys.stderr, flush=True)
    took_s = time.perf_counter() - begun_s
    print(
        f"{len(seeds)} seeds, {failed} of them broke a rule: {virtual_s / 3600:.1f} virtual hours in {took_s:.0f} s "
        f"({len(seeds) / took_s:.1f} seeds/s), {deliveries:,} deliveries ({duplicates:,} again), {tenures:,} tenures"
    )
    return 1 if failed else 0


def reports(seeds: range, jobs: int) -> Iterator[Report]:
    """Yield the reports of all seeds, in their order."""
    if jobs <= 1:
        yield from map(simulate, seeds)
    else:
        with ProcessPoolExecutor(jobs) as pool:
            yield from pool.map(simulate, seeds, chunksize=4)


def replay_line(seed: int) -> str:
    """Return the command that runs a seed again."""
    return f"python -m shardway.testing.sim --seed {seed}"


if __name__ == "__main__":
    sys.exit(main())
