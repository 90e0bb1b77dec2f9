"""Against what the real KPL wrote and the real KCL read (tests/fixtures/kpl, where a README tells how)."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from shardway.core.aggregation.reader import open_aggregate, why_plain
from shardway.core.aggregation.writer import Aggregator, encode_aggregate
from shardway.core.hashkeys import hash_key, parse_hash_key
from tests.core.aggregation.aggregate_columns import append_user_records
from tests.core.aggregation.aggregate_sizes import framed_bytes_with

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "kpl"
Case: TypeAlias = dict[str, Any]
"""What a fixture tells of a run, a record or some hostile bytes."""
HOSTILE: dict[str, Case] = {case["name"]: case for case in json.loads((FOLDER / "hostile.json").read_text())["cases"]}
RUNS = sorted(path.name for path in FOLDER.iterdir() if ".json" in path.suffixes and path.name != "hostile.json")


def load(name: str) -> Case:
    raw = (FOLDER / name).read_bytes()
    found: Case = json.loads(gzip.decompress(raw) if name.endswith(".gz") else raw)
    return found


@pytest.fixture(scope="module", params=RUNS)
def run(request: pytest.FixtureRequest) -> Case:
    return load(request.param)


def wire_records(run: Case) -> list[tuple[bytes, Case, list[Case]]]:
    """(bytes, the wire record, what KCL decoded from it)"""
    return [
        (base64.b64decode(wire["data"]), wire, decoded)
        for wire, decoded in zip(run["wire_records"], run["decoded"], strict=True)
    ]


def assert_same_data(data: bytes, decoded: Case) -> None:
    if "data" in decoded:
        assert data == base64.b64decode(decoded["data"])
    else:
        assert len(data) == decoded["data_length"]
        assert hashlib.sha256(data).hexdigest() == decoded["data_sha256"]


def hash_key_of(decoded: Case) -> int | None:
    text = decoded["explicit_hash_key"]
    return None if text is None else parse_hash_key(text)


def test_the_fixtures_are_there() -> None:
    assert len(RUNS) == 14
    assert len(HOSTILE) == 14


def test_decodes_what_kcl_decodes(run: Case) -> None:
    for data, wire, decoded in wire_records(run):
        aggregate = open_aggregate(data)
        if not decoded[0]["aggregated"]:
            assert aggregate is None
            assert why_plain(data)
            assert decoded[0]["partition_key"] == wire["partition_key"]
            assert_same_data(data, decoded[0])
            continue
        assert aggregate is not None
        assert why_plain(data) is None
        assert len(aggregate) == len(decoded)
        for user_record, expected in zip(aggregate, decoded, strict=True):
            assert user_record.partition_key == expected["partition_key"]
            assert user_record.explicit_hash_key == hash_key_of(expected)
            assert user_record.sub_sequence_number == expected["sub_sequence"]
            assert_same_data(user_record.data, expected)


def test_columns_are_the_same_records(run: Case) -> None:
    for data, _, _ in wire_records(run):
        keys, datas = ["before"], [b"before"]
        hash_keys: list[str | None] = [None]
        added = append_user_records(data, keys, datas, hash_keys)
        aggregate = open_aggregate(data) or ()
        assert added == len(aggregate)
        assert keys[1:] == [one.partition_key for one in aggregate]
        assert datas[1:] == [one.data for one in aggregate]
        assert [None if text is None else int(text) for text in hash_keys[1:]] == [
            one.explicit_hash_key for one in aggregate
        ]


def test_encodes_to_the_same_bytes(run: Case) -> None:
    for data, _, decoded in wire_records(run):
        aggregate = open_aggregate(data)
        if aggregate is None:
            continue
        records = [(one.partition_key, one.data, one.explicit_hash_key) for one in aggregate]
        assert encode_aggregate(records) == data
        assert len(records) == len(decoded)


# There user data are whole aggregates, which the KPL sends bare and we frame: see the tests of the writer.
OURS_DIFFERS = "magic_bytes_alone.json"


@pytest.mark.parametrize("name", [name for name in RUNS if name != OURS_DIFFERS])
def test_containers_are_those_of_the_kpl(name: str) -> None:
    """Bytes, keys and sizes of what is put, for all that the KPL made of records given to it."""
    for data, wire, decoded in wire_records(load(name)):
        aggregator = Aggregator()
        aggregate = open_aggregate(data)
        if aggregate is None:
            assert aggregator.add(wire["partition_key"], data, hash_key_of(wire))
        else:
            for one in aggregate:
                expected = framed_bytes_with(aggregator, one.partition_key, len(one.data), one.explicit_hash_key)
                assert aggregator.add(one.partition_key, one.data, one.explicit_hash_key)
                assert aggregator.framed_bytes == expected
            assert aggregator.framed_bytes == len(data)
        container = aggregator.finish()
        assert container is not None
        assert container.data == data
        assert container.partition_key == wire["partition_key"]
        assert container.explicit_hash_key == hash_key_of(wire)
        assert container.user_records == len(decoded)


def test_tells_what_the_kcl_would_drop(run: Case) -> None:
    """KCL keeps an aggregate whole or drops it whole; ``outside`` is empty exactly where KCL keeps all."""
    filters = run["range_filter"]
    if len(run["shards"]) == 1 or not any(one[0]["aggregated"] for one in run["decoded"]):
        assert filters == []
        return
    assert filters
    for entry in filters:
        data, _, decoded = wire_records(run)[entry["wire_index"]]
        first, last = int(entry["start"]), int(entry["end"])
        aggregate = open_aggregate(data)
        assert aggregate is not None
        outside = aggregate.outside(first, last)
        assert entry["kept_sub_sequences"] == ([] if outside else "all")
        assert outside == [number for number, one in enumerate(decoded) if not first <= effective_hash_key(one) <= last]


def effective_hash_key(decoded: Case) -> int:
    explicit = hash_key_of(decoded)
    return hash_key(decoded["partition_key"]) if explicit is None else explicit


# --- bytes that are not what they seem ------------------------------------------------------------

LOST_BY_KCL = {
    "key_index_out_of_range": "a partition key's index is outside its table",
    "no_records": "it holds no user records",
}
"""The KCL delivers nothing at all of these; here each is one plain record, and this is the reason told."""

OUTSIDE_BY_KCL = {"hash_key_out_of_range_of_shard": [1], "first_out_of_range_of_shard": [0]}
"""The KCL drops these whole, for the user records named; here that is the caller's choice."""


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes(name: str) -> None:
    case = HOSTILE[name]
    data = base64.b64decode(case["data"])
    aggregate = open_aggregate(data)
    treated_as = case["kcl"]["treated_as"]
    if treated_as == "dropped" and name in OUTSIDE_BY_KCL:
        assert aggregate is not None
        shard_range = int(case["range"]["start"]), int(case["range"]["end"])
        assert aggregate.outside(*shard_range) == OUTSIDE_BY_KCL[name]
        assert len(aggregate) > len(OUTSIDE_BY_KCL[name])
    elif treated_as == "dropped":
        assert aggregate is None
        assert why_plain(data) == LOST_BY_KCL[name]
    elif treated_as == "plain":
        assert aggregate is None
        assert why_plain(data)
        assert case["kcl"]["records"][0]["data"] == case["data"]
    else:
        assert aggregate is not None
        assert [(one.partition_key, one.explicit_hash_key, one.data, one.sub_sequence_number) for one in aggregate] == [
            (kcl["partition_key"], hash_key_of(kcl), base64.b64decode(kcl["data"]), kcl["sub_sequence"])
            for kcl in case["kcl"]["records"]
        ]
