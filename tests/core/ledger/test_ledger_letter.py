"""A dead letter as a line of JSON: what is written is read again, and what is none says why, without showing itself."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.core.ledger.letter import ERROR_CHARACTERS_MAX, KIND, Letter, NotALetterError
from shardway.model import HASH_KEY_MAX, Position

MOMENT = dt.datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=dt.UTC)
FULL = Letter(
    stream="orders",
    shard_id="shardId-000000000003",
    position=Position(2**185 + 5, 7),
    part=2,
    attempts=4,
    error_type="ValueError",
    error_message="no such order",
    written_at=MOMENT,
    worker="w1",
    token=9,
    arrived_at=MOMENT,
    partition_key="ä",
    explicit_hash_key=HASH_KEY_MAX,
    data=b"\x00\xff",
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
moments = st.datetimes(timezones=st.just(dt.UTC))
letters = st.builds(
    Letter,
    stream=texts.filter(bool),
    shard_id=texts.filter(bool),
    position=st.builds(Position, st.integers(0, 2**186), st.integers(0, 2**32)),
    part=st.none() | st.integers(0, 1000),
    attempts=st.integers(0, 100),
    error_type=texts,
    error_message=texts,
    written_at=moments,
    worker=texts,
    token=st.integers(0, 2**63),
    arrived_at=st.none() | moments,
    partition_key=st.none() | texts,
    explicit_hash_key=st.none() | st.integers(0, HASH_KEY_MAX),
    data=st.none() | st.binary(max_size=20),
    left_out_bytes=st.integers(0, 10),
)


@given(letters)
def test_what_is_written_is_read_again(letter: Letter) -> None:
    assert Letter.from_json(letter.to_json()) == letter


def test_a_letter_gives_its_record_back() -> None:
    record = FULL.record()
    assert record is not None
    assert (record.data, record.partition_key, record.explicit_hash_key) == (b"\x00\xff", "ä", HASH_KEY_MAX)
    assert (record.sequence_number, record.sub_sequence_number) == FULL.position
    assert record.approximate_arrival_timestamp == MOMENT


def test_a_letter_without_its_data_says_how_much_did_not_fit() -> None:
    bare = FULL.without_data(left_out=True)
    assert (bare.data, bare.partition_key, bare.explicit_hash_key, bare.left_out_bytes) == (None, None, None, 2)
    assert bare.record() is None
    assert FULL.without_data().left_out_bytes == 0


def test_a_long_message_is_cut_off() -> None:
    long = Letter.from_json(json.dumps({**json.loads(FULL.to_json()), "error_message": "x" * 5000}).encode())
    assert len(json.loads(long.to_json())["error_message"]) == ERROR_CHARACTERS_MAX


def test_a_time_without_a_zone_is_utc() -> None:
    line = json.dumps({**json.loads(FULL.to_json()), "written_at": "2026-03-04T05:06:07"}).encode()
    assert Letter.from_json(line).written_at == dt.datetime(2026, 3, 4, 5, 6, 7, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", f"not marked as a {KIND}"),
        (json.dumps({"kind": KIND, "version": 2}).encode(), "another version than 1"),
    ],
)
def test_what_is_no_letter_says_so(line: bytes, says: str) -> None:
    with pytest.raises(NotALetterError, match=says):
        Letter.from_json(line)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("stream", "", "stream is no text"),
        ("shard_id", 5, "shard_id is no text"),
        ("attempts", True, "attempts is no whole number"),
        ("sequence_number", "9" * 129, "sequence_number is no whole number"),
        ("sequence_number", "٣", "sequence_number is no whole number"),
        ("data", "secret?", "Error"),
        ("written_at", "secret", "ValueError"),
        ("error_type", None, "error_type is no text"),
    ],
)
def test_an_odd_field_is_named_and_not_shown(field: str, value: Any, says: str) -> None:
    line = json.dumps({**json.loads(FULL.to_json()), field: value}).encode()
    with pytest.raises(NotALetterError, match=says) as caught:
        Letter.from_json(line)
    assert "secret" not in str(caught.value)


def test_a_missing_field_is_named() -> None:
    of = json.loads(FULL.to_json())
    del of["attempts"]
    with pytest.raises(NotALetterError, match="'attempts' is missing"):
        Letter.from_json(json.dumps(of).encode())
