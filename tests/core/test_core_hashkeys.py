from __future__ import annotations

import importlib.util
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.core import hashkeys
from shardway.core.hashkeys import HASH_KEY_MAX, ShardMap, even_ranges, hash_key, parse_hash_key
from shardway.model import ListedShard


def shard(name: str, first: int, last: int, *, parents: tuple[str, ...] = (), closed: bool = False) -> ListedShard:
    return ListedShard(
        shard_id=name,
        parents=parents,
        first_hash_key=first,
        last_hash_key=last,
        first_sequence_number=1,
        last_sequence_number=2 if closed else None,
    )


def test_hash_key_is_the_md5_with_the_first_byte_highest() -> None:
    assert hash_key("abcd") == 0xE2FC714C4727EE9395F324CD2E7F331F


def test_an_interpreter_without_an_md5_of_its_own_finds_the_same_hash_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "_md5", None)
    spec = importlib.util.spec_from_file_location("hashkeys_by_openssl", hashkeys.__file__)
    assert spec is not None
    assert spec.loader is not None
    by_openssl = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(by_openssl)
    assert by_openssl.hash_key("abcd") == hash_key("abcd")


def test_hash_key_takes_the_bytes_of_utf8_without_normalising() -> None:
    assert hash_key("\u00e9") != hash_key("e\u0301")


def test_a_key_without_a_utf8_form_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        hash_key("\ud800")


@pytest.mark.parametrize("text", ["0", "1", "170141183460469231731687303715884105727", str(HASH_KEY_MAX)])
def test_parse_hash_key_takes_decimal_numbers(text: str) -> None:
    assert parse_hash_key(text) == int(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "+1",
        "01",
        "00",
        " 1",
        "1 ",
        "1_0",
        "0x1",
        "1.0",
        "\u0661",
        str(HASH_KEY_MAX + 1),
        "9" * 5000,
    ],
)
def test_parse_hash_key_refuses_the_rest(text: str) -> None:
    with pytest.raises(ValueError, match="decimal number"):
        parse_hash_key(text)


def test_even_ranges_of_three_shards_are_those_of_create_stream() -> None:
    assert even_ranges(3) == [
        (0, 113427455640312821154458202477256070484),
        (113427455640312821154458202477256070485, 226854911280625642308916404954512140969),
        (226854911280625642308916404954512140970, 340282366920938463463374607431768211455),
    ]


@given(st.integers(1, 2000))
def test_even_ranges_cover_everything_once(count: int) -> None:
    ranges = even_ranges(count)
    assert len(ranges) == count
    assert ranges[0][0] == 0
    assert ranges[-1][1] == HASH_KEY_MAX
    assert all(left[1] + 1 == right[0] for left, right in pairwise(ranges))


def test_no_shards_have_no_ranges() -> None:
    with pytest.raises(ValueError, match="at least one"):
        even_ranges(0)


def test_closed_shards_and_open_parents_of_listed_children_take_nothing() -> None:
    shards = ShardMap(
        [
            shard("old", 0, 99, closed=True),
            shard("parent", 0, 49, parents=("old",)),  # a listing made during the split
            shard("left", 0, 24, parents=("parent",)),
            shard("right", 25, 49, parents=("parent",)),
            shard("rest", 50, 99, parents=("old",)),
        ]
    )
    assert [one.shard_id for one in shards.shards] == ["left", "right", "rest"]


def test_overlapping_open_shards_are_refused() -> None:
    with pytest.raises(ValueError, match=r"a and b .* overlap"):
        ShardMap([shard("b", 10, 19), shard("a", 0, 10)])
