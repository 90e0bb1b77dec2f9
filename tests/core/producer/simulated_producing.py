"""A batcher against a simulated stream, in virtual time, with whatever may go wrong between them.

``Producing`` does what the producer's send loop does, and looks at every step for what must never be: a request over
its bounds, a loop that is busy with nothing, a sleep that nothing will end, an outcome that is given twice.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.core.producer import facts
from shardway.core.producer.batcher import Batcher
from shardway.core.producer.chunk import RECORD_OVERHEAD_BYTES, Chunk
from shardway.core.producer.limits import BatchLimits, PaceLimits
from shardway.core.producer.outcome import NotWritten
from shardway.core.producer.request import Failure
from shardway.errors import RecordWithdrawnError
from shardway.model import PutResult
from tests.core.producer.simulated_stream import POISON, SimulatedStream
from tests.put_entries import Answer, Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.core.producer.facts import Fact
    from shardway.core.producer.request import Request

EXPIRY_CHECK_S = 0.1
REFRESH_S = 0.2
THROTTLED = "ProvisionedThroughputExceededException"
IN_VAIN_MAX = 10
UNWATCHED_S = 600.0
"""A history that has not ended so long after its last event never will."""
WAKE_MAX_S = 2.0
"""No backoff, pace or linger in here is longer."""


class Put(NamedTuple):
    """Records that are put together, as a chunk."""

    at_s: float
    records: tuple[tuple[str, int], ...]
    """(partition key, bytes of data); a negative size is poison."""
    record_ttl_s: float | None = None


class Fate(NamedTuple):
    """What becomes of one request."""

    kind: str = "answered"
    """Or "throttled", "not sent", "denied", "lost" (the request), "reply lost", "partly done", "late" (done, but only
    after the producer has given it up)."""
    way_s: float = 0.01
    back_s: float = 0.01
    refused: float = 0.0
    """The share of its entries that are refused for their throughput."""
    broken: float = 0.0
    """The share of its entries that fail internally; half of those are written."""


class Reshard(NamedTuple):
    at_s: float
    kind: str
    """"split", "crooked" or "merge"."""
    place: int


class Withdrawal(NamedTuple):
    at_s: float
    put: int
    place: int
    """-1: all records of the put."""


@dataclass(frozen=True)
class History:
    """All that happens, and with what options."""

    aggregate: bool = False
    ordered: bool = False
    paced: bool = False
    seed: int = 0
    shard_count: int = 2
    blind_s: tuple[float, float] | None = None
    """Between these times the shards can't be listed."""
    linger_s: float = 0.005
    record_ttl_s: float = 10_000.0
    requests_in_flight_max: int = 4
    request_records_max: int = 500
    request_bytes_max: int = 4_000
    service_bytes_max: int = 10_000
    """The service finds larger requests invalid."""
    aggregate_bytes_max: int = 300
    listed_after_s: float = 0.05
    """The first listing comes so late."""
    lag_s: float = 0.0
    """So long listings do not show a reshard."""
    holes: bool = False
    """In that time they show half of it."""
    explicit: bool = False
    """Some keys come with an explicit hash key."""
    puts: tuple[Put, ...] = ()
    fates: tuple[Fate, ...] = ()
    """Of the first requests. Those that come after them are answered."""
    reshards: tuple[Reshard, ...] = ()
    withdrawals: tuple[Withdrawal, ...] = ()
    close_at_s: float | None = None
    refused_at_s: float | None = None
    """Then nothing can be put for a moment, by an error that waiting does not mend."""


class OnceChunk(Chunk):
    """A chunk that takes no second outcome."""

    __slots__ = ()

    def settle(self, indices: Any, fate: Any) -> int:
        assert len(set(indices)) == len(indices)
        assert all(self.outcomes[index] is None for index in indices), "a second outcome"
        assert isinstance(fate, (PutResult, NotWritten)) or len(indices) == len(fate)
        return super().settle(indices, fate)


class Tally:
    """Counts user records by what became of them."""

    def __init__(self) -> None:
        self.settled_records = 0
        self.written_records = 0
        self.written_bytes = 0
        self.other = 0

    def note(self, fact: Fact) -> None:
        match fact:
            case facts.Landed():
                self.written_records += fact.user_records
                self.written_bytes += fact.data_bytes
            case facts.Written():
                self.settled_records += fact.user_records
            case facts.Expired() | facts.Failed() | facts.Withdrawn():
                self.other += fact.user_records


class Record(NamedTuple):
    """A user record that was put. Its data is unlike that of all others."""

    key: str
    hash_key: int | None
    data: bytes
    put_at_s: float
    expires_at_s: float
    chunk: Chunk
    place: int

    @property
    def poisonous(self) -> bool:
        return POISON in self.data


@dataclass
class Producing:
    """One history while it runs, and what is left of it."""

    history: History
    now_s: float = 0.0
    records: dict[bytes, Record] = field(default_factory=dict)
    chunks: list[Chunk] = field(default_factory=list)
    carried: Counter[bytes] = field(default_factory=Counter)
    """How many requests carried a user record."""
    first_sent_at_s: dict[bytes, float] = field(default_factory=dict)
    settled_at_s: dict[Chunk, float] = field(default_factory=dict)
    withdrawn: set[bytes] = field(default_factory=set)
    astray: set[Chunk] = field(default_factory=set)
    """Records of theirs landed, in an aggregate, elsewhere than predicted: a listing must tell what that means."""
    sent_at_s: list[float] = field(default_factory=list)
    """When each request was."""

    def __post_init__(self) -> None:
        history = self.history
        self.rng = Random(history.seed)
        self.stream = SimulatedStream(history.shard_count)
        self.tally = Tally()
        self.freed_bytes = 0
        self.batcher = Batcher(
            BatchLimits(
                aggregate=history.aggregate,
                ordered_by_key=history.ordered,
                linger_s=history.linger_s,
                requests_in_flight_max=history.requests_in_flight_max,
                request_records_max=history.request_records_max,
                request_bytes_max=history.request_bytes_max,
                aggregate_bytes_max=history.aggregate_bytes_max,
                retry_base_s=0.05,
                retry_cap_s=1.0,
                pace=PaceLimits(records_per_s=100, bytes_per_s=8_000) if history.paced else None,
            ),
            make_entry=Entry,
            rng=Random(history.seed + 1),
        )
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = count()
        self._fates = iter(history.fates)
        self._listing_due = False
        self._closed = False
        self._alarm = 0  # the number of the last one that was set: those before it are off
        self._in_vain = 0  # alarms in a row without a request
        self._sent_before = 0
        self._next_expiry_s = inf

    def run(self) -> Producing:
        """Live through the history until every record has its outcome and every request its end."""
        history = self.history
        self._at(history.listed_after_s, self._list)
        for at_s in history.blind_s or ():
            self._at(at_s, self._list)
        for put in history.puts:
            self._at(put.at_s, self._put, put)
        for reshard in history.reshards:
            self._at(reshard.at_s, self._reshard, reshard)
        for withdrawal in history.withdrawals:
            self._at(withdrawal.at_s, self._withdraw, withdrawal)
        if history.close_at_s is not None:
            self._at(history.close_at_s, self._close)
        if history.refused_at_s is not None:
            self._at(history.refused_at_s, self._refuse)
        last_s = max(event[0] for event in self._events)
        while self._events:
            at_s, _, what, arguments = heapq.heappop(self._events)
            assert at_s <= last_s + UNWATCHED_S, f"{self._unsettled()} records are stuck"
            self.now_s = at_s
            what(*arguments)
            self._hear()
            if what != self._wake or arguments == (self._alarm,):
                self._pump()
        return self

    # --- what happens ---------------------------------------------------------------------------

    def _at(self, at_s: float, what: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._events, (at_s, next(self._order), what, arguments))

    def _wake(self, alarm: int) -> None:
        """The loop is called because it had asked for it. That comes to something, or to a better time."""
        if alarm == self._alarm:
            self._in_vain = 0 if self._sent_before < len(self.sent_at_s) else self._in_vain + 1
            self._sent_before = len(self.sent_at_s)
            assert self._in_vain <= IN_VAIN_MAX, "wakes for nothing"

    def _tick(self) -> None:
        """The same, to look for what has expired. And for what a flush would tell that waits too long for it."""
        found = [
            (data, sent)
            for run, sent in self.batcher.unsettled_runs()
            for data, index in zip(run.datas[run.at :], run.indices[run.at :], strict=True)
            if not run.chunk.is_settled(index)
        ]
        expected = [
            (data, self.carried[data] > 0)
            for data, record in self.records.items()
            if not record.chunk.is_settled(record.place)
        ]
        assert self._closed or sorted(found) == sorted(expected)

    def _put(self, put: Put) -> None:
        if self._closed or not put.records:
            return
        number = len(self.chunks)
        record_ttl_s = self.history.record_ttl_s if put.record_ttl_s is None else put.record_ttl_s
        chunk = OnceChunk(number, put_at_s=self.now_s, expires_at_s=self.now_s + record_ttl_s)
        self.chunks.append(chunk)
        keys, datas, held_bytes = [], [], 0
        for index, (key, size) in enumerate(put.records):
            data = b"%d/%d;" % (number, index) + (POISON if size < 0 else b"." * size)
            hash_key = self._explicit(key)
            if hash_key is not None:
                chunk.hash_keys = {**(chunk.hash_keys or {}), index: hash_key}
            record = Record(key, hash_key, data, self.now_s, chunk.expires_at_s, chunk, index)
            self.records[data] = record
            keys.append(key)
            datas.append(data)
            held_bytes += len(data) + len(key.encode()) + RECORD_OVERHEAD_BYTES
        chunk.close(len(keys), held_bytes)
        self.batcher.add(chunk, keys, datas)
        if self._next_expiry_s == inf:
            self._next_expiry_s = self.now_s + EXPIRY_CHECK_S
            self._at(self._next_expiry_s, self._tick)

    def _explicit(self, key: str) -> int | None:
        """A key's explicit hash key is the same each time: else its records are of several shards, without order."""
        if not self.history.explicit or not key.startswith("e"):
            return None
        return Random(key).getrandbits(128)

    def _reshard(self, reshard: Reshard) -> None:
        if reshard.kind == "merge":
            self.stream.merge(reshard.place, self.now_s)
        else:
            self.stream.split(reshard.place, self.now_s, 2 if reshard.kind == "split" else 50)

    def _withdraw(self, withdrawal: Withdrawal) -> None:
        if self._closed or withdrawal.put >= len(self.chunks):
            return
        chunk = self.chunks[withdrawal.put]
        if withdrawal.place < 0:
            self._withdraw_all(withdrawal.put)
            return
        if withdrawal.place >= chunk.records:
            return
        data = next(
            data for data, record in self.records.items() if (record.chunk, record.place) == (chunk, withdrawal.place)
        )
        had_outcome = chunk.is_settled(withdrawal.place)
        if self.batcher.withdraw(chunk, withdrawal.place):
            assert not had_outcome
            self.withdrawn.add(data)
        else:
            assert had_outcome or self.carried[data], "never sent, and not withdrawn"

    def _withdraw_all(self, number: int) -> None:
        """In steps, between which shards are listed, records put, and others found to have expired."""
        chunk = self.chunks[number]
        ours = {data: record.place for data, record in self.records.items() if record.chunk is chunk}
        before = {data for data, index in ours.items() if chunk.is_settled(index)}
        withdrawn = 0
        for count_of_step in self.batcher.withdraw_in_steps([chunk]):
            withdrawn += count_of_step
            if self.rng.random() < 0.2:
                self._list()
            if self.rng.random() < 0.2:
                self._put(Put(self.now_s, (("between", 1),)))
        settled = {data for data, index in ours.items() if chunk.is_settled(index)}
        assert all(self.carried[data] for data in ours.keys() - settled), "never sent, and not withdrawn"
        # A listing between two steps settles others as written.
        outcomes = {data: chunk.outcomes[ours[data]] for data in settled - before}
        ours_back = {
            data
            for data, outcome in outcomes.items()
            if isinstance(outcome, NotWritten) and outcome.kind is RecordWithdrawnError
        }
        assert withdrawn == len(ours_back)
        self.withdrawn |= ours_back

    def _close(self) -> None:
        self._closed = True
        self.batcher.close(self.now_s)

    def _refuse(self) -> None:
        if not self._closed:
            self.batcher.give_up_waiting("AccessDenied", self.now_s)

    def _hear(self) -> None:
        """Take what the batcher tells, as the producer does after each step."""
        settling = self.batcher.settling
        while settling.facts_made:
            self.tally.note(settling.facts_made.popleft())
        self.freed_bytes += settling.freed_bytes
        settling.freed_bytes = 0
        assert 0 <= self.freed_bytes <= sum(chunk.held_bytes for chunk in self.chunks)
        for chunk in self.chunks:
            assert bool(chunk.unsettled) == (chunk.number in settling.live)
            if not chunk.unsettled:
                self.settled_at_s.setdefault(chunk, self.now_s)

    # --- the shards -----------------------------------------------------------------------------

    def _list(self) -> None:
        self._listing_due = False
        if self._closed:
            return
        blind_s = self.history.blind_s
        if blind_s is not None and blind_s[0] <= self.now_s < blind_s[1]:
            self.batcher.set_shards(None, self.now_s)
            return
        former = self.stream.listing(self.now_s - self.history.lag_s)
        if self.history.holes:
            known = {shard.shard_id for shard in former}
            fresh = self.stream.listing(self.now_s)
            self.batcher.set_shards(
                [shard for place, shard in enumerate(fresh) if shard.shard_id in known or place % 2], self.now_s
            )
        else:
            self.batcher.set_shards(former, self.now_s)

    def _follow(self) -> None:
        if not self._listing_due:
            self._listing_due = True
            self._at(self.now_s + REFRESH_S, self._list)

    # --- what the send loop does ----------------------------------------------------------------

    def _pump(self) -> None:
        if self._closed:
            return
        if self.now_s >= self._next_expiry_s:
            self.batcher.expire(self.now_s)
            self._hear()
            live = len(self.settled_at_s) < len(self.chunks)
            self._next_expiry_s = self.now_s + EXPIRY_CHECK_S if live else inf
            if live:
                self._at(self._next_expiry_s, self._tick)
        while True:
            unseen = self._unseen()
            request = self.batcher.next_request(self.now_s)
            if request is None and self._unseen() < unseen:
                continue  # it has looked at enough for one step
            if request is None:
                self._sleep(self.batcher.wake_at_s)
                break
            self._send(request)
        self._hear()
        if self.batcher.stale:
            self._follow()

    def _unseen(self) -> int:
        """Records of which it is not known whether their key is on its way."""
        return sum(len(run) for lane in self.batcher.lanes for run in lane.runs) if self.history.ordered else 0

    def _sleep(self, wake_at_s: float) -> None:
        self._alarm += 1
        if wake_at_s < inf:
            assert wake_at_s > self.now_s, "busy with nothing"
            assert wake_at_s <= self.now_s + WAKE_MAX_S, "sleeps too long"
            self._at(wake_at_s, self._wake, self._alarm)
        elif not self.batcher.in_flight and self.batcher.lanes.known:
            assert not self._unsettled() or self.batcher.stale, "sleeps for ever"

    def _unsettled(self) -> int:
        return sum(chunk.unsettled for chunk in self.chunks)

    def _send(self, request: Request) -> None:
        self.sent_at_s.append(self.now_s)
        assert len(self.batcher.in_flight) <= self.history.requests_in_flight_max
        self._check_request(request)
        for load in request.loads:
            for run in load.runs:
                assert run.at == 0
                for data in run.datas:
                    if not self.carried[data]:
                        self.first_sent_at_s[data] = self.now_s
                    self.carried[data] += 1
        fate = next(self._fates, Fate())
        arrives_s = self.now_s + fate.way_s
        if fate.kind == "late":
            self._at(arrives_s, self._fail, request, Failure.UNKNOWN, fate)
            self._at(arrives_s + fate.back_s, self._serve, request, fate)
        else:
            self._at(arrives_s, self._serve, request, fate)

    def _check_request(self, request: Request) -> None:
        history = self.history
        entries = request.entries
        assert 0 < len(entries) <= history.request_records_max
        assert entries == [entry for load in request.loads for entry in load.entries]
        payload_bytes = sum(entry.payload_bytes for entry in entries)
        assert payload_bytes == request.payload_bytes
        assert payload_bytes <= history.request_bytes_max or len(entries) == 1
        for load in request.loads:
            assert load.user_records == sum(len(run.datas) for run in load.runs)
            if load.is_aggregate:
                assert len(load.entries) == 1
                assert len(load.entries[0].data) <= history.aggregate_bytes_max or load.user_records == 1
                assert load.lane.shard is not None
                assert load.lane.shard.holds(load.entries[0].hash_key), "pinned to the shard that is predicted"

    # --- what the service does ------------------------------------------------------------------

    def _serve(self, request: Request, fate: Fate) -> None:
        back_s = self.now_s + fate.back_s
        whole = {
            "throttled": Failure.THROTTLED, "not sent": Failure.NOT_SENT, "denied": Failure.DENIED,
            "lost": Failure.UNKNOWN,
        }.get(fate.kind)  # fmt: skip
        payload_bytes = sum(entry.payload_bytes for entry in request.entries)
        if whole is not None:
            self._at(back_s, self._fail, request, whole, fate)
        elif payload_bytes > self.history.service_bytes_max or any(POISON in entry.data for entry in request.entries):
            if fate.kind != "late":
                self._at(back_s, self._fail, request, Failure.INVALID, fate)
        else:
            results = self._put_records(request.entries, fate)
            if fate.kind == "answered":
                self._at(back_s, self._answer, request, results)
            elif fate.kind != "late":
                self._at(back_s, self._fail, request, Failure.UNKNOWN, fate)

    def _put_records(self, entries: list[Entry], fate: Fate) -> list[Answer]:
        results = [Answer() for _ in entries]
        # The order of a request's entries is not promised.
        for place in self.rng.sample(range(len(entries)), len(entries)):
            chance = self.rng.random()
            if chance < fate.refused:
                results[place] = Answer(error_code=THROTTLED, error_message="slowly")
            elif chance < fate.refused + fate.broken:
                if self.rng.random() < 0.5:
                    self.stream.put(entries[place])
                results[place] = Answer(error_code="InternalFailure", error_message="oh")
            elif fate.kind == "partly done" and chance < 0.5:
                continue
            else:
                results[place] = self.stream.put(entries[place])
        return results

    def _answer(self, request: Request, results: list[Answer]) -> None:
        start = 0
        for load in request.loads:
            if load.user_records > len(load.entries) and results[start].shard_id not in (None, load.lane.shard_id):
                self.astray.update(run.chunk for run in load.runs)
            start += len(load.entries)
        self.batcher.handle_answer(request, results, self.now_s)

    def _fail(self, request: Request, failure: Failure, fate: Fate) -> None:
        self.batcher.handle_failure(request, failure, fate.kind, self.now_s)
