"""Applications as their tables show them: leases, workers, and which consumer wrote the rows. No service is called
here.

One table may hold the leases of a KCL 1.x, 2.x or 3.x, of Shardway, or of several of these at a time.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from shardway.core.assignment.kcl.rows import METRICS_ENTITY, coordination
from shardway.core.leases.lease_key import LeaseKey
from shardway.core.leases.row import ENTITY, LEASE_ENTITY, NOTE, LeaseRow
from shardway.core.sequence import just_before, second_of
from shardway.errors import OptionError
from shardway.inspect.moments import utc
from shardway.inspect.values import Missing
from shardway.spark.positions import Kind, ShardPosition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardway.core.assignment.kcl.fleet import Coordination
    from shardway.core.leases.listing import Listing
    from shardway.core.leases.worker_row import WorkerRow

    Rows = Mapping[str, Mapping[str, Any]]


WORKERS_SUFFIX = "-Workers"
COORDINATOR_SUFFIX = "-CoordinatorState"
METRICS_SUFFIX = "-WorkerMetricStats"
SUFFIXES = (WORKERS_SUFFIX, COORDINATOR_SUFFIX, METRICS_SUFFIX)
_LEADER_ROW = "Leader"


class TableView(msgspec.Struct, frozen=True, kw_only=True):
    """A table in DynamoDB, as DescribeTable describes it."""

    name: str
    status: str
    billing: str
    """``on demand`` or ``provisioned``."""
    read_units: int | None = None
    write_units: int | None = None
    """The provisioned writes a second, as ``read_units`` are the reads; None: the table is billed by its calls."""
    items: int | None = None
    """The number of items that DynamoDB counted some hours ago."""
    indexes: dict[str, str] = {}
    """The status of each index, by the index's name."""


class ApplicationFound(msgspec.Struct, frozen=True, kw_only=True):
    """An application in a listing."""

    name: str
    store: str
    """``dynamodb``, ``sqlite`` or ``postgresql``."""
    table: str
    workers_table: bool = False
    """True: there is a table of Shardway's workers beside the leases."""
    coordinator_table: bool = False
    """True: there is a table of the KCL 3.0 to 3.4 beside the leases."""
    leases: int | None = None
    """The number of rows that the store counts; DynamoDB counts them every six hours."""


class ApplicationsReport(msgspec.Struct, frozen=True, kw_only=True):
    """The applications that have lease tables in a store."""

    schema: str = "shardway.applications/1"
    applications: list[ApplicationFound]
    missing: list[Missing]
    calls: dict[str, int]


class QueryPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Where a Spark query stands in a shard, as the note of the lease's row has it."""

    kind: str
    """``next`` (the record with this number comes next), ``after``, ``since``, ``beginning`` or ``ended``."""
    sequence_number: str | None
    read_until: dt.datetime | None
    """All records that had arrived by then are read, or are not wanted."""


class LeaseView(msgspec.Struct, frozen=True, kw_only=True):
    """A lease: which worker has a shard, and how far it is."""

    key: str
    shard_id: str
    stream: str | None
    """The stream's name, where the row has it."""
    owner: str | None
    """The worker that may read and checkpoint now."""
    next_owner: str | None
    """The worker that the lease is being handed to."""
    counter: int
    checkpoint: str
    """A sequence number, TRIM_HORIZON, LATEST, AT_TIMESTAMP or SHARD_END."""
    sub_sequence_number: int
    checkpoint_at: dt.datetime | None
    """When the record at the checkpoint arrived, by its sequence number."""
    pending_checkpoint: str | None
    switches: int
    """Changes of owner since the last checkpoint."""
    ended: bool
    parents: tuple[str, ...]
    children: tuple[str, ...]
    first_hash_key: str | None
    last_hash_key: str | None
    read_until: dt.datetime | None
    """All records that had arrived by then are settled (Shardway alone writes this)."""
    process: str | None = None
    """Which process of the owner's name has the lease (Shardway alone writes this)."""
    query: QueryPosition | None = None
    """Where the Spark query stands that keeps the row up; no worker owns it meanwhile."""
    throughput_kib_s: float | None = None
    """The rate at which the owner reads the shard, in KiB a second, as it says itself (Shardway and the KCL 3.x)."""


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker: one that has a row of its own, or that leases name as their owner."""

    worker_id: str
    leases: int
    """The number of unfinished leases whose shards the worker may read now."""
    kind: str
    """``shardway``, ``kcl 3.x`` or, where leases alone name it, ``kcl``."""
    leader: bool = False
    """True: the worker is the leader of a KCL 3.x fleet."""
    leaving: bool = False
    version: str | None = None
    counter: int | None = None
    """A number that grows with each write of the worker's row."""
    failover_s: float | None = None
    updated_at: dt.datetime | None = None
    """When the worker wrote its own row last, by the service's time; of a KCL 3.x worker its metrics row, by that
    worker's clock. None: it has no row that tells it.
    """


class ApplicationView(msgspec.Struct, frozen=True, kw_only=True):
    """All that the tables of an application say."""

    name: str
    store: str
    kinds: list[str]
    """Which consumers have written the rows."""
    streams: list[str]
    """The streams that rows name. A KCL table for one stream names none."""
    leases: list[LeaseView]
    workers: list[WorkerView]
    unreadable: dict[str, str]
    """The keys of rows that cannot be read as leases, each with the reason."""
    other_rows: list[str]
    """Keys of rows that are no leases, such as those of the KCL 3.5."""
    client_version: str | None
    """The mode that a KCL 3.x fleet has written down."""
    table_migration: str | None
    tables: list[TableView]
    listed: bool = True
    """False: the credentials do not show the rows, so an empty ``leases`` means nothing."""
    beside: tuple[str, ...] = ()
    """The suffixes of the names of tables that were found beside the leases, as ``-CoordinatorState``."""


class ApplicationReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one application."""

    schema: str = "shardway.application/1"
    application: ApplicationView
    missing: list[Missing]
    calls: dict[str, int]


class ApplicationRows(NamedTuple):
    """The rows that were read of an application."""

    listing: Listing
    workers: Sequence[WorkerRow] = ()
    states: Rows | None = None
    metrics: Rows | None = None
    """Rows of the KCL 3.0 to 3.4 by their keys; None: there is no such table, or it is not shown."""
    tables: Sequence[TableView] = ()
    listed: bool = True
    """False: the credentials do not show the rows."""
    beside: Sequence[str] = ()
    """The suffixes of the names of tables that are there beside the leases."""


def application_view(name: str, store: str, rows: ApplicationRows) -> ApplicationView:
    """Return the view of an application by all of its rows. No row makes this fail."""
    listing = rows.listing
    leases = [lease_view(row) for row in sorted(listing.rows, key=lambda row: row.key)]
    states: Rows = {**listing.foreign, **(rows.states or {})}
    beside = {key: row for key, row in listing.foreign.items() if row.get(ENTITY) == METRICS_ENTITY}
    metrics: Rows = {**beside, **(rows.metrics or {})}
    known = coordination(states, metrics)
    streams = {one.stream for one in leases if one.stream} | {_name(row.stream) for row in rows.workers if row.stream}
    return ApplicationView(
        name=name,
        store=store,
        kinds=_kinds(rows),
        streams=sorted(streams),
        leases=leases,
        workers=_workers(leases, rows.workers, known, _leader(states)),
        unreadable=dict(listing.unreadable),
        other_rows=sorted(listing.foreign),
        client_version=known.client_version,
        table_migration=known.table_migration,
        tables=list(rows.tables),
        listed=rows.listed,
        beside=tuple(rows.beside),
    )


def only_stream(application: ApplicationView) -> str:
    """Return the one stream that an application's rows name. Raises OptionError where they name none, or several."""
    if len(application.streams) == 1:
        return application.streams[0]
    found = ", ".join(application.streams)
    raise OptionError(
        f"{application.name} reads several streams ({found}): choose one with --stream"
        if found
        else f"the leases of {application.name} do not name their stream: name it with --stream"
    )


def lease_view(row: LeaseRow) -> LeaseView:
    """Return the view of one lease."""
    key = LeaseKey.parse(row.key)
    checkpoint = row.checkpoint
    at_s = second_of(checkpoint.position.sequence_number) if checkpoint.is_position else None
    stream = key.stream.name if key.stream is not None else None
    if stream is None and row.of_stream is not None:
        stream = _name(row.of_stream.rpartition(" ")[0])
    return LeaseView(
        key=row.key,
        shard_id=key.shard_id,
        stream=stream,
        owner=row.actual_owner,
        next_owner=row.handoff_to,
        counter=row.counter,
        checkpoint=checkpoint.text,
        sub_sequence_number=checkpoint.sub_sequence_number,
        checkpoint_at=_time(at_s),
        pending_checkpoint=None if row.pending is None else row.pending.text,
        throughput_kib_s=row.throughput_kib_s,
        switches=row.switches,
        ended=row.ended,
        parents=tuple(sorted(row.parents)),
        children=tuple(sorted(row.children)),
        first_hash_key=None if row.first_hash_key is None else str(row.first_hash_key),
        last_hash_key=None if row.last_hash_key is None else str(row.last_hash_key),
        read_until=_time(None if row.read_until_ms is None else row.read_until_ms / 1000),
        process=row.named_process,
        query=query_position(row),
    )


def query_position(row: LeaseRow) -> QueryPosition | None:
    """Return the position of the Spark query that keeps the row up to date; None for a row that a worker has, or that
    something else has moved since.
    """
    note = str(row.others.get(NOTE, "")).partition(" ")[2]
    if not note or row.actual_owner is not None:
        return None
    try:
        found = ShardPosition.decode(note)
    except ValueError:
        return None
    if found.kind is Kind.ENDED or found.sequence_number is None:
        agrees = row.ended if found.kind is Kind.ENDED else not (row.ended or row.checkpoint.is_position)
    else:
        number = just_before(found.sequence_number) if found.kind is Kind.NEXT else found.sequence_number
        agrees = row.checkpoint.is_position and row.checkpoint.position.sequence_number == number
    if not agrees:
        return None
    number_text = None if found.sequence_number is None else str(found.sequence_number)
    read_until = _time(found.witness_ms / 1000 if found.witness_ms else None)
    return QueryPosition(kind=found.kind.name.lower(), sequence_number=number_text, read_until=read_until)


def _workers(
    leases: Sequence[LeaseView], rows: Sequence[WorkerRow], known: Coordination, leader: str | None
) -> list[WorkerView]:
    held = Counter(one.owner for one in leases if one.owner is not None and not one.ended)
    views = {
        row.worker_id: WorkerView(
            worker_id=row.worker_id,
            leases=held[row.worker_id],
            kind="shardway",
            leaving=row.leaving,
            version=row.version or None,
            counter=row.counter,
            failover_s=row.failover_s,
            updated_at=_time(None if row.written_ms is None else row.written_ms / 1000),
        )
        for row in rows
    }
    for worker_id, updated_s in known.updated_epoch_s.items():
        # A Shardway worker shows itself to a KCL 3.x leader by such a row, too: its own row has said more.
        if worker_id not in views:
            views[worker_id] = WorkerView(
                worker_id=worker_id,
                leases=held[worker_id],
                kind="kcl 3.x",
                leader=worker_id == leader,
                updated_at=_time(updated_s),
            )
    for worker_id, count in held.items():
        if worker_id not in views:
            views[worker_id] = WorkerView(worker_id=worker_id, leases=count, kind="kcl", leader=worker_id == leader)
    return sorted(views.values(), key=lambda one: (-one.leases, one.worker_id))


def _kinds(rows: ApplicationRows) -> list[str]:
    leases, foreign = rows.listing.rows, rows.listing.foreign
    kinds = []
    if rows.workers or any(row.process is not None or row.of_stream is not None for row in leases):
        kinds.append("Shardway")
    if any(query_position(row) is not None for row in leases):
        kinds.append("Spark query")
    if any(row.entity == LEASE_ENTITY for row in leases) or any(ENTITY in row for row in foreign.values()):
        kinds.append("KCL 3.5 or later")
    elif rows.states or rows.metrics:
        kinds.append("KCL 3.0 to 3.4")
    if not kinds and leases:
        newer = any(row.first_hash_key is not None or row.children for row in leases)
        kinds.append("KCL 2.x" if newer else "KCL 1.x")
    return kinds


def _leader(states: Rows) -> str | None:
    row = states.get(_LEADER_ROW, {})
    owner = row.get("ownerName")
    return owner if isinstance(owner, str) and "isReleased" not in row else None


def _name(arn: str) -> str:
    return arn.rpartition("/")[2]


def _time(epoch_s: float | None) -> dt.datetime | None:
    """Return the time as a datetime; None for None, and for what no datetime can hold: any program may write rows."""
    try:
        return None if epoch_s is None else utc(epoch_s)
    except (ValueError, OverflowError, OSError):
        return None
