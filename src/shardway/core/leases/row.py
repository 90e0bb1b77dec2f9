"""A lease is kept as a row of the table: with the KCL's attributes, read and written as the KCL does.

Stores exchange rows as plain attributes: str, int, float, bytes and frozenset[str] by the KCL's names, without the
types of any database. What is absent has no entry.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from shardway.core.sequence import second_of
from shardway.model import Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# --- how far a shard is done ----------------------------------------------------------------------
# The progress is a position, or one of the KCL's four words. The order and the texts are the KCL's
# (``ExtendedSequenceNumber``):
# AT_TIMESTAMP < TRIM_HORIZON < LATEST < any position < SHARD_END.

_WORDS = ("AT_TIMESTAMP", "TRIM_HORIZON", "LATEST")
_SHARD_END = "SHARD_END"
_POSITION_RANK = len(_WORDS)
_END_RANK = _POSITION_RANK + 1
_NONE = Position(0, 0)


@dataclass(frozen=True, slots=True, order=True)
class Checkpoint:
    """The progress of a lease, as it is stored. Checkpoints compare; those of a lease never go back.

    A position means: up to and with this user record everything is settled. The words say where reading begins (the
    times of LATEST and AT_TIMESTAMP stand beside them: `LeaseRow.read_until_ms`), or that the shard is done.
    """

    rank: int
    position: Position = _NONE
    """The position; (0, 0) for the words."""
    digits: int = field(default=0, compare=False)
    """The number of digits that a sequence number was written with: emulators pad with zeros, and look them up
    as text.
    """

    AT_TIMESTAMP: ClassVar[Checkpoint]
    TRIM_HORIZON: ClassVar[Checkpoint]
    LATEST: ClassVar[Checkpoint]
    SHARD_END: ClassVar[Checkpoint]

    @classmethod
    def at(cls, position: Position) -> Checkpoint:
        """Return the checkpoint that is settled up to and with this position."""
        if position.sequence_number < 0 or position.sub_sequence_number < 0:
            raise ValueError("a position is not negative")
        return cls(_POSITION_RANK, position)

    @classmethod
    def parse(cls, text: str, sub_sequence_number: int = 0) -> Checkpoint:
        """Make a checkpoint of a lease's two attributes. Raises ValueError for what is neither a word nor a number."""
        if text in _WORDS:
            return cls(_WORDS.index(text))
        if text == _SHARD_END:
            return cls(_END_RANK)
        if not (text.isascii() and text.isdigit()) or sub_sequence_number < 0:
            raise ValueError("a checkpoint is a word of the KCL or a decimal sequence number")
        return cls(_POSITION_RANK, Position(int(text), sub_sequence_number), len(text))

    @property
    def is_position(self) -> bool:
        """True when the checkpoint names a user record; False for the words."""
        return self.rank == _POSITION_RANK

    @property
    def is_timed(self) -> bool:
        """True for LATEST and AT_TIMESTAMP: reading begins at a time, which the word alone does not say."""
        return self in (Checkpoint.LATEST, Checkpoint.AT_TIMESTAMP)

    @property
    def is_end(self) -> bool:
        """True when the shard is done."""
        return self.rank == _END_RANK

    @property
    def text(self) -> str:
        """The text that the attribute ``checkpoint`` holds."""
        if self.rank == _POSITION_RANK:
            return str(self.position.sequence_number).zfill(self.digits)
        return _SHARD_END if self.rank == _END_RANK else _WORDS[self.rank]

    @property
    def sub_sequence_number(self) -> int:
        """The number that the attribute ``checkpointSubSequenceNumber`` holds: 0 for the words."""
        return self.position.sub_sequence_number


Checkpoint.AT_TIMESTAMP = Checkpoint(0)
Checkpoint.TRIM_HORIZON = Checkpoint(1)
Checkpoint.LATEST = Checkpoint(2)
Checkpoint.SHARD_END = Checkpoint(_END_RANK)

# --- a row ----------------------------------------------------------------------------------------

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

_NOTHING: Mapping[str, Any] = MappingProxyType({})


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
    others: Mapping[str, Any] = field(default_factory=lambda: _NOTHING, hash=False)
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
        others=MappingProxyType({name: value for name, value in of.items() if name not in _KNOWN}) or _NOTHING,
    )


_KNOWN = frozenset(ATTRIBUTES)


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


# --- reading that was begun before -----------------------------------------------------------------


def goes_on(begun: LeaseRow, row: LeaseRow, first: Position | None) -> bool:
    """Return whether reading that was begun where a lease stood has all that follows the lease as it stands now.
    ``first`` is the first position that was read; None: none was yet.

    Reading that begins at a time, or at LATEST as a word, may begin behind a record that the owner has stored as its
    checkpoint since: that owner may have opened LATEST earlier, or have sought an older place. Only a position that was
    met shows that nothing lies between. The same holds where an operator has moved the lease back.
    """
    if row.checkpoint.is_position:
        if begun.checkpoint.is_timed:
            return first is not None and first <= row.checkpoint.position
        return begun.checkpoint <= row.checkpoint
    if begun.checkpoint != row.checkpoint:
        return False
    before_ms, now_ms = begun.read_until_ms, row.read_until_ms
    if not row.checkpoint.is_timed or before_ms == now_ms:
        return True
    # What arrived up to the later time is settled. A word without a time may have been opened later than the row says.
    return before_ms is not None and now_ms is not None and before_ms < now_ms


# --- a scan of a table ----------------------------------------------------------------------------
# A scan of a lease table finds leases, and rows that are none.


class Listing(NamedTuple):
    """The rows of one scan."""

    rows: list[LeaseRow]
    foreign: dict[str, Mapping[str, Any]]
    """The rows of other kinds by their key, as plain attributes: the KCL 3.5 keeps its own beside the leases."""
    unreadable: Mapping[str, str]
    """The reasons, by the keys of rows that seem to be leases and cannot be read as such. They are left alone."""


def listing_of(items: Iterable[Mapping[str, Any]]) -> Listing:
    """Sort out rows that come as plain attributes. No row makes this fail."""
    rows: list[LeaseRow] = []
    foreign: dict[str, Mapping[str, Any]] = {}
    unreadable: dict[str, str] = {}
    for item in items:
        if not is_lease(item) and not seems_lease(item):
            foreign[str(item.get(KEY))] = item
            continue
        try:
            rows.append(lease_row(item))
        except NotALeaseError as fault:
            unreadable[str(item.get(KEY))] = str(fault)
    return Listing(rows, foreign, unreadable)


# --- of which stream a lease is -------------------------------------------------------------------
# A lease has to say of which stream it is: a stream that is deleted and made anew has the same name and the same shard
# ids.
#
# Where lease keys do not name the stream, each row does, by its ARN and the time of its creation. Where a row does not,
# as rows of KCL workers, its positions show it: no record of a stream is older than the stream.

CLOCKS_DIFFER_S = 60
"""The seconds by which the clock of a record's time may differ from that of a stream's creation."""


class StreamMark(NamedTuple):
    """A stream, among all that ever had its name."""

    arn: str
    created_s: int
    """The time of creation in epoch seconds; 0: the service does not tell it."""

    @property
    def text(self) -> str:
        """The text that a row holds."""
        return f"{self.arn} {self.created_s}"

    def disowns(self, row: LeaseRow) -> bool:
        """True for a lease that is certainly of another stream, or of a former one of this name."""
        if row.of_stream is not None:
            arn, _, created = row.of_stream.rpartition(" ")
            return arn != self.arn or (created not in ("0", str(self.created_s)) and self.created_s != 0)
        if not row.checkpoint.is_position:
            return False
        arrived_s = second_of(row.checkpoint.position.sequence_number)
        return arrived_s is not None and arrived_s < self.created_s - CLOCKS_DIFFER_S


def told(rows: Iterable[LeaseRow], mark: StreamMark) -> str:
    """Return what is wrong with leases that a stream disowns, for a message."""
    listed = list(rows)
    named = next((row.of_stream for row in listed if row.of_stream is not None), None)
    keys = ", ".join(row.key for row in listed[:3]) + (", ..." if len(listed) > 3 else "")
    whose = "a former stream of this name" if named is None or named.rpartition(" ")[0] == mark.arn else named
    return f"{len(listed)} leases ({keys}) are of {whose}, and not of {mark.arn}, created at {mark.created_s}"


# --- keys of leases -------------------------------------------------------------------------------
# The key of a lease is a shard's id, or, where one table holds several streams, the stream in front of it.
#
# The KCL writes ``account:stream:creation epoch in seconds:shard`` in its multi-stream mode.

_STREAM = re.compile(r"(\d+):([^:]+):(\d+)", re.ASCII)


class StreamKey(NamedTuple):
    """A stream as lease keys name it."""

    account: str
    name: str
    created_s: int
    """The time of creation in epoch seconds, above 0. It distinguishes a stream from a former one of the same name."""

    @property
    def text(self) -> str:
        """The text ``account:stream:creation epoch``."""
        return f"{self.account}:{self.name}:{self.created_s}"

    @classmethod
    def parse(cls, text: str) -> StreamKey | None:
        """Read a key; None for a text that is not written so."""
        match = _STREAM.fullmatch(text)
        if match is None or int(match[3]) <= 0:
            return None
        return cls(match[1], match[2], int(match[3]))


class LeaseKey(NamedTuple):
    """The key of a lease, taken apart."""

    shard_id: str
    stream: StreamKey | None = None
    """The stream; None where the table is for one stream."""

    @property
    def text(self) -> str:
        """The text that the attribute ``leaseKey`` holds."""
        return self.shard_id if self.stream is None else f"{self.stream.text}:{self.shard_id}"

    @classmethod
    def parse(cls, text: str) -> LeaseKey:
        """Read a key; a text that names no stream is a shard's id."""
        head, colon, shard_id = text.rpartition(":")
        stream = StreamKey.parse(head) if colon else None
        return cls(text) if stream is None or not shard_id else cls(shard_id, stream)
