"""The streams that a worker reads, and the leases of their shards: the first leases, those of children, missing leases,
and leases that have served.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from shardway.core.assignment.lease_births import (
    Birth,
    births,
    births_at_end,
    births_beyond_end,
    children_of,
    missing_of,
    needs_search,
)
from shardway.core.assignment.upkeep import HoleAudit, served
from shardway.core.assignment.views import shard_view
from shardway.core.leases import Checkpoint, Done, LeaseRow, Refused, Unknown, writes
from shardway.core.leases.lease_key import LeaseKey
from shardway.core.leases.row import NotALeaseError
from shardway.core.leases.stream_mark import disowned_text
from shardway.core.lineage import Lineage
from shardway.errors import OptionError, ShardwayError
from shardway.model import ListedShard
from shardway.runtime.worker.sharded_stream import StreamPart, shard_id_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from shardway.core.leases.stream_mark import StreamMark
    from shardway.core.log.pages import ChildShard
    from shardway.model import StartingPosition
    from shardway.ports import LeaseTable

LOOKS_PER_FAILOVER = 10
"""The looks in a failover time at leases of another stream that have owners, before a worker begins them anew."""


class AtEnd(NamedTuple):
    """The leases that the end of a shard leaves."""

    children: list[LeaseRow]
    """The leases of the shard's children that are there by now."""
    others: list[LeaseRow]
    """The stream's leases as they were read before that; empty where a look was not needed, as after a split.

    A worker that learns of a child's lease has to learn of these too: a parent without a lease counts as read to its
    end.
    """


class ShardLeases:
    """Creates and deletes the leases of a worker's streams."""

    def __init__(
        self,
        table: LeaseTable,
        parts: Mapping[str | None, StreamPart],
        starting_position: StartingPosition,
        *,
        retry_s: float,
        changed: Callable[[], None],
        owned: Callable[[], Iterable[str]],
    ) -> None:
        """``owned`` returns the leases that living workers say they hold. If such a lease's row is gone, that worker
        writes it anew: it knows how far the shard is read. ``retry_s`` is the pause before a lease is created again; a
        child's lease is tried until it is certain that it is there, and meanwhile its parent does not end. ``changed``
        hears that there are leases that no scan has shown yet.
        """
        self._table = table
        self._parts = parts
        self._starting_position = starting_position
        self._retry_s = retry_s
        self._on_change = changed
        self._owned_leases = owned
        self._audits = {stream: HoleAudit() for stream in parts}
        self._gone_rows: dict[str, LeaseRow] = {}
        """The leases whose rows were deleted while this worker had them, as far as it had come, by key."""

    def gone(self, known: LeaseRow) -> None:
        """Note that a row was deleted while this worker had the lease, or while it could not be reached; another worker
        may have had it since. The lease is made anew, as it was known here, if it is missing; the shard may have been
        read to its end, too.
        """
        self._gone_rows[known.key] = known

    @property
    def has_gone(self) -> bool:
        """True while there are leases to look for whose rows were deleted."""
        return bool(self._gone_rows)

    async def missing_of_gone(self) -> None:
        """Create the leases that are missing, by a new look."""
        gone = {*self._gone_rows}
        rows = {row.key: row for row in (await self._table.scan(consistent=True)).rows}
        if not gone <= rows.keys():
            await self.missing(rows)
        for key in gone:
            self._gone_rows.pop(key, None)

    async def missing(self, rows: Mapping[str, LeaseRow]) -> None:
        """Create the leases that a listing of the shards shows as missing: all of them, in an empty table."""
        await asyncio.gather(*(self._add_missing(part, rows) for part in self._parts.values()))

    async def at_end(self, key: str, stream: str | None, children: tuple[ChildShard, ...]) -> AtEnd:
        """Create the leases of a shard's children, as its last record was fetched, before it may be stored as ended."""
        while True:
            try:
                return await self._at_end(key, self._parts[stream], children)
            except ShardwayError as error:
                if not error.retryable:
                    raise
            await asyncio.sleep(self._retry_s)

    async def upkeep(self) -> None:
        """Delete the leases that have served; repair holes in the hash range. One worker does it for all workers."""
        rows = {row.key: row for row in (await self._table.scan(consistent=True)).rows}
        for part in self._parts.values():
            await self._upkeep(part, _rows_of(part, rows))

    async def claim_stream(self, *, begins_anew: bool, failover_s: float) -> dict[str, int]:
        """Make sure that the leases are of the streams that are read, and write their stream into them where it is
        missing. Returns how many were of another stream, by the stream that they are begun anew for.

        Raises OptionError for leases that are of another stream, unless ``begins_anew``; then for leases whose owners
        live.
        """
        anew = {}
        for part in self._parts.values():
            if part.mark is not None and (count := await self._claim(part, part.mark, begins_anew, failover_s)):
                anew[part.name] = count
        return anew

    async def _claim(self, part: StreamPart, mark: StreamMark, begins_anew: bool, failover_s: float) -> int:
        begun = 0
        while True:
            rows = [row for row in (await self._table.scan(consistent=True)).rows if row.stream is None]
            foreign = [row for row in rows if mark.disowns(row)]
            if not foreign:
                unmarked = (row for row in rows if row.of_stream is None)
                await asyncio.gather(*(self._table.write(writes.mark_stream(row, mark.text)) for row in unmarked))
                return begun
            if not begins_anew:
                raise OptionError(
                    f"application: in the table {self._table.name} {disowned_text(foreign, mark)}: a position "
                    "of one stream means nothing in another, and records would be left out. Read this stream under "
                    "another application's name, or have its leases made again: "
                    "LeaseOptions(other_stream_begins_anew=True)"
                )
            await self._watch(mark, foreign, failover_s)
            begun += await self._begin_anew(part, foreign)

    async def _watch(self, mark: StreamMark, foreign: Iterable[LeaseRow], failover_s: float) -> None:
        """Wait until it is certain that no owner lives."""
        owned = {row.key: row for row in foreign if row.actual_owner is not None and not row.ended}
        failover_s = max([failover_s, *(one.failover_s for one in await self._table.workers(consistent=True))])
        for _ in range(LOOKS_PER_FAILOVER + 1 if owned else 0):
            await asyncio.sleep(failover_s / LOOKS_PER_FAILOVER)
            for row in (await self._table.scan(consistent=True)).rows:
                before = owned.get(row.key)
                if before is not None and mark.disowns(row) and row.counter != before.counter:
                    raise OptionError(
                        f"application: in the table {self._table.name} the worker {row.actual_owner} lives, and reads "
                        f"by leases of another stream: {disowned_text([row], mark)}. Stop it first, or read this "
                        "stream under another application's name"
                    )

    async def _begin_anew(self, part: StreamPart, foreign: Iterable[LeaseRow]) -> int:
        rows = {row.key: row for row in foreign}
        born = births(Lineage(await part.stream.list_shards()), {}, self._starting_position)
        here = {row.key: row for row in (self._new_row(part, one) for one in born)}
        made = await asyncio.gather(
            *(
                self._table.write(writes.begin_anew(row, here[key]) if key in here else writes.delete(row))
                for key, row in rows.items()
            )
        )
        await self._create(part, born)
        return sum(isinstance(outcome, Done) for outcome in made)

    # --- one stream -----------------------------------------------------------------------------

    async def _add_missing(self, part: StreamPart, rows: Mapping[str, LeaseRow]) -> None:
        known = _rows_of(part, rows)
        held = dict.fromkeys(self._held_by_workers(part), False)
        held |= {shard_id_of(row.key): row.ended for row in known}
        lineage = _lineage(await part.stream.list_shards(), known)
        gone = missing_of([shard_id_of(row.key) for row in _rows_of(part, self._gone_rows)], lineage, held)
        found = births(lineage, held | dict.fromkeys(gone, False), self._starting_position)
        # Where the start of a shard matters there is a row to go on from.
        await self._create(part, [*found, *(Birth(lineage.shards[one], "TRIM_HORIZON") for one in gone)])
        self._on_change()

    def _held_by_workers(self, part: StreamPart) -> set[str]:
        keys = (LeaseKey.parse(key) for key in self._owned_leases())
        return {one.shard_id for one in keys if one.stream == part.key}

    async def _at_end(self, key: str, part: StreamPart, children: tuple[ChildShard, ...]) -> AtEnd:
        me = shard_id_of(key)
        shards = [
            ListedShard(
                shard_id=child.shard_id,
                parents=child.parents,
                first_hash_key=child.first_hash_key,
                last_hash_key=child.last_hash_key,
                first_sequence_number=0,
            )
            for child in children
        ]
        held, rows = {me: True}, list[LeaseRow]()
        if not shards or needs_search(shards, held):  # It is a merge, or an end without its children.
            rows = [row for row in (await self._table.scan(consistent=True)).rows if row.stream == part.text]
            held = {shard_id_of(row.key): row.ended for row in rows} | held
        if not shards or needs_search(shards, held):
            lineage = _lineage(await part.stream.list_shards(), rows)
            shards = shards or children_of(me, lineage, held)
            found = births_beyond_end(shards, lineage, held, self._starting_position)
        else:
            found = births_at_end(shards, held)
        names = frozenset(shard.shard_id for shard in shards)
        made, _ = await asyncio.gather(self._create(part, found), self._note(key, names))
        return AtEnd(made, rows)

    async def _note(self, key: str, children: frozenset[str]) -> None:
        """Write the children into the ended lease: the worker that deletes old leases looks at them, as KCL
        workers do.
        """
        if children:
            while isinstance(await self._table.write(writes.metadata(key, children=children)), Unknown):
                await asyncio.sleep(self._retry_s)

    async def _upkeep(self, part: StreamPart, rows: list[LeaseRow]) -> None:
        views = [shard_view(row) for row in rows]
        lineage = None
        if any(view.ended or view.hash_range is None for view in views):
            lineage = Lineage(await part.stream.list_shards())
        if self._audits[part.text].look(views, lineage):
            held = dict.fromkeys(self._held_by_workers(part), False)
            held |= {view.key: view.ended for view in views}
            listed = await part.stream.list_shards()
            lineage = Lineage(listed)
            await self._create(part, births(_lineage(listed, rows), held, self._starting_position))
            self._on_change()
        if lineage is None:
            return
        by_shard = {shard_id_of(row.key): row for row in rows}
        for shard_id in served(views, lineage):
            outcome = await self._table.write(writes.delete(by_shard[shard_id]))
            if not isinstance(outcome, Done):
                return  # What comes after it waits for it, until another time.
            self._on_change()

    async def _create(self, part: StreamPart, found: Iterable[Birth]) -> list[LeaseRow]:
        rows = await asyncio.gather(*(self._create_one(part, birth) for birth in found))
        return [row for row in rows if row is not None]

    async def _create_one(self, part: StreamPart, birth: Birth) -> LeaseRow | None:
        row = self._new_row(part, birth)
        try:
            while not isinstance(outcome := await self._table.create(row), Done | Refused):
                await asyncio.sleep(self._retry_s)
        except NotALeaseError:
            return None  # It is there, and cannot be read: the worker says which one.
        return outcome.row

    def _new_row(self, part: StreamPart, birth: Birth) -> LeaseRow:
        shard = birth.shard
        key, checkpoint = part.key_of(shard.shard_id), Checkpoint.parse(birth.start)
        return self._gone_rows.get(key) or LeaseRow(
            key=key,
            checkpoint=checkpoint,
            # LATEST is this moment for each reader there will ever be: as a word, it would be another one for each.
            read_until_ms=part.stream.start_ms(checkpoint),
            parents=frozenset(shard.parents),
            first_hash_key=shard.first_hash_key,
            last_hash_key=shard.last_hash_key,
            stream=part.text,
            shard_id=None if part.key is None else shard.shard_id,
            of_stream=None if part.mark is None else part.mark.text,
        )


def _lineage(listed: Iterable[ListedShard], rows: Iterable[LeaseRow]) -> Lineage:
    """Return the listing with what only leases know: the children of a shard that is trimmed are no new shards."""
    shards = {shard.shard_id: shard for shard in listed}
    for row in rows:
        shard_id = shard_id_of(row.key)
        if shard_id not in shards:
            shards[shard_id] = ListedShard(
                shard_id=shard_id,
                parents=tuple(sorted(row.parents)),
                first_hash_key=row.first_hash_key or 0,
                last_hash_key=row.last_hash_key or 0,
                first_sequence_number=0,
                last_sequence_number=0,
            )
    return Lineage(shards.values())


def _rows_of(part: StreamPart, rows: Mapping[str, LeaseRow]) -> list[LeaseRow]:
    return [row for row in rows.values() if row.stream == part.text]
