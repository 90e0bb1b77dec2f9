"""The pace of polling: when the next call to a shard may be sent.

A shard takes 5 GetRecords calls and gives 2 MiB a second, to all its readers together, and no answer tells how many
they are. So a reader keeps to a rate of its own (`PollPace`) that falls when a call is refused, and rises a little with
each answer: it remembers what the others left it, and finds out when they have gone. (Additive increase, multiplicative
decrease.) Before the first refusal, a reader that is behind does not wait at all: most often it is the only reader. A
shard is asked soon where there is something, and seldom where there is nothing.
"""

from __future__ import annotations

from math import ceil, sqrt
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from shardway.core.options.base import Options

if TYPE_CHECKING:
    from random import Random


READ_BYTES_PER_S = 2 * 2**20
"""The bytes that a shard gives in a second, to all its readers together (AWS API reference, GetRecords)."""
RECORDS_MAX = 10_000
"""The most records of one GetRecords (AWS API reference)."""
IDLE_JITTER = 0.1
"""The part of the interval at a silent tip that is random: otherwise a thousand shards that begin together would be
polled in one moment for ever.
"""
IDLE_MOMENTS = 20
"""The consumer polls silent shards at this many moments in that interval, some of them together: waking up costs as
much as a poll.
"""
LATE_PART = 1 / 8
"""A call that was sent late by less than this part of the interval does not put off the next one: there are still five
calls in a second.
"""
DECREASE = 0.75
"""After a refusal a reader goes on at this part of its rate."""
INCREASE_PER_CALL = 0.012
"""After each answer a reader's rate grows by this part of the rate wanted, times the root of the share that it has:
near a small share probing costs more of it. The way from the smallest rate back to the whole takes one to three
minutes.
"""

IDLE_GROWTH = 1.5
"""Each empty answer at the tip lengthens the interval by this factor."""
BACKOFF_MAX_S = 10.0
"""The longest pause after refusals or failures."""
CALLS_PER_S_MIN = 0.4
"""A reader whose calls are refused sends fewer, but never fewer than this: no reader is ever pushed aside
altogether.
"""


class PollingOptions(Options, frozen=True, kw_only=True):
    """The options of how often to call. Some of the shard's five calls are left to others: a worker that warms up, a
    console.
    """

    interval_s: Annotated[float, Meta(gt=0)] = 0.24
    """The time between two calls while records come: records are delivered within a quarter of a second (KCL:
    idleTimeBetweenReadsInMillis).
    """
    idle_interval_s: Annotated[float, Meta(gt=0)] = 1.0
    """The time between two calls at the tip of a silent shard; the consumer reaches it after some empty answers."""
    request_records_max: Annotated[int, Meta(ge=1, le=RECORDS_MAX)] = RECORDS_MAX
    """How many records one call asks for: AWS takes 1 to 10,000 (KCL: maxRecords). Ask for fewer where the memory of a
    page matters more than the price of calls.
    """


class PollPace:
    """Says when the next call may be sent. ``now_s`` is monotonic."""

    __slots__ = ("_bytes_free_at_s", "_calls_per_s", "_eager", "_idle_s", "_next_s", "_refusals", "_rng", "options")

    def __init__(self, options: PollingOptions, rng: Random) -> None:
        self.options = options
        self._rng = rng
        self._calls_per_s = 1 / options.interval_s
        self._idle_s = options.interval_s
        self._next_s = float("-inf")
        self._bytes_free_at_s = float("-inf")
        self._refusals = 0
        self._eager = True

    @property
    def calls_per_s(self) -> float:
        """The rate that others leave, as far as it is known; at most what is wanted."""
        return self._calls_per_s

    def wait_s(self, now_s: float) -> float:
        """Seconds until the next call may be sent."""
        return max(0.0, self._next_s - now_s)

    def answered(self, *, sent_s: float, payload_bytes: int, at_tip: bool) -> None:
        """Note an answer to a call that was sent at ``sent_s``; without any bytes it counts as empty. ``at_tip``:
        nothing is known to follow it.
        """
        wanted = 1 / self.options.interval_s
        self._refusals = 0
        self._calls_per_s = min(wanted, self._calls_per_s + INCREASE_PER_CALL * sqrt(wanted * self._calls_per_s))
        # What a large answer takes of the shard's bytes is waited for after it.
        self._bytes_free_at_s = max(self._bytes_free_at_s, sent_s) + payload_bytes / READ_BYTES_PER_S
        if at_tip and not payload_bytes:
            self._idle_s = min(self.options.idle_interval_s, self._idle_s * IDLE_GROWTH)
            idle_s = self._idle_s * (1 - self._rng.uniform(0, IDLE_JITTER))
            grid_s = self.options.idle_interval_s / IDLE_MOMENTS
            self._next_s = ceil((sent_s + max(idle_s, 1 / self._calls_per_s)) / grid_s) * grid_s
            return
        self._idle_s = self.options.interval_s
        if self._eager and not at_tip:
            self._next_s = sent_s
        elif self._eager:
            late_s = sent_s - self._next_s
            due_s = self._next_s if late_s < self.options.interval_s * LATE_PART else sent_s
            self._next_s = due_s + self.options.interval_s
        else:
            self._next_s = max(sent_s + 1 / self._calls_per_s, self._bytes_free_at_s)

    def refused(self, now_s: float) -> None:
        """Note that the shard's limits refused a call."""
        self._refusals += 1
        self._eager = False
        self._calls_per_s = max(min(CALLS_PER_S_MIN, self._calls_per_s), self._calls_per_s * DECREASE)
        pause_s = min(BACKOFF_MAX_S, self._rng.uniform(0.5, 1) / self._calls_per_s)
        self._next_s = max(now_s + pause_s, self._bytes_free_at_s)

    def failed(self, now_s: float) -> None:
        """Note that a call failed for another reason than the limits."""
        self._refusals += 1
        longest_s = min(BACKOFF_MAX_S, self.options.interval_s * 2.0 ** min(self._refusals, 16))
        self._next_s = now_s + self._rng.uniform(self.options.interval_s / 2, longest_s)
