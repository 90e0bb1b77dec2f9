"""A stream that is resharded, trimmed and read, and its lease table, in any order of steps: Hypothesis finds the short
ones that go wrong.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shardway.core.assignment.lease_births import births, births_at_end, needs_search
from shardway.core.assignment.upkeep import served
from shardway.core.assignment.views import LeaseView, startable
from shardway.core.hashkeys import even_ranges
from shardway.core.lineage import Lineage
from shardway.core.sequence import shard_id_of
from shardway.model import ListedShard, StartingPosition

START = StartingPosition.TRIM_HORIZON
places = st.integers(0, 1_000)


class LineageMachine(RuleBasedStateMachine):
    """What workers do with leases, by the rules that they ask; what a service does with its shards."""

    def __init__(self) -> None:
        super().__init__()
        self.shards: dict[str, ListedShard] = {}
        """As ListShards has them: what is trimmed is gone."""
        self.parents: dict[str, tuple[str, ...]] = {}
        """Of all that there ever were."""
        self.rows: dict[str, LeaseView] = {}
        self.read: set[str] = set()
        """Read to the end, and stored so."""
        self.lost: set[str] = set()
        """Their rows were taken away by a foreign hand, or the only one that told that they are read: they may be read
    again.
    """

    @initialize(count=st.integers(1, 3))
    def begin(self, count: int) -> None:
        for first, last in even_ranges(count):
            self._make((), first, last)
        self._create(births(self._listed(), {}, START))

    # --- the stream -----------------------------------------------------------------------------

    @rule(place=places)
    def splits(self, place: int) -> None:
        parent = self._pick(self._listed().open_shards(), place)
        middle = (parent.first_hash_key + parent.last_hash_key) // 2
        if parent.first_hash_key < middle:
            self._close(parent)
            self._make((parent.shard_id,), parent.first_hash_key, middle)
            self._make((parent.shard_id,), middle + 1, parent.last_hash_key)

    @precondition(lambda self: len(self._listed().open_shards()) > 1)
    @rule(place=places)
    def merges(self, place: int) -> None:
        taking = self._listed().open_shards()
        place %= len(taking) - 1
        left, right = taking[place], taking[place + 1]
        self._close(left)
        self._close(right)
        self._make((left.shard_id, right.shard_id), left.first_hash_key, right.last_hash_key)

    @rule()
    def trims(self) -> None:
        """Retention takes the oldest shard, once it is read and its lease has served: else records would be lost."""
        oldest = next(iter(self.shards), None)
        if oldest is not None and oldest in self.read and oldest not in self.rows:
            del self.shards[oldest]

    # --- the workers ----------------------------------------------------------------------------

    @precondition(lambda self: self._unbegun())
    @rule(place=places)
    def begins(self, place: int) -> None:
        row = self._pick(self._unbegun(), place)
        for parent in self.parents[row.key]:
            assert parent in self.read, f"{row.key} begins before its parent {parent} is read"
        assert row.key not in self.read or row.key in self.lost, "a shard is read again"
        self.rows[row.key] = replace(row, started=True)

    @precondition(lambda self: self._endable())
    @rule(place=places, forgets=st.booleans())
    def ends(self, place: int, forgets: bool) -> None:
        """``forgets``: another program did it, which makes no leases for the children."""
        row = self._pick(self._endable(), place)
        lineage = self._listed()
        children = [lineage.shards[one] for one in lineage.children(row.key)]
        if not forgets:
            held = self._held()
            found = births_at_end(children, held)
            if needs_search(children, held):
                found = births(lineage, held | {row.key: True}, START)
            self._create(found)
        named = () if forgets else tuple(one.shard_id for one in children)
        self.rows[row.key] = replace(row, ended=True, children=named)
        self.read.add(row.key)
        self.lost.discard(row.key)

    @rule()
    def cleans_up(self) -> None:
        for key in served(self.rows.values(), self._listed()):
            del self.rows[key]

    @rule()
    def searches(self) -> None:
        self._create(births(self._listed(), self._held(), START))

    @precondition(lambda self: self._losable())
    @rule(place=places)
    def loses_a_row(self, place: int) -> None:
        """Of a shard that is not read to its end, and from which nothing came yet that has a lease."""
        key = self._pick(self._losable(), place)
        del self.rows[key]
        self.lost.add(key)
        # That its ancestors are read was told by this row alone, once theirs had served: they may be read again, too.
        told = set().union(*(self._ancestors(other) for other in self.rows)) | self.rows.keys()
        self.lost |= self._ancestors(key) - told

    # --- what holds at any time -----------------------------------------------------------------

    @invariant()
    def what_was_read_has_no_lease_that_is_to_be_read(self) -> None:
        again = {key for key, row in self.rows.items() if not row.ended} & self.read
        assert again <= self.lost, "a lease came back after it had served"

    @invariant()
    def what_reads_has_all_that_came_before_behind_it(self) -> None:
        for key, row in self.rows.items():
            if row.started and not row.ended:
                assert self.read.issuperset(self.parents[key])

    def teardown(self) -> None:
        """Left to itself, everything is read: each shard to its end, and the open ones have a lease."""
        for _ in range(4 * len(self.parents) + 4):
            self.searches()
            while self._unbegun():
                self.begins(0)
            while self._endable():
                self.ends(0, forgets=False)
            self.cleans_up()
        lineage = self._listed()
        assert {key for key, one in self.shards.items() if one.closed} <= self.read
        reading = [key for key, row in self.rows.items() if not row.ended]
        assert sorted(reading) == sorted(one.shard_id for one in lineage.open_shards())
        assert lineage.holes(reading) == [] or not self.shards

    # --- parts ----------------------------------------------------------------------------------

    def _listed(self) -> Lineage:
        return Lineage(self.shards.values())

    def _held(self) -> dict[str, bool]:
        return {key: row.ended for key, row in self.rows.items()}

    def _unbegun(self) -> list[LeaseView]:
        return [row for row in startable(self.rows.values()) if not row.started]

    def _endable(self) -> list[LeaseView]:
        return [row for row in self.rows.values() if row.started and not row.ended and self.shards[row.key].closed]

    def _losable(self) -> list[str]:
        lineage = self._listed()
        return [
            key
            for key, row in self.rows.items()
            if not row.ended and not lineage.descendants([key]) & self.rows.keys() and not self._has_read_child(key)
        ]

    def _ancestors(self, key: str) -> set[str]:
        parents = self.parents[key]
        return set(parents).union(*(self._ancestors(parent) for parent in parents))

    def _has_read_child(self, key: str) -> bool:
        return any(key in parents for child, parents in self.parents.items() if child in self.read)

    def _create(self, found: object) -> None:
        for one in found:  # type: ignore[attr-defined]
            key = one.shard.shard_id
            if key not in self.rows:
                around = (one.shard.first_hash_key, one.shard.last_hash_key)
                self.rows[key] = LeaseView(key=key, parents=one.shard.parents, started=False, hash_range=around)

    def _make(self, parents: tuple[str, ...], first: int, last: int) -> None:
        key = shard_id_of(len(self.parents))
        self.parents[key] = parents
        self.shards[key] = ListedShard(
            shard_id=key,
            parents=parents,
            first_hash_key=first,
            last_hash_key=last,
            first_sequence_number=len(self.parents),
        )

    def _close(self, parent: ListedShard) -> None:
        self.shards[parent.shard_id] = ListedShard(
            shard_id=parent.shard_id,
            parents=parent.parents,
            first_hash_key=parent.first_hash_key,
            last_hash_key=parent.last_hash_key,
            first_sequence_number=parent.first_sequence_number,
            last_sequence_number=parent.first_sequence_number + 1,
        )

    @staticmethod
    def _pick(choices: list, place: int):  # type: ignore[type-arg,no-untyped-def]
        return choices[place % len(choices)]


TestLineage = LineageMachine.TestCase
TestLineage.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
