from __future__ import annotations

from itertools import groupby
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.core.hashkeys import even_ranges
from shardway.core.lineage import Lineage, holes
from shardway.model import HASH_KEY_MAX, ListedShard


def shard(name: str, *parents: str, first: int = 0, last: int = 99, closed: bool = False) -> ListedShard:
    return ListedShard(
        shard_id=name,
        parents=parents,
        first_hash_key=first,
        last_hash_key=last,
        first_sequence_number=1,
        last_sequence_number=9 if closed else None,
    )


# root splits into left and right, which merge into whole; other stays; late came from two trimmed shards
DIAMOND = Lineage(
    [
        shard("late", "trimmed-1", "trimmed-2", first=70, last=79),
        shard("whole", "left", "right", first=0, last=49),
        shard("right", "root", first=25, last=49, closed=True),
        shard("left", "root", first=0, last=24, closed=True),
        shard("other", first=50, last=69),
        shard("root", first=0, last=49, closed=True),
    ]
)


def generations_of(lineage: Lineage) -> list[list[str]]:
    """Return all shards by generation, each in the order of its hash ranges."""
    return [list(group) for _, group in groupby(lineage.shards, key=lineage.generation)]


def test_neighbours_are_those_that_are_known() -> None:
    assert DIAMOND.parents("whole") == ("left", "right")
    assert DIAMOND.children("root") == ("left", "right")
    assert DIAMOND.children("whole") == ()
    assert DIAMOND.parents("late") == ()


def test_parents_come_before_children_and_hash_ranges_in_order() -> None:
    assert list(DIAMOND.shards) == ["root", "other", "late", "left", "right", "whole"]
    assert generations_of(DIAMOND) == [["root", "other", "late"], ["left", "right"], ["whole"]]
    assert DIAMOND.roots == ("root", "other", "late")
    assert DIAMOND.generation("whole") == 2


def test_ancestors_and_descendants() -> None:
    assert DIAMOND.ancestors(["whole"]) == {"left", "right", "root"}
    assert DIAMOND.descendants(["root"]) == {"left", "right", "whole"}
    assert DIAMOND.ancestors(["root", "late"]) == set()
    assert DIAMOND.descendants(["left", "root"]) == {"left", "right", "whole"}


def test_a_merge_waits_for_both_parents_and_none_for_the_trimmed() -> None:
    assert DIAMOND.ready(set()) == ["root", "other", "late"]
    assert DIAMOND.ready({"root"}) == ["other", "late", "left", "right"]
    assert DIAMOND.ready({"root", "left", "other", "late"}) == ["right"]
    assert DIAMOND.ready({"root", "left", "right"}) == ["other", "late", "whole"]
    assert DIAMOND.ready(set(DIAMOND.shards)) == []


def test_groups_are_connected_also_through_shards_that_are_not_asked_for() -> None:
    assert DIAMOND.groups(["left", "right"]) == [["left"], ["right"]]
    assert DIAMOND.groups(["right", "left", "whole"]) == [["left", "right", "whole"]]
    assert DIAMOND.groups(["whole", "root", "other"]) == [["root", "whole"], ["other"]]
    assert DIAMOND.groups([]) == []


def test_groups_of_unknown_shards_are_refused() -> None:
    with pytest.raises(ValueError, match="1 of these shards are unknown, stranger"):
        DIAMOND.groups(["root", "stranger"])


def test_newer_knowledge_counts_and_lineages_do_not_change() -> None:
    known = Lineage([shard("a")])
    grown = known.including([shard("a", closed=True), shard("b", "a")])
    assert len(known) == 1
    assert not known.shards["a"].closed
    assert grown.shards["a"].closed
    assert grown.children("a") == ("b",)
    assert "b" in grown
    assert "b" not in known


def test_a_parent_named_twice_is_one_parent() -> None:
    odd = Lineage([shard("a"), shard("b", "a", "a"), shard("c", "x", "x")])
    assert odd.parents("b") == ("a",)
    assert odd.children("a") == ("b",)
    assert odd.ready({"a"}) == ["c", "b"]


@pytest.mark.parametrize(
    "listing", [[shard("a", "a")], [shard("r"), shard("a", "b", "r"), shard("b", "a"), shard("c", "b")]]
)
def test_a_circular_listing_is_refused(listing: list[ListedShard]) -> None:
    with pytest.raises(ValueError, match="circular"):
        Lineage(listing)


def test_no_shards() -> None:
    nothing = Lineage([])
    assert nothing.ready(set()) == []
    assert generations_of(nothing) == []
    assert nothing.holes() == [(0, HASH_KEY_MAX)]


# --- holes ----------------------------------------------------------------------------------------


def test_holes_are_what_no_open_shard_covers() -> None:
    assert DIAMOND.holes() == [(80, HASH_KEY_MAX)]
    assert [one.shard_id for one in DIAMOND.open_shards()] == ["whole", "other", "late"]
    assert DIAMOND.holes(["left", "other"]) == [(25, 49), (70, HASH_KEY_MAX)]
    assert DIAMOND.holes(["root", "left", "other", "late"]) == [(80, HASH_KEY_MAX)]


def test_an_even_stream_has_no_holes() -> None:
    assert holes(even_ranges(7)) == []
    assert holes(even_ranges(7)[1:-1]) == [even_ranges(7)[0], even_ranges(7)[-1]]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda pair: (min(pair), max(pair)))))
def test_holes_and_ranges_share_nothing_and_leave_nothing(ranges: list[tuple[int, int]]) -> None:
    covered = {key for first, last in ranges for key in range(first, last + 1)}
    found = holes(ranges)
    assert found[-1][1] == HASH_KEY_MAX
    missing = {key for first, last in found for key in range(first, min(last, 40) + 1)}
    assert missing == set(range(41)) - covered


# --- histories of a stream --------------------------------------------------------------------------


def history(seed: int, shard_count: int, resharding: int, trimmed: int) -> list[ListedShard]:
    """A stream that was split and merged at random, of which retention has trimmed the oldest closed shards."""
    rng = Random(seed)
    ranges = {f"s{number}": bounds for number, bounds in enumerate(even_ranges(shard_count))}
    parents: dict[str, tuple[str, ...]] = dict.fromkeys(ranges, ())
    taking = list(ranges)  # in the order of their ranges
    for _ in range(resharding):
        at = rng.randrange(len(taking))
        first, last = ranges[taking[at]]
        if rng.random() < 0.5 and len(taking) > 1:
            at = min(at, len(taking) - 2)
            merged = f"s{len(ranges)}"
            ranges[merged] = (ranges[taking[at]][0], ranges[taking[at + 1]][1])
            parents[merged] = (taking[at], taking[at + 1])
            taking[at : at + 2] = [merged]
        elif last > first:
            middle = rng.randrange(first, last)
            halves = [f"s{len(ranges)}", f"s{len(ranges) + 1}"]
            ranges[halves[0]], ranges[halves[1]] = (first, middle), (middle + 1, last)
            parents[halves[0]] = parents[halves[1]] = (taking[at],)
            taking[at : at + 1] = halves
    still_taking = set(taking)
    gone = [name for name in ranges if name not in still_taking][:trimmed]
    listing = [
        shard(name, *parents[name], first=first, last=last, closed=name not in still_taking)
        for name, (first, last) in ranges.items()
        if name not in gone
    ]
    rng.shuffle(listing)
    return listing


histories = st.builds(history, st.integers(0, 2**32), st.integers(1, 6), st.integers(0, 40), st.integers(0, 20))


@given(histories)
def test_order_and_generations_of_any_history(listing: list[ListedShard]) -> None:
    lineage = Lineage(listing)
    place = {name: number for number, name in enumerate(lineage.shards)}
    assert set(place) == {one.shard_id for one in listing}
    for one in listing:
        named = set(one.parents)
        assert set(lineage.parents(one.shard_id)) == named & set(lineage.shards)
        for parent in lineage.parents(one.shard_id):
            assert place[parent] < place[one.shard_id]
            assert one.shard_id in lineage.children(parent)
    generations = generations_of(lineage)
    assert [name for generation in generations for name in generation] == list(lineage.shards)
    for number, generation in enumerate(generations):
        assert not lineage.ancestors(generation) & set(generation)
        assert all(lineage.generation(name) == number for name in generation)
    assert lineage.holes() == []


@given(histories, st.randoms(use_true_random=False))
def test_reading_any_history_reaches_every_shard_after_its_ancestors(listing: list[ListedShard], rng: Random) -> None:
    lineage = Lineage(listing)
    finished: set[str] = set()
    reading = set(lineage.ready(finished))
    while reading:
        name = rng.choice(sorted(reading))
        assert lineage.ancestors([name]) <= finished
        finished.add(name)
        reading = set(lineage.ready(finished))
    assert finished == set(lineage.shards)


@given(histories, st.randoms(use_true_random=False))
def test_groups_of_any_history_are_independent_and_as_small_as_can_be(listing: list[ListedShard], rng: Random) -> None:
    lineage = Lineage(listing)
    among = {name for name in lineage.shards if rng.random() < 0.6}
    related = {name: lineage.ancestors([name]) & among for name in among}
    groups = lineage.groups(among)
    assert sorted(name for group in groups for name in group) == sorted(among)
    place = {name: number for number, name in enumerate(lineage.shards)}
    for group in groups:
        assert sorted(group, key=place.__getitem__) == group
        assert all(related[name] <= set(group) for name in group)
        connected = {group[0]}
        for _ in group:
            connected |= {name for name in group if related[name] & connected}
            connected |= {above for name in connected for above in related[name]}
        assert connected == set(group)


def test_ten_thousand_shards_in_long_lines_and_ladders() -> None:
    """Depth is no trouble: a line of merges and splits, ten thousand shards, no recursion."""
    listing = [shard("n0", first=0, last=1, closed=True)]
    while len(listing) < 10_000:
        top = listing[-1].shard_id
        number = len(listing)
        listing += [
            shard(f"n{number}", top, first=0, last=0, closed=True),
            shard(f"n{number + 1}", top, first=1, last=1, closed=True),
            shard(f"n{number + 2}", f"n{number}", f"n{number + 1}", first=0, last=1, closed=True),
        ]
    lineage = Lineage(reversed(listing))
    assert lineage.ready(set()) == ["n0"]
    assert len(generations_of(lineage)) == 1 + 2 * (len(listing) // 3)
    assert len(lineage.descendants(["n0"])) == len(listing) - 1
    assert len(lineage.groups(lineage.shards)) == 1
    last = listing[-1].shard_id
    assert lineage.groups(["n0", last]) == [["n0", last]]
