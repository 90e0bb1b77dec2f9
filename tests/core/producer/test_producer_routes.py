"""Routes: which lane a key's records take, by the rule by which Kinesis chooses the shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.core.hashkeys import HASH_KEY_MAX, ShardMap, hash_key
from shardway.core.producer import routes as routes_module
from shardway.core.producer.routes import Routes, check_keys, checked_explicit
from shardway.errors import InvalidRecordError
from tests.core.producer.producer_kit import make_lane, make_shard, make_shards

if TYPE_CHECKING:
    from shardway.model import ListedShard


def make_routes(shards: list[ListedShard]) -> Routes:
    return Routes(ShardMap(shards), [make_lane(shard) for shard in shards], make_lane())


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20), min_size=1), st.integers(1, 50))
def test_a_key_takes_the_lane_of_the_shard_that_holds_its_hash_key(keys: list[str], shard_count: int) -> None:
    shards = make_shards(shard_count)
    routes = make_routes(shards)
    for key, number in zip(keys, routes.numbers(keys), strict=True):
        assert shards[number].holds(hash_key(key))
        assert routes[key] == routes.number_for(key, None) == number


@given(st.integers(0, HASH_KEY_MAX))
def test_an_explicit_hash_key_takes_the_place_of_the_keys_own(explicit: int) -> None:
    shards = make_shards(7)
    assert shards[make_routes(shards).number_for("key", explicit)].holds(explicit)


@pytest.mark.parametrize("explicit", [0, 9, 21, 30, HASH_KEY_MAX])
def test_what_no_shard_is_known_for_goes_elsewhere(explicit: int) -> None:
    routes = make_routes([make_shard(0, 10, 20), make_shard(1, 31, 40)])
    assert routes.number_for("key", explicit) == 2
    assert routes.lanes[2].shard is None
    assert [routes.number_for("key", known) for known in (10, 20, 31, 40)] == [0, 0, 1, 1]


def test_without_a_map_all_goes_elsewhere() -> None:
    routes = Routes(None, (), make_lane())
    assert routes.numbers(["a", "b"]) == [0, 0]
    assert len(routes.lanes) == 1


def test_keys_that_come_often_are_remembered_but_no_more_than_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_module, "KEYS_REMEMBERED_MAX", 10)
    shards = make_shards(3)
    routes = make_routes(shards)
    for number in range(100):
        keys = [f"{number}/{place}" for place in range(7)] + ["often"]
        assert all(shards[lane].holds(hash_key(key)) for key, lane in zip(keys, routes.numbers(keys), strict=True))
        assert shards[routes[f"alone {number}"]].holds(hash_key(f"alone {number}"))
        assert len(routes.known) <= 10


@pytest.mark.parametrize("key", ["", "k" * 257, "\ud800", b"bytes", None, 5])
def test_what_is_no_partition_key_is_refused(key: str | bytes | int | None) -> None:
    with pytest.raises(InvalidRecordError, match="partition key"):
        check_keys(["good", key])  # type: ignore[list-item]  # a caller may pass anything


@pytest.mark.parametrize("keys", [[], ["k"], ["k" * 256, "a"], ["ü" * 256], ["😀" * 256]])
def test_what_is_one_is_not(keys: list[str]) -> None:
    check_keys(keys)


@pytest.mark.parametrize("explicit", [-1, HASH_KEY_MAX + 1, "5", 1.0])
def test_what_is_no_hash_key_is_refused(explicit: int | str | float) -> None:
    with pytest.raises(InvalidRecordError, match="hash key"):
        checked_explicit(explicit)  # type: ignore[arg-type]  # a caller may pass anything
    assert checked_explicit(HASH_KEY_MAX) == HASH_KEY_MAX
