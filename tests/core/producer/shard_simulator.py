"""Several producers on one shard in virtual time: which sends when, what the shard takes, when answers come back."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from shardway.core.producer.pace import AdaptiveRate
from shardway.local.model.limits import Meter

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS_PER_S, BYTES_PER_S = 1_000.0, 1_048_576.0
REQUEST_RECORDS_MAX = 500


class MeteredLimit:
    """A shard with the local Kinesis's own meters: token buckets with a second's worth, record by record."""

    def __init__(self) -> None:
        self.records, self.bytes = Meter(RECORDS_PER_S, 0.0), Meter(BYTES_PER_S, 0.0)

    def offer(self, now_s: float, number: int, size: int) -> int:
        """How many of these records of one size are let in."""
        for taken in range(number):
            if not (self.records.allows(1, now_s) and self.bytes.allows(size, now_s)):
                return taken
            self.records.take(1, now_s)
            self.bytes.take(size, now_s)
        return number


class WindowLimit:
    """A shard that counts anew each second, and takes one record of any size when it has taken none yet."""

    def __init__(self) -> None:
        self.second, self.records, self.bytes = -1, 0, 0

    def offer(self, now_s: float, number: int, size: int) -> int:
        """How many of these records of one size are let in."""
        if math.floor(now_s) > self.second:
            self.second, self.records, self.bytes = math.floor(now_s), 0, 0
        room = max(0.0, BYTES_PER_S - self.bytes) // size
        if self.records == 0:
            room = max(1.0, room)
        taken = int(min(number, RECORDS_PER_S - self.records, room))
        self.records += taken
        self.bytes += taken * size
        return taken


@dataclass(eq=False)
class Writer:
    """A producer: how large its records are, how many of them there are, how far away the shard is.

    It asks as the batching engine does: for a few records at least, the first of which may be larger than the burst.
    """

    size: int = 1_500
    rtt_s: float = 0.02
    demand: float = math.inf
    """What it has to send, as a fraction of the shard's limit."""
    start_s: float = 0.0
    stop_s: float = math.inf
    rtt_spread: float = 0.4
    """The way there and the way back are this much shorter or longer than half of the round trip."""
    in_flight_max: int = 8
    poll_s: float | None = None
    """None: wakes when the rate says so; else looks each so many seconds."""
    make_rate: Callable[[float, Random], AdaptiveRate] = lambda now_s, rng: AdaptiveRate(now_s=now_s, rng=rng)
    backlog: float = 0.0
    in_flight: int = 0
    fed_s: float = 0.0
    requests: int = 0
    rate: AdaptiveRate = field(init=False)
    answers: list[tuple[float, int, int]] = field(default_factory=list)
    """(when the shard saw it, accepted, refused)"""

    def cost_s(self) -> float:
        """Seconds of the shard's limit that one record takes."""
        return max(1 / RECORDS_PER_S, self.size / BYTES_PER_S)

    def totals(self, from_s: float, until_s: float) -> tuple[int, int]:
        """(accepted, refused) records that the shard saw in [from, until)."""
        seen = [answer for answer in self.answers if from_s <= answer[0] < until_s]
        return sum([answer[1] for answer in seen]), sum([answer[2] for answer in seen])

    def share(self, from_s: float, until_s: float) -> float:
        """The fraction of the shard's limit that it got."""
        return self.totals(from_s, until_s)[0] * self.cost_s() / (until_s - from_s)

    def feed(self, now_s: float) -> None:
        """Bring the backlog up to now."""
        if self.demand == math.inf:
            self.backlog = math.inf
        else:
            self.backlog += (now_s - self.fed_s) * self.demand / self.cost_s()
        self.fed_s = now_s


class Simulation:
    """Runs writers against a limit."""

    def __init__(self, writers: list[Writer], limit: MeteredLimit | WindowLimit, seed: int) -> None:
        self.writers, self.limit, self.rng = writers, limit, Random(seed)
        self._events: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._order = count()
        for writer in writers:
            writer.rate = writer.make_rate(writer.start_s, Random(self.rng.random()))
            writer.fed_s = writer.start_s
            self._at(writer.start_s, self._wake, writer)

    def run(self, until_s: float) -> Simulation:
        while self._events and self._events[0][0] < until_s:
            now_s, _, what, arguments = heapq.heappop(self._events)
            what(now_s, *arguments)
        return self

    def share(self, from_s: float, until_s: float) -> float:
        """The fraction of the shard's limit that all writers got together."""
        return sum(writer.share(from_s, until_s) for writer in self.writers)

    def refused(self, from_s: float, until_s: float) -> float:
        """The fraction of what all sent that was refused."""
        totals = [writer.totals(from_s, until_s) for writer in self.writers]
        refused = sum([total[1] for total in totals])
        return refused / max(1, refused + sum([total[0] for total in totals]))

    def fairness(self, from_s: float, until_s: float) -> float:
        """What the writer that got least got, by what the one got that got most."""
        shares = [writer.share(from_s, until_s) for writer in self.writers]
        return min(shares) / max(shares)

    def _at(self, when_s: float, what: Callable[..., None], *arguments: object) -> None:
        heapq.heappush(self._events, (when_s, next(self._order), what, arguments))

    def _wake(self, now_s: float, writer: Writer) -> None:
        if now_s >= writer.stop_s:
            return
        writer.feed(now_s)
        wait_s = self._send(now_s, writer)
        self._at(now_s + (writer.poll_s or max(wait_s, 1e-6)), self._wake, writer)

    def _send(self, now_s: float, writer: Writer) -> float:
        """Send what may be sent; seconds until it should be looked at again."""
        while writer.backlog >= 1 and writer.in_flight < writer.in_flight_max:
            few = min(25, max(1, 32_768 // writer.size), writer.backlog)
            wait_s = writer.rate.wait_s(now_s, int(few), int(few) * writer.size)
            if wait_s > 0:
                return wait_s
            records, payload_bytes = writer.rate.allowance(now_s)
            number = int(min(max(1, min(records, payload_bytes // writer.size)), REQUEST_RECORDS_MAX, writer.backlog))
            writer.rate.take(now_s, number, number * writer.size)
            writer.requests += 1
            writer.backlog -= number
            writer.in_flight += 1
            self._at(now_s + self._way_s(writer), self._arrive, writer, number)
        return 0.005

    def _way_s(self, writer: Writer) -> float:
        return writer.rtt_s / 2 * self.rng.uniform(1 - writer.rtt_spread, 1 + writer.rtt_spread)

    def _arrive(self, now_s: float, writer: Writer, number: int) -> None:
        taken = self.limit.offer(now_s, number, writer.size)
        writer.answers.append((now_s, taken, number - taken))
        self._at(now_s + self._way_s(writer), self._answer, writer, taken, number - taken)

    def _answer(self, now_s: float, writer: Writer, taken: int, refused: int) -> None:
        writer.in_flight -= 1
        writer.backlog += refused
        if refused:
            writer.rate.note_refused(now_s, refused, refused * writer.size)
        if taken:
            writer.rate.note_accepted(now_s, taken, taken * writer.size)
