"""What we aggregate, opened by the KCL's own code (interop/kcl), and the rule by which it drops what lies outside of
the shard.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import pytest

from shardway.core.aggregation.aggregate import UserRecord
from shardway.core.aggregation.reader import open_aggregate
from shardway.core.aggregation.writer import Container, encode_aggregate
from shardway.core.hashkeys import HASH_KEY_MAX, even_ranges, hash_key
from tests.interop.aggregate_shapes import UserRecords, containers, shapes

if TYPE_CHECKING:
    from collections.abc import Callable

PROJECT = Path(__file__).resolve().parents[2] / "interop" / "kcl"
EVERYWHERE = (0, HASH_KEY_MAX)
NEEDS = ("mvn", "java")
MISSING = [name for name in NEEDS if shutil.which(name) is None]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("kcl"),
    pytest.mark.skipif(bool(MISSING), reason=f"the KCL needs Maven and Java 17; not found: {', '.join(MISSING)}"),
]

SHAPES = shapes()


class Wire(NamedTuple):
    """A Kinesis record, and the hash range of the shard it was read from."""

    data: bytes
    partition_key: str
    shard_range: tuple[int, int] = EVERYWHERE


class Opened(NamedTuple):
    """What the KCL delivers for a Kinesis record."""

    records: list[UserRecord]
    aggregated: bool | None
    """None when it delivers nothing."""


Kcl: TypeAlias = "Callable[[list[Wire]], list[Opened]]"


@pytest.fixture(scope="module")
def kcl() -> Kcl:
    """Has the KCL open records, all in one process."""
    built = subprocess.run(["mvn", "-q", "-B", "compile"], cwd=PROJECT, capture_output=True, text=True)
    assert built.returncode == 0, f"mvn compile in interop/kcl:\n{built.stdout[-4000:]}\n{built.stderr[-2000:]}"
    return opened_by_kcl


def opened_by_kcl(wires: list[Wire]) -> list[Opened]:
    lines = [
        "\t".join(
            (
                base64.b64encode(wire.data).decode(),
                base64.b64encode(wire.partition_key.encode()).decode(),
                *map(str, wire.shard_range),
            )
        )
        for wire in wires
    ]
    target = PROJECT / "target"
    done = subprocess.run(
        ["java", "-cp", f"{target / 'classes'}:{target / 'libraries'}/*", "shardway.interop.Deaggregate"],
        input="\n".join([*lines, ""]),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    blocks: list[list[list[str]]] = [[]]
    for line in done.stdout.splitlines():
        if line:
            blocks[-1].append(line.split("\t"))
        else:
            blocks.append([])
    assert blocks.pop() == []
    assert len(blocks) == len(wires)
    return [opened(block) for block in blocks]


def opened(block: list[list[str]]) -> Opened:
    kinds = {aggregated for *_, aggregated in block}
    assert len(kinds) <= 1
    records = [
        UserRecord(
            base64.b64decode(key).decode(),
            None if explicit == "-" else int(explicit),
            base64.b64decode(data),
            int(sub_sequence_number),
        )
        for data, key, explicit, sub_sequence_number, _ in block
    ]
    return Opened(records, (kinds.pop() == "true") if kinds else None)


def numbered(records: UserRecords) -> list[UserRecord]:
    return [UserRecord(key, explicit, data, number) for number, (key, data, explicit) in enumerate(records)]


def test_it_opens_aggregates_of_all_shapes_as_they_were_written(kcl: Kcl) -> None:
    wires = [Wire(encode_aggregate(records), "a") for records in SHAPES.values()]
    for (name, records), seen, wire in zip(SHAPES.items(), kcl(wires), wires, strict=True):
        assert seen.aggregated, name
        assert seen.records == numbered(records), name
        assert seen.records == list(open_aggregate(wire.data) or ()), name


def test_it_opens_the_containers_that_our_aggregator_makes(kcl: Kcl) -> None:
    made: list[tuple[Container, UserRecords]] = []
    for records in SHAPES.values():
        at = 0
        for container in containers(records, 51_200):
            made.append((container, records[at : at + container.user_records]))
            at += container.user_records
    for (container, held), seen in zip(
        made, kcl([Wire(container.data, container.partition_key) for container, _ in made]), strict=True
    ):
        if container.user_records == 1:
            # A lone user record travels as it is: its hash key, which only the request named, is not in it.
            key, data, _ = held[0]
            assert seen == Opened([UserRecord(key, None, data, 0)], aggregated=False)
        else:
            assert seen == Opened(numbered(held), aggregated=True)


def test_it_drops_a_whole_aggregate_exactly_when_ours_says_that_a_record_is_outside(kcl: Kcl) -> None:
    """No user record comes out, whether one lies outside or all do, and whichever one it is. Nothing is raised."""
    wires = []
    for records in SHAPES.values():
        data = encode_aggregate(records)
        first, last = (effective_hash_key(record) for record in (records[0], records[-1]))
        ranges = [*even_ranges(4), (first, last) if first <= last else (last, first), (0, max(first, 1) - 1)]
        wires += [Wire(data, "a", shard_range) for shard_range in ranges]
    kept = dropped = 0
    for wire, seen in zip(wires, kcl(wires), strict=True):
        aggregate = open_aggregate(wire.data)
        assert aggregate is not None
        if aggregate.outside(*wire.shard_range):
            assert seen == Opened([], None)
            dropped += 1
        else:
            assert seen == Opened(list(aggregate), aggregated=True)
            kept += 1
    assert kept >= 5
    assert dropped >= 50


def test_the_range_includes_both_its_ends_and_explicit_hash_keys_go_before_the_partition_key(kcl: Kcl) -> None:
    where = hash_key("key")
    here = encode_aggregate([("key", b"1", None), ("key", b"2", None)])
    explicit = encode_aggregate([("key", b"1", 77), ("key", b"2", 77)])
    cases = [
        (here, (where, where), True),
        (here, (where + 1, HASH_KEY_MAX), False),
        (here, (0, where - 1), False),
        (explicit, (77, 77), True),
        (explicit, (78, HASH_KEY_MAX), False),
        (explicit, (where, where), False),
        (encode_aggregate([("key", b"1", None), ("key", b"2", 77)]), (where, where), False),
        (encode_aggregate([("key", b"1", 77), ("key", b"2", None)]), (where, where), False),
    ]
    seen = kcl([Wire(data, "a", shard_range) for data, shard_range, _ in cases])
    assert [bool(one.records) for one in seen] == [delivered for *_, delivered in cases]


def test_it_delivers_a_plain_record_whatever_the_range(kcl: Kcl) -> None:
    where = hash_key("key")
    assert kcl([Wire(b"data", "key", (where + 1, HASH_KEY_MAX))]) == [
        Opened([UserRecord("key", None, b"data", 0)], aggregated=False)
    ]


def effective_hash_key(record: tuple[str, bytes, int | None]) -> int:
    key, _, explicit = record
    return hash_key(key) if explicit is None else explicit
