"""The facts that a consumer emits as it shares shards with other workers."""

from __future__ import annotations

from typing import TypeAlias

from shardway.events.base import Event


class _OfTable(Event, frozen=True, gc=False):
    """The base of facts of a lease table, which stands for all streams of its application."""

    table: str

    @property
    def stream(self) -> str:
        """The name of the table: lines of a log begin with it."""
        return self.table


class FleetChanged(_OfTable, frozen=True, gc=False):
    """A consumer finds itself among other workers than before, and their rules hold for it from then on."""

    fleet: str
    """The name of the fleet: alone, kcl 2.x or kcl 3.x."""


class LeaseUpkeepFailed(_OfTable, frozen=True, gc=False):
    """Leases that have served could not be deleted, or missing leases not be made. It is tried again."""

    reason: str
    retry_in_s: float


class LeaseTableFailed(_OfTable, frozen=True, gc=False):
    """A call to the lease table failed, or got no answer. It is tried again; what the call was for waits."""

    call: str
    """The call, as `shardway.ports.LeaseTable` names it: ``write`` and ``create`` are of leases."""
    error_code: str
    """The code of AWS, or the error's class."""
    reason: str
    """The error's message, as a whole."""


class WorkerIdShared(_OfTable, frozen=True, gc=False):
    """Another process has this worker's id, too. Whichever of the two came later gets none of the other's shards for as
    long as the other renews its leases; it takes those that stand still for ``failover_s``. It is emitted once.
    """

    worker_id: str


class LeasesBegunAnew(_OfTable, frozen=True, gc=False):
    """Leases were of another stream, and are begun anew for this one, as the options say."""

    begun_for: str
    """The stream that is read, for which the leases are begun anew."""
    leases: int


class LeaseUnreadable(_OfTable, frozen=True, gc=False):
    """A row cannot be read as a lease, so no worker reads its shard. It goes on when the row is mended."""

    key: str
    """The key of the row."""
    reason: str


class LoopBlocked(Event, frozen=True, gc=False):
    """The program's own code did not let its event loop run, as a call that waits without ``await`` does."""

    application: str
    seconds: float
    so_far: bool
    """True: the loop is still blocked. The event is emitted once, and once more when it is over."""
    effect: str
    """The effect on leases and pages meanwhile."""

    @property
    def stream(self) -> str:
        """The name of the application: lines of a log begin with it."""
        return self.application


class StopBegun(Event, frozen=True, gc=False):
    """A signal asked the consumer to stop. Its shards are handed over, within the drain's deadline."""

    application: str
    signal: str
    """The name of the signal."""

    @property
    def stream(self) -> str:
        """The name of the application: lines of a log begin with it."""
        return self.application


class StopWaits(Event, frozen=True):
    """The consumer is being stopped, and has not ended. The event is emitted each second."""

    application: str
    shards: int
    """The number of shards that are still held."""
    records: int
    """The number of records that are in flight."""
    since_s: float
    left_s: float
    """The seconds that the stop may still take; then what is not settled comes again elsewhere."""
    held: tuple[str, ...] = ()
    """Ten of these shards at most, those with most records in flight first, each as ``STREAM/SHARD: RECORDS``."""

    @property
    def stream(self) -> str:
        """The name of the application: lines of a log begin with it."""
        return self.application


WorkerEvent: TypeAlias = (
    FleetChanged
    | LeaseUpkeepFailed
    | LeaseTableFailed
    | WorkerIdShared
    | LeasesBegunAnew
    | LeaseUnreadable
    | LoopBlocked
    | StopBegun
    | StopWaits
)
"""The facts that a consumer emits as it shares shards with other workers."""
