"""Write what a plan says, and nothing else: lease by lease, each on condition that the row is as the plan saw it.

A lease whose owner lives is written only if the owner is a Shardway worker that hands it over. This module asks for the
lease as the leader of a KCL 3.x fleet does. So the owner stops, settles what is in flight, and gives the lease away
with its last checkpoint, and the write that moves the lease frees it, too. A lease that was asked for is let go again
in any case.

The caller keeps the positions that were there before the first write.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import inspect
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from shardway.core.leases import Checkpoint, Done, LeaseRow, Outcome, Refused, Unknown, conditional_write, writes
from shardway.core.leases.lease_key import LeaseKey
from shardway.core.leases.stream_mark import StreamMark
from shardway.core.leases.worker_row import WRITES_PER_FAILOVER, WorkerRow
from shardway.errors import CredentialsError, NotFoundError, OptionError, ServiceError, ShardwayError
from shardway.inspect.applications.views import ApplicationRows, application_view
from shardway.inspect.moves.planning import NO_ROWS, QUIET_FAILOVERS, Look, failover_of, quiet_of, seen
from shardway.inspect.moves.plans import Life, Move, Plan
from shardway.inspect.moves.positions import positions_of
from shardway.waiting import side_by_side

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shardway.core.leases import Write
    from shardway.inspect.applications.stores import Store
    from shardway.inspect.moves.positions import PositionsReport
    from shardway.ports import LeaseTable
    from shardway.wiring import ConnectionOptions


TRIES_MAX = 6
"""Attempts of a write whose outcome is not known."""
RETRY_S = 0.25
AT_ONCE_MAX = 16
POLL_S = 0.2
"""Seconds between two looks at leases that are being handed over."""
RENEWALS = 3
"""Renewals within a failover time of a lease that is held until the other leases are handed over."""
HANDOFF_TIMEOUT_S = 60.0


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a plan."""

    schema: str = "shardway.applied/1"
    application: str
    written: list[str]
    """Leases that go on where the plan says."""
    refused: dict[str, str]
    """Leases that were not written, and why: they are as they were, or as other programs have made them since."""
    unknown: dict[str, str]
    """Leases whose write had no answer, and why: look whether they were written."""
    handed_over: list[str]
    """Leases that a live worker has handed over for the plan."""

    @property
    def complete(self) -> bool:
        """True when the whole plan is written."""
        return not (self.refused or self.unknown)


class Waiting(NamedTuple):
    """How applying waits; tests have clocks of their own."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    monotonic: Callable[[], float] = time.monotonic
    handoff_timeout_s: float = HANDOFF_TIMEOUT_S


class ChangedError(ShardwayError):
    """Rows are not as the plan saw them, or an owner lives: nothing was written."""

    def __init__(self, faults: dict[str, str]) -> None:
        self.faults = faults
        told = "; ".join(f"{key}: {why}" for key, why in list(faults.items())[:5])
        super().__init__(f"nothing was written, since {len(faults)} leases do not fit the plan: {told}. Plan again")


def lease_table(store: Store, application: str, connection: ConnectionOptions) -> LeaseTable:
    """Return the lease table of an application, for writing. Raises OptionError."""
    if store.kind == "sqlite":
        from shardway.stores.sqlite import SqliteLeaseTable

        return SqliteLeaseTable(store.location, store.table or "leases").of(application)
    if store.kind == "postgresql":
        from shardway.stores.postgres import PostgresLeaseTable

        return PostgresLeaseTable(store.location, store.table or "leases").of(application)
    from shardway.aws.dynamodb.lease_table import DynamoLeaseTable

    return DynamoLeaseTable(store.table or application, connection)


async def apply_plan(
    plan: Plan,
    table: LeaseTable,
    *,
    keep: Callable[[PositionsReport], object],
    handoff: bool = False,
    accept_inexact: bool = False,
    waiting: Waiting | None = None,
) -> Applied:
    """Write what the plan says. ``keep`` gets the positions as they are before anything is written, and what it returns
    is awaited if that can be; where it raises, nothing is written. ``handoff``: live Shardway workers are asked for
    their leases.

    Raises ChangedError where a row is not as the plan saw it, OptionError for a plan that must not be written.
    """
    if plan.refused:
        key, why = next(iter(plan.refused.items()))
        raise OptionError(f"the plan cannot be written: {key}: {why}")
    if plan.inexact and not accept_inexact:
        keys = ", ".join(one.lease for one in plan.inexact[:5])
        raise OptionError(
            f"{len(plan.inexact)} positions are not exact ({keys}): a worker may begin elsewhere; accept that "
            "(accept_inexact, --accept-inexact), or leave them out"
        )
    applying = _Application(plan, table, waiting or Waiting())
    try:
        await applying.look(handoff=handoff)
        await applying.ask()
        kept = keep(applying.positions())
        if inspect.isawaitable(kept):
            await kept
        await applying.write()
    finally:
        await asyncio.shield(applying.let_go())
    return applying.result()


class _Application:
    """The application of one plan."""

    def __init__(self, plan: Plan, table: LeaseTable, waiting: Waiting) -> None:
        self.plan = plan
        self.table = table
        self.waiting = waiting
        self.name = f"shardway-move-{secrets.token_hex(4)}"
        """The id of the worker as which this object asks for leases."""
        self.rows: dict[str, LeaseRow] = {}
        self.found = NO_ROWS
        self.asked: dict[str, LeaseRow] = {}
        """Rows of leases that live owners are to hand over, as the rows were when the leases were asked for."""
        self.mine: dict[str, tuple[LeaseRow, float]] = {}
        """Rows of leases that were handed over, each with the time of its last renewal."""
        self.written: list[str] = []
        self.refused: dict[str, str] = {}
        self.unknown: dict[str, str] = {}
        self.handed_over: list[str] = []
        self.shown: WorkerRow | None = None
        """The worker's row that this object has in the table while it holds leases; None: it has none yet."""
        self.shown_s = float("-inf")

    # --- is it as it was? -------------------------------------------------------------------------

    async def look(self, *, handoff: bool) -> None:
        """Compare the rows with the plan, and wait to see whether owners live."""
        first = await self._scan()
        self._check(first, handoff=handoff)
        second = first
        if wait_s := quiet_of(first, self.plan.failover_s):
            await self.waiting.sleep(wait_s)
            second = await self._scan()
            self._check(second, handoff=handoff)
        self.found = second
        self.rows = {row.key: row for row in second.listing.rows}
        look, faults = Look(first, second, self.plan.failover_s), {}
        workers = {one.worker_id for one in second.workers}
        for move in self.plan.moves:
            row = self.rows.get(move.lease)
            if row is None or look.life_of(row) is not Life.LIVE:
                continue
            if row.actual_owner not in workers:
                faults[move.lease] = f"the worker {row.actual_owner} reads it: stop that worker"
            elif not handoff:
                faults[move.lease] = (
                    f"the worker {row.actual_owner} reads it: stop that worker, or ask for a handoff (--handoff)"
                )
            else:
                self.asked[move.lease] = row
        if faults:
            raise ChangedError(faults)

    def _check(self, rows: ApplicationRows, *, handoff: bool) -> None:
        found, faults = {row.key: row for row in rows.listing.rows}, {}
        for move in self.plan.moves:
            row = found.get(move.lease)
            if move.lease in rows.listing.unreadable:
                faults[move.lease] = rows.listing.unreadable[move.lease]
            elif (row is None) != (move.before is None):
                faults[move.lease] = "the row is gone" if row is None else "there is a row by now"
            elif row is not None and seen(row) != move.before and not (handoff and _is_handed(move)):
                first = "; stop that worker first" if move.life is Life.LIVE and row.actual_owner else ""
                at = f"it is at {row.checkpoint.text}, owner {row.actual_owner}"
                faults[move.lease] = f"the row has changed: {at}{first}"
        if faults:
            raise ChangedError(faults)

    async def _scan(self) -> ApplicationRows:
        # The workers are read last: a write must depend on the lease's row as it was before its owner was seen to be
        # silent.
        try:
            listing = await self.table.scan(consistent=True)
        except NotFoundError:
            if any(one.before is not None for one in self.plan.moves):
                raise
            await self.table.ensure()
            listing = await self.table.scan(consistent=True)
        try:
            workers = await self.table.workers(consistent=True)
        except NotFoundError:
            workers = []
        return ApplicationRows(listing, workers)

    # --- handoffs ---------------------------------------------------------------------------------

    async def ask(self) -> None:
        """Have live owners hand their leases over. Raises ChangedError where one does not."""
        if not self.asked:
            return
        deadline_s = self.waiting.monotonic() + self.waiting.handoff_timeout_s
        await self._show()
        await side_by_side(self._ask, list(self.asked), AT_ONCE_MAX)
        since: dict[str, tuple[int, float]] = {}
        while waited := sorted(self.asked.keys() - self.mine.keys()):
            if self.waiting.monotonic() > deadline_s:
                raise ChangedError(dict.fromkeys(waited, "its owner has not handed it over in time"))
            await side_by_side(lambda key: self._receive(key, since), waited, AT_ONCE_MAX)
            await self._hold()
            await self.waiting.sleep(POLL_S)

    async def _ask(self, key: str) -> None:
        row: LeaseRow | None = self.asked[key]
        for _ in range(TRIES_MAX):  # a renewal may come between
            if row is None or row.owner is None or row.handoff_to is not None:
                break
            outcome = await self._send(writes.ask_handoff(row, self.name), key)
            if isinstance(outcome, Done):
                return
            row = await self.table.get(key)
        raise ChangedError({key: "its owner could not be asked for it"})

    async def _show(self) -> None:
        """Write the row of a worker that is leaving. The other workers see it: they wait for its leases, and neither
        give it any nor steal any from it.
        """
        now_s = self.waiting.monotonic()
        if now_s < self.shown_s + self.held_s / WRITES_PER_FAILOVER / 2:
            return
        beside = next(iter(self.found.workers), None)
        self.shown = replace(
            self.shown or WorkerRow(worker_id=self.name, failover_s=self.held_s, leaving=True),
            counter=0 if self.shown is None else self.shown.counter + 1,
            held=frozenset(self.mine),
            stream="" if beside is None else beside.stream,
            application="" if beside is None else beside.application,
        )
        self.shown_s = now_s
        await self.table.put_worker(self.shown)

    @property
    def held_s(self) -> float:
        """The shortest failover time of the owners, which counts as this worker's while it holds leases."""
        return min(failover_of(self.found, row.actual_owner, self.plan.failover_s) for row in self.asked.values())

    async def _hold(self) -> None:
        """Renew the leases that were handed over, until the owners have handed over all of them."""
        await self._show()
        due_s = self.waiting.monotonic() - self.held_s / RENEWALS
        await side_by_side(self._renew, [key for key, (_, at_s) in self.mine.items() if at_s < due_s], AT_ONCE_MAX)

    async def _receive(self, key: str, since: dict[str, tuple[int, float]]) -> None:
        row = await self.table.get(key)
        now_s = self.waiting.monotonic()
        if row is None or row.owner != self.name:
            raise ChangedError({key: "another worker has it by now" if row is not None else "the row is gone"})
        if row.checkpoint_owner is None:
            self.mine[key] = (row, now_s)
            self.handed_over.append(key)
            return
        counter, since_s = since.setdefault(key, (row.counter, now_s))
        if row.counter != counter:
            since[key] = (row.counter, now_s)
        elif now_s - since_s > QUIET_FAILOVERS * failover_of(self.found, row.actual_owner, self.plan.failover_s):
            outcome = await self._send(writes.take(row, self.name), key)  # the owner has died meanwhile
            if isinstance(outcome, Done) and outcome.row is not None:
                self.mine[key] = (outcome.row, now_s)

    async def _renew(self, key: str) -> None:
        outcome = await self._send(writes.renew(self.mine[key][0]), key)
        if not isinstance(outcome, Done) or outcome.row is None:
            del self.mine[key]
            raise ChangedError({key: "it was lost while the others were waited for"})
        self.mine[key] = (outcome.row, self.waiting.monotonic())

    async def let_go(self) -> None:
        """Free the leases that were handed over and not written, and those that an owner may have handed over since."""
        for key in self.asked.keys() - set(self.written) - self.unknown.keys():
            try:
                row = self.mine[key][0] if key in self.mine else await self.table.get(key)
                if row is not None and row.owner == self.name and row.checkpoint_owner is None:
                    await self._send(writes.free(row), key)
            except ShardwayError:
                continue  # another worker takes the lease, since nothing renews it
        if self.shown is not None:
            with contextlib.suppress(ShardwayError):
                await self.table.delete_worker(self.name)

    # --- writes -----------------------------------------------------------------------------------

    def positions(self) -> PositionsReport:
        """Return all positions of the application as they are now."""
        rows = {**self.rows, **{key: row for key, (row, _) in self.mine.items()}}
        listing = self.found.listing._replace(rows=list(rows.values()))
        view = application_view(self.plan.application, self.plan.store, ApplicationRows(listing, self.found.workers))
        return positions_of(view, dt.datetime.now(dt.UTC))

    async def write(self) -> None:
        """Write the moves, parents before their children: a child waits for its parent, whichever the plan has
        first.
        """
        for moves in _generations(self.plan.moves):
            if self.asked:
                await self._show()
            await side_by_side(self._settle, moves, AT_ONCE_MAX)

    async def _settle(self, move: Move) -> None:
        try:
            outcome = await self._write(move)
        except (ServiceError, CredentialsError) as fault:
            self.refused[move.lease] = str(fault)
            return
        except ShardwayError as fault:
            outcome = Unknown(str(fault))
        if isinstance(outcome, Done):
            self.written.append(move.lease)
        elif isinstance(outcome, Refused):
            self.refused[move.lease] = "another program has written the row meanwhile"
        else:
            self.unknown[move.lease] = outcome.reason

    async def _write(self, move: Move) -> Outcome:
        to = Checkpoint.parse(move.checkpoint, move.sub_sequence_number)
        if move.before is None:
            return await self._create(self._new_row(move, to))
        row = self.mine[move.lease][0] if move.lease in self.mine else self.rows[move.lease]
        return await self._send(writes.move(row, to, children=frozenset(move.children)), move.lease)

    def _new_row(self, move: Move, to: Checkpoint) -> LeaseRow:
        """Return a new row of the same kind as the other rows of the table."""
        key = LeaseKey.parse(move.lease)
        beside = next(iter(self.rows.values()), None)
        marked = beside is not None and beside.of_stream is not None
        plan = self.plan
        return LeaseRow(
            key=move.lease,
            checkpoint=to,
            parents=frozenset(move.parents),
            first_hash_key=None if move.first_hash_key is None else int(move.first_hash_key),
            last_hash_key=None if move.last_hash_key is None else int(move.last_hash_key),
            stream=None if key.stream is None else key.stream.text,
            shard_id=None if key.stream is None else key.shard_id,
            entity=None if beside is None else beside.entity,
            of_stream=StreamMark(plan.stream_arn, int(plan.stream_created_at.timestamp())).text if marked else None,
        )

    async def _create(self, row: LeaseRow) -> Outcome:
        outcome: Outcome = Unknown("it was not sent")
        for number in range(TRIES_MAX):
            if number:
                await self.waiting.sleep(RETRY_S * 2**number)
            outcome = await self.table.create(row)
            if (
                isinstance(outcome, Refused)
                and outcome.row is not None
                and outcome.row.attributes() == row.attributes()
            ):
                return Done(outcome.row)
            if not isinstance(outcome, Unknown):
                return outcome
        return outcome

    async def _send(self, write: Write | None, key: str) -> Outcome:
        """Send a write until its outcome is known. A write that is sent again is applied once at most, since it depends
        on the counter, which it raises.
        """
        if write is None:
            return Refused(await self.table.get(key))
        outcome: Outcome = Unknown("it was not sent")
        for number in range(TRIES_MAX):
            if number:
                await self.waiting.sleep(RETRY_S * 2**number)
            outcome = await self.table.write(write)
            if isinstance(outcome, Unknown):
                found = conditional_write.resolve(write, await self.table.get(key))
                outcome = outcome if isinstance(found, Unknown) else found
            elif isinstance(outcome, Refused) and conditional_write.applied(write, outcome.row):
                outcome = Done(outcome.row)  # it was sent twice, by a connection that broke
            if not isinstance(outcome, Unknown):
                return outcome
        return outcome

    def result(self) -> Applied:
        """Return what became of the plan."""
        return Applied(
            application=self.plan.application,
            written=sorted(self.written),
            refused=self.refused,
            unknown=self.unknown,
            handed_over=sorted(self.handed_over),
        )


def _generations(moves: list[Move]) -> list[list[Move]]:
    """Return lists of moves: those of one list may be made side by side, once the list before is done."""
    found: list[list[Move]] = []
    names: set[str] = set()
    for move in moves:
        if not found or not names.isdisjoint(move.parents):
            found.append([])
            names = set()
        found[-1].append(move)
        names.add(move.shard_id)
    return found


def _is_handed(move: Move) -> bool:
    """Return True where a live worker is to hand the lease over: the row goes on changing until then."""
    return move.life is Life.LIVE and move.by_shardway
