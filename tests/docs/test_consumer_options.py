"""Each of the consumer's options says what it does: none borrows the words of the one behind it."""

from __future__ import annotations

import re

import pytest
from scripts.reference_consumer import TABLES

TOGETHER = {
    ("base_s", "cap_s"),
    ("coordinator_table", "metrics_table"),
    ("read_capacity_units", "write_capacity_units"),
}
"""Told together, because they mean something together."""
OPTIONS = [
    "options",
    "leases",
    "handoff",
    "checkpoints",
    "settling",
    "buffer",
    "metrics",
    "retry",
    "polling",
    "fan-out",
    "deduplication",
    "lease times",
    "assigned",
]


def rows_of(table: str) -> list[str]:
    """Return the rows of a table, without its heads and the rules below it."""
    return [line for line in TABLES[table]().splitlines() if line.startswith("|")][2:]


@pytest.mark.parametrize("table", OPTIONS)
def test_each_option_has_a_row_of_its_own(table: str) -> None:
    rows = rows_of(table)
    names = [tuple(re.findall(r"`(\w+)`", row.split("|")[1])) for row in rows]
    assert names
    assert [one for one in names if len(one) > 1 and one not in TOGETHER] == []


@pytest.mark.parametrize("table", OPTIONS)
def test_each_interval_and_bound_has_its_unit_in_its_name(table: str) -> None:
    """What has a number for a default says what it counts; `keys_max` counts keys."""
    unit = re.compile(r"_(s|bytes|max|min|units|per_s)$|^keys_max$")
    for row in rows_of(table):
        names, default = re.findall(r"`(\w+)`", row.split("|")[1]), row.split("|")[2].strip()
        if re.match(r"[\d,.]+( [KM]iB)?$", default):
            assert all(unit.search(name) for name in names), row


def test_a_row_says_which_values_an_option_takes() -> None:
    tables = ("options", "leases", "handoff", "polling", "settling")
    rows = {re.findall(r"`(\w+)`", row)[0]: row.split(" | ")[2] for name in tables for row in rows_of(name)}
    assert rows["failover_s"] == "`float`, seconds, more than 0"
    assert rows["warm_deadline_s"] == "`float`, seconds, at least 0"
    assert rows["request_records_max"] == "`int`, records, from 1 to 10,000"
    assert rows["log_errors"] == '`"place"` or `"with_message"`'
    assert rows["leases"] == "`LeaseOptions` or `LeaseTable`"


def test_the_rules_stand_below_the_table() -> None:
    rules = TABLES["leases"]().split("\n\n")[-1]
    assert rules == "- `read_capacity_units` and `write_capacity_units` are given together, or not at all.\n"
    assert "- `settling.latest_wins`: with keys side by side" in TABLES["options"]()
    assert "Rules" not in TABLES["buffer"]()
