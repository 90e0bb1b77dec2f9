"""The leases of streams' shards: the first ones, children's, those that are missing, and those that have served."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.core.assignment.births import (
    Birth,
    births,
    births_at_end,
    births_beyond_end,
    children_of,
    needs_search,
)
from penstock.core.assignment.rows import shard_view
from penstock.core.assignment.upkeep import HoleAudit, served
from penstock.core.leases import Checkpoint, Done, LeaseRow, Refused, Unknown, writes
from penstock.core.lineage import Lineage
from penstock.errors import PenstockError
from penstock.model import Shard
from penstock.runtime.worker.stream_part import shard_id_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from penstock.core.feeding.pages import ChildShard
    from penstock.model import StartAt
    from penstock.ports import LeaseTable
    from penstock.runtime.worker.stream_part import StreamPart


class ShardLeases:
    """Creates and deletes leases."""

    def __init__(
        self,
        table: LeaseTable,
        parts: Mapping[str | None, StreamPart],
        start_at: StartAt,
        *,
        retry_s: float,
        changed: Callable[[], None],
    ) -> None:
        """``retry_s``: before a lease is created again; that of a child is until it is certain that it is there, and
        meanwhile its parent does not end. ``changed`` hears that there are leases that no scan has shown yet.
        """
        self._table = table
        self._parts = parts
        self._start_at = start_at
        self._retry_s = retry_s
        self._changed = changed
        self._audits = {stream: HoleAudit() for stream in parts}

    async def missing(self, rows: Mapping[str, LeaseRow]) -> None:
        """Create the leases that a listing of the shards says are missing: all of them, in an empty table."""
        await asyncio.gather(*(self._missing(part, rows) for part in self._parts.values()))

    async def at_end(self, key: str, stream: str | None, children: tuple[ChildShard, ...]) -> list[LeaseRow]:
        """A shard's last record was fetched: its children get their leases, before it may be stored as ended. Returns
        those that are there by now.
        """
        while True:
            try:
                return await self._at_end(key, self._parts[stream], children)
            except PenstockError as error:
                if not error.retryable:
                    raise
            await asyncio.sleep(self._retry_s)

    async def upkeep(self) -> None:
        """Delete the leases that have served; repair holes in the hash range. One worker does it for all."""
        rows = {row.key: row for row in (await self._table.scan(consistent=True)).rows}
        for part in self._parts.values():
            await self._upkeep(part, _of(part, rows))

    # --- one stream -----------------------------------------------------------------------------

    async def _missing(self, part: StreamPart, rows: Mapping[str, LeaseRow]) -> None:
        known = _of(part, rows)
        held = {shard_id_of(row.key): row.ended for row in known}
        await self._create(part, births(_lineage(await part.list_shards(), known), held, self._start_at))
        self._changed()

    async def _at_end(self, key: str, part: StreamPart, children: tuple[ChildShard, ...]) -> list[LeaseRow]:
        me = shard_id_of(key)
        shards = [
            Shard(
                shard_id=child.shard_id,
                parents=child.parents,
                first_hash_key=child.first_hash_key,
                last_hash_key=child.last_hash_key,
                first_sequence_number=0,
            )
            for child in children
        ]
        held, rows = {me: True}, list[LeaseRow]()
        if not shards or needs_search(shards, held):  # a merge, or an end without a word: who else is there?
            rows = [row for row in (await self._table.scan(consistent=True)).rows if row.stream == part.text]
            held = {shard_id_of(row.key): row.ended for row in rows} | held
        if not shards or needs_search(shards, held):
            lineage = _lineage(await part.list_shards(), rows)
            shards = shards or children_of(me, lineage, held)
            found = births_beyond_end(shards, lineage, held, self._start_at)
        else:
            found = births_at_end(shards, held)
        names = frozenset(shard.shard_id for shard in shards)
        made, _ = await asyncio.gather(self._create(part, found), self._note(key, names))
        return made

    async def _note(self, key: str, children: frozenset[str]) -> None:
        """Write down who goes on: for whoever cleans up, KCL workers among them."""
        if children:
            while isinstance(await self._table.write(writes.metadata(key, children=children)), Unknown):
                await asyncio.sleep(self._retry_s)

    async def _upkeep(self, part: StreamPart, rows: list[LeaseRow]) -> None:
        views = [shard_view(row) for row in rows]
        lineage = None
        if any(view.ended or view.hash_range is None for view in views):
            lineage = Lineage(await part.list_shards())
        if self._audits[part.text].look(views, lineage):
            held = {view.key: view.ended for view in views}
            listed = await part.list_shards()
            lineage = Lineage(listed)
            await self._create(part, births(_lineage(listed, rows), held, self._start_at))
            self._changed()
        if lineage is None:
            return
        by_shard = {shard_id_of(row.key): row for row in rows}
        for shard_id in served(views, lineage):
            outcome = await self._table.write(writes.delete(by_shard[shard_id]))
            if not isinstance(outcome, Done):
                return  # what comes after it waits for it; another time
            self._changed()

    async def _create(self, part: StreamPart, found: Iterable[Birth]) -> list[LeaseRow]:
        rows = await asyncio.gather(*(self._create_one(part, birth) for birth in found))
        return [row for row in rows if row is not None]

    async def _create_one(self, part: StreamPart, birth: Birth) -> LeaseRow | None:
        shard = birth.shard
        row = LeaseRow(
            key=part.key_of(shard.shard_id),
            checkpoint=Checkpoint.parse(birth.start),
            parents=frozenset(shard.parents),
            first_hash_key=shard.first_hash_key,
            last_hash_key=shard.last_hash_key,
            stream=part.text,
            shard_id=None if part.key is None else shard.shard_id,
        )
        while not isinstance(outcome := await self._table.create(row), Done | Refused):
            await asyncio.sleep(self._retry_s)
        return outcome.row


def _lineage(listed: Iterable[Shard], rows: Iterable[LeaseRow]) -> Lineage:
    """The listing, with what only leases tell of: the children of a shard that is trimmed are no new shards."""
    shards = {shard.shard_id: shard for shard in listed}
    for row in rows:
        shard_id = shard_id_of(row.key)
        if shard_id not in shards:
            shards[shard_id] = Shard(
                shard_id=shard_id,
                parents=tuple(sorted(row.parents)),
                first_hash_key=row.first_hash_key or 0,
                last_hash_key=row.last_hash_key or 0,
                first_sequence_number=0,
                last_sequence_number=0,
            )
    return Lineage(shards.values())


def _of(part: StreamPart, rows: Mapping[str, LeaseRow]) -> list[LeaseRow]:
    return [row for row in rows.values() if row.stream == part.text]
