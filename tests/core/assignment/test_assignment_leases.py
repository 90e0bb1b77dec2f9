"""Which leases there are to be: the first, the missing, those that have served, and holes."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.core.assignment.lease_births import births, births_at_end, births_beyond_end, children_of, needs_search
from shardway.core.assignment.upkeep import HoleAudit, served
from shardway.core.assignment.views import LeaseView, startable
from shardway.core.hashkeys import even_ranges
from shardway.core.lineage import Lineage
from shardway.core.sequence import shard_id_of
from shardway.model import HASH_KEY_MAX, ListedShard, StartingPosition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardway.core.assignment.lease_births import Birth

TRIM_HORIZON, LATEST = StartingPosition.TRIM_HORIZON, StartingPosition.LATEST
AT = StartingPosition("AT_TIMESTAMP")


def shard(number: int, *parents: int, first: int = 0, last: int = HASH_KEY_MAX, closed: bool = True) -> ListedShard:
    return ListedShard(
        shard_id=shard_id_of(number),
        parents=tuple(map(shard_id_of, parents)),
        first_hash_key=first,
        last_hash_key=last,
        first_sequence_number=number,
        last_sequence_number=number + 1 if closed else None,
    )


# The KCL's own example: 0 and 1 merge into 6, 2 and 3 into 7, 5 splits into 9 and 10; then 6 and 7 merge into 8.
EXAMPLE = Lineage(
    [
        *(shard(number, first=10 * number, last=10 * number + 9) for number in (0, 1, 2, 3, 5)),
        shard(4, first=40, last=49, closed=False),
        shard(6, 0, 1, first=0, last=19),
        shard(7, 2, 3, first=20, last=39),
        shard(8, 6, 7, first=0, last=39, closed=False),
        shard(9, 5, first=50, last=54, closed=False),
        shard(10, 5, first=55, closed=False),
    ]
)


def born(
    lineage: Lineage,
    held: Iterable[int] = (),
    ended: Iterable[int] = (),
    start: StartingPosition = TRIM_HORIZON,
    open_at_start: Iterable[int] | None = None,
) -> dict[int, str]:
    leases = {shard_id_of(number): False for number in held} | {shard_id_of(number): True for number in ended}
    opened = None if open_at_start is None else [shard_id_of(number) for number in open_at_start]
    return {int(one.shard.shard_id[-3:]): one.start for one in births(lineage, leases, start, open_at_start=opened)}


def test_the_kcls_example() -> None:
    assert born(EXAMPLE, held=(4, 5, 7), start=LATEST) == {6: "LATEST"}
    assert born(EXAMPLE, held=(4, 5, 7)) == {0: "TRIM_HORIZON", 1: "TRIM_HORIZON"}
    assert born(EXAMPLE, held=(4, 5, 7), start=AT) == {0: "AT_TIMESTAMP", 1: "AT_TIMESTAMP"}
    assert born(EXAMPLE, held=(4, 5, 7), start=AT, open_at_start=(4, 5, 6, 7)) == {6: "AT_TIMESTAMP"}


def test_an_empty_table() -> None:
    assert born(EXAMPLE) == dict.fromkeys((0, 1, 2, 3, 4, 5), "TRIM_HORIZON")
    assert born(EXAMPLE, start=LATEST) == dict.fromkeys((4, 8, 9, 10), "LATEST")
    assert born(EXAMPLE, start=AT, open_at_start=(4, 5, 6, 7)) == dict.fromkeys((4, 5, 6, 7), "AT_TIMESTAMP")
    assert born(EXAMPLE, start=AT) == dict.fromkeys((0, 1, 2, 3, 4, 5), "AT_TIMESTAMP")


def test_of_a_parent_and_a_child_that_both_seem_to_be_open_then_the_parent_is_read() -> None:
    assert born(EXAMPLE, start=AT, open_at_start=(4, 5, 6, 7, 8, 9, 10)) == dict.fromkeys((4, 5, 6, 7), "AT_TIMESTAMP")


def test_children_whose_creation_was_missed_start_at_their_beginning() -> None:
    assert born(EXAMPLE, held=(4, 9), ended=(5, 6, 7), start=LATEST) == {8: "TRIM_HORIZON", 10: "TRIM_HORIZON"}
    assert born(EXAMPLE, held=(4, 8), ended=(5,), start=AT) == {9: "TRIM_HORIZON", 10: "TRIM_HORIZON"}


def test_one_child_of_a_split_whose_parent_was_cleaned_up_is_missing() -> None:
    """Its parent is not read again, nor is anything of the child skipped."""
    for start in (TRIM_HORIZON, LATEST, AT):
        assert born(EXAMPLE, held=(4, 8, 9), start=start) == {10: "TRIM_HORIZON"}


def test_a_merge_waits_for_the_parent_that_is_still_read() -> None:
    assert born(EXAMPLE, held=(4, 7, 9, 10), ended=(6,)) == {}


def test_trimmed_parents_are_done() -> None:
    lineage = Lineage([shard(7, 1, 2, closed=False)])
    assert born(lineage) == {7: "TRIM_HORIZON"}
    assert born(lineage, ended=(1, 2), start=LATEST) == {7: "LATEST"}, "nothing says that these were read here"


def test_births_come_parents_first_and_never_twice() -> None:
    order = [one.shard.shard_id for one in births(EXAMPLE, {}, TRIM_HORIZON)]
    assert order == sorted(order, key=list(EXAMPLE.shards).index)


def test_the_usual_course() -> None:
    children = [EXAMPLE.shards[shard_id_of(10)], EXAMPLE.shards[shard_id_of(9)]]
    found = births_at_end(children, {shard_id_of(5): True})
    assert [(one.shard.shard_id[-2:], one.start) for one in found] == [("09", "TRIM_HORIZON"), ("10", "TRIM_HORIZON")]


def test_a_merge_whose_other_parent_is_not_born_yet_is_not_created() -> None:
    """It would start before that parent is read. It comes when that one ends, or from a search if it is trimmed."""
    merged = [EXAMPLE.shards[shard_id_of(8)]]
    alone = {shard_id_of(7): True, shard_id_of(0): False, shard_id_of(1): False}
    assert births_at_end(merged, alone) == []
    assert needs_search(merged, alone)
    assert 8 not in born(EXAMPLE, held=(0, 1), ended=(7,))
    both = alone | {shard_id_of(6): False}
    assert len(births_at_end(merged, both)) == 1
    trimmed = Lineage([one for one in EXAMPLE.shards.values() if one.shard_id not in map(shard_id_of, (0, 1, 6))])
    assert born(trimmed, held=(4, 9, 10), ended=(7, 5)) == {8: "TRIM_HORIZON"}


def test_a_merge_of_two_trimmed_parents_has_its_lease_whichever_of_them_ends() -> None:
    """Neither end tells of it. If each left it to the other one, which is not stored as ended yet, both could."""
    for me, other in ((6, 7), (7, 6)):
        held = {shard_id_of(me): True, shard_id_of(other): False}
        children = children_of(shard_id_of(me), EXAMPLE, held)
        assert [child.shard_id for child in children] == [shard_id_of(8)]
        found = births_beyond_end(children, EXAMPLE, held, LATEST)
        assert (shard_id_of(8), "TRIM_HORIZON") in [(one.shard.shard_id, one.start) for one in found]


def test_a_trimmed_parent_does_not_bring_back_children_that_are_done() -> None:
    merged = shard(11, 8, first=0, last=39, closed=False)
    held = {shard_id_of(6): True, shard_id_of(7): True, shard_id_of(11): False}
    assert children_of(shard_id_of(6), EXAMPLE.including([merged]), held) == []
    assert children_of(shard_id_of(99), EXAMPLE, held) == []


# --- histories --------------------------------------------------------------------------------------


def history(seed: int, shard_count: int, resharding: int) -> list[ListedShard]:
    """A stream that was split and merged at random, in the order in which its shards were made."""
    rng = Random(seed)
    made = [
        shard(number, first=first, last=last, closed=False)
        for number, (first, last) in enumerate(even_ranges(shard_count))
    ]
    taking = list(range(shard_count))
    for _ in range(resharding):
        at = rng.randrange(len(taking))
        if rng.random() < 0.5 and at + 1 < len(taking):
            parents = taking[at : at + 2]
            bounds = [(made[parents[0]].first_hash_key, made[parents[1]].last_hash_key)]
        else:
            parents = [taking[at]]
            first, last = made[parents[0]].first_hash_key, made[parents[0]].last_hash_key
            if first == last:
                continue
            middle = rng.randrange(first, last)
            bounds = [(first, middle), (middle + 1, last)]
        children = [
            shard(len(made) + number, *parents, first=first, last=last, closed=False)
            for number, (first, last) in enumerate(bounds)
        ]
        for parent in parents:
            made[parent] = shard(
                parent,
                *(int(one[-12:]) for one in made[parent].parents),
                first=made[parent].first_hash_key,
                last=made[parent].last_hash_key,
            )
        at = taking.index(parents[0])
        taking[at : at + len(parents)] = [int(one.shard_id[-12:]) for one in children]
        made += children
    return made


class Table:
    """A lease table, read to the end by workers that do as the usual course has it."""

    def __init__(self, lineage: Lineage) -> None:
        self.lineage = lineage
        self.rows: dict[str, LeaseView] = {}
        self.read: list[str] = []
        self.created: list[str] = []

    def create(self, found: Iterable[Birth]) -> None:
        for one in found:
            key = one.shard.shard_id
            if key not in self.rows:
                self.created.append(key)
                self.rows[key] = LeaseView(
                    key=key,
                    parents=one.shard.parents,
                    started=one.start == "LATEST",
                    hash_range=(one.shard.first_hash_key, one.shard.last_hash_key),
                )

    def held(self) -> dict[str, bool]:
        return {key: row.ended for key, row in self.rows.items()}

    def step(self, rng: Random, *, forgets_children: bool) -> bool:
        """Read one shard, to its end if it has one. False when there is nothing to do."""
        able = [row for row in startable(self.rows.values()) if self.lineage.shards[row.key].closed or not row.started]
        if not able:
            return False
        row = rng.choice(able)
        children = [self.lineage.shards[one] for one in self.lineage.children(row.key)]
        ended = self.lineage.shards[row.key].closed
        if ended:
            assert row.key not in self.read, "read twice"
            assert not self.lineage.ancestors([row.key]) & {
                other.key for other in self.rows.values() if not other.ended
            }
            self.read.append(row.key)
            if not forgets_children:
                held = self.held() | {row.key: True}
                self.create(births_at_end(children, held))
                if needs_search(children, held):
                    self.create(births(self.lineage, held, TRIM_HORIZON))
        named = () if forgets_children else tuple(one.shard_id for one in children)
        self.rows[row.key] = replace(row, ended=ended, started=True, children=named)
        return True


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(0, 25), st.sampled_from([TRIM_HORIZON, LATEST]))
def test_any_history_is_read_whole_though_children_are_forgotten_and_leases_cleaned_up(
    seed: int, count: int, resharding: int, start: StartingPosition
) -> None:
    rng = Random(seed)
    made = history(seed, count, resharding)
    lineage = Lineage(made)
    table = Table(lineage)
    table.create(births(lineage, {}, start))
    first = set(table.rows)
    while True:
        for key in served(table.rows.values(), lineage):
            del table.rows[key]
        if not table.step(rng, forgets_children=rng.random() < 0.3):
            missing = births(lineage, table.held(), start)
            if not missing:
                break
            table.create(missing)
    wanted = set(lineage.shards) if start is TRIM_HORIZON else {one.shard_id for one in lineage.open_shards()}
    assert set(table.created) == wanted
    assert len(table.created) == len(set(table.created)), "a lease came back after it was deleted"
    assert set(table.read) == {key for key in wanted if lineage.shards[key].closed}
    assert first <= wanted
    left = [row for row in table.rows.values() if not row.ended]
    assert lineage.holes([row.key for row in left]) == []
    assert all(not row.ended for row in table.rows.values()), "all that have ended have served"


starts = st.sampled_from([TRIM_HORIZON, LATEST, AT])


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(0, 25), st.integers(0, 10), starts)
def test_a_stream_that_is_resharded_while_it_is_read(
    seed: int, count: int, resharding: int, trimmed: int, start: StartingPosition
) -> None:
    """The listing grows while leases are there; retention trims what was read. Nothing tells of children but that."""
    rng = Random(seed)
    made = history(seed, count, resharding)
    known = rng.randrange(count, len(made) + 1)
    table = Table(Lineage(as_listed(made, known, 0)))
    opened = [one.shard_id for one in table.lineage.open_shards()]
    everything = Lineage(made)
    wanted = set(everything.shards) if start is TRIM_HORIZON else everything.descendants(opened) | set(opened)
    table.create(births(table.lineage, {}, start, open_at_start=opened if start is AT else None))
    gone = 0
    while True:
        known = min(len(made), known + rng.randrange(4))
        while gone < trimmed and is_over(shard_id_of(gone), table, wanted):
            gone += 1
        table.lineage = Lineage(as_listed(made, known, gone))
        for key in served(table.rows.values(), table.lineage):
            del table.rows[key]
        if rng.random() < 0.5:
            table.create(births(table.lineage, table.held(), start))
        if not table.step(rng, forgets_children=True) and known == len(made):
            missing = births(table.lineage, table.held(), start)
            if not missing:
                break
            table.create(missing)
    assert len(table.created) == len(set(table.created))
    assert set(table.created) == wanted


def is_over(key: str, table: Table, wanted: set[str]) -> bool:
    """True for what retention may trim without a loss."""
    return key not in wanted or (key in table.read and key not in table.rows)


def as_listed(made: list[ListedShard], known: int, gone: int) -> list[ListedShard]:
    """The listing when so many shards had been made; a shard is closed when its first child is made."""
    while any(len(one.parents) for one in made[known : known + 1]) and made[known].parents == made[known - 1].parents:
        known += 1  # the two children of a split come together
    parents = {parent for one in made[:known] for parent in one.parents}
    return [
        shard(
            int(one.shard_id[-12:]),
            *(int(parent[-12:]) for parent in one.parents),
            first=one.first_hash_key,
            last=one.last_hash_key,
            closed=one.shard_id in parents,
        )
        for one in made[gone:known]
    ]


# --- leases that have served --------------------------------------------------------------------------

SPLIT = Lineage([shard(0), shard(1, 0, last=9, closed=False), shard(2, 0, first=10, closed=False)])
PARENT = LeaseView(key=shard_id_of(0), ended=True, children=(shard_id_of(1), shard_id_of(2)))
LEFT = LeaseView(key=shard_id_of(1), parents=(PARENT.key,))
RIGHT = LeaseView(key=shard_id_of(2), parents=(PARENT.key,))


def test_an_ended_lease_stays_until_all_its_children_have_begun() -> None:
    assert served([PARENT, LEFT, RIGHT], SPLIT) == [PARENT.key]
    assert served([PARENT, LEFT], SPLIT) == []
    assert served([PARENT, LEFT, replace(RIGHT, started=False)], SPLIT) == []
    assert served([PARENT, LEFT, replace(RIGHT, started=False, ended=True)], SPLIT) == [PARENT.key]
    assert served([replace(PARENT, ended=False), LEFT, RIGHT], SPLIT) == []
    assert served([replace(PARENT, children=()), LEFT, RIGHT], SPLIT) == [PARENT.key]


def test_parents_are_deleted_before_children() -> None:
    line = Lineage([shard(0), shard(1, 0), shard(2, 1, closed=False)])
    leases = [
        LeaseView(key=shard_id_of(1), parents=(shard_id_of(0),), ended=True),
        LeaseView(key=shard_id_of(0), ended=True),
        LeaseView(key=shard_id_of(2), parents=(shard_id_of(1),)),
    ]
    assert served(leases, line) == [shard_id_of(0), shard_id_of(1)]
    assert served([leases[0], replace(leases[1], ended=False), leases[2]], line) == []


def test_trimmed_shards_need_no_lease() -> None:
    line = Lineage([shard(9, closed=False)])
    assert served([PARENT], line) == [PARENT.key]
    assert served([replace(PARENT, children=())], line) == [PARENT.key]
    assert served([replace(PARENT, ended=False)], line) == []


def test_an_old_listing_deletes_nothing() -> None:
    """The shards that it does not show may be newer than it."""
    old = Lineage([shard(0)])
    assert served([PARENT, LEFT], old) == []
    assert served([replace(PARENT, children=())], old) == []
    assert served([LeaseView(key=shard_id_of(5), ended=True)], old) == []


# --- holes ------------------------------------------------------------------------------------------


def test_a_hole_is_believed_at_the_third_look() -> None:
    audit = HoleAudit()
    leases = [LeaseView(key="a", hash_range=(0, 99)), LeaseView(key="b", hash_range=(200, HASH_KEY_MAX))]
    assert [audit.look(leases) for _ in range(3)] == [[], [], [(100, 199)]]
    whole = [*leases, LeaseView(key="c", hash_range=(100, 199))]
    assert audit.look(whole) == []
    assert audit.look(leases) == [], "counted anew"


def test_a_hole_with_other_bounds_is_another_hole() -> None:
    audit = HoleAudit()
    for last in (99, 98, 99, 98):
        found = audit.look([LeaseView(key="a", hash_range=(0, last))])
        assert found == []


def test_leases_of_ended_shards_cover_nothing() -> None:
    audit = HoleAudit(looks=1)
    leases = [LeaseView(key="a", hash_range=(0, HASH_KEY_MAX)), LeaseView(key="b", ended=True)]
    assert audit.look(leases) == []
    assert audit.look([replace(one, ended=True) for one in leases]) == [(0, HASH_KEY_MAX)]


def test_an_empty_table_is_a_hole_at_once() -> None:
    assert HoleAudit().look([]) == [(0, HASH_KEY_MAX)]


def test_ranges_that_rows_do_not_tell_come_from_the_listing() -> None:
    audit = HoleAudit(looks=1)
    leases = [replace(LEFT, hash_range=None), replace(RIGHT, hash_range=None)]
    assert audit.look(leases, SPLIT) == []
    assert audit.look(leases[:1], SPLIT) == [(10, HASH_KEY_MAX)]
    assert audit.look(leases[:1]) == [], "nothing is known"


@pytest.mark.parametrize("lost", [1, 2])
def test_a_lost_lease_is_found_and_repaired(lost: int) -> None:
    rows = [PARENT, replace(LEFT, hash_range=(0, 9)), replace(RIGHT, hash_range=(10, HASH_KEY_MAX))]
    del rows[lost]
    audit = HoleAudit()
    assert [bool(audit.look(rows)) for _ in range(3)] == [False, False, True]
    found = births(SPLIT, {row.key: row.ended for row in rows}, LATEST)
    assert [(one.shard.shard_id, one.start) for one in found] == [(shard_id_of(lost), "TRIM_HORIZON")]
