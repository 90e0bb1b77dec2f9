"""The sight of a worker has what it sees: the leases, the workers' rows, and since when they stand still."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shardway.core.assignment.kcl.fleet import Fleet
from shardway.core.assignment.views import is_free, lease_view, startable, worker_view
from shardway.core.leases.counters import ObservedCounters
from shardway.core.leases.membership import WorkerRows
from shardway.core.leases.row import NotALeaseError
from shardway.waiting import LOOKS_AT_ONCE_MAX, side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from shardway.core.assignment.views import LeaseView, WorkerView
    from shardway.core.leases import LeaseRow
    from shardway.core.leases.listing import Listing
    from shardway.core.leases.worker_row import WorkerRow
    from shardway.core.worker.state import WorkerState
    from shardway.ports import LeaseTable
    from shardway.runtime.worker.kcl_watch import KclWatch


SCANS_PER_FAILOVER = 2
SCANS_PER_FAILOVER_BESIDE_KCL = 5
"""How often in a failover time a worker reads all leases by default. The second figure holds where only leases'
counters show which workers live, or where a leader may have assigned some.
"""
MOVING_FAILOVERS = 2 / 3
"""A KCL worker may be gone when the counter of its lease has not moved for this part of a failover time: KCL workers
renew a lease three times in a failover time, and their leader assigns it anew when that time is over.
"""
FAILOVERS_PER_SCAN_BELOW_LEADER = 2
"""The failover times between two scans of all leases, where an index tells which are this worker's."""


class SeenTables:
    """The tables as they were read last."""

    def __init__(
        self,
        state: WorkerState,
        table: LeaseTable,
        *,
        streams: Collection[str | None],
        scan_interval_s: float | None = None,
        clock: Callable[[], float],
        kcl: KclWatch | None,
    ) -> None:
        """``state`` has what this worker holds, or has claimed. ``streams``: what the leases of its streams have as
        ``streamName``; other leases are left alone. ``kcl`` is None where there can be no KCL workers.
        """
        self.id = state.terms.worker_id
        self.process = state.terms.process
        self.leases: dict[str, LeaseRow] = {}
        self.scanned_s = float("-inf")
        """The time at which the last scan was answered."""
        self.scan_sent_s = float("-inf")
        """The time at which the last scan was sent."""
        self.before: Mapping[str, LeaseRow] = {}
        """The leases as they were known before the last scan."""
        self.members = WorkerRows(self.id, state.terms.failover_s)
        self._former: set[str] | None = None  # The leases that had this worker's name when it came.
        self._saw_s: dict[str, float] = {}
        self._came_from: dict[str, tuple[str, bool]] = {}
        self._worker_state = state
        self._kcl = kcl
        self._glanced_s = float("-inf")
        self._looked_s = float("-inf")
        self._failover_s = state.terms.failover_s
        self._scan_interval_s = scan_interval_s
        self._table = table
        self._streams = streams
        self.clock = clock
        self._observed_counters = ObservedCounters()
        self._pictures: Mapping[str, object] = {}
        self.unreadable: Mapping[str, str] = {}
        """The rows that cannot be read as leases, by their keys, with the reason."""

    @property
    def fleet(self) -> Fleet:
        """The fleet whose rules hold."""
        return Fleet.ALONE if self._kcl is None else self._kcl.finding.fleet

    def forget_scan(self) -> None:
        """Let the next look have a scan: something has changed that a scan would show."""
        self.scanned_s = float("-inf")

    async def look(self, *, closely: bool, scans: bool = False) -> list[str]:
        """Read the workers' rows, and the leases when those may have changed; return the workers that are certainly
        silent.

        ``closely``: something is waited for, and no old state of the table will do. ``scans``: read the leases in any
        case.
        case.
        """
        rows = await self._table.workers(consistent=closely)
        self._looked_s = self.clock()
        self.members.look(rows, self._looked_s)
        # A beat of a row is no news; a change in what it holds, wants and gives is.
        pictures = {row.worker_id: _picture(row) for row in rows}
        quiet = self.members.quiet(self.clock())
        if pictures == self._pictures and not (quiet or scans or self._is_old()):
            return []
        self._pictures = pictures
        if not (quiet or scans) and self.fleet is Fleet.KCL3 and await self._glance():
            return []
        listing = await self.scan()
        answered_s = self.clock()
        owners = {row.actual_owner for row in self.leases.values() if not row.ended}
        strangers = owners - self.members.rows.keys() - {None, self.id}
        silent: list[str] = []
        if quiet or strangers:
            sent_s = self.clock()
            # The last look at the worker rows is older than the scan: a stranger may have written its row meanwhile.
            self.members.look(await self._table.workers(consistent=True), self.clock())
            silent = self.members.silent(leases_answered_s=answered_s, look_sent_s=sent_s, now_s=self.clock())
            for row in self.members.forgettable(self.clock()):
                await self._table.delete_worker(row.worker_id, counter=row.counter)
        if self._kcl is not None:
            twins = {one for row in self.leases.values() if (one := row.twin_of(self.id, self.process)) is not None}
            await self._kcl.look(listing, self.views().values(), {*self.members.rows, self.id, *twins})
        return silent

    def _is_old(self) -> bool:
        alone = self.fleet is Fleet.ALONE
        per_failover = SCANS_PER_FAILOVER if alone else SCANS_PER_FAILOVER_BESIDE_KCL
        interval_s = self._scan_interval_s or self._failover_s / per_failover
        return self.clock() - (self.scanned_s if alone else max(self.scanned_s, self._glanced_s)) >= interval_s

    async def _glance(self) -> bool:
        """Look, where a leader assigns, only at the leases that have this worker's name. False: a scan is needed."""
        kcl, now_s = self._kcl, self.clock()
        if kcl is None or kcl.is_asleep or now_s - self.scanned_s >= FAILOVERS_PER_SCAN_BELOW_LEADER * self._failover_s:
            return False
        keys = await kcl.owned_keys()
        if keys is None:
            return False

        rows: list[LeaseRow] = []

        async def look(key: str) -> None:
            if (row := await self.get(key)) is not None and self._is_ours(row):
                rows.append(row)

        await side_by_side(look, [key for key in keys if key not in self._worker_state], LOOKS_AT_ONCE_MAX)
        if any(self._is_orphan(row) for row in rows):
            return False
        for row in rows:
            self.saw(row)
        self._glanced_s = now_s
        return True

    def _is_orphan(self, row: LeaseRow) -> bool:
        """True for a lease that is new here and has a parent that is not in sight.

        That parent may have got its lease since the last scan. It would count as read to its end, and the child would
        be read before it. A scan shows both.
        """
        return row.key not in self.leases and not self.leases.keys() >= {*lease_view(row).parents}

    def _is_ours(self, row: LeaseRow) -> bool:
        return row.stream in self._streams

    async def get(self, key: str) -> LeaseRow | None:
        """Read one lease by a consistent read; None also for a row that cannot be read, which a scan reports."""
        try:
            return await self._table.get(key)
        except NotALeaseError:
            self.forget_scan()
            return None

    async def scan(self) -> Listing:
        """Read all leases."""
        sent_s = self.clock()
        listing = await self._table.scan(consistent=True)
        self.scanned_s = self.clock()
        self.unreadable = listing.unreadable
        found = {row.key: row for row in listing.rows if self._is_ours(row)}
        for key, at_s in self._saw_s.items():  # What was seen since the scan was sent is not undone by it.
            row = self.leases.get(key)
            if at_s >= sent_s and row is not None and (key not in found or found[key].counter < row.counter):
                found[key] = row
        self._saw_s.clear()
        ours = list(found.values())
        self._came_from = {key: one for key, one in self._came_from.items() if key in found}
        for row in ours:
            self._note_former(row)
        self._observed_counters.look_at_leases(ours, self.scanned_s)
        self.before, self.scan_sent_s = self.leases, sent_s
        self.leases = found
        mine = {row.key for row in ours if row.actual_owner == self.id}
        self._former = mine if self._former is None else self._former & mine
        return listing

    def is_mine(self, row: LeaseRow) -> bool:
        """True when a lease that has this worker's name is this worker's.

        Another process of that name, which lives, may have the lease: the row names that process, or the lease had the
        name when this worker came. Only the lease's silence shows that it does not. Then no other worker will take the
        lease for long, since the name's owner lives for them.
        """
        if row.actual_owner != self.id:
            return False
        if row.twin_of(self.id, self.process) is None and row.key not in (self._former or ()):
            return True
        known = self.leases.get(row.key)
        return known is not None and known.counter == row.counter and self.view(row).unmoved_s > self._failover_s

    def saw(self, row: LeaseRow) -> None:
        """Note a lease that was read by itself."""
        self._note_former(row)
        self.leases[row.key] = row
        self._saw_s[row.key] = self.clock()
        self._observed_counters.look(row.key, row.counter, self.clock(), owner=row.owner)

    def _note_former(self, row: LeaseRow) -> None:
        """Note for a lease that has this worker's name now which worker had it, and whether its counter moved then."""
        before = self.leases.get(row.key)
        if row.actual_owner == self.id and before is not None and before.actual_owner not in (None, self.id):
            moved = self._observed_counters.unmoved_s(row.key, self.clock()) <= MOVING_FAILOVERS * self._failover_s
            self._came_from[row.key] = before.actual_owner, moved

    def came_from_living(self, key: str) -> bool | None:
        """Say whether the former owner of a lease that was given to this worker lived then. None: there was none."""
        owner, moved = self._came_from.get(key, (None, False))
        return None if owner is None else moved or owner in self.members.rows

    def is_robbed(self, row: LeaseRow) -> bool:
        """True when a take of this lease is a steal from a KCL worker that renews it, and hears of it later."""
        owner = row.actual_owner
        strange = owner is not None and owner != self.id and owner not in self.members.rows
        return strange and self.fleet is Fleet.KCL2 and self.view(row).unmoved_s <= self._failover_s

    def view(self, row: LeaseRow) -> LeaseView:
        """Return a lease as decisions look at it. A lease of another process of this worker's name counts as a
        stranger's: only silence makes it free.
        """
        return self._view_at(row, self.clock())

    def _view_at(self, row: LeaseRow, now_s: float) -> LeaseView:
        view = lease_view(row, self._observed_counters.unmoved_s(row.key, now_s))
        twin = row.twin_of(self.id, self.process)
        return view if twin is None else replace(view, owner=twin)

    def views(self) -> dict[str, LeaseView]:
        """Return all leases as decisions look at them, by their keys."""
        return {key: self.view(row) for key, row in self.leases.items()}

    def without_owner(self) -> int:
        """Return how many shards could be read and have no worker that lives, by the last look at each table: while a
        table cannot be read, nothing is known of the others, so none of them is taken for dead.
        """
        known_s = min(self._looked_s, self.scanned_s)
        # Any thread may ask, while the loop puts a lease that it has seen into the same table: the copy is made in one
        # step of the interpreter.
        rows = list(self.leases.values())
        views = startable(self._view_at(row, known_s) for row in rows)
        workers = self.workers(self.members.quiet(known_s))
        return sum(view.owner != self.id and is_free(view, workers, self._failover_s) for view in views)

    def workers(self, silent: Collection[str]) -> dict[str, WorkerView]:
        """Return all workers but this one, as decisions look at them, by their ids."""
        now_s = self.clock()
        return {
            one: worker_view(row, alive=one not in silent, unmoved_s=self.members.unmoved_s(one, now_s))
            for one, row in self.members.rows.items()
        }


def _picture(row: WorkerRow) -> object:
    given = frozenset(row.given.items())
    return (row.held, row.wanted, given, row.warm, row.leaving, row.leases_max, row.avoids)
