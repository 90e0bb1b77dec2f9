"""Upkeep finds the leases that have served and are deleted, and the holes between leases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.core.lineage import holes
from shardway.core.sequence import shard_id_number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardway.core.assignment.views import LeaseView
    from shardway.core.lineage import Lineage


def served(leases: Iterable[LeaseView], lineage: Lineage) -> list[str]:
    """Return the leases that no worker needs any more, to be deleted in this order.

    A lease has served when its shard has ended, its parents' leases are gone, and each of its children has a lease
    that has begun to move: until then it is what says that the children may start, and at their beginning. Shards
    that retention has trimmed need no lease. ``lineage`` may be an old listing: shards that are newer than all in it
    are not taken for trimmed.
    """
    kept = {lease.key: lease for lease in leases}
    passed = lineage.ancestors(key for key in kept if key in lineage)
    newest = max((number for one in lineage.shards if (number := shard_id_number(one)) is not None), default=-1)

    def is_trimmed(shard_id: str) -> bool:
        number = shard_id_number(shard_id)
        return shard_id not in lineage and number is not None and number < newest

    def is_settled(child: str) -> bool:
        lease = kept.get(child)
        if lease is None:
            return child in passed or is_trimmed(child)
        return lease.started or lease.ended

    def has_served(lease: LeaseView) -> bool:
        children = lease.children or (lineage.children(lease.key) if lease.key in lineage else ())
        followed = all(map(is_settled, children)) if children else is_trimmed(lease.key)
        return lease.ended and followed and not any(parent in kept for parent in lease.parents)

    out: list[str] = []
    candidates = [lease for lease in kept.values() if lease.ended]
    while found := [lease for lease in candidates if has_served(lease)]:
        out += sorted(lease.key for lease in found)
        for lease in found:
            del kept[lease.key]
        candidates = [lease for lease in candidates if lease.key in kept]
    return out


class HoleAudit:
    """Notices hash ranges without a lease: no worker reads their records.

    During a reshard there may be a hole for a moment, so one is believed when it was there at several looks in a row.
    """

    def __init__(self, *, looks: int = 3) -> None:
        self._looks = looks
        self._hole_counts: dict[tuple[int, int], int] = {}

    def look(self, leases: Iterable[LeaseView], lineage: Lineage | None = None) -> list[tuple[int, int]]:
        """Return the holes (inclusive ranges) that were there at this look and at those before it: repair them now.

        `births` says what is missing, from a full listing. If it finds nothing, records of the hole wait for a parent
        that is still read: a merge's child has no lease before both its parents have one.

        A table without a lease that is read is one hole, at once. Where a row does not name its range, ``lineage`` may;
        else nothing is known, and this look does not count.
        """
        ranges: list[tuple[int, int]] = []
        for lease in leases:
            if lease.ended:
                continue
            found = lease.hash_range
            if found is None and lineage is not None and lease.key in lineage:
                shard = lineage.shards[lease.key]
                found = (shard.first_hash_key, shard.last_hash_key)
            if found is None:
                return []
            ranges.append(found)
        missing = holes(ranges)
        if not ranges:
            return missing
        self._hole_counts = {hole: self._hole_counts.get(hole, 0) + 1 for hole in missing}
        return [hole for hole, times in self._hole_counts.items() if times >= self._looks]
