"""Keep a query's share in an application's lease table: begin where it says, and write what Spark has committed to it.

Spark's checkpoint directory stays the truth. The table is written to in the background, so that it never holds a
batch up, and a table that fails never fails the query: failures are logged, and the write is tried again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

from shardway.core.assignment.lease_births import births
from shardway.core.leases import Done, Outcome, Unknown
from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.leases.mirror import NOTE, Create, Mark, MirroredRows, Read, Step, release
from shardway.core.leases.stream_mark import StreamMark, disowned_text
from shardway.core.pacing import Backoff
from shardway.core.sequence import just_before, shard_id_number
from shardway.errors import InvalidArgumentError, NotFoundError, OptionError, ShardwayError
from shardway.model import Position, epoch_ms
from shardway.spark.lookahead import Loss, ShardProbe, together
from shardway.spark.offsets import Kind, ShardPosition
from shardway.tasks import give_up, spawn

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from shardway.core.leases.row import LeaseRow
    from shardway.core.leases.worker_row import WorkerRow
    from shardway.core.lineage import Lineage
    from shardway.model import StartingPosition
    from shardway.ports import LeaseTable
    from shardway.spark.lookahead import LossPolicy, Probes
    from shardway.spark.offsets import StreamOffset


# --- a position as a lease says it ----------------------------------------------------------------
# This part says a query's position in a shard as a lease does, and the other way round. It is pure, and the note makes
# it exact.
#
# A lease's checkpoint names the last record that is done. A query often knows only the next one: then the checkpoint
# is the number just before it (`shardway.core.sequence.just_before`), which no record carries, and at which the
# service begins with that next record. The note beside it is the position as the offset log has it, so that a new
# query goes on just as one with the old Spark checkpoint directory would.

WHOLE_RECORD = 2**31 - 1
"""The sub-sequence number that stands for all user records of a Kinesis record, however many."""

_WORDS = {
    "TRIM_HORIZON": Checkpoint.TRIM_HORIZON,
    "LATEST": Checkpoint.LATEST,
    "AT_TIMESTAMP": Checkpoint.AT_TIMESTAMP,
}


def checkpoint_of(position: ShardPosition, unread: Checkpoint) -> Checkpoint:
    """Return what a lease says of a position. ``unread``: the word for a shard of which no record is read."""
    number = position.sequence_number
    if position.kind is Kind.ENDED:
        return Checkpoint.SHARD_END
    if number is None:
        return unread
    if position.kind is Kind.NEXT:
        return Checkpoint.at(Position(just_before(number)))
    return Checkpoint.at(Position(number, WHOLE_RECORD))


def marks_of(offset: StreamOffset, lineage: Lineage, start: StartingPosition) -> list[Mark]:
    """Return how far each shard is read at an offset. Shards that are listed no longer are left out."""
    marks, of_stream = [], StreamMark(offset.stream_arn, offset.created_s)
    for shard_id, position in offset.shards.items():
        shard = lineage.shards.get(shard_id)
        if shard is None:
            continue
        # A child is wanted from its beginning, wherever the query began.
        unread = Checkpoint.TRIM_HORIZON if lineage.parents(shard_id) else _WORDS[start.kind]
        marks.append(
            Mark(
                shard_id=shard_id,
                checkpoint=checkpoint_of(position, unread),
                note=note_of(position, offset.created_s),
                parents=frozenset(shard.parents),
                children=frozenset(lineage.children(shard_id)),
                hash_range=(shard.first_hash_key, shard.last_hash_key),
                read_until_ms=read_until_ms(position),
                of_stream=of_stream,
            )
        )
    return marks


def read_until_ms(position: ShardPosition) -> int | None:
    """Return the time up to which all that had arrived is surely read, in epoch milliseconds; None where it is not
    known.
    """
    if position.kind is Kind.ENDED or position.witness_ms == 0:
        return None
    return position.witness_ms - 1


def gone_of(keys: Collection[str], offset: StreamOffset, lineage: Lineage) -> list[str]:
    """Return the keys of the leases of shards that the retention has trimmed, and that the query has done with."""
    newest = max((number for one in lineage.shards if (number := shard_id_number(one)) is not None), default=-1)
    gone = []
    for key in keys:
        number, position = shard_id_number(key), offset.shards.get(key)
        trimmed = key not in lineage and number is not None and number < newest
        if trimmed and (position is None or position.kind is Kind.ENDED):
            gone.append(key)
    return gone


def note_of(position: ShardPosition, created_s: int) -> str:
    """Return the position as the offset log has it, behind the stream's creation time."""
    return f"{created_s} {position.encode()}"


def noted(row: LeaseRow, created_s: int) -> ShardPosition | None:
    """Return the position in a row's note, if the row still says the same; None when another reader has moved the row
    since.

    Raises ValueError for the note of another stream, or of a former one of this name.
    """
    created, _, text = str(row.others.get(NOTE, "")).partition(" ")
    if not text:
        return None
    if created != str(created_s):
        raise ValueError("it was written for another stream, or for a former one of this name")
    try:
        position = ShardPosition.decode(text)
    except ValueError:
        return None
    if not (row.checkpoint.is_position or row.ended):  # words: nothing is read, and the note says since when
        return position if position.sequence_number is None and position.kind is not Kind.ENDED else None
    return position if checkpoint_of(position, Checkpoint.TRIM_HORIZON) == row.checkpoint else None


def without_lease(
    lineage: Lineage, held: Mapping[str, bool], start: StartingPosition, now_ms: int
) -> dict[str, ShardPosition]:
    """Return where the shards stand that have no lease, beside those that have one.

    ``held`` says of each shard with a lease whether it has ended.
    """
    born = {birth.shard.shard_id: birth.start for birth in births(lineage, held, start)}
    passed = lineage.ancestors(one for one in (*born, *held) if one in lineage)
    found = {}
    for shard_id, shard in lineage.shards.items():
        if shard_id in held:
            continue
        word = born.get(shard_id)
        if shard_id in passed or (word == "LATEST" and shard.closed):
            found[shard_id] = ShardPosition(Kind.ENDED, 0)
        elif word in ("LATEST", "AT_TIMESTAMP"):
            found[shard_id] = since(word, start, now_ms)
        else:
            found[shard_id] = ShardPosition(Kind.BEGINNING, 0)
    return found


def since(word: str, start: StartingPosition, now_ms: int, read_until_ms: int | None = None) -> ShardPosition:
    """Return the position of a shard that begins at LATEST or AT_TIMESTAMP, or later where a reader has looked at it
    since.

    Raises ValueError where no time is known.
    """
    if read_until_ms is not None:
        return ShardPosition(Kind.SINCE, read_until_ms)
    if word == "LATEST":
        return ShardPosition(Kind.SINCE, now_ms)
    if start.timestamp is None:
        raise ValueError("it begins AT_TIMESTAMP, and the time is not given: give startingTimestamp")
    return ShardPosition(Kind.SINCE, epoch_ms(start.timestamp))


# --- the query's share ----------------------------------------------------------------------------

log = logging.getLogger("shardway.spark")

CALLS_MAX = 16
"""Calls to the table that are under way at the same time."""
ROUNDS_MAX = 5
"""How many times in a row the query writes to rows to which another program writes too; then these rows wait for the
next turn.
"""
NOTES_INTERVAL_S = 600.0
"""Seconds between two writes of the times of silent shards."""
LOOK_INTERVAL_S = 60.0
"""Seconds between two looks at leases that got an owner while the query runs; also between two equal warnings."""
BACKOFF_S, BACKOFF_MAX_S = 1.0, 60.0
CLOSE_TIMEOUT_S = 5.0
"""Seconds for the last writes when the query is stopped."""
LOOKS_PER_FAILOVER = 10
NAMED_MAX = 3
"""The largest number of shards that one warning names."""


class LeasesInUseError(ShardwayError):
    """A worker that lives owns leases of the application: the query and it would both read everything."""


class LeaseMirror:
    """The lease table of one application, which one query keeps. It is used on one event loop."""

    def __init__(
        self,
        table: LeaseTable,
        *,
        stream: str,
        application: str,
        start: StartingPosition,
        interval_s: float,
        failover_s: float,
        rng: random.Random | None = None,
    ) -> None:
        """``interval_s``: the least time between two writes of the rows. ``failover_s``: the time after which an owner
        that has not renewed its leases is dead.
        """
        self._table = table
        self._where = f"stream {stream}, application {application} (table {table.name})"
        self._start = start
        self._interval_s = interval_s
        self._failover_s = failover_s
        self._rows = MirroredRows(())
        self._newest: tuple[StreamOffset, Lineage] | None = None
        self._news = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._calls = asyncio.Semaphore(CALLS_MAX)
        self._backoff = Backoff(base_s=BACKOFF_S, cap_s=BACKOFF_MAX_S, rng=rng or random.Random())
        self._faults: dict[str, str] = {}
        self._told: dict[str, float] = {}
        self._noted_s = self._looked_s = float("-inf")

    # --- the start ---------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Read the application's leases, of which a living worker may own none. The table is made if there is none.

        Raises LeasesInUseError, and what the table answers: a query that does not know where to begin does not begin.
        """
        try:
            try:
                rows = await self._read()
            except NotFoundError:
                await self._table.ensure()
                rows = await self._read()
            workers = await self._workers()
            if workers or any(row.actual_owner is not None for row in rows):
                rows = await self._without_the_dead(rows, workers)
        except ShardwayError as error:
            error.add_note(f"while reading the leases of {self._where}")
            raise
        self._rows = MirroredRows(rows)

    async def _read(self) -> list[LeaseRow]:
        listing = await self._table.scan(consistent=True)
        several = [row.key for row in listing.rows if row.stream is not None]
        if several:
            raise OptionError(
                f"the table {self._table.name} holds leases of several streams ({_some(several)}); rows of one alone, "
                "beside them, would break the KCL: give the query an applicationName of its own"
            )
        if listing.unreadable:
            raise ShardwayError(
                f"rows of the table {self._table.name} cannot be read as leases ({_some(listing.unreadable)}): where "
                "their shards begin is not known. Mend or delete them, or give the query an applicationName of its own"
            )
        return listing.rows

    async def _workers(self) -> list[WorkerRow]:
        try:
            return await self._table.workers(consistent=True)
        except NotFoundError:
            return []

    async def _without_the_dead(self, rows: list[LeaseRow], workers: list[WorkerRow]) -> list[LeaseRow]:
        """Watch owners and workers for the failover time: what moves is alive. The others lose their leases."""
        loop = asyncio.get_running_loop()
        failover_s = max([self._failover_s, *(worker.failover_s for worker in workers)])
        log.info("%s: waiting %.0f s to see whether a worker lives", self._where, failover_s)
        began_s, first = loop.time(), _beats(rows, workers)
        while loop.time() - began_s <= failover_s:
            await asyncio.sleep(failover_s / LOOKS_PER_FAILOVER)
            rows, workers = await self._read(), await self._workers()
            for what, (owner, counter) in _beats(rows, workers).items():
                if first.get(what) != (owner, counter):
                    raise self._in_use(owner, rows)
        return [row if row.actual_owner is None else await self._released(row, rows) for row in rows]

    async def _released(self, row: LeaseRow, rows: list[LeaseRow]) -> LeaseRow:
        outcome = await self._table.write(release(row))
        if isinstance(outcome, Done) and outcome.row is not None:
            return outcome.row
        found = await self._table.get(row.key)
        if found is None or found.actual_owner is not None:
            raise self._in_use(row.actual_owner or "", rows)
        return found

    def _in_use(self, owner: str, rows: list[LeaseRow]) -> LeasesInUseError:
        count = sum(row.actual_owner == owner for row in rows)
        return LeasesInUseError(
            f"{self._where}: the worker {owner} is alive and owns {count} leases: the query and the workers of one "
            "application would both read everything. Stop the workers first, or give the query an applicationName of "
            "its own"
        )

    def check_stream(self, stream: StreamMark, *, begins_anew: bool) -> None:
        """Raise OptionError for leases of another stream, or of a former one of this name. ``begins_anew``: such leases
        are begun anew with the first commit instead.
        """
        foreign = [row for row in self._rows.rows.values() if stream.disowns(row)]
        if not foreign:
            return
        if begins_anew:
            log.warning("%s: %s: they are begun anew", self._where, disowned_text(foreign, stream))
            return
        raise OptionError(
            f"{self._where}: {disowned_text(foreign, stream)}: their positions mean nothing here. Give the query an "
            "applicationName of its own, or set continueFromLeases to false: then they are begun anew"
        )

    def compare(self, offset: StreamOffset, lineage: Lineage) -> None:
        """Warn where the leases are ahead of where the query goes on."""
        ahead = self._rows.ahead(marks_of(offset, lineage, self._start))
        if ahead:
            log.warning(
                "%s: the leases of %d shards (%s) are ahead of the Spark checkpoint directory: another program has "
                "read on. The query goes on where its directory says, and reads what lies between again",
                self._where, len(ahead), _some(ahead),
            )  # fmt: skip

    # --- while the query runs ----------------------------------------------------------------------------------

    def committed(self, offset: StreamOffset, lineage: Lineage) -> None:
        """Take an offset that Spark has committed: its positions are written in a moment, unless newer ones come
        before.
        """
        self._newest = (offset, lineage)
        self._news.set()
        if self._running is None:
            self._running = spawn(self._run(), self._broke)

    @property
    def rows(self) -> Mapping[str, LeaseRow]:
        """The leases by shard, as they were read or written last."""
        return self._rows.rows

    @property
    def behind(self) -> int:
        """The number of shards whose leases do not say yet what is committed."""
        newest = self._newest
        return len(self._rows.behind(None if newest is None else marks_of(*newest, self._start)))

    async def close(self) -> None:
        """Write what is missing, for a moment, and close the table."""
        if self._running is not None:
            await give_up(self._running)
            self._running = None
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self._turn()
                    while self._faults:
                        await asyncio.sleep(self._backoff.next_s())
                        await self._turn()
            except TimeoutError:
                self._faults.setdefault("", f"nothing came of it within {CLOSE_TIMEOUT_S:g} s")
            self._told.clear()
            self._tell_of_faults("the query stops")
        await self._table.close()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._news.wait()
            self._news.clear()
            began_s = loop.time()
            await self._turn()
            self._tell_of_owners()
            wait_s = self._interval_s
            if self._faults:
                wait_s = max(wait_s, self._backoff.next_s())
                self._tell_of_faults(f"it is tried again in {wait_s:.1f} s, and the query goes on")
                self._news.set()
            elif self._backoff.attempt:
                self._backoff.reset()
                log.info("%s: the leases are up to date again", self._where)
            await asyncio.sleep(max(0.0, began_s + wait_s - loop.time()))

    def _broke(self, error: BaseException) -> None:
        """Take note that the writing task has failed: the next commit begins it again, and what is missing is written
        then, or at the end.
        """
        log.error("%s: the writing of leases has failed, and is begun again", self._where, exc_info=error)
        self._running = None

    async def _turn(self) -> None:
        """Write until the rows say what is wanted. What fails is left in ``_faults``, by shard."""
        now_s = asyncio.get_running_loop().time()
        self._want(now_s)
        if now_s - self._looked_s > LOOK_INTERVAL_S:
            self._looked_s = now_s
            self._rows.doubt(self._rows.owned())
        self._faults = {}
        for _ in range(ROUNDS_MAX):
            steps = self._rows.steps()
            if not steps or self._faults:
                return
            await asyncio.gather(*map(self._step, steps))
        self._faults = {_key(step): "another program writes to the lease" for step in self._rows.steps()}

    def _want(self, now_s: float) -> None:
        """Say what the rows should say. With thousands of shards this takes a while: it is done once for each turn, and
        not for each batch.
        """
        if self._newest is None:
            return
        (offset, lineage), self._newest = self._newest, None
        notes = now_s - self._noted_s > NOTES_INTERVAL_S
        if notes:
            self._noted_s = now_s
        gone = gone_of(self._rows.rows, offset, lineage)
        self._rows.want(marks_of(offset, lineage, self._start), gone=gone, notes=notes)

    async def _step(self, step: Step) -> None:
        key = _key(step)
        try:
            async with self._calls:
                outcome = await self._done(step)
        except Exception as error:  # whatever failed: the next turn tries again, and the query goes on
            outcome = Unknown(f"{type(error).__name__}: {error}")
        self._rows.learn(key, outcome)
        if isinstance(outcome, Unknown):
            self._faults[key] = outcome.reason

    async def _done(self, step: Step) -> Outcome:
        if isinstance(step, Read):
            return Done(await self._table.get(step.key))
        if isinstance(step, Create):
            return await self._table.create(step.row)
        return await self._table.write(step)

    # --- what is logged ----------------------------------------------------------------------------------------

    def _tell_of_faults(self, what_now: str) -> None:
        if not self._faults or not self._due("faults"):
            return
        shards = _some(one for one in self._faults if one)
        reason = next(iter(self._faults.values()))
        log.warning(
            "%s: the leases of %d shards (%s) are behind what the query has committed: %s; %s. The Spark checkpoint "
            "directory has all of it", self._where, len(self._faults), shards, reason, what_now,
        )  # fmt: skip

    def _tell_of_owners(self) -> None:
        owned = self._rows.owned()
        if owned and self._due("owners"):
            log.warning(
                "%s: the leases of %d shards (%s) have an owner now, %s: the query does not write to them, and "
                "the owner and the query both read these shards. Stop one of the two",
                self._where, len(owned), _some(owned), _some(dict.fromkeys(owned.values())),
            )  # fmt: skip

    def _due(self, what: str) -> bool:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._told.get(what, float("-inf")) < LOOK_INTERVAL_S:
            return False
        self._told[what] = now_s
        return True


def _beats(rows: Iterable[LeaseRow], workers: Iterable[WorkerRow]) -> dict[tuple[str, str], tuple[str, int]]:
    """Return the counters that owners and workers move while they live: by kind and key, the name of each and its
    counter.
    """
    leases = {("lease", row.key): (row.actual_owner, row.counter) for row in rows if row.actual_owner is not None}
    return leases | {("worker", one.worker_id): (one.worker_id, one.counter) for one in workers}


def _key(step: Step) -> str:
    return step.row.key if isinstance(step, Create) else step.key


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:NAMED_MAX]) + (", …" if len(listed) > NAMED_MAX else "")


# --- where a query begins -------------------------------------------------------------------------


class LeaseStarts:
    """Finds the position of each shard from the leases, and from the stream where the leases do not say enough."""

    def __init__(
        self,
        probes: Probes,
        rows: Mapping[str, LeaseRow],
        start: StartingPosition,
        losses: LossPolicy,
        *,
        stream: StreamMark,
        horizon_ms: int,
    ) -> None:
        """``stream``: the stream that is read. ``horizon_ms``: the oldest arrival time that its retention covers."""
        self._probes = probes
        self._rows = rows
        self._start = start
        self._losses = losses
        self._stream = stream
        self._horizon_ms = horizon_ms

    async def positions(self, lineage: Lineage) -> dict[str, ShardPosition]:
        """Return the position of every shard that is listed, and of those that have an unfinished lease and are gone.

        Raises OptionError for leases of another stream.
        """
        if foreign := [row for row in self._rows.values() if self._stream.disowns(row)]:
            raise OptionError(
                f"{disowned_text(foreign, self._stream)}: the query can't go on where they say. Give the query an "
                "applicationName of its own, or set continueFromLeases to false: then they are begun anew"
            )
        now_ms = self._probes.service_ms()
        held = {key: row.ended for key, row in self._rows.items()}
        listed = [row for key, row in self._rows.items() if key in lineage]
        positions = await together(self._position(row, now_ms) for row in listed)
        found = dict(zip([row.key for row in listed], positions, strict=True))
        gone = {
            key: ShardPosition(Kind.BEGINNING, 0)
            for key, row in self._rows.items()
            if key not in lineage and not row.ended
        }
        return gone | found | without_lease(lineage, held, self._start, now_ms)

    async def _position(self, row: LeaseRow, now_ms: int) -> ShardPosition:
        try:
            position = noted(row, self._stream.created_s)
            if position is not None:
                return position
            if row.ended:
                return ShardPosition(Kind.ENDED, 0)
            if row.checkpoint.is_position:
                return await self._found(row)
            word = row.checkpoint.text
            if word == "TRIM_HORIZON":
                return ShardPosition(Kind.BEGINNING, 0)
            return since(word, self._start, now_ms, row.read_until_ms)
        except (ValueError, InvalidArgumentError) as error:
            raise OptionError(
                f"stream {self._probes.stream}, shard {row.key}: the query can't go on where its lease says: {error}. "
                "Give the query an applicationName of its own, or set continueFromLeases to false"
            ) from error

    async def _found(self, row: LeaseRow) -> ShardPosition:
        """Return the position behind the record that the checkpoint names. The record is looked at: its time says what
        may be lost.
        """
        done = row.checkpoint.position
        asked = ShardPosition(Kind.NEXT, 0, done.sequence_number)
        look = await ShardProbe(self._probes, row.key).open(asked, by_time=False, records_max=1)
        first = look.first
        if first is not None and first.sequence_number == done.sequence_number:
            whole = done.sub_sequence_number >= first.rows - 1
            return ShardPosition(Kind.AFTER if whole else Kind.NEXT, first.arrival_ms, first.sequence_number)
        if first is not None and just_before(first.sequence_number) == done.sequence_number:
            return ShardPosition(Kind.NEXT, first.arrival_ms, first.sequence_number)
        until_ms = row.read_until_ms
        if until_ms is not None and until_ms >= self._horizon_ms:
            return ShardPosition(Kind.SINCE, until_ms, done.sequence_number)  # the shard was only silent
        what = f"all up to {done.sequence_number} is read, which is trimmed, and what followed it may be too"
        self._losses.report(Loss(row.key, False, what))
        if first is None:
            return ShardPosition(Kind.BEGINNING, 0)
        return ShardPosition(Kind.NEXT, first.arrival_ms, first.sequence_number)
