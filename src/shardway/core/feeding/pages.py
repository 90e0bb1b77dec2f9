"""The pages of a shard have two forms: as a source answers them, and what they are for a consumer.

A source answers by a call (GetRecords), or by the events of a subscription (`ReadPage`). A consumer gets user records:
aggregates are opened, and a `Record` is made when the program looks at one. A handler that counts, or hands the data
on, looks at columns (`UserRecords.datas`), which cost nothing to make.

`FeedCursor` says what of a page is new, what is lost, and until when all is read. Where the log is read, and that no
record is left out, is the matter of the log's cursor (`shardway.core.feeding.log_cursor`):

- A stored position is opened *at* its record, which then comes again and is left out (of an aggregate, the user records
  up to the position are left out). So the reader sees whether the record is still there.
- Retention can also overtake a reader that was cut off for long, or that reads a silent shard. So the reader asks for a
  number again only while its record is younger than the retention. Otherwise reading goes on at the oldest record, and
  what was read before is left out. When a reader is that far behind, its iterator goes on at the oldest record by
  itself, and AWS does not say so.
- LATEST, asked for again because an iterator expired before any record came, would pass over what came meanwhile: it is
  asked for by the time of the first call then.
- TRIM_HORIZON, asked for again, gives what was read before again: from the first record on, the last one read counts.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, overload

from shardway.core.aggregation.reader import open_aggregate
from shardway.core.aggregation.wire_format import MAGIC
from shardway.core.feeding.log_cursor import LogCursor, NextStep, Policy, State, latest_s
from shardway.core.leases.row import Checkpoint
from shardway.core.service_clock import SERVICE_CLOCK_S
from shardway.errors import AggregateError
from shardway.model import IteratorAt, OutsidePolicy, Position, Record, Tags

if TYPE_CHECKING:
    from collections.abc import Iterator


class RawRecord(Protocol):
    """A Kinesis record as it came: it may be an aggregate."""

    @property
    def data(self) -> bytes:
        """The data of the record, as it was put."""

    @property
    def sequence_number(self) -> str:
        """The sequence number in decimal."""

    @property
    def approximate_arrival_timestamp(self) -> float:
        """The arrival time in epoch seconds, of milliseconds' precision."""

    @property
    def partition_key(self) -> str | None:
        """The partition key; None where the stream has none (some emulators)."""


class ChildShard(NamedTuple):
    """A shard that goes on where a closed one has ended."""

    shard_id: str
    parents: tuple[str, ...]
    first_hash_key: int
    last_hash_key: int


class StreamFacts(NamedTuple):
    """The facts of a stream as a whole."""

    arn: str
    created_s: int
    """The time of creation in epoch seconds. It distinguishes a stream from another that had its name before."""
    retention_s: float
    ignores_keys: bool
    """True where the service spreads records as it likes (record distribution AUTO): no order by key can hold."""


class Retention:
    """The time for which a stream keeps its records, as all feeds of its shards know it: it may change while
    they read.
    """

    __slots__ = ("seconds",)

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = seconds
        """The retention in seconds; None: it is not known."""

    def horizon_s(self, service_now_s: float) -> float | None:
        """The oldest arrival time that is still kept, by the service's time (epoch seconds both); None: not known."""
        return None if self.seconds is None else service_now_s - self.seconds


class ReadPage(NamedTuple):
    """Some records of a shard that follow each other. A page may have no record, also where more records follow."""

    records: Sequence[RawRecord]
    millis_behind_latest: int | None
    """The time by which the page's end is behind the shard's tip, in milliseconds; 0 at the tip. None: it is
    not known.
    """
    next_iterator: str | None = None
    """The iterator for the next page, of GetRecords. None: the shard has ended."""
    continuation: str | None = None
    """The sequence number after which another subscription goes on, of SubscribeToShard. None: the shard has ended."""
    children: tuple[ChildShard, ...] = ()
    """The children of a closed shard, which come with its last page."""

    @property
    def is_last(self) -> bool:
        """True when the shard has no more records than those of this page."""
        return self.next_iterator is None and self.continuation is None


PLAIN_BYTES = 333
"""The bytes by which the process grows for a Kinesis record beside its data and its key (measured on CPython 3.11,
Linux).
"""
INNER_BYTES = 200
"""The bytes that Python needs for a user record of an aggregate beside its data, its key included: keys repeat."""
RECORD_BYTES = 230
"""The bytes that Python needs for a `Record` that is made of either."""
OPENED_AT_ONCE_BYTES_MAX = 131_072
"""The bytes of a page's aggregates that are opened in one step: some 20 ms of small user records."""
KEYS_SAMPLED = 16
"""The number of keys of a page that are measured: the bound of memory needs no more."""


class ShardView(NamedTuple):
    """The shard that records come from, and how they are to be opened."""

    stream: str
    shard_id: str
    first_hash_key: int
    last_hash_key: int
    """The largest hash key of the shard's range, which belongs to it."""
    outside: OutsidePolicy = OutsidePolicy.DELIVER


Inner: TypeAlias = tuple[int, str, int | None, Tags]
"""A user record's sub-sequence number, partition key, explicit hash key and tags."""
_NOT_INNER: Inner = (-1, "", None, ())
"""The stand-in for a plain record."""


class UserRecords(Sequence[Record]):
    """Records of one shard in their order: a plain record each, or what was inside of aggregates.

    Slices are such sequences too. ``payload_bytes`` counts the data alone, ``held_bytes`` the memory that is taken.
    """

    __slots__ = ("_aggregate_bytes", "_datas", "_inner", "_payload_bytes", "_raws", "_shard")

    def __init__(
        self,
        shard: ShardView,
        raws: Sequence[RawRecord],
        inner: Sequence[Inner] | None = None,
        datas: Sequence[bytes] | None = None,
        aggregate_bytes: int = 0,
    ) -> None:
        """``raws`` has the Kinesis record of each user record. ``inner`` has what its aggregate says of each; None when
        all are plain records. ``aggregate_bytes`` is the memory of the Kinesis records, which stay for as long as one
        of their user records does.
        """
        self._aggregate_bytes = aggregate_bytes
        self._payload_bytes: int | None = None
        self._shard = shard
        self._raws = raws
        self._inner = inner
        self._datas = datas

    @property
    def shard_id(self) -> str:
        """The shard that the records come from."""
        return self._shard.shard_id

    @property
    def datas(self) -> Sequence[bytes]:
        """The data of each record, in order."""
        if self._datas is None:
            self._datas = [raw.data for raw in self._raws]
        return self._datas

    @property
    def payload_bytes(self) -> int:
        """The data bytes of all records. The pace, the buffer and the ledger ask for them, each with every page."""
        if self._payload_bytes is None:
            self._payload_bytes = sum(map(len, self.datas))
        return self._payload_bytes

    @property
    def held_bytes(self) -> int:
        """The memory that these records take, by estimate: their data, and what Python needs for each of them."""
        count = len(self._raws)
        if not count:
            return 0
        if self._inner is not None:
            return self.payload_bytes + count * INNER_BYTES + self._aggregate_bytes
        keys = [len(raw.partition_key or "") for raw in self._raws[:: max(1, count // KEYS_SAMPLED)]]
        return self.payload_bytes + count * (PLAIN_BYTES + sum(keys) // len(keys))

    def columns(self) -> Iterator[tuple[RawRecord, Inner | None, bytes]]:
        """Iterate over the Kinesis record of each, what its aggregate says of it (None: it is a plain record), and its
        data.
        """
        inner = repeat(None) if self._inner is None else (None if one[0] < 0 else one for one in self._inner)
        return zip(self._raws, inner, self.datas, strict=False)

    def position(self, index: int) -> Position:
        """Return the position of a record, without making the record."""
        sub = 0 if self._inner is None else max(0, self._inner[index][0])
        return Position(int(self._raws[index].sequence_number), sub)

    def __len__(self) -> int:
        return len(self._raws)

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> UserRecords: ...

    def __getitem__(self, index: int | slice) -> Record | UserRecords:
        if isinstance(index, slice):
            return UserRecords(
                self._shard,
                self._raws[index],
                None if self._inner is None else self._inner[index],
                None if self._datas is None else self._datas[index],
                self._aggregate_bytes * len(range(*index.indices(len(self._raws)))) // max(1, len(self._raws)),
            )
        raw = self._raws[index]
        if self._inner is None or self._inner[index][0] < 0:
            return self._plain(raw)
        return self._out_of(raw, self._inner[index], self.datas[index])

    def __iter__(self) -> Iterator[Record]:
        if self._inner is None:
            return map(self._plain, self._raws)
        return (
            self._plain(raw) if inner[0] < 0 else self._out_of(raw, inner, data)
            for raw, inner, data in zip(self._raws, self._inner, self.datas, strict=True)
        )

    def _plain(self, raw: RawRecord) -> Record:
        return Record(
            stream=self._shard.stream,
            shard_id=self._shard.shard_id,
            partition_key=raw.partition_key,
            data=raw.data,
            sequence_number=int(raw.sequence_number),
            approximate_arrival_timestamp=_arrival(raw),
        )

    def _out_of(self, raw: RawRecord, inner: Inner, data: bytes) -> Record:
        sub, partition_key, explicit_hash_key, tags = inner
        return Record(
            stream=self._shard.stream,
            shard_id=self._shard.shard_id,
            partition_key=partition_key,
            data=data,
            sequence_number=int(raw.sequence_number),
            sub_sequence_number=sub,
            approximate_arrival_timestamp=_arrival(raw),
            explicit_hash_key=explicit_hash_key,
            aggregated=True,
            tags=tags,
        )


class OpenedRecord(NamedTuple):
    """The user records of an aggregate, as columns."""

    inner: Sequence[Inner]
    datas: Sequence[bytes]
    is_outside: bool
    """True where it has a record of another shard's range."""


OpenedRecords: TypeAlias = Sequence[OpenedRecord | None]
"""What was opened of each Kinesis record of a page before; None stands for a plain record. It is empty where the page
has no aggregate.
"""


def aggregate_bytes_of(raws: Sequence[RawRecord]) -> int:
    """Return how many bytes of these records are aggregates, by their first bytes."""
    return sum([len(data) for raw in raws if (data := raw.data).startswith(MAGIC)])


def open_all(shard: ShardView, raws: Sequence[RawRecord]) -> OpenedRecords:
    """Open the aggregates of a page. It depends on its arguments alone, so a thread can do it."""
    return [_open_one(shard, raw) for raw in raws]


def _open_one(shard: ShardView, raw: RawRecord) -> OpenedRecord | None:
    aggregate = open_aggregate(raw.data)
    if aggregate is None:
        return None
    columns = zip(
        range(len(aggregate)), aggregate.partition_keys(), aggregate.explicit_hash_keys(), aggregate.tags(), strict=True
    )
    is_outside = bool(aggregate.outside(shard.first_hash_key, shard.last_hash_key))
    return OpenedRecord(list(columns), aggregate.datas, is_outside)


class OpenedPage(NamedTuple):
    """The user records of a page, and what was noticed on the way."""

    records: UserRecords
    aggregates: int = 0
    outside: int = 0
    """The number of aggregates with a record of another shard's range."""
    dropped: int = 0
    """The number of user records that were in those aggregates, where they are dropped."""


def opened(
    shard: ShardView, raws: Sequence[RawRecord], *, done: Position | None = None, before: OpenedRecords | None = None
) -> OpenedPage:
    """Return the user records of Kinesis records, without those up to and with ``done``, which lies in the first one.
    ``before`` has what `open_all` has made of these records; None: they are opened now.

    Raises AggregateError where the shard is read so.
    """
    if done is not None and raws and int(raws[0].sequence_number) == done.sequence_number:
        return _opened(shard, raws, done.sub_sequence_number + 1, before)
    if before is not None and not before:
        return OpenedPage(UserRecords(shard, raws))
    datas = [raw.data for raw in raws]
    if True not in [data.startswith(MAGIC) for data in datas]:
        return OpenedPage(UserRecords(shard, raws, datas=datas))
    return _opened(shard, raws, 0, before)


def _opened(shard: ShardView, raws: Sequence[RawRecord], skip: int, before: OpenedRecords | None) -> OpenedPage:
    owners: list[RawRecord] = []
    inner: list[Inner] = []
    datas: list[bytes] = []
    aggregates = outside = dropped = aggregate_bytes = 0
    for place, raw in enumerate(raws):
        skipped = skip if place == 0 else 0
        aggregate = _open_one(shard, raw) if not before else before[place]
        if aggregate is None:
            if not skipped:
                owners.append(raw)
                inner.append(_NOT_INNER)
                datas.append(raw.data)
            continue
        aggregates += 1
        if aggregate.is_outside:
            outside += 1
            _refuse(shard, raw, len(aggregate.datas))
            if shard.outside is OutsidePolicy.DROP:
                dropped += len(aggregate.datas)
                continue
        count = len(aggregate.datas) - skipped
        if count > 0:
            aggregate_bytes += len(raw.data) + PLAIN_BYTES
            owners += repeat(raw, count)
            inner += aggregate.inner[skipped:] if skipped else aggregate.inner
            datas += aggregate.datas[skipped:]
    return OpenedPage(UserRecords(shard, owners, inner, datas, aggregate_bytes), aggregates, outside, dropped)


def _refuse(shard: ShardView, raw: RawRecord, count: int) -> None:
    if shard.outside is OutsidePolicy.RAISE:
        raise AggregateError(
            f"{shard.stream}, {shard.shard_id}: the aggregate {raw.sequence_number} of {count} user records "
            "holds some of another shard's hash range: its producer had an old map of the shards, and may have put "
            "them again. Read with OutsidePolicy.DELIVER (nothing is lost) or DROP (as the KCL does)"
        )


def _arrival(raw: RawRecord) -> dt.datetime:
    return dt.datetime.fromtimestamp(raw.approximate_arrival_timestamp, dt.UTC)


TRIM_MARGIN_S = 60.0
"""The reader stops counting on a record this long before the retention lets go of it."""
TO_COME_MAX_S = 300.0
"""The most seconds for which a reader waits for the time that it is to begin at: the clock of the program that chose
that time may be ahead of the service's. One that is further off is refused for each request that it signs.
"""
FEEDING = Policy()
"""The policy of a consumer: an iterator goes on behind the last record, and what is trimmed is looked for from the
oldest on.
"""


class Trimmed(NamedTuple):
    """A stored position is older than the stream's retention."""

    position: Position
    resumes_at: Position | None
    """The position of the oldest record that is left; None while the shard has none."""
    surely_nothing_lost: bool
    """True when the shard was only silent: it was read to its tip at a time that the retention still covers."""


class PageMeaning(NamedTuple):
    """The meaning of a page for the reader of the shard."""

    records: UserRecords
    ends_at: Position | None
    """The last position of the page, also where its records were left out; None if it has none that is new."""
    millis_behind_latest: int | None
    ended: bool
    """True when the shard has no more records: ``children`` go on."""
    children: tuple[ChildShard, ...]
    outside: int
    """The number of aggregates that held records of another shard's range."""
    dropped: int
    """The number of user records that were left out because of that."""
    trimmed: Trimmed | None


class FeedCursor:
    """The cursor of one shard. ``start`` says where to ask for an iterator (or a subscription) when there is none."""

    def __init__(
        self,
        shard: ShardView,
        checkpoint: Checkpoint,
        *,
        timestamp_s: float | None = None,
        read_until_s: float | None = None,
    ) -> None:
        """``checkpoint``: read what follows it. ``timestamp_s``: the application's start (epoch seconds), where the
        checkpoint is AT_TIMESTAMP and the lease does not know its time. ``read_until_s``: all that had arrived by then
        (epoch seconds) is settled: where the checkpoint is LATEST or AT_TIMESTAMP, reading goes on from there.
        """
        if checkpoint.is_end:
            raise ValueError(f"{shard.shard_id} is read to its end")
        if checkpoint == Checkpoint.AT_TIMESTAMP and timestamp_s is None and read_until_s is None:
            raise ValueError(f"{shard.shard_id} is to be read from a time on, and no time is given")
        self._shard = shard
        self._done: Position | None = checkpoint.position if checkpoint.is_position else None
        self._log = LogCursor(
            FEEDING,
            begin=_beginning(checkpoint, timestamp_s, read_until_s),
            anchor=None if self._done is None else self._done.sequence_number,
        )
        self.read_until_s = read_until_s
        """The time (epoch seconds) up to which all that had arrived was handed on, or settled before. None: it is not
        known.
        """
        self.payload_bytes = 0
        """The bytes of payload that came so far. The feed counts them, and the worker computes the throughput from
        them.
        """
        self._latest_s = read_until_s if checkpoint == Checkpoint.LATEST else None  # It is that moment, once known.
        self._settled_until_s = read_until_s
        self._reached_s: float | None = None  # The last record came then, or a subscription was there (epoch seconds).
        self._end: Position | None = None  # All that was taken ends there.
        self._asked_for_s: float | None = None
        self._is_stored = True  # A loss is counted from a checkpoint, not from what was read since.
        self._gap_is_told = False  # It stays so for as long as the reader is slower than the retention.

    @property
    def shard_id(self) -> str:
        """The shard that is read."""
        return self._shard.shard_id

    @property
    def state(self) -> State:
        """The state of the log's cursor: what is known of the place at which the log is read."""
        return self._log.state

    def continues_at(self, sequence_number: str | None, *, service_now_s: float | None = None) -> None:
        """Take a subscription's event: the next one goes on behind this number, which may be beyond the last record.
        ``service_now_s`` is the service's time (epoch seconds) when it came.
        """
        self._log.continues_at(None if sequence_number is None else int(sequence_number))
        if not self._log.has_last:
            self._reached_s = service_now_s

    def start(self, service_now_s: float, *, horizon_s: float | None = None) -> IteratorAt:
        """Return where to ask. ``service_now_s`` is the service's time, epoch seconds; ``horizon_s`` the oldest arrival
        time that the stream's retention covers, if it is known.
        """
        if horizon_s is not None and self._reached_s is not None and self._reached_s <= horizon_s + TRIM_MARGIN_S:
            self._begins_anew()
            self._log.passed()
        at = self._log.ask()
        if at == IteratorAt.latest():
            # Each later LATEST means this moment, however often it is asked for.
            self._latest_s = latest_s(service_now_s)
            self._log.begin = IteratorAt.at_timestamp(self._latest_s)
        self._asked_for_s = at.timestamp_s
        return at

    def is_to_come(self, service_now_s: float) -> bool:
        """True where the service may have refused what `start` named as its time is still to come: soon it is not.
        ``service_now_s`` is the service's time, epoch seconds.
        """
        at_s = self._asked_for_s
        return at_s is not None and service_now_s - SERVICE_CLOCK_S < at_s <= service_now_s + TO_COME_MAX_S

    def refused(self) -> bool:
        """Note that the service refused the sequence number (some do when it is trimmed). True: `start` names another
        place.
        """
        if not self._log.by_number:
            return False
        self._begins_anew()
        self._log.refused()
        return True

    @property
    def view(self) -> ShardView:
        """The shard that is read, and how its records are to be opened."""
        return self._shard

    def take(
        self,
        page: ReadPage,
        *,
        horizon_s: float | None = None,
        asked_s: float | None = None,
        before: OpenedRecords | None = None,
    ) -> PageMeaning | None:
        """Judge a page. None: it is worth nothing, and a new iterator is needed, at `start`.

        ``horizon_s``: the oldest arrival time that the stream's retention covers (epoch seconds), if it is known.
        ``asked_s``: the service's time when the page was asked for, or before. ``before``: what `open_all` has made of
        the page's records; None: they are opened now.

        Raises AggregateError, where aggregates outside of the shard's range are to raise.
        """
        log, raws, was_met = self._log, page.records, self._log.is_met
        behind_ms = page.millis_behind_latest
        step = log.page(raws, behind_ms=behind_ms, is_last=page.is_last, asked_s=asked_s, horizon_s=horizon_s)
        if step.does is NextStep.ASK:
            self._begins_anew(was_met)
            return None
        missing = self._missing() if step.is_loss else None
        if not raws:
            found = OpenedPage(UserRecords(self._shard, ()))
            taken = self._taken(found, None, page, self._trimmed(missing, found, horizon_s))
            self._note_reached(log.silence.reached_s)
            return taken
        done = None if was_met else self._done
        if step.start:
            raws, before = raws[step.start :], before and before[step.start :]
        found = opened(self._shard, raws, done=done, before=before)
        if was_met and self._is_a_gap(page, horizon_s):
            self._is_stored, self._settled_until_s = False, self.read_until_s
            missing = missing or self._end
        self._reached_s = page.records[-1].approximate_arrival_timestamp
        ends_at = _end_of(raws, found.records)
        self._end = ends_at or self._end
        if done is not None and ends_at is not None and ends_at <= done:
            ends_at = None
        taken = self._taken(found, ends_at, page, self._trimmed(missing, found, horizon_s))
        self._note_reached(asked_s if behind_ms == 0 else None)
        return taken

    def gone(self, *, horizon_s: float | None = None) -> PageMeaning:
        """Return what a page means when the shard is in no listing any more: its last record is older than the
        retention, and it has ended.
        """
        self._begins_anew()
        step = self._log.gone()
        found = OpenedPage(UserRecords(self._shard, ()))
        trimmed = self._trimmed(self._missing() if step.is_loss else None, found, horizon_s)
        return PageMeaning(found.records, None, None, ended=True, children=(), outside=0, dropped=0, trimmed=trimmed)

    # --- what is lost ---------------------------------------------------------------------------

    def _begins_anew(self, was_met: bool | None = None) -> None:
        """Look from the oldest record on for what was read last."""
        if self._log.is_met if was_met is None else was_met:  # The checkpoint counts no more: much was read since.
            self._is_stored, self._settled_until_s = False, self.read_until_s
            self._done = self._end or self._done
        self._reached_s = None

    def _missing(self) -> Position | None:
        """Return what the log's cursor has not found again."""
        number, done = self._log.missing, self._done
        if number is None:
            return None
        return done if done is not None and done.sequence_number == number else Position(number)

    def _trimmed(self, missing: Position | None, found: OpenedPage, horizon_s: float | None) -> Trimmed | None:
        is_covered = self._is_covered(horizon_s)
        if missing is None or (is_covered and not self._is_stored):  # A silent shard that is read is no news.
            return None
        return Trimmed(missing, found.records.position(0) if len(found.records) else None, is_covered)

    def _is_covered(self, horizon_s: float | None) -> bool:
        known_s = self._settled_until_s
        return known_s is not None and horizon_s is not None and known_s >= horizon_s

    def _is_a_gap(self, page: ReadPage, horizon_s: float | None) -> bool:
        """True when records before these may have been trimmed unread: the last one was older than the retention, these
        are not, and the shard was not silent. It is True once, for as long as it stays so: the iterator of a reader
        that is slower than the retention passes over what is gone, and no answer says so.
        """
        if self._reached_s is None or horizon_s is None or page.millis_behind_latest is None:
            return False
        is_read_s = max(self._reached_s, self.read_until_s or self._reached_s)
        if is_read_s > horizon_s:
            self._gap_is_told = False
        elif not self._gap_is_told and page.records[0].approximate_arrival_timestamp > horizon_s:
            self._gap_is_told = True
            return True
        return False

    # --- until when all is read -----------------------------------------------------------------

    def _note_reached(self, reached_s: float | None) -> None:
        """Note until when all is read, if the page shows it: at the tip, and on the way there over a silence."""
        if reached_s is None or self._log.state in (State.SEEKING, State.OVERTAKEN):
            return
        until_s = reached_s - SERVICE_CLOCK_S
        if self._latest_s is not None:
            until_s = max(until_s, self._latest_s)
        self.read_until_s = until_s if self.read_until_s is None else max(until_s, self.read_until_s)

    def _taken(
        self, found: OpenedPage, ends_at: Position | None, page: ReadPage, trimmed: Trimmed | None
    ) -> PageMeaning:
        return PageMeaning(
            found.records,
            ends_at,
            page.millis_behind_latest,
            page.is_last,
            page.children,
            found.outside,
            found.dropped,
            trimmed,
        )


def _beginning(checkpoint: Checkpoint, timestamp_s: float | None, read_until_s: float | None) -> IteratorAt:
    """Return where a log is read from that has no stored position."""
    if checkpoint.is_timed and read_until_s is not None:
        return IteratorAt.at_timestamp(read_until_s)
    if checkpoint == Checkpoint.LATEST:
        return IteratorAt.latest()
    if checkpoint == Checkpoint.AT_TIMESTAMP and timestamp_s is not None:
        return IteratorAt.at_timestamp(timestamp_s)
    return IteratorAt.trim_horizon()


def _end_of(raws: Sequence[RawRecord], records: UserRecords) -> Position | None:
    """Return the last position of Kinesis records of which these user records were handed on."""
    if not raws:
        return None
    last = int(raws[-1].sequence_number)
    if len(records) and (position := records.position(-1)).sequence_number == last:
        return position
    return Position(last)
