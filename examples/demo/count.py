"""Compares what arrived in the folders with what the plan says, as any Parquet reader sees it."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.dataset as ds
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

    from examples.demo.orders import Plan

_FILE = re.compile(r"batch-(\d+)-\w+-(\d+)\.parquet")


class Count(NamedTuple):
    """What was found. All but the first three have to be 0."""

    orders: int
    """Rows in the folder of orders."""
    dead_letters: int
    files: int
    lost: int
    """Orders that are not there, or not as they were written."""
    repeated: int
    out_of_order: int
    """Orders whose customer had a later one before, in the order of batches and of rows in the files."""
    dead_letters_missing: int
    dead_letters_too_many: int

    @property
    def exact(self) -> bool:
        """True when everything is there once and in order."""
        return not any(self[3:])


def count(out: Path, plan: Plan) -> Count:
    """Read both folders."""
    lost, repeated, out_of_order, rows = _orders(out / "orders", plan)
    expected: Counter[bytes | str] = Counter(plan.broken)
    found: Counter[bytes | str] = Counter(_column(out / "dead-letters", "data"))
    return Count(
        orders=rows,
        dead_letters=found.total(),
        files=len(list(out.glob("*/hour=*/*.parquet"))),
        lost=lost,
        repeated=repeated,
        out_of_order=out_of_order,
        dead_letters_missing=(expected - found).total(),
        dead_letters_too_many=(found - expected).total(),
    )


def rows_so_far(out: Path) -> int:
    """Rows that are in both folders now, by the files' footers. Files may come and go meanwhile."""
    rows = 0
    for file in out.glob("*/hour=*/*.parquet"):
        try:
            rows += pq.read_metadata(file).num_rows
        except FileNotFoundError:
            continue  # replaced just now
    return rows


def report(path: Path) -> list[dict[str, float]]:
    """What the job said about its batches. A line cut off by the kill is left out."""
    if not path.exists():
        return []
    batches = []
    for line in path.read_text().splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event["event"] == "batch":
            batches.append(event)
    return batches


def _orders(folder: Path, plan: Plan) -> tuple[int, int, int, int]:
    """(lost, repeated, out of order, rows)."""
    times_seen: Counter[str] = Counter()
    latest: dict[str, int] = {}
    wrong = out_of_order = 0
    for file in sorted(folder.glob("hour=*/*.parquet"), key=_written):
        columns = ["order_id", "customer", "counter", "quantity", "amount"]
        table = pq.read_table(file, columns=columns, partitioning=None).to_pydict()
        for order_id, customer, counter, quantity, amount in zip(*(table[name] for name in columns), strict=True):
            times_seen[order_id] += 1
            wrong += plan.orders.get(order_id) != (customer, counter, quantity, str(amount))
            out_of_order += counter < latest.get(customer, 0)
            latest[customer] = max(counter, latest.get(customer, 0))
    # The folder as a whole has to show the same rows as its files one by one.
    whole = Counter(_column(folder, "order_id"))
    repeated = max(times_seen.total() - len(times_seen), whole.total() - len(whole))
    missing = len(plan.orders.keys() - (times_seen.keys() & whole.keys()))
    return missing + wrong, repeated, out_of_order, whole.total()


def _written(file: Path) -> tuple[int, str, int]:
    """The order in which files were written: batch, hour, number in the batch."""
    found = _FILE.fullmatch(file.name)
    if found is None:
        raise ValueError(f"{file} is not a file of a batch")
    return int(found[1]), file.parent.name, int(found[2])


def _column(folder: Path, name: str) -> list[bytes] | list[str]:
    if not folder.exists():
        return []
    column: list[bytes] | list[str] = ds.dataset(folder, partitioning="hive").to_table(columns=[name])[name].to_pylist()
    return column
