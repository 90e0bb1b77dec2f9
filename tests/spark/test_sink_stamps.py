"""The envelope: what is written down byte by byte, and what is opened again."""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.core.aggregation.reader import open_aggregate
from shardway.core.aggregation.writer import encode_aggregate
from shardway.errors import ShardwayError
from shardway.spark.stamps import OpenedEnvelope, Stamp, key_labels, open_sealed, position_labels, seal

SEQUENCE = "49680439090499813244938441984552225079182268153605390338"


def seal_position(data: bytes, *position: Any, row_index: int | None = None) -> bytes:
    streams, shards, numbers, subs = ([value] for value in position)
    indexes = None if row_index is None else [row_index]
    return seal(position_labels(streams, shards, numbers, subs, indexes), [data])[0]


def test_an_envelope_byte_by_byte() -> None:
    """The example of the reference page."""
    envelope = seal_position(b'{"id": 17}', "orders", "shardId-000000000003", "496804390904", 5)
    behind = bytes.fromhex("01 0014 06 6f7264657273 01 33 06 496804390904 00000005") + b'{"id": 17}'
    assert envelope == b"\xf5PST\x01" + crc32(behind).to_bytes(4, "big") + behind
    assert open_sealed(envelope) == OpenedEnvelope(
        Stamp("orders", "shardId-000000000003", "496804390904", 5), behind[:23], b'{"id": 17}'
    )


def test_a_key_byte_by_byte() -> None:
    envelope = seal(key_labels(["ä-1"]), [b"x"])[0]
    behind = bytes.fromhex("03 0004 c3a42d31 78")
    assert envelope == b"\xf5PST\x01" + crc32(behind).to_bytes(4, "big") + behind
    assert open_sealed(envelope) == OpenedEnvelope(Stamp(key="ä-1"), behind[:-1], b"x")


def test_an_integer_key_is_its_decimal_text() -> None:
    assert key_labels([17, -1]) == key_labels(["17", "-1"])


names = st.from_regex(r"[a-zA-Z_.-][a-zA-Z0-9_.-]{0,127}", fullmatch=True)
shard_ids = st.one_of(st.integers(0, 10**12 - 1).map("shardId-{:012d}".format), names)
sequences = st.one_of(st.integers(0, 10**56).map(str), st.just(SEQUENCE))


@given(st.binary(), names, shard_ids, sequences, st.integers(0, 2**32 - 1), st.none() | st.integers(0, 2**63 - 1))
def test_what_is_sealed_is_opened(
    data: bytes, stream: str, shard_id: str, sequence: str, sub: int, row_index: int | None
) -> None:
    opened = open_sealed(seal_position(data, stream, shard_id, sequence, sub, row_index=row_index))
    assert opened is not None
    assert (opened.data, opened.stamp) == (data, Stamp(stream, shard_id, sequence, sub, row_index))


@given(st.binary(), st.text(max_size=300))
def test_what_is_sealed_by_key_is_opened(data: bytes, key: str) -> None:
    try:
        key.encode()
    except UnicodeEncodeError:
        return
    opened = open_sealed(seal(key_labels([key]), [data])[0])
    assert opened is not None
    assert (opened.data, opened.stamp) == (data, Stamp(key=key))


@given(st.lists(st.tuples(names, shard_ids, sequences, st.integers(0, 9)), unique=True, max_size=20))
def test_different_positions_have_different_labels(positions: list[tuple[str, str, str, int]]) -> None:
    if positions:
        assert len(set(position_labels(*map(list, zip(*positions, strict=True))))) == len(positions)


@given(st.binary())
def test_other_data_is_in_no_envelope(data: bytes) -> None:
    assert open_sealed(data) is None
    assert open_sealed(b"\xf5PST\x01" + data) is None


def test_an_envelope_that_was_changed_anywhere_is_not_taken_for_one() -> None:
    envelope = seal_position(b"data", "orders", "shardId-000000000003", SEQUENCE, 5)
    for at in range(len(envelope)):
        if at == 4:  # the version: see below
            continue
        changed = bytearray(envelope)
        changed[at] ^= 0x10
        assert open_sealed(bytes(changed)) is None
    assert all(open_sealed(envelope[:end]) is None for end in range(len(envelope)))


def test_a_later_version_is_told_from_data_that_looks_alike() -> None:
    behind = b"whatever a later version holds"
    with pytest.raises(ShardwayError, match="version 2, kind 119 is not known here"):
        open_sealed(b"\xf5PST\x02" + crc32(behind).to_bytes(4, "big") + behind)


def test_envelopes_in_envelopes_are_opened_one_by_one() -> None:
    inner = seal(key_labels(["a"]), [b"data"])[0]
    opened = open_sealed(seal(key_labels(["b"]), [inner])[0])
    assert opened is not None
    assert opened.data == inner


def test_an_envelope_is_no_text_no_json_and_no_aggregate() -> None:
    envelope = seal(key_labels(["a"]), [b"{}"])[0]
    with pytest.raises(ValueError, match="utf-8"):
        json.loads(envelope)
    assert open_aggregate(envelope) is None
    assert open_aggregate(encode_aggregate([("k", envelope, None)])) is not None


@pytest.mark.parametrize(
    "position",
    [
        ("orders", "17", "1", 0),
        ("", "shardId-000000000001", "1", 0),
        ("orders", "shardId-000000000001", "", 0),
        ("orders", "shardId-000000000001", "1e5", 0),
        ("orders", "shardId-000000000001", "1", -1),
        ("orders", "shardId-000000000001", "1", 2**32),
    ],
)
def test_what_is_no_position_is_refused(position: tuple[object, ...]) -> None:
    with pytest.raises((ValueError, OverflowError)):
        seal_position(b"data", *position)


def test_a_key_that_is_too_long_is_refused() -> None:
    with pytest.raises(OverflowError):
        key_labels(["x" * 65_536])
