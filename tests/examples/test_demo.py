"""The demo's own count has to find what it says is not there; and the demo as a whole, small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from examples.demo.__main__ import plan_of, table
from examples.demo.count import count, report
from examples.demo.orders import CUSTOMERS, Plan
from examples.demo.processes import kill_tree
from examples.demo.producer import entry_of

from shardway.core.aggregation.reader import open_aggregate
from shardway.core.hashkeys import hash_key

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
RECORDS = 3_000


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of(RECORDS)


def test_the_plan_is_decided_by_its_seed(plan: Plan) -> None:
    again = plan_of(RECORDS)
    assert (again.orders, again.broken, again.duplicates) == (plan.orders, plan.broken, plan.duplicates)
    assert plan_of(RECORDS + 1).given_out == RECORDS + 1


def test_the_plan_holds_duplicates_aggregates_and_what_cannot_be_decoded(plan: Plan) -> None:
    assert plan.given_out == RECORDS
    assert min(plan.duplicates, plan.aggregates, len(plan.broken)) > 10


def test_no_customer_comes_twice_in_a_round() -> None:
    for puts in Plan(3 * CUSTOMERS).rounds():
        assert len({put.customer for put in puts}) == len(puts)


def test_the_counters_of_a_customer_count_up_in_the_order_of_puts() -> None:
    latest: dict[str, int] = {}
    plan = Plan(RECORDS)
    seen: set[bytes] = set()
    for puts in plan.rounds():
        for put in puts:
            for data in put.data:
                if data not in plan.broken and data not in seen:
                    seen.add(data)
                    order = json.loads(data)
                    assert (order["customer"], order["counter"]) == (put.customer, latest.get(put.customer, 0) + 1)
                    latest[put.customer] = order["counter"]
    assert len(seen) == len(plan.orders)


def test_an_aggregate_goes_where_the_plain_records_of_its_customer_go() -> None:
    (puts, *_) = Plan(RECORDS).rounds()
    several = next(put for put in puts if len(put.data) > 1)
    one = next(put for put in puts if len(put.data) == 1)
    entry = entry_of(several)
    aggregate = open_aggregate(entry.data)
    assert aggregate is not None
    assert [(record.partition_key, bytes(record.data)) for record in aggregate] == [
        (several.customer, data) for data in several.data
    ]
    assert entry.explicit_hash_key == str(hash_key(several.customer))
    assert entry_of(one).data == one.data[0]
    assert entry_of(one).partition_key == one.customer


Rows = list[dict[str, Any]]


def arrive(out: Path, plan: Plan, change: Callable[[Rows, list[bytes]], None] = lambda rows, dead: None) -> None:
    """Write what the plan says as the job would, in two batches, after a change."""
    rows = [
        {"order_id": order_id, "customer": customer, "counter": counter, "quantity": quantity, "amount": amount}
        for order_id, (customer, counter, quantity, amount) in plan.orders.items()
    ]
    dead = list(plan.broken)
    change(rows, dead)
    half = len(rows) // 2
    folder, dead_folder = out / "orders" / "hour=2026-11-21-10", out / "dead-letters" / "hour=2026-11-21-10"
    for part in (folder, dead_folder):
        part.mkdir(parents=True)
    # The later batch has the smaller part of the folder's name order: batches count as numbers.
    pq.write_table(pa.Table.from_pylist(rows[:half]), folder / "batch-000000009-q-00000.parquet")
    pq.write_table(pa.Table.from_pylist(rows[half:]), folder / "batch-000000010-q-00000.parquet")
    pq.write_table(pa.table({"data": pa.array(dead, pa.binary())}), dead_folder / "batch-000000009-q-00000.parquet")


def swap(rows: Rows) -> None:
    last = next(n for n in range(len(rows) - 1, 0, -1) if rows[n]["counter"] > 1)
    before = next(n for n in range(last - 1, -1, -1) if rows[n]["customer"] == rows[last]["customer"])
    rows[last], rows[before] = rows[before], rows[last]


def test_what_arrived_as_written_is_exact(plan: Plan, tmp_path: Path) -> None:
    arrive(tmp_path, plan)
    found = count(tmp_path, plan)
    assert found.exact
    assert (found.orders, found.dead_letters, found.files) == (len(plan.orders), len(plan.broken), 3)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda rows, dead: rows.pop(5), {"lost": 1}),
        (lambda rows, dead: rows.append(rows[5]), {"repeated": 1, "out_of_order": None}),
        (lambda rows, dead: swap(rows), {"out_of_order": None}),
        (lambda rows, dead: rows[5].update(amount="0.00"), {"lost": 1}),
        (lambda rows, dead: dead.pop(), {"dead_letters_missing": 1}),
        (lambda rows, dead: dead.append(dead[0]), {"dead_letters_too_many": 1}),
    ],
)
def test_the_count_finds_what_is_wrong(
    plan: Plan, tmp_path: Path, change: Callable[[Rows, list[bytes]], None], fault: dict[str, int | None]
) -> None:
    arrive(tmp_path, plan, change)
    found = count(tmp_path, plan)
    assert not found.exact
    wrong = {name: number for name, number in zip(found._fields[3:], found[3:], strict=True) if number}
    assert wrong.keys() == fault.keys()
    assert all(number is None or wrong[name] == number for name, number in fault.items())
    written = {"written": RECORDS, "seconds": 1.0, "aggregates": 1, "put_again": 0}
    assert f"{next(iter(wrong.values())):,}" in table(plan, found, [], written, 5_000)


def test_the_speeds_are_those_of_spark_and_of_the_producer(plan: Plan, tmp_path: Path) -> None:
    arrive(tmp_path, plan)
    written = {"written": 8_000, "seconds": 2.0, "aggregates": 1, "put_again": 0}
    batches = [{"rows": 1_000, "seconds": 1.0, "late": 0}, {"rows": 8_000, "seconds": 2.0, "late": 0}]
    text = table(plan, count(tmp_path, plan), batches, written, 5_000)
    assert "told to write 5,000 records/s, and wrote 4,000 for 2.0 s" in text
    assert "3,000 rows/s while a batch\n  ran, 4,000 in the fastest one" in text


def test_nothing_at_all_is_everything_lost(plan: Plan, tmp_path: Path) -> None:
    found = count(tmp_path, plan)
    assert (found.lost, found.dead_letters_missing) == (len(plan.orders), len(plan.broken))


def test_a_report_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "report.jsonl"
    assert report(path) == []
    # The job was killed within a line, and started again.
    path.write_text(
        '{"event": "batch", "late": 0}\n{"event": "batch", "la{"event": "started"}\n{"event": "batch", "late": 1}\n'
    )
    assert [batch["late"] for batch in report(path)] == [0, 1]


def test_killing_a_process_kills_what_it_started() -> None:
    program = (
        "import subprocess, sys, time; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'],"
        " process_group=0); print('started', flush=True); time.sleep(300)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout as output:
        assert output.readline() == "started\n"
        assert kill_tree(parent) == 2
        assert output.read() == ""  # the pipe's other ends are closed: both are gone
    assert parent.returncode == -9
    assert kill_tree(parent) == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_small(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--records=20000", "--rate=2000", f"--out={tmp_path / 'out'}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SIGKILL" in done.stdout
    assert "Nothing lost, repeated, out of order or late." in done.stdout
