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


@pytest.mark.parametrize("table", OPTIONS)
def test_each_option_has_a_row_of_its_own(table: str) -> None:
    rows = TABLES[table]().splitlines()[2:]
    names = [tuple(re.findall(r"`(\w+)`", row.split("|")[1])) for row in rows]
    assert names
    assert [one for one in names if len(one) > 1 and one not in TOGETHER] == []


@pytest.mark.parametrize("table", OPTIONS)
def test_each_interval_and_bound_has_its_unit_in_its_name(table: str) -> None:
    """What has a number for a default says what it counts; `keys_max` counts keys."""
    unit = re.compile(r"_(s|bytes|max|min|units|per_s)$|^keys_max$")
    for row in TABLES[table]().splitlines()[2:]:
        names, default = re.findall(r"`(\w+)`", row.split("|")[1]), row.split("|")[2].strip()
        if re.match(r"[\d,.]+( [KM]iB)?$", default):
            assert all(unit.search(name) for name in names), row
