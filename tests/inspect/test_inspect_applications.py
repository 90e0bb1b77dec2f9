"""What tables tell of applications: real ones of the KCL, those of Shardway, and tables that hold anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.aws.dynamodb.values import plain_item
from shardway.core.leases.listing import listing_of
from shardway.inspect import ApplicationView
from shardway.inspect.applications.views import ApplicationRows, application_view

TABLES = Path(__file__).parents[1] / "fixtures" / "kcl"


def of_fixture(name: str) -> ApplicationView:
    ((table, content),) = json.loads((TABLES / f"{name}.json").read_text())["tables"].items()
    listing = listing_of(plain_item(item) for item in content["items"])
    return application_view(table, "dynamodb", ApplicationRows(listing))


def test_a_fleet_of_the_kcl_27() -> None:
    found = of_fixture("kcl27-steady")
    assert found.kinds == ["KCL 2.x"]
    assert [(one.worker_id, one.leases, one.kind) for one in found.workers] == [("w1", 4, "kcl"), ("w2", 4, "kcl")]
    assert (len(found.leases), found.other_rows, found.unreadable) == (8, [], {})
    assert {one.counter for one in found.leases} <= {347, 348, 349}


def test_a_fleet_of_the_kcl_35_with_its_leader() -> None:
    found = of_fixture("kcl35-steady")
    assert found.kinds == ["KCL 3.5 or later"]
    assert found.client_version == "CLIENT_VERSION_3X"
    assert [one.kind for one in found.workers] == ["kcl 3.x", "kcl 3.x"]
    assert sum(one.leader for one in found.workers) == 1
    assert all(one.updated_at is not None and one.updated_at.year == 2026 for one in found.workers)
    assert "Leader" in found.other_rows


def test_a_lease_that_is_handed_over_shows_both_workers() -> None:
    found = of_fixture("kcl35-during-handoff")
    handed = [one for one in found.leases if one.next_owner is not None]
    assert handed
    assert all(one.owner != one.next_owner for one in handed)


def test_shards_that_ended_and_the_time_of_a_checkpoint() -> None:
    found = {one.shard_id: one for one in of_fixture("kcl27-reshard").leases}
    ended = found["shardId-000000000000"]
    assert (ended.ended, ended.checkpoint, ended.checkpoint_at) == (True, "SHARD_END", None)
    assert ended.children
    young = found["shardId-000000000003"]
    assert young.parents == ("shardId-000000000000",)
    assert young.checkpoint_at is not None
    assert young.checkpoint_at.year == 2026


def test_a_table_of_the_kcl_1x_has_no_hash_ranges() -> None:
    row = {
        "leaseKey": "shardId-000000000000",
        "leaseCounter": 3,
        "leaseOwner": "worker",
        "checkpoint": "TRIM_HORIZON",
        "checkpointSubSequenceNumber": 0,
        "ownerSwitchesSinceCheckpoint": 1,
    }
    found = application_view("old", "dynamodb", ApplicationRows(listing_of([row])))
    assert (found.kinds, found.leases[0].first_hash_key, found.leases[0].switches) == (["KCL 1.x"], None, 1)


def test_a_row_with_wrong_types_hides_no_other() -> None:
    good = {"leaseKey": "a", "leaseCounter": 1, "checkpoint": "LATEST"}
    rows = [good, {**good, "leaseKey": "b", "leaseCounter": "one"}, {**good, "leaseKey": "c", "checkpoint": "soon"}]
    found = application_view("mixed", "dynamodb", ApplicationRows(listing_of(rows)))
    assert [one.key for one in found.leases] == ["a"]
    assert found.unreadable.keys() == {"b", "c"}


ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
NAMES = st.sampled_from(
    ["leaseKey", "leaseCounter", "leaseOwner", "checkpoint", "entityType", "lut", "sts", "cv", "ownerName",
     "shardwayStream", "readUntilMillis", "parentShardId", "startingHashKey", "pendingCheckpoint", "wid", "key"]
)  # fmt: skip


@given(st.lists(st.dictionaries(NAMES, ANYTHING, max_size=8), max_size=5))
def test_no_table_makes_it_fail(items: list[dict[str, Any]]) -> None:
    rows = {str(number): item for number, item in enumerate(items)}
    found = application_view("x", "dynamodb", ApplicationRows(listing_of(items), states=rows, metrics=rows))
    msgspec.json.encode(found)


@pytest.mark.parametrize(
    ("checkpoint", "at", "exact"),
    [("TRIM_HORIZON", "trim_horizon", True), ("LATEST", "latest", False), ("SHARD_END", "ended", True),
     ("AT_TIMESTAMP", "timestamp", False), ("0004957", "after", True)],
)  # fmt: skip
def test_positions_say_whether_they_are_exact(checkpoint: str, at: str, exact: bool) -> None:
    from shardway.inspect.moments import utc
    from shardway.inspect.moves.positions import positions_of

    rows = [{"leaseKey": "a", "leaseCounter": 1, "checkpoint": checkpoint, "checkpointSubSequenceNumber": 2}]
    found = application_view("x", "dynamodb", ApplicationRows(listing_of(rows)))
    position = positions_of(found, utc(0)).shards["a"]
    assert (position.at, position.exact) == (at, exact)
    assert position.sequence_number == (checkpoint if at == "after" else None)


@pytest.mark.parametrize("checkpoint", ["LATEST", "AT_TIMESTAMP"])
def test_the_position_of_a_lease_that_begins_at_a_time_is_that_time(checkpoint: str) -> None:
    from shardway.inspect.moments import utc
    from shardway.inspect.moves.positions import positions_of

    rows = [{"leaseKey": "a", "leaseCounter": 1, "checkpoint": checkpoint, "readUntilMillis": 1_700_000_000_000}]
    found = application_view("x", "dynamodb", ApplicationRows(listing_of(rows)))
    position = positions_of(found, utc(0)).shards["a"]
    assert (position.at, position.exact, position.timestamp) == ("timestamp", True, utc(1_700_000_000))
