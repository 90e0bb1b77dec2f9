"""A lease is kept as a row of the table: with the KCL's attributes, read and written as the KCL does.

Stores exchange rows as plain attributes: str, int, float, bytes and frozenset[str] by the KCL's names, without the
types of any database. What is absent has no entry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from shardway.core.leases.checkpoint import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


KEY = "leaseKey"
OWNER = "leaseOwner"
COUNTER = "leaseCounter"
CHECKPOINT = "checkpoint"
SUB = "checkpointSubSequenceNumber"
PENDING = "pendingCheckpoint"
PENDING_SUB = "pendingCheckpointSubSequenceNumber"
PENDING_STATE = "pendingCheckpointState"
SWITCHES = "ownerSwitchesSinceCheckpoint"
PARENTS = "parentShardId"
CHILDREN = "childShardIds"
FIRST_HASH_KEY = "startingHashKey"
LAST_HASH_KEY = "endingHashKey"
STREAM = "streamName"
SHARD_ID = "shardId"
THROUGHPUT = "throughputKBps"
CHECKPOINT_OWNER = "checkpointOwner"
ENTITY = "entityType"
LEASE_ENTITY = "LEASE"
READ_UNTIL = "readUntilMillis"
PROCESS = "shardwayProcess"
OF_STREAM = "shardwayStream"
NOTE = "shardwayPosition"
"""The last attribute of ours, in which a Spark query has its position. The KCL leaves alone what it does not know."""

ATTRIBUTES = (
    KEY, OWNER, COUNTER, CHECKPOINT, SUB, PENDING, PENDING_SUB, PENDING_STATE, SWITCHES, PARENTS, CHILDREN,
    FIRST_HASH_KEY, LAST_HASH_KEY, STREAM, SHARD_ID, THROUGHPUT, CHECKPOINT_OWNER, ENTITY, READ_UNTIL, PROCESS,
    OF_STREAM,
)  # fmt: skip
"""The attributes that a lease's row may hold by the KCL, and those that Shardway adds."""

THROUGHPUT_DIGITS = 6
"""The number of decimals with which the KCL prints the throughput."""

_NO_ATTRIBUTES: Mapping[str, Any] = MappingProxyType({})


class NotALeaseError(ValueError):
    """A row of the table is not a lease: another kind of entity, or it lacks what each lease has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRow:
    """One lease, as its row has it."""

    key: str
    """The key of the lease: a shard's id, or a multi-stream key (`LeaseKey`)."""
    counter: int = 0
    """A number that grows by one with each write of an owner: the heartbeat, and the condition of writes."""
    checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON
    owner: str | None = None
    """The worker id of the owner; None when free. While the KCL 3.x hands a lease over it is the *next* owner: see
    `actual_owner`.
    """
    checkpoint_owner: str | None = None
    """The worker that still reads and checkpoints. It is named only while the KCL 3.x hands the lease over."""
    pending: Checkpoint | None = None
    """A checkpoint that was prepared and is not committed."""
    pending_state: bytes | None = None
    """The bytes that the application stored with the prepared checkpoint."""
    switches: int = 0
    """The number of changes of owner since the last checkpoint."""
    parents: frozenset[str] = frozenset()
    """The shard ids of the parents, without a stream also in multi-stream tables."""
    children: frozenset[str] = frozenset()
    """The shard ids of the children, which are known once the shard has ended."""
    first_hash_key: int | None = None
    last_hash_key: int | None = None
    """The largest hash key of the shard, which belongs to it."""
    stream: str | None = None
    """The text ``account:stream:epoch`` of the stream, in multi-stream tables."""
    shard_id: str | None = None
    """The bare id of the shard, in multi-stream tables."""
    throughput_kib_s: float | None = None
    """The rate that the owner says it reads, in KiB/s (KCL 3.x)."""
    entity: str | None = None
    """The mark ``LEASE`` that the KCL from 3.5 on writes into its leases; None for older rows."""
    read_until_ms: int | None = None
    """The time (epoch milliseconds) up to which all that had arrived in the shard is settled: so a shard that was
    silent since has lost nothing, however old the checkpoint. A lease that begins at LATEST or AT_TIMESTAMP has it from
    the beginning: what arrived before is not wanted, and each owner begins there. Rows that a KCL worker has made do
    not have it (`lacks_time`).
    """
    process: str | None = None
    """The process of the owner's name that took the lease, or is to have it (`process_name`). The KCL does not know it:
    it counts only while it is of the owner's name.
    """
    of_stream: str | None = None
    """The stream that the shard is of (`StreamMark.text`); None: no worker has written that."""
    others: Mapping[str, Any] = field(default_factory=lambda: _NO_ATTRIBUTES, hash=False)
    """The attributes that Shardway does not know. No write touches them."""

    @property
    def lacks_time(self) -> bool:
        """True for a lease that begins at a time which the row does not say: a KCL worker or a tool has
        made it. Each reader would begin elsewhere, so an owner stores the time with its take.
        """
        return self.checkpoint.is_timed and self.read_until_ms is None

    @property
    def actual_owner(self) -> str | None:
        """The worker that may read and checkpoint now; None when the lease is free."""
        return self.checkpoint_owner if self.checkpoint_owner is not None else self.owner

    @property
    def handoff_to(self) -> str | None:
        """The next owner, if the KCL's leader wants the lease handed over; else None."""
        return self.owner if self.checkpoint_owner is not None else None

    @property
    def named_process(self) -> str | None:
        """The process of the actual owner's name that has the lease; None: the row does not say, as when a KCL worker
        made that owner.
        """
        owner, process = self.actual_owner, self.process
        return process if owner is not None and process is not None and process.endswith(f"/{owner}") else None

    def twin_of(self, worker: str, process: str | None) -> str | None:
        """Return another process of this worker's name that has the lease, for which ``process`` has to wait as for any
        other owner; else None. No worker has the lease of a shard that has ended.
        """
        found = self.named_process if self.actual_owner == worker and not self.ended else None
        return None if found == process else found

    @property
    def ended(self) -> bool:
        """True when the shard is done."""
        return self.checkpoint.is_end

    def attributes(self) -> dict[str, Any]:
        """Return the plain attributes, also those that are unknown; empty sets and None have no entry."""
        values: dict[str, Any] = {
            **self.others,
            KEY: self.key,
            OWNER: self.owner,
            COUNTER: self.counter,
            CHECKPOINT: self.checkpoint.text,
            SUB: self.checkpoint.sub_sequence_number,
            **pending_attributes(self.pending, self.pending_state),
            SWITCHES: self.switches,
            PARENTS: self.parents or None,
            CHILDREN: self.children or None,
            FIRST_HASH_KEY: _text(self.first_hash_key),
            LAST_HASH_KEY: _text(self.last_hash_key),
            STREAM: self.stream,
            SHARD_ID: self.shard_id,
            THROUGHPUT: self.throughput_kib_s,
            CHECKPOINT_OWNER: self.checkpoint_owner,
            ENTITY: self.entity,
            READ_UNTIL: self.read_until_ms,
            PROCESS: self.process,
            OF_STREAM: self.of_stream,
        }
        return {name: value for name, value in values.items() if value is not None}


def process_name(nonce: str, worker: str) -> str:
    """Return the name of one process among all that ever had this worker's id."""
    # When a write is refused, the row may show that it was made before. So two processes of one name must never write
    # the same: the second would take the write of the first for its own.
    return f"{nonce}/{worker}"


def pending_attributes(pending: Checkpoint | None, state: bytes | None) -> dict[str, Any]:
    """Return the three attributes of a prepared checkpoint; None for what is absent."""
    return {
        PENDING: None if pending is None else pending.text,
        PENDING_SUB: None if pending is None else pending.sub_sequence_number,
        PENDING_STATE: None if pending is None else state,
    }


def is_lease(attributes: Mapping[str, Any]) -> bool:
    """False for rows of another kind (KCL 3.5's), and for rows without counter: workers before 3.5 choke on these."""
    return attributes.get(ENTITY, LEASE_ENTITY) == LEASE_ENTITY and isinstance(attributes.get(COUNTER), int)


def seems_lease(attributes: Mapping[str, Any]) -> bool:
    """True for a row that has a checkpoint and a counter, whatever they are: a hand may have written text."""
    named = {KEY, COUNTER, CHECKPOINT} <= attributes.keys()
    return named and attributes.get(ENTITY, LEASE_ENTITY) == LEASE_ENTITY


def lease_row(attributes: Mapping[str, Any]) -> LeaseRow:
    """Make a lease of plain attributes. Raises NotALeaseError."""
    if not is_lease(attributes):
        counter = attributes.get(COUNTER)
        what = f": its {COUNTER} is {type(counter).__name__}, not a whole number" if seems_lease(attributes) else ""
        raise NotALeaseError(f"the row {attributes.get(KEY)!r} is not a lease{what}")
    try:
        return _lease_row(attributes)
    except (KeyError, TypeError, ValueError, OverflowError) as fault:
        raise NotALeaseError(f"the row {attributes.get(KEY)!r} cannot be read as a lease: {fault!r}") from fault


def _lease_row(of: Mapping[str, Any]) -> LeaseRow:
    pending = of.get(PENDING)
    state = of.get(PENDING_STATE)
    throughput = of.get(THROUGHPUT)
    return LeaseRow(
        key=_str(of[KEY]),
        counter=of[COUNTER],
        checkpoint=Checkpoint.parse(_str(of[CHECKPOINT]), int(of.get(SUB, 0))),
        owner=_str_or_none(of.get(OWNER)),
        checkpoint_owner=_str_or_none(of.get(CHECKPOINT_OWNER)),
        pending=None if pending is None else Checkpoint.parse(_str(pending), int(of.get(PENDING_SUB, 0))),
        # The KCL's create writes a number under this name, its update bytes.
        pending_state=state if isinstance(state, bytes) else None,
        switches=int(of.get(SWITCHES, 0)),
        parents=_names(of.get(PARENTS, ())),
        children=_names(of.get(CHILDREN, ())),
        first_hash_key=_int(of.get(FIRST_HASH_KEY)),
        last_hash_key=_int(of.get(LAST_HASH_KEY)),
        stream=_str_or_none(of.get(STREAM)),
        shard_id=_str_or_none(of.get(SHARD_ID)),
        throughput_kib_s=None if throughput is None else float(throughput),
        entity=_str_or_none(of.get(ENTITY)),
        read_until_ms=None if of.get(READ_UNTIL) is None else int(of[READ_UNTIL]),
        process=_str_or_none(of.get(PROCESS)),
        of_stream=_str_or_none(of.get(OF_STREAM)),
        others=MappingProxyType({name: value for name, value in of.items() if name not in _KNOWN_ATTRIBUTES})
        or _NO_ATTRIBUTES,
    )


_KNOWN_ATTRIBUTES = frozenset(ATTRIBUTES)


def _str(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text is wanted, not {type(value).__name__}")
    return value


def _str_or_none(value: object) -> str | None:
    return None if value is None else _str(value)


def _names(value: Iterable[object]) -> frozenset[str]:
    if isinstance(value, str | bytes):
        raise TypeError("several texts are wanted, not one")
    return frozenset(map(_str, value))


def _int(value: str | None) -> int | None:
    return None if value is None else int(value)


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)
