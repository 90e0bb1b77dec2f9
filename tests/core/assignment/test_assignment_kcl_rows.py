"""The rows beside the leases, as the real KCL writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardway.aws.dynamodb.values import plain_item
from shardway.core.assignment.kcl.fleet import Coordination, Place
from shardway.core.assignment.kcl.rows import beside_leases, coordination, metrics_row
from shardway.core.leases.listing import listing_of

if TYPE_CHECKING:
    from collections.abc import Mapping

TABLES = Path(__file__).parents[2] / "fixtures" / "kcl"


def foreign(name: str) -> dict[str, Mapping[str, Any]]:
    (content,) = json.loads((TABLES / f"{name}.json").read_text())["tables"].values()
    return listing_of(plain_item(item) for item in content["items"]).foreign


def test_what_a_35_fleet_keeps_beside_its_leases() -> None:
    found = beside_leases(foreign("kcl35-steady"))
    assert found.client_version == "CLIENT_VERSION_3X"
    assert found.table_migration is None
    assert found.updated_epoch_s == {"w1": 1795245761, "w2": 1795245771}
    assert found.show_cpu == frozenset()
    assert found.has_leader
    assert beside_leases(foreign("kcl27-steady")) == Coordination()


def test_a_leader_that_has_given_its_place_up_is_none() -> None:
    leader = foreign("kcl35-steady")["Leader"]
    assert coordination({"Leader": leader}, {}).has_leader
    assert not coordination({"Leader": {**leader, "isReleased": "1"}}, {}).has_leader
    assert not coordination({"Migration3.0": {"cv": "CLIENT_VERSION_3X"}}, {}).has_leader


def test_our_metrics_row_has_the_shape_of_theirs() -> None:
    theirs = foreign("kcl35-steady")["w1"]
    ours = metrics_row(Place.LEASE_TABLE, "w1", 1795245761.7)
    assert ours == {**theirs, "slu": ours["slu"]}
    assert ours["slu"] == ours["lut"]


def test_a_metrics_row_in_a_table_of_its_own() -> None:
    row = metrics_row(Place.OWN_TABLES, "w1", 5.0, [float(number) for number in range(12)])
    assert (row["wid"], row["lut"], "leaseKey" in row, "entityType" in row) == ("w1", 5, False, False)
    assert row["sts"] == {"C": [float(number) for number in range(2, 12)]}, "the last ten, the oldest first"
    assert row["opr"] == {"C": [100]}
    assert coordination({}, {"w1": row}).show_cpu == {"w1"}


def test_rows_that_cannot_be_read_are_left_out() -> None:
    states: dict[str, dict[str, Any]] = {
        "Migration3.0": {"cv": 7},
        "TableMigration3.5": {"tm": "TABLE_MIGRATION_STATUS_INIT"},
    }
    metrics: dict[str, dict[str, Any]] = {
        "w1": {"lut": "yesterday", "sts": []},
        "w2": {},
        "w3": {"lut": 4, "sts": {"M": [1.0]}},
    }
    assert coordination(states, metrics) == Coordination(
        table_migration="TABLE_MIGRATION_STATUS_INIT", updated_epoch_s={"w3": 4}
    )
