"""Rows as the real KCL wrote them, and what is none."""

from __future__ import annotations

import base64
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.core.leases import (
    Checkpoint,
    LeaseKey,
    LeaseRow,
    NotALeaseError,
    StreamKey,
    conditional_write,
    is_lease,
    lease_row,
    writes,
)
from shardway.core.leases.listing import listing_of
from shardway.model import Position

if TYPE_CHECKING:
    from collections.abc import Callable

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "kcl"
TABLES = [
    (f"{path.stem}:{name}", table["items"])
    for path in sorted(FIXTURES.glob("*.json"))
    for name, table in json.loads(path.read_text(encoding="utf-8"))["tables"].items()
]


def plain(item: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Plain attributes of an item in DynamoDB's JSON."""
    readers: dict[str, Callable[[Any], object]] = {
        "S": str,
        "N": lambda text: float(text) if "." in text else int(text),
        "B": base64.b64decode,
        "SS": frozenset,
        "M": dict,
        "L": list,
    }
    return {name: readers[kind](value) for name, typed in item.items() for kind, value in typed.items()}


@pytest.mark.parametrize("items", [items for _, items in TABLES], ids=[name for name, _ in TABLES])
def test_rows_of_the_kcl_are_read_and_would_be_written_as_they_were(items: list[Any]) -> None:
    listing = listing_of(plain(item) for item in items)
    assert listing.unreadable == {}
    assert len(listing.rows) + len(listing.foreign) == len(items)
    expected = {one["leaseKey"]: one for one in map(plain, items) if one["leaseKey"].startswith("shardId-")}
    assert {row.key: row.attributes() for row in listing.rows} == expected
    assert all(row.others == {} for row in listing.rows), "an attribute of the KCL is not known"


def test_the_fixtures_hold_what_matters() -> None:
    rows = [row for _, items in TABLES for row in listing_of(map(plain, items)).rows]
    assert any(row.handoff_to for row in rows)
    assert any(row.ended and row.children for row in rows)
    assert any(len(row.parents) == 2 for row in rows)
    assert any(listing_of(map(plain, items)).foreign for _, items in TABLES)


def test_a_handoff_of_the_kcl_has_its_owner_still() -> None:
    items = dict(TABLES)
    (table,) = [table for name, table in items.items() if name.startswith("kcl35-during-handoff")]
    asked = [row for row in listing_of(map(plain, table)).rows if row.handoff_to]
    assert {(row.actual_owner, row.handoff_to) for row in asked} == {("w1", "x0"), ("w1", "x1"), ("w1", "x2")}


@pytest.mark.parametrize(
    "attributes",
    [
        {"leaseKey": "Leader", "entityType": "LEADER", "ownerName": "w1"},
        {"leaseKey": "w1", "entityType": "WORKER_METRIC_STATS", "leaseCounter": 4, "checkpoint": "LATEST"},
        {"leaseKey": "a", "checkpoint": "LATEST"},
        {"leaseKey": "a", "leaseCounter": "4", "checkpoint": "LATEST"},
        {"leaseKey": "a", "leaseCounter": 1.5, "checkpoint": "LATEST"},
    ],
)
def test_what_is_no_lease_is_left_out(attributes: dict[str, Any]) -> None:
    assert not is_lease(attributes)
    with pytest.raises(NotALeaseError, match="is not a lease"):
        lease_row(attributes)
    found = listing_of([attributes])
    told = attributes.keys() >= {"leaseCounter", "checkpoint"} and "entityType" not in attributes
    assert found.foreign == ({} if told else {attributes["leaseKey"]: attributes})
    assert list(found.unreadable) == ([attributes["leaseKey"]] if told else []), "a counter that is none has to be told"


@pytest.mark.parametrize(
    "spoilt",
    [
        {"checkpoint": None},
        {"checkpoint": "yesterday"},
        {"checkpoint": "-1"},
        {"checkpoint": 5},
        {"checkpointSubSequenceNumber": "x"},
        {"startingHashKey": "zero"},
        {"parentShardId": 7},
    ],
)
def test_a_lease_that_cannot_be_read_breaks_no_scan(spoilt: dict[str, Any]) -> None:
    good = {"leaseKey": "b", "leaseCounter": 1, "checkpoint": "LATEST"}
    bad = {**good, "leaseKey": "a", **spoilt}
    bad = {name: value for name, value in bad.items() if value is not None}
    listing = listing_of([bad, good])
    assert list(listing.unreadable) == ["a"]
    assert [row.key for row in listing.rows] == ["b"]
    with pytest.raises(NotALeaseError, match="cannot be read"):
        lease_row(bad)


def test_a_number_where_bytes_are_meant_is_the_kcls_own_mistake() -> None:
    row = lease_row(
        {
            "leaseKey": "a", "leaseCounter": 1, "checkpoint": "LATEST",
            "pendingCheckpoint": "5", "pendingCheckpointSubSequenceNumber": 2, "pendingCheckpointState": 0,
        }
    )  # fmt: skip
    assert row.pending == Checkpoint.at(Position(5, 2))
    assert row.pending_state is None


def test_unknown_attributes_are_kept() -> None:
    attributes = {"leaseKey": "a", "leaseCounter": 1, "checkpoint": "LATEST", "costCentre": "x", "tags": ["y"]}
    row = lease_row(attributes)
    assert row.others == {"costCentre": "x", "tags": ["y"]}
    assert row.attributes().items() >= attributes.items()
    hash(row)


def test_absent_is_absent() -> None:
    assert LeaseRow(key="a").attributes() == {
        "leaseKey": "a",
        "leaseCounter": 0,
        "checkpoint": "TRIM_HORIZON",
        "checkpointSubSequenceNumber": 0,
        "ownerSwitchesSinceCheckpoint": 0,
    }


# --- checkpoints ----------------------------------------------------------------------------------

numbers = st.integers(0, 2**186)
checkpoints = st.one_of(
    st.sampled_from(["AT_TIMESTAMP", "TRIM_HORIZON", "LATEST", "SHARD_END"]).map(Checkpoint.parse),
    st.builds(lambda number, sub: Checkpoint.at(Position(number, sub)), numbers, st.integers(0, 9)),
)


def test_the_kcls_order() -> None:
    words = ["AT_TIMESTAMP", "TRIM_HORIZON", "LATEST"]
    rising = [
        *map(Checkpoint.parse, words),
        *(Checkpoint.at(Position(*one)) for one in [(0, 0), (9, 0), (9, 1), (10, 0)]),
    ]
    rising.append(Checkpoint.SHARD_END)
    assert all(one < two for one, two in itertools.pairwise(rising))
    assert len(set(rising)) == len(rising)


@given(checkpoints)
def test_a_checkpoint_is_read_as_it_is_written(checkpoint: Checkpoint) -> None:
    again = Checkpoint.parse(checkpoint.text, checkpoint.sub_sequence_number)
    assert again == checkpoint
    assert again.text == checkpoint.text


def test_padding_is_kept_and_means_nothing() -> None:
    padded, bare = Checkpoint.parse("0017"), Checkpoint.parse("17")
    assert padded == bare
    assert (padded.text, bare.text) == ("0017", "17")


@pytest.mark.parametrize("text", ["", "latest", "1 2", "٣", "1.5", "0x1"])
def test_what_is_no_checkpoint(text: str) -> None:
    with pytest.raises(ValueError, match="checkpoint"):
        Checkpoint.parse(text)
    with pytest.raises(ValueError, match="not negative"):
        Checkpoint.at(Position(-1, 0))


# --- keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("shardId-000000000000", LeaseKey("shardId-000000000000")),
        (
            "123456789012:orders:1700000000:shardId-000000000007",
            LeaseKey("shardId-000000000007", StreamKey("123456789012", "orders", 1700000000)),
        ),
        ("x:orders:1700000000:shardId-000000000007", LeaseKey("x:orders:1700000000:shardId-000000000007")),
        ("123456789012:orders:0:shardId-000000000007", LeaseKey("123456789012:orders:0:shardId-000000000007")),
        ("a:b", LeaseKey("a:b")),
        ("123456789012:orders:1700000000:", LeaseKey("123456789012:orders:1700000000:")),
    ],
)
def test_keys(text: str, key: LeaseKey) -> None:
    assert LeaseKey.parse(text) == key
    assert key.text == text


@pytest.mark.parametrize("end", [False, True])
def test_a_lease_that_an_operator_moves_goes_back_without_an_owner(end: bool) -> None:
    row = LeaseRow(
        key="shardId-000000000000",
        counter=5,
        checkpoint=Checkpoint.at(Position(9, 2)),
        pending=Checkpoint.at(Position(10)),
        owner="next",
        checkpoint_owner="w1",
        process="p/w1",
        switches=3,
        read_until_ms=7,
        others={"theirs": "kept"},
    )
    to = Checkpoint.SHARD_END if end else Checkpoint.at(Position(3))
    write = writes.move(row, to, children=frozenset({"child"}))
    moved = lease_row(write.onto(row.attributes()))
    assert moved == LeaseRow(
        key=row.key, counter=6, checkpoint=to, children=frozenset({"child"} if end else ()), others=row.others
    )
    assert conditional_write.applied(write, moved)
    assert write.allowed_on(row.attributes())
    for other in (replace(row, counter=6), replace(row, checkpoint=Checkpoint.LATEST), replace(row, owner=None)):
        assert not write.allowed_on(other.attributes())
