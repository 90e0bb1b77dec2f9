"""Runs the demo; see the package. Exits with 0 when everything arrived once and in order, else with 1."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.demo.count import count, report
from examples.demo.orders import Plan
from examples.demo.run import SHARDS, STREAM, Demo

from shardway.local.faults import Fault
from shardway.testing import LocalKinesis

if TYPE_CHECKING:
    from examples.demo.count import Count

REFUSED_SHARE = 0.002
"""Of the records of a PutRecords call, as when a shard is too busy; the producer puts them again."""


def plan_of(records: int) -> Plan:
    """What the producer was to write."""
    plan = Plan(records)
    for _ in plan.rounds():
        pass
    return plan


def table(
    plan: Plan, found: Count, batches: list[dict[str, float]], written: dict[str, Any], records_per_s: float
) -> str:
    """What was written and what arrived, and what must be 0. ``records_per_s``: what the producer was told to write."""
    late = sum(int(batch["late"]) for batch in batches)
    rows, busy_s = sum(batch["rows"] for batch in batches), sum(batch["seconds"] for batch in batches)
    lines = [
        ("", "written", "arrived"),
        ("orders", f"{len(plan.orders):,}", f"{found.orders:,}"),
        ("orders written again", f"{plan.duplicates:,}", "removed"),
        ("not decodable", f"{len(plan.broken):,}", f"{found.dead_letters:,} dead letters"),
        ("", "", ""),
        ("lost", "", f"{found.lost:,}"),
        ("repeated", "", f"{found.repeated:,}"),
        ("out of order", "", f"{found.out_of_order:,}"),
        ("dead letters missing", "", f"{found.dead_letters_missing:,}"),
        ("dead letters too many", "", f"{found.dead_letters_too_many:,}"),
        ("dropped as late", "", f"{late:,}"),
    ]
    text = "\n".join(f"  {name:24}{left:>12}  {right:>20}".rstrip() for name, left, right in lines)
    fastest = max((batch["rows"] / max(batch["seconds"], 0.001) for batch in batches), default=0.0)
    speed = (
        f"  The producer was told to write {records_per_s:,.0f} records/s, and wrote"
        f" {written['written'] / max(written['seconds'], 0.001):,.0f} for {written['seconds']:,.1f} s;\n"
        f"  {written['aggregates']:,} of them were aggregates, {written['put_again']:,} put again after a refusal.\n"
        f"  Spark read them and wrote Parquet in {len(batches)} batches, {found.files} files, at"
        f" {rows / max(busy_s, 0.001):,.0f} rows/s while a batch\n"
        f"  ran, {fastest:,.0f} in the fastest one. It waits for the producer wherever it has caught up."
    )
    return f"{text}\n\n{speed}"


def where(out: Path) -> str:
    """Where the files are and how to look at them."""
    return (
        f"  The files are in {out}/orders and {out}/dead-letters. To look at them:\n\n"
        f"    .venv/bin/python -c \"import pandas as pd; print(pd.read_parquet('{out}/orders'))\"\n"
        f"    .venv/bin/python -c \"import pandas as pd; print(pd.read_parquet('{out}/dead-letters')"
        f"[['reason', 'data']])\"\n"
    )


def main() -> int:
    """Run it and count."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rate", type=float, default=5_000, help="records per second that the producer writes")
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="is emptied at the start")
    args = parser.parse_args()
    shutil.rmtree(args.out, ignore_errors=True)
    args.out.mkdir(parents=True)
    with LocalKinesis.spawn(streams={STREAM: SHARDS}) as local:
        local.faults.add(Fault(operation="PutRecords", how="partial", share=REFUSED_SHARE, seed=1))
        demo = Demo(local, args.out, args.records, args.rate)
        try:
            demo.run()
        except RuntimeError as error:
            print(f"\nThe demo failed: {error}", file=sys.stderr)
            return 1
        finally:
            demo.close()
    started_s = time.monotonic()
    plan, batches = plan_of(args.records), report(demo.report)
    found = count(args.out, plan)
    demo.say(f"counted in {time.monotonic() - started_s:.1f} s")
    exact = found.exact and not any(batch["late"] for batch in batches)
    print(f"\n{table(plan, found, batches, demo.written, args.rate)}\n\n{where(args.out)}")
    print("Nothing lost, repeated, out of order or late." if exact else "This is not what was written: see above.")
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
