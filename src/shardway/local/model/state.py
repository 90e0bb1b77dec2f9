"""The durable state of the service: shards, streams, their consumers, and the changes that make this state.

Every change is a value: ``(kind, ...)`` of numbers, texts, bytes, lists and maps, which msgspec writes as MessagePack
or JSON. An operation decides what to change, reads the clock and draws random numbers, and puts all of that into the
change; applying it is deterministic. So a service that applies the same changes again becomes the same service.
Numbers beyond 64 bits (hash keys) are texts.
"""

from __future__ import annotations

import hashlib
import importlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from shardway.local.model.identifiers import COUNTER_MAX, compose, shard_base, shard_name
from shardway.local.model.validation import not_found
from shardway.model import HASH_KEY_MAX

if TYPE_CHECKING:
    from shardway.local.model.service import KinesisModel

# --- a shard --------------------------------------------------------------------------------------
# A shard has its records, and its place in the lineage.

# --- its records ----------------------------------------------------------------------------------
# A shard's records are ready-made JSON, found by counter or by time of arrival.
#
# No object is kept per record. A run is what one call appended: records with one time of arrival and counters in a
# row, whose texts (``{"SequenceNumber":...},`` with the comma) lie in one piece of memory. The log is a few columns
# with one entry per run. A record's ordinal is its place in the shard, counted from the shard's first record on,
# trimmed or not.

TRIMMED_RUNS_MAX = 1_024
"""The trimmed runs that may be at the head of the columns before these are shortened; as many as are kept may be, too.
"""


class Segment(NamedTuple):
    """Records that are appended together: their texts joined, and per record the length of its text and its payload."""

    first_counter: int
    """The first record's counter, which is above all counters of the log; the next records have the next counters."""
    text: bytes
    lengths: bytes
    """The bytes of each record's text, its comma included, as 32-bit numbers in this machine's order."""
    payloads: bytes
    """The bytes of data and partition key of each record, as 32-bit numbers in this machine's order."""


class Page(NamedTuple):
    """A piece of a log. ``texts`` joined is a JSON list's content with a comma at its end."""

    texts: list[bytes]
    records: int
    payload_bytes: int
    next_ordinal: int
    last_arrival_ms: int
    """The arrival of the last record in the page; 0 when the page is empty."""


def _sum(numbers: bytes, start: int, stop: int) -> int:
    return sum(memoryview(numbers).cast("I")[start:stop])


class ShardLog:
    """The records of one shard, in order; times of arrival never go back."""

    __slots__ = (
        "_arrivals",
        "_counters",
        "_firsts",
        "_head",
        "_lengths",
        "_payload_ends",
        "_payloads",
        "_texts",
        "end",
        "first",
        "last_arrival_ms",
        "payload_end",
    )

    def __init__(self) -> None:
        self._firsts = array("Q")
        self._counters = array("Q")
        self._arrivals = array("Q")
        self._payload_ends = array("Q")
        self._texts: list[bytes] = []
        self._lengths: list[bytes] = []
        self._payloads: list[bytes] = []
        self._head = 0
        """The first run that is kept."""
        self.first = 0
        """The ordinal of the oldest record that is not trimmed; equal to ``end`` when there is none."""
        self.end = 0
        """The ordinal that the next record will have."""
        self.payload_end = 0
        """Payload bytes of all records that there ever were."""
        self.last_arrival_ms = 0

    def append(self, segment: Segment, arrival_ms: int) -> None:
        """Add records that arrive at ``arrival_ms``, or at the last arrival if the clock went back."""
        arrival_ms = self.last_arrival_ms = max(arrival_ms, self.last_arrival_ms)
        count = len(segment.lengths) // 4
        self._firsts.append(self.end)
        self._counters.append(segment.first_counter)
        self._arrivals.append(arrival_ms)
        self.payload_end += _sum(segment.payloads, 0, count)
        self._payload_ends.append(self.payload_end)
        self._texts.append(segment.text)
        self._lengths.append(segment.lengths)
        self._payloads.append(segment.payloads)
        self.end += count

    def trim(self, horizon_ms: int) -> None:
        """Let go of the records that arrived before ``horizon_ms``."""
        head = self._head
        if head == len(self._arrivals) or self._arrivals[head] >= horizon_ms:
            return
        self._head = bisect_left(self._arrivals, horizon_ms, head)
        for run in range(head, self._head):
            self._texts[run] = self._lengths[run] = self._payloads[run] = b""
        self.first = self._firsts[self._head] if self._head < len(self._firsts) else self.end
        if self._head > min(TRIMMED_RUNS_MAX, len(self._firsts) // 2):
            columns = (self._firsts, self._counters, self._arrivals, self._payload_ends)
            for column in (*columns, self._texts, self._lengths, self._payloads):
                del column[: self._head]
            self._head = 0

    def ordinal_at_counter(self, counter: int) -> int:
        """Return the ordinal of the first kept record whose counter is ``counter`` or more; ``end`` when there is
        none.
        """
        run = bisect_right(self._counters, counter, self._head) - 1
        if run < self._head:
            return self.first
        return min(self._end_of(run), self._firsts[run] + counter - self._counters[run])

    def ordinal_at_time(self, arrival_ms: int) -> int:
        """Return the ordinal of the first kept record that arrived at ``arrival_ms`` or later; ``end`` when there is
        none.
        """
        run = bisect_left(self._arrivals, arrival_ms, self._head)
        return self._firsts[run] if run < len(self._firsts) else self.end

    def stamp_of(self, ordinal: int) -> tuple[int, int]:
        """Return (counter, arrival in ms) of a kept record."""
        run = self._run_of(ordinal)
        return self._counters[run] + ordinal - self._firsts[run], self._arrivals[run]

    def read(self, ordinal: int, records_max: int, payload_bytes_max: int) -> Page:
        """Read on from ``ordinal`` (kept, or ``end``), within both bounds; but if there is a record, return one."""
        if ordinal >= self.end:
            return self.nothing(ordinal)
        run = self._run_of(ordinal)
        before = self._payload_before(run, ordinal)
        stop = self._stop(run, min(self.end, ordinal + records_max), before + payload_bytes_max)
        if stop <= ordinal:
            stop = ordinal + 1
        last = self._run_of(stop - 1)
        texts = self._texts[run : last + 1]
        cut = stop - self._firsts[last]
        if stop < self._end_of(last):
            texts[-1] = texts[-1][: _sum(self._lengths[last], 0, cut)]
        skipped = ordinal - self._firsts[run]
        if skipped:
            texts[0] = texts[0][_sum(self._lengths[run], 0, skipped) :]
        payload = self._payload_before(last, stop) - before
        return Page(texts, stop - ordinal, payload, stop, self._arrivals[last])

    def nothing(self, ordinal: int) -> Page:
        """Return a page without records, before ``ordinal``."""
        return Page([], 0, 0, ordinal, 0)

    def _run_of(self, ordinal: int) -> int:
        return bisect_right(self._firsts, ordinal, self._head) - 1

    def _end_of(self, run: int) -> int:
        return self._firsts[run + 1] if run + 1 < len(self._firsts) else self.end

    def _payload_before(self, run: int, ordinal: int) -> int:
        """Return the payload of all records before ``ordinal``, which is in the run or just behind it."""
        within = ordinal - self._firsts[run]
        payloads = self._payloads[run]
        return self._payload_ends[run] - _sum(payloads, within, len(payloads) // 4)

    def _stop(self, run: int, stop: int, payload_end_max: int) -> int:
        """Return the ordinal up to which records may be read: at most ``stop``, and payload up to
        ``payload_end_max``.
        """
        cut = bisect_right(self._payload_ends, payload_end_max, run)
        if cut == len(self._firsts) or self._firsts[cut] >= stop:
            return stop
        ordinal = self._firsts[cut]
        payload = self._payload_before(cut, ordinal)
        for size in memoryview(self._payloads[cut]).cast("I"):
            payload += size
            if payload > payload_end_max or ordinal == stop:
                break
            ordinal += 1
        return ordinal


# --- the shard ------------------------------------------------------------------------------------


class Shard:
    """A shard: its hash range, its sequence numbers, its parents and children, its records."""

    __slots__ = (
        "base",
        "children",
        "closed_ms",
        "created_ms",
        "created_s",
        "ending",
        "first_hash_key",
        "index",
        "last_hash_key",
        "log",
        "name",
        "parents",
        "starting",
        "watchers",
    )

    def __init__(
        self,
        index: int,
        hash_range: tuple[int, int],
        *,
        created_s: int,
        created_ms: int,
        parents: tuple[int, ...] = (),
    ) -> None:
        self.index = index
        self.name = shard_name(index)
        self.first_hash_key, self.last_hash_key = hash_range
        self.created_s = created_s
        """The second of creation in the shard's sequence numbers: it is later than that of the shard's parents, if need
        be in the future.
        """
        self.created_ms = created_ms
        self.parents = parents
        """The indexes of the shard's parents; after a merge, the parent that the call named first comes first."""
        self.children: list[int] = []
        self.closed_ms: int | None = None
        self.base = shard_base(index, created_s)
        self.starting = compose(self.base, 0, created_s)
        self.ending: int | None = None
        self.log = ShardLog()
        self.watchers: list[Callable[[], None]] = []
        """The functions to call when there is something new for the shard's subscriptions: records, the shard's end,
        the end of its stream.
        """

    def close(self, now_ms: int) -> None:
        """Close the shard: it takes no more records from ``now_ms`` on."""
        self.closed_ms = now_ms
        self.ending = compose(self.base, COUNTER_MAX, max(self.created_s, now_ms // 1000))
        self.notify()

    def notify(self) -> None:
        """Call the watchers: there is something to look at."""
        for wake in tuple(self.watchers):
            wake()

    def second_of(self, arrival_ms: int) -> int:
        """Return the second of arrival for sequence numbers: not before the shard's own second, which may lie ahead by
        a little.
        """
        return max(self.created_s, arrival_ms // 1000)

    def gone(self, horizon_ms: int) -> bool:
        """Return True when the shard was closed, and so all in it arrived, before the horizon of the retention."""
        return self.closed_ms is not None and self.closed_ms < horizon_ms

    def open_at(self, moment_ms: int) -> bool:
        """Return True when the shard took records at ``moment_ms``. At the moment of a reshard it is True for the
        closed shard and for its children.
        """
        return self.created_ms <= moment_ms and (self.closed_ms is None or self.closed_ms >= moment_ms)

    def hash_range(self) -> dict[str, str]:
        """Return the HashKeyRange member."""
        return {"StartingHashKey": str(self.first_hash_key), "EndingHashKey": str(self.last_hash_key)}

    def describe(self) -> dict[str, Any]:
        """Return the shard as DescribeStream and ListShards show it. Members without a value are absent, never null."""
        answer: dict[str, Any] = {"ShardId": self.name}
        for member, parent in zip(("ParentShardId", "AdjacentParentShardId"), self.parents, strict=False):
            answer[member] = shard_name(parent)
        answer["HashKeyRange"] = self.hash_range()
        numbers = {"StartingSequenceNumber": str(self.starting)}
        if self.ending is not None:
            numbers["EndingSequenceNumber"] = str(self.ending)
        answer["SequenceNumberRange"] = numbers
        return answer

    def describe_child(self) -> dict[str, Any]:
        """Return the shard as a member of its parent's ChildShards: all parents are named."""
        return {
            "ShardId": self.name,
            "ParentShards": [shard_name(parent) for parent in self.parents],
            "HashKeyRange": self.hash_range(),
        }


# --- a stream -------------------------------------------------------------------------------------
# A stream has its settings, its shards and consumers, and the routing of hash keys to open shards.

# --- its consumers --------------------------------------------------------------------------------
# A registered consumer is one of enhanced fan-out. Requests name it by its ARN, or by its stream and its name.


class Consumer:
    """A consumer that is registered with a stream. Its status follows from the time."""

    def __init__(self, *, name: str, arn: str, created_s: int, active_ms: int, tags: dict[str, str]) -> None:
        self.name = name
        self.arn = arn
        self.created_s = created_s
        self.active_ms = active_ms
        """The time until which the consumer is CREATING."""
        self.gone_ms: int | None = None
        """Once the consumer was deregistered: the time until which it is DELETING, and after which it is gone."""
        self.tags = tags
        self.policy: str | None = None

    def exists(self, now_ms: int) -> bool:
        """Return False once the consumer is deregistered and gone."""
        return self.gone_ms is None or now_ms < self.gone_ms

    def status(self, now_ms: int) -> str:
        """Return CREATING, ACTIVE or DELETING."""
        if self.gone_ms is not None:
            return "DELETING"
        return "CREATING" if now_ms < self.active_ms else "ACTIVE"

    def describe(self, now_ms: int) -> dict[str, Any]:
        """Return the members that all answers about a consumer have."""
        return {
            "ConsumerName": self.name,
            "ConsumerARN": self.arn,
            "ConsumerStatus": self.status(now_ms),
            "ConsumerCreationTimestamp": self.created_s,
        }


def consumer_of_arn(model: KinesisModel, arn: str) -> tuple[Stream, Consumer]:
    """Return (stream, consumer) for a consumer's ARN. Raises ResourceNotFoundException."""
    stream_arn, _, rest = arn.partition("/consumer/")
    stream = model.find_stream(None, stream_arn)
    consumer = stream.consumers.get(rest.partition(":")[0]) if stream is not None else None
    if stream is None or consumer is None or consumer.arn != arn or not consumer.exists(model.now_ms()):
        raise not_found(f"Consumer {arn}, account {model.account_id} not found.")
    return stream, consumer


# --- the stream -----------------------------------------------------------------------------------

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    class _Hash(Protocol):
        def digest(self) -> bytes: ...


HOUR_MS = 3_600_000
KIB = 1024
ROUTE_CACHE_KEYS_MAX = 65_536
"""The partition keys whose shard is remembered; the cache starts anew when it is full."""
SEQUENCE_LEAD_S = 2
"""The seconds by which the first shards' second of creation lies before the stream's creation, as AWS's does."""


def _md5_of() -> Callable[[bytes], _Hash]:
    """Return the cheapest MD5 there is: CPython's own, which not all builds have, costs half of OpenSSL's for a short
    key.
    """
    try:
        md5: Callable[[bytes], _Hash] = importlib.import_module("_md5").md5
    except ImportError:
        return lambda key: hashlib.md5(key, usedforsecurity=False)
    return md5


_md5 = _md5_of()


def even_ranges(shards: int) -> list[tuple[int, int]]:
    """Return the hash ranges of a new stream's shards, as AWS divides: all are equal, and the last one has the rest."""
    width = (HASH_KEY_MAX + 1) // shards
    firsts = [width * i for i in range(shards)]
    lasts = [first - 1 for first in firsts[1:]] + [HASH_KEY_MAX]
    return list(zip(firsts, lasts, strict=True))


class Stream:
    """A stream, with all that the service knows of it."""

    def __init__(self, name: str, uid: int, arn: str, now_ms: int, created_s: int) -> None:
        self.name = name
        self.uid = uid
        """A number that no other stream ever had, not even one of the same name."""
        self.arn = arn
        self.created_ms = now_ms
        self.created_s = created_s
        """StreamCreationTimestamp in whole seconds, which differ for each stream of the same name."""
        self.ready = False
        """True once the stream was ACTIVE: before that it shows no shards."""
        self.status = "CREATING"
        self.due_ms = now_ms
        """The time at which the present CREATING, UPDATING or DELETING is over."""
        self.plan: list[Any] = []
        """The stages of the resharding that happens at ``due_ms``."""
        self.mode = "PROVISIONED"
        self.retention_hours = 24
        self.horizon_floor_ms = 0
        """The least horizon: records that were trimmed before the retention was made longer stay trimmed."""
        self.encryption = "NONE"
        self.key_id: str | None = None
        self.metrics: list[str] = []
        self.max_record_kib = KIB
        self.strategy = "USER_PARTITION_KEY"
        self.warm_mibps: int | None = None
        self.tags: dict[str, str] = {}
        self.consumers: dict[str, Consumer] = {}
        self.policy: str | None = None
        self.shards: list[Shard] = []
        self.counter = 0
        """The last counter given to a record. All shards share the counters, so that one shard's numbers have gaps, as
        AWS's have.
        """
        self.scaled_ms: list[int] = []
        """The times at which UpdateShardCount was called within the last day."""
        self._open: list[Shard] = []
        self._starts: list[bytes] = []
        self._routes: dict[str, Shard] = {}

    @property
    def open_shards(self) -> list[Shard]:
        """The shards that take records, in the order of their hash ranges."""
        return self._open

    @property
    def writable(self) -> bool:
        """True while the stream takes records."""
        return self.status in ("ACTIVE", "UPDATING")

    @property
    def record_bytes_max(self) -> int:
        """The bytes of the longest record, data and partition key together."""
        return self.max_record_kib * KIB

    def horizon_ms(self, now_ms: int) -> int:
        """Return the time before which records are trimmed, by their arrival."""
        return max(self.horizon_floor_ms, now_ms - self.retention_hours * HOUR_MS)

    def listed_shards(self, now_ms: int) -> list[Shard]:
        """Return the shards that exist for a caller, in the order of their ids: none while the stream is being created,
        and no shard that is trimmed.
        """
        if not self.ready:
            return []
        horizon = self.horizon_ms(now_ms)
        return [shard for shard in self.shards if not shard.gone(horizon)]

    def shard(self, index: int, now_ms: int) -> Shard | None:
        """Return the shard with this index, if it exists for a caller."""
        if not self.ready or not 0 <= index < len(self.shards):
            return None
        shard = self.shards[index]
        return None if shard.gone(self.horizon_ms(now_ms)) else shard

    def add_shard(self, first: int, last: int, now_ms: int, parents: tuple[int, ...] = ()) -> Shard:
        """Make the next shard. The caller closes its parents and then calls ``reroute``."""
        if parents:
            created_s = max(now_ms // 1000, *(self.shards[p].created_s for p in parents)) + 1
        else:
            created_s = self.created_s - SEQUENCE_LEAD_S
        shard = Shard(len(self.shards), (first, last), created_s=created_s, created_ms=now_ms, parents=parents)
        for parent in parents:
            self.shards[parent].children.append(shard.index)
        self.shards.append(shard)
        return shard

    def reroute(self) -> None:
        """Route hash keys anew, after shards were made or closed."""
        self._open = sorted((s for s in self.shards if s.closed_ms is None), key=lambda s: s.first_hash_key)
        self._starts = [shard.first_hash_key.to_bytes(16, "big") for shard in self._open]
        self._routes = {}

    def route_keys(self, partition_keys: Sequence[str]) -> list[Shard]:
        """Return the open shards that take records with these partition keys, one for each key."""
        routes, starts, shards = self._routes, self._starts, self._open
        found: list[Any] = list(map(routes.get, partition_keys))
        if None in found:
            if len(routes) > ROUTE_CACHE_KEYS_MAX:
                routes.clear()
            for place, key in enumerate(partition_keys):
                if found[place] is None:
                    shard = shards[bisect_right(starts, _md5(key.encode()).digest()) - 1]
                    found[place] = routes[key] = shard
        return found

    def route_hash(self, hash_key: int) -> Shard:
        """Return the open shard that takes records with this explicit hash key."""
        return self._open[bisect_right(self._starts, hash_key.to_bytes(16, "big")) - 1]


# --- the state and its changes --------------------------------------------------------------------

Change: TypeAlias = tuple[Any, ...]


class State:
    """Streams by name, and what belongs to the account as a whole."""

    def __init__(self, arn_prefix: str) -> None:
        self.arn_prefix = arn_prefix
        """The beginning of the ARNs: ``arn:aws:kinesis:us-east-1:000000000000:``."""
        self.streams: dict[str, Stream] = {}
        self.by_uid: dict[int, Stream] = {}
        self.next_uid = 1
        self.last_created_s: dict[str, int] = {}
        """The second in which the newest stream of a name, or the newest consumer (``stream/consumer``), was made: the
        next one has a later second, which callers see.
        """
        self.commitment: dict[str, Any] = {"Status": "DISABLED"}
        """MinimumThroughputBillingCommitment in the account's settings."""

    def apply(self, change: Change) -> None:
        """Make a change, as decided by an operation or as read back from a journal."""
        _APPLY[change[0]](self, *change[1:])


def _create(  # noqa: PLR0913 - a change as the journal has it
    state: State,
    uid: int,
    name: str,
    now_ms: int,
    created_s: int,
    due_ms: int,
    ranges: list[tuple[str, str]],
    fields: dict[str, Any],
) -> None:
    stream = Stream(name, uid, f"{state.arn_prefix}stream/{name}", now_ms, created_s)
    stream.due_ms = due_ms
    for first, last in ranges:
        stream.add_shard(int(first), int(last), now_ms)
    _set(stream, fields)
    stream.reroute()
    state.streams[name] = stream
    state.by_uid[uid] = stream
    state.next_uid = max(state.next_uid, uid + 1)
    state.last_created_s[name] = created_s


def _set(target: Stream | Consumer, fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        setattr(target, name, value)


def _update(state: State, uid: int, due_ms: int | None, fields: dict[str, Any]) -> None:
    """Set attributes of a stream. With ``due_ms`` the stream is UPDATING until then."""
    stream = state.by_uid[uid]
    if "horizon_floor_ms" in fields:
        for shard in stream.shards:
            shard.log.trim(fields["horizon_floor_ms"])
    _set(stream, fields)
    if due_ms is not None:
        stream.status = "UPDATING"
        stream.due_ms = due_ms


def _delete(state: State, uid: int, due_ms: int) -> None:
    stream = state.by_uid[uid]
    stream.status = "DELETING"
    stream.due_ms = due_ms


def _reshard(state: State, uid: int, due_ms: int, stages: list[Any]) -> None:
    """Plan a resharding: stages of (indexes to close, [(parents, first hash key, last hash key)])."""
    stream = state.by_uid[uid]
    stream.status = "UPDATING"
    stream.due_ms = due_ms
    stream.plan = stages


def _settle(state: State, uid: int, now_ms: int) -> None:
    """End the present CREATING, UPDATING or DELETING."""
    stream = state.by_uid[uid]
    if stream.status == "DELETING":
        del state.by_uid[uid]
        del state.streams[stream.name]
        for shard in stream.shards:
            shard.notify()
        return
    stream.status = "ACTIVE"
    stream.ready = True
    stages, stream.plan = stream.plan, []
    for closing, births in stages:
        for parents, first, last in births:
            stream.add_shard(int(first), int(last), now_ms, tuple(parents))
        for index in closing:
            stream.shards[index].close(now_ms)
    if stages:
        stream.reroute()


def _put(state: State, uid: int, arrival_ms: int, counter: int, parts: list[Any]) -> None:
    """Append records. ``parts``: for each shard its index and a log segment. ``counter``: the last one given."""
    stream = state.by_uid[uid]
    stream.counter = counter
    for index, *segment in parts:
        shard = stream.shards[index]
        shard.log.append(Segment(*segment), arrival_ms)
        if shard.watchers:
            shard.notify()


def _consumer(state: State, uid: int, name: str, created_s: int, active_ms: int, tags: dict[str, str]) -> None:
    stream = state.by_uid[uid]
    state.last_created_s[f"{stream.name}/{name}"] = created_s
    stream.consumers[name] = Consumer(
        name=name,
        arn=f"{stream.arn}/consumer/{name}:{created_s}",
        created_s=created_s,
        active_ms=active_ms,
        tags=tags,
    )


def _consumer_update(state: State, uid: int, name: str, fields: dict[str, Any]) -> None:
    _set(state.by_uid[uid].consumers[name], fields)


def _account(state: State, commitment: dict[str, Any]) -> None:
    state.commitment = commitment


_APPLY: dict[str, Callable[..., None]] = {
    "create": _create,
    "update": _update,
    "delete": _delete,
    "reshard": _reshard,
    "settle": _settle,
    "put": _put,
    "consumer": _consumer,
    "consumer_update": _consumer_update,
    "account": _account,
}
