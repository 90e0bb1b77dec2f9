"""Shard iterators and list identifiers."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardway.local.model import tokens
from shardway.local.model.tokens import IteratorState

U64 = st.integers(0, 2**64 - 1)
STATES = st.builds(
    IteratorState,
    created_ms=U64,
    stream_uid=U64,
    value=U64,
    serial=U64,
    shard_index=st.integers(0, 2**32 - 1),
    kind=st.sampled_from([tokens.AT_ORDINAL, tokens.EXPIRED_NUMBER]),
    reached_ms=U64,
)
NAMES = st.text("abcXYZ019_.-", min_size=1, max_size=128)


@settings(deadline=None)
@given(state=STATES, name=NAMES)
def test_an_iterator_is_read_as_it_was_written(state: IteratorState, name: str) -> None:
    text = tokens.write_iterator(state, name)
    assert tokens.read_iterator(text) == (state, name)
    raw = base64.b64decode(text)
    assert len(text) <= 512
    assert len(raw) == 152 + (len(name) + 2) // 16 * 16
    assert raw[:8] == b"\0\0\0\0\0\0\0\1"


@settings(deadline=None)
@given(state=STATES, name=NAMES, place=st.integers(0, 100), bit=st.integers(0, 7))
def test_a_damaged_iterator_is_none(state: IteratorState, name: str, place: int, bit: int) -> None:
    raw = bytearray(base64.b64decode(tokens.write_iterator(state, name)))
    raw[place] ^= 1 << bit
    assert tokens.read_iterator(base64.b64encode(raw).decode()) is None


@settings(deadline=None)
@given(st.text(max_size=600))
def test_any_other_text_is_no_iterator_and_no_list_token(text: str) -> None:
    assert tokens.read_iterator(text) is None
    with pytest.raises(tokens.BadTokenError):
        tokens.read_token("ListShards", text)


def test_a_list_token_is_read_for_its_own_purpose_only() -> None:
    text = tokens.write_token("ListShards", 5, ["name", {"Type": "AT_LATEST"}, 3])
    assert tokens.read_token("ListShards", text) == (5, ["name", {"Type": "AT_LATEST"}, 3])
    with pytest.raises(tokens.BadTokenError):
        tokens.read_token("ListStreams", text)
    with pytest.raises(tokens.BadTokenError):
        tokens.read_token("ListShards", text[:-4] + "AAAA")
