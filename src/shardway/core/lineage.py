"""The graph of a stream's shards: which came from which, which may be read now, and which are missing.

A split has one parent and two children, a merge two parents and one child; where the halves of a split are
merged again, the graph has a diamond. Shards that retention has trimmed are in no listing, but their children
still name them: such a parent is unknown here, and counts as read to its end.

Nothing here is recursive, and all of it takes time linear in the number of shards, but for sorting.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from shardway.model import HASH_KEY_MAX, ListedShard

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from collections.abc import Set as AbstractSet


class Lineage:
    """The shards of a stream as they are known at one time; :meth:`including` makes another when more is known.

    Raises ValueError for shards that descend from themselves.
    """

    __slots__ = ("_children", "_generation", "_parents", "shards")

    def __init__(self, shards: Iterable[ListedShard]) -> None:
        """Make the graph of a listing in any order. Of a shard that comes twice the later entry counts: it may be
        closed by then.
        """
        by_id = {shard.shard_id: shard for shard in shards}
        parents = {
            shard_id: tuple(dict.fromkeys(parent for parent in shard.parents if parent in by_id))
            for shard_id, shard in by_id.items()
        }
        self._generation = _generations(parents)
        order = sorted(by_id, key=lambda one: (self._generation[one], by_id[one].first_hash_key, one))
        self.shards: Mapping[str, ListedShard] = MappingProxyType({one: by_id[one] for one in order})
        """All shards by id, in topological order: by generation, and within one by hash range."""
        self._parents = parents
        children: dict[str, list[str]] = {one: [] for one in order}
        for one in order:
            for parent in parents[one]:
                children[parent].append(one)
        self._children = {one: tuple(born) for one, born in children.items()}

    def __len__(self) -> int:
        return len(self.shards)

    def __contains__(self, shard_id: object) -> bool:
        return shard_id in self.shards

    def including(self, shards: Iterable[ListedShard]) -> Lineage:
        """Return a lineage with these shards too, or with newer knowledge of the same ones."""
        return Lineage([*self.shards.values(), *shards])

    # --- neighbours -----------------------------------------------------------------------------------

    def parents(self, shard_id: str) -> tuple[str, ...]:
        """Return the parents that are known: none, one or two."""
        return self._parents[shard_id]

    def children(self, shard_id: str) -> tuple[str, ...]:
        """Return the children that are known, in the order of their hash ranges."""
        return self._children[shard_id]

    def ancestors(self, shard_ids: Iterable[str]) -> set[str]:
        """Return all that these shards come from, without themselves unless one is an ancestor of another."""
        return _reachable(shard_ids, self._parents.__getitem__)

    def descendants(self, shard_ids: Iterable[str]) -> set[str]:
        """Return all that comes from these shards, without themselves unless one is a descendant of another."""
        return _reachable(shard_ids, self._children.__getitem__)

    # --- generations ----------------------------------------------------------------------------------

    @property
    def roots(self) -> tuple[str, ...]:
        """The shards without a known parent, in the order of their hash ranges."""
        return tuple(one for one in self.shards if not self._parents[one])

    def generation(self, shard_id: str) -> int:
        """Return 0 for a root, else one more than the highest generation of its known parents."""
        return self._generation[shard_id]

    # --- what may start -------------------------------------------------------------------------------

    def ready(self, finished: AbstractSet[str]) -> list[str]:
        """Return the shards that may be read now: not finished themselves, with every known parent finished."""
        return [
            one
            for one in self.shards
            if one not in finished and all(parent in finished for parent in self._parents[one])
        ]

    def groups(self, among: Collection[str]) -> list[list[str]]:
        """Cut a set of shards into independent groups: no shard of one descends from a shard of another.

        Two shards are in one group also when what connects them is not in the set. Groups, and the shards in
        each, are in topological order, so that one reader can read a group from its first to its last.
        """
        wanted = set(among)
        if unknown := wanted.difference(self.shards):
            raise ValueError(f"{len(unknown)} of these shards are unknown, {min(unknown)} among them")
        union = _Groups()
        # Each shard hands the wanted shards nearest above it to its children.
        above: dict[str, frozenset[str]] = {}
        for one in self.shards:
            inherited = _union([above[parent] for parent in self._parents[one]])
            if one in wanted:
                for ancestor in inherited:
                    union.join(ancestor, one)
                inherited = frozenset((one,))
            above[one] = inherited
        found: dict[str, list[str]] = {}
        for one in self.shards:
            if one in wanted:
                found.setdefault(union.of(one), []).append(one)
        return list(found.values())

    # --- the hash range -------------------------------------------------------------------------------

    def open_shards(self) -> list[ListedShard]:
        """Return the shards that take records, in the order of their hash ranges."""
        taking = (shard for shard in self.shards.values() if not shard.closed)
        return sorted(taking, key=lambda shard: shard.first_hash_key)

    def holes(self, among: Iterable[str] | None = None) -> list[tuple[int, int]]:
        """Return hash ranges (inclusive) that none of these shards covers; by default, none of the open ones.

        A listing made during a reshard may have a hole for a moment; one that stays means that records are
        not read.
        """
        chosen = self.open_shards() if among is None else [self.shards[one] for one in among]
        return holes((shard.first_hash_key, shard.last_hash_key) for shard in chosen)


def holes(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return what inclusive ranges, which may overlap, leave uncovered of 0 … 2¹²⁸-1, in order."""
    out: list[tuple[int, int]] = []
    reached = 0  # All below is covered, or noted as a hole.
    for first, last in sorted(ranges):
        if first > reached:
            out.append((reached, first - 1))
        reached = max(reached, last + 1)
    if reached <= HASH_KEY_MAX:
        out.append((reached, HASH_KEY_MAX))
    return out


def _generations(parents: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """Return every shard's generation, worked out from the roots down."""
    children: dict[str, list[str]] = {}
    waits_for: dict[str, int] = {}
    for one, known in parents.items():
        waits_for[one] = len(known)
        for parent in known:
            children.setdefault(parent, []).append(one)
    generation = {one: 0 for one, count in waits_for.items() if count == 0}
    queue = list(generation)
    for one in queue:  # The queue grows while it is read.
        for child in children.get(one, ()):
            waits_for[child] -= 1
            if waits_for[child] == 0:
                generation[child] = 1 + max(generation[parent] for parent in parents[child])
                queue.append(child)
    if len(generation) < len(parents):
        circular = min(set(parents).difference(generation))
        raise ValueError(f"the shard listing is circular: {circular} is, or comes from, its own descendant")
    return generation


def _reachable(starts: Iterable[str], steps: Callable[[str], tuple[str, ...]]) -> set[str]:
    found: set[str] = set()
    stack = list(starts)
    while stack:
        for one in steps(stack.pop()):
            if one not in found:
                found.add(one)
                stack.append(one)
    return found


def _union(sets: list[frozenset[str]]) -> frozenset[str]:
    """Return the union; no copy where one of the sets is that already, or every shard of a long line would have one."""
    largest = max(sets, key=len, default=frozenset())
    return largest if all(one <= largest for one in sets if one is not largest) else largest.union(*sets)


class _Groups:
    """Disjoint sets of shard ids, each known by one of its members."""

    def __init__(self) -> None:
        self._link: dict[str, str] = {}

    def of(self, one: str) -> str:
        """Return the member that stands for the set of ``one``."""
        link = self._link
        while one in link:
            above = link[one]
            if above in link:
                link[one] = link[above]  # This halves the way for the next search.
            one = above
        return one

    def join(self, one: str, other: str) -> None:
        """Make one set of the sets of both."""
        one, other = self.of(one), self.of(other)
        if one != other:
            self._link[other] = one
