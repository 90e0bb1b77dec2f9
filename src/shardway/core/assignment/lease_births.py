"""The leases to create: the first ones of an application, and those that are missing later.

Usually no search is needed: the worker that reads a shard to its end creates the leases of its children. The functions
of this module find the first leases, and those that are missing after a fault, after a change by another program, or
when the table was lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from shardway.core.lineage import Lineage
    from shardway.model import ListedShard, StartingPosition


@dataclass(frozen=True, slots=True)
class Birth:
    """A lease to create, if there is none with its key by then."""

    shard: ListedShard
    start: str
    """The checkpoint of the lease: TRIM_HORIZON, LATEST or AT_TIMESTAMP."""


def births_at_end(children: Iterable[ListedShard], held: Mapping[str, bool]) -> list[Birth]:
    """Return the leases of the children that a shard's end named, as far as they may be created now.

    They start at their beginning, whatever the application's start is. A child of two parents that both have a lease
    waits by itself until both have ended. A child whose other parent has none is left out, see `needs_search`.
    """
    ordered = sorted(children, key=lambda shard: shard.first_hash_key)
    return [Birth(child, "TRIM_HORIZON") for child in ordered if not needs_search([child], held)]


def needs_search(children: Iterable[ListedShard], held: Mapping[str, bool]) -> bool:
    """True when a parent of one of these children has no lease, while the other was just read to its end.

    It may be trimmed; its own lease may come later, when its parents end; or it is lost. With a lease the child would
    start without it. So ask `births`, with a new listing, and with the shard that was just read among the ended ones.
    """
    return any(parent not in held for child in children for parent in child.parents)


def children_of(shard_id: str, lineage: Lineage, held: Mapping[str, bool]) -> list[ListedShard]:
    """Return the children of a shard that ended without a word of them, as it was trimmed; children that have
    descendants which are read, or were, are left out: they are done.
    """
    if shard_id not in lineage:
        return []
    done = lineage.ancestors(one for one in held if one in lineage)
    return [lineage.shards[child] for child in lineage.children(shard_id) if child not in done]


def births_beyond_end(
    children: Iterable[ListedShard], lineage: Lineage, held: Mapping[str, bool], start: StartingPosition
) -> list[Birth]:
    """Return the leases to create when a shard's end alone does not show them: those of its children, and whatever is
    missing.

    A child of two parents that both have a lease gets its own at once, as in `births_at_end`. Else two parents that end
    at the same moment would each leave it to the other, which is not stored as ended yet.
    """
    # The leases that there are decide, not what is stored as ended: of two trimmed parents that end at one moment,
    # neither would make the child's lease.
    sure = [child for child in children if not needs_search([child], held)]
    found = births_at_end(sure, held)
    known = {**dict.fromkeys((child.shard_id for child in sure), False), **held}
    return found + births(lineage, known, start)


def births(
    lineage: Lineage,
    held: Mapping[str, bool],
    start: StartingPosition,
    *,
    open_at_start: Collection[str] | None = None,
) -> list[Birth]:
    """Return the leases that are missing, parents before children.

    ``lineage`` is a full listing, ``held`` says of each shard that has a lease whether it has ended.

    - A shard with a descendant that has a lease is done: its own lease was cleaned up.
    - A shard of which every parent is done or trimmed, and one was read, starts at its beginning: nothing of it may
      be left out, wherever the application's start is by now.
    - Where no worker has read anything, reading begins at ``start``: for TRIM_HORIZON with the oldest shards, for
      LATEST with the newest, for AT_TIMESTAMP with those that were open then, if ``open_at_start`` tells them
      (ListShards with a filter does), else with the oldest.
    - What comes after a shard that is still to be read is created when that one ends.
    """
    search = _Search(lineage, held, start.kind, open_at_start)
    wanted = [leaf for leaf in lineage.shards if not lineage.children(leaf) and leaf not in held]
    found = search.climb(wanted)
    return [Birth(lineage.shards[one], found[one]) for one in lineage.shards if one in found]


def missing_of(gone: Iterable[str], lineage: Lineage, held: Mapping[str, bool]) -> list[str]:
    """Return the shards whose leases were deleted, and that have none still. A shard that has a descendant with a lease
    is done: its own lease was cleaned up.
    """
    done = lineage.ancestors(one for one in held if one in lineage)
    return [one for one in gone if one in lineage and one not in held and one not in done]


class _Search:
    """The search from shards without a lease up to where reading has to begin."""

    def __init__(
        self, lineage: Lineage, held: Mapping[str, bool], kind: str, open_at_start: Collection[str] | None
    ) -> None:
        self.lineage = lineage
        self.kind = kind
        self.held = held
        known = [one for one in held if one in lineage]
        self.done = lineage.ancestors(known) | {one for one in known if held[one]}
        # These shards are, or come from, something that is being read or was.
        self.touched = lineage.descendants(self.done.union(known))
        self.snapshot = frozenset(open_at_start or ())
        self.after_snapshot = lineage.descendants(one for one in self.snapshot if one in lineage)

    def climb(self, wanted: Iterable[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        looked_at = set(wanted)
        stack = list(looked_at)
        while stack:
            one = stack.pop()
            start, parents = self._look(one)
            if start is not None:
                found[one] = start
            fresh = [parent for parent in parents if parent not in looked_at]
            looked_at.update(fresh)
            stack += fresh
        return found

    def _look(self, one: str) -> tuple[str | None, list[str]]:
        """Return where reading this shard begins, if it is to be created now; else which of its parents to look at."""
        parents = self.lineage.parents(one)
        unread = [parent for parent in parents if parent not in self.done]
        if one in self.touched:
            missing = [parent for parent in unread if parent not in self.held]
            return (None, missing) if unread else ("TRIM_HORIZON", [])
        if self.kind == "LATEST" or not unread or self._begins_here(one):
            return (self.kind, [])
        return (None, unread)

    def _begins_here(self, one: str) -> bool:
        """True for what was open at the start; of a parent and a child that both seem to be, for the parent."""
        return one in self.snapshot and one not in self.after_snapshot
