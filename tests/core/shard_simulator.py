"""Several producers on one shard in virtual time: who sends when, what the shard takes, when the answers come back."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from itertools import count
from random import Random

from penstock.core.adaptive import AdaptiveRate

MIB = 1024 * 1024
RECORDS_PER_S, BYTES_PER_S = 1000.0, float(MIB)


class BucketLimit:
    """A shard that keeps its limit as a token bucket with one second's worth, record by record."""

    def __init__(self) -> None:
        self.records, self.bytes, self.at_s = RECORDS_PER_S, BYTES_PER_S, 0.0

    def offer(self, now_s: float, records: int, size: int) -> int:
        """How many of these records of one size are let in."""
        passed_s, self.at_s = now_s - self.at_s, now_s
        self.records = min(RECORDS_PER_S, self.records + passed_s * RECORDS_PER_S)
        self.bytes = min(BYTES_PER_S, self.bytes + passed_s * BYTES_PER_S)
        if size > BYTES_PER_S:
            taken = 1 if self.bytes >= BYTES_PER_S and self.records >= 1 else 0
        else:
            taken = max(0, min(records, math.floor(self.records), math.floor(self.bytes / size)))
        self.records -= taken
        self.bytes -= taken * size
        return taken


class WindowLimit:
    """A shard that counts anew each second."""

    def __init__(self) -> None:
        self.second, self.records, self.bytes = -1, 0, 0

    def offer(self, now_s: float, records: int, size: int) -> int:
        second = math.floor(now_s)
        if second > self.second:
            self.second, self.records, self.bytes = second, 0, 0
        if size > BYTES_PER_S:
            taken = 1 if self.bytes == 0 else 0
        else:
            room = (BYTES_PER_S - self.bytes) // size
            taken = max(0, min(records, int(RECORDS_PER_S) - self.records, int(room)))
        self.records += taken
        self.bytes += taken * size
        return taken


@dataclass
class Writer:
    """A producer: how large its records are, how many of them there are, how far away the shard is."""

    size: int = 1000
    rtt_s: float = 0.02
    demand: float = math.inf
    """Fraction of the shard's limit that it has to send."""
    start_s: float = 0.0
    stop_s: float = math.inf
    in_flight_max: int = 8
    poll_s: float | None = None
    """None: wakes when the rate says so; else looks each so many seconds."""
    backlog: float = 0.0
    in_flight: int = 0
    rate: AdaptiveRate | None = None
    fed_s: float = 0.0
    answers: list[tuple[float, int, int]] = field(default_factory=list)
    """(when the shard saw it, accepted, refused)"""

    def cost(self) -> float:
        """Seconds of the shard's limit that one record takes."""
        return max(1 / RECORDS_PER_S, self.size / BYTES_PER_S)

    def totals(self, from_s: float, until_s: float) -> tuple[int, int]:
        seen = [a for a in self.answers if from_s <= a[0] < until_s]
        return sum(a[1] for a in seen), sum(a[2] for a in seen)

    def share(self, from_s: float, until_s: float) -> float:
        """The fraction of the shard's limit that it got."""
        return self.totals(from_s, until_s)[0] * self.cost() / (until_s - from_s)

    def refused(self, from_s: float, until_s: float) -> float:
        """The fraction of what it sent that was refused."""
        accepted, refused = self.totals(from_s, until_s)
        return refused / max(1, accepted + refused)


class Simulation:
    """Runs writers against a limit. ``requests`` is counted for a look at how they are cut."""

    def __init__(self, writers: list[Writer], limit: BucketLimit | WindowLimit, seed: int) -> None:
        self.writers, self.limit, self.rng = writers, limit, Random(seed)
        self.events: list[tuple[float, int, str, tuple[object, ...]]] = []
        self.order = count()
        self.requests = 0

    def at(self, when_s: float, what: str, *args: object) -> None:
        heapq.heappush(self.events, (when_s, next(self.order), what, args))

    def run(self, until_s: float) -> Simulation:
        for writer in self.writers:
            self.at(writer.start_s, "wake", writer, True)
        while self.events and self.events[0][0] < until_s:
            now_s, _, what, args = heapq.heappop(self.events)
            getattr(self, what)(now_s, *args)
        return self

    def wake(self, now_s: float, writer: Writer, timer: bool) -> None:
        if now_s >= writer.stop_s:
            return
        if writer.rate is None:
            writer.rate = AdaptiveRate(now_s=now_s, rng=Random(self.rng.random()))
            writer.fed_s = now_s
        if writer.demand < math.inf:
            writer.backlog += (now_s - writer.fed_s) * writer.demand / writer.cost()
            writer.fed_s = now_s
        else:
            writer.backlog = 1e9
        wait_s = self.send(now_s, writer)
        if timer:
            self.at(now_s + (writer.poll_s or max(wait_s, 1e-6)), "wake", writer, True)

    def send(self, now_s: float, writer: Writer) -> float:
        """Send what may be sent; seconds until there may be more."""
        rate = writer.rate
        assert rate is not None
        while writer.backlog >= 1 and writer.in_flight < writer.in_flight_max:
            records, payload_bytes = rate.allowance(now_s)
            number = int(min(records, payload_bytes // writer.size, 500, writer.backlog))
            if number == 0:
                wait_s = rate.wait_s(now_s, 1, writer.size)
                if wait_s > 0:
                    return wait_s
                number = 1
            rate.take(now_s, number, number * writer.size)
            self.requests += 1
            writer.backlog -= number
            writer.in_flight += 1
            self.at(now_s + writer.rtt_s * self.rng.uniform(0.3, 0.7), "arrive", writer, number)
        return 0.005

    def arrive(self, now_s: float, writer: Writer, number: int) -> None:
        taken = self.limit.offer(now_s, number, writer.size)
        writer.answers.append((now_s, taken, number - taken))
        self.at(now_s + writer.rtt_s * self.rng.uniform(0.3, 0.7), "answer", writer, taken, number - taken)

    def answer(self, now_s: float, writer: Writer, taken: int, refused: int) -> None:
        assert writer.rate is not None
        writer.in_flight -= 1
        writer.backlog += refused
        if taken:
            writer.rate.accepted(now_s, taken, taken * writer.size)
        if refused:
            writer.rate.refused(now_s, refused, refused * writer.size)
