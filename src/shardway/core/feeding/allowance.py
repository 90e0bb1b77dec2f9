"""The allowance is what a shard's next fetch may take: of what the shard gives to all its readers, and of its
consumer's memory.

A shard takes 5 GetRecords calls and gives 2 MiB a second, to all its readers together, and no answer tells how many
they are. So a reader keeps to a rate of its own (`PollPace`) that falls when a call is refused, and rises a little with
each answer: it remembers what the others left it, and finds out when they have gone. (Additive increase, multiplicative
decrease.) Before the first refusal, a reader that is behind does not wait at all: most often it is the only reader. A
shard is asked soon where there is something, and seldom where there is nothing.

How much memory the fetched records of one consumer may take is the matter of its `Buffer`, of which each shard has a
`Share`. One half of the bound is divided evenly: a shard that holds less than its part may always fetch, so a shard
whose handler hangs keeps no other shard waiting. The other half is for the shards that are behind, in the order in
which they ask.

GetRecords takes a number of records, not of bytes. So a share learns from each page what a Kinesis record takes, asks
for as many as fit, and reserves their room until the page is there. A page whose records are larger than those before
it can pass the bound by what it is larger. So can shards that come while others hold more than their new, smaller part,
until those others have settled.
"""

from __future__ import annotations

from contextlib import nullcontext
from math import ceil, sqrt
from typing import TYPE_CHECKING

from shardway.core.given import Options

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from random import Random
    from typing import Any


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
"""The factor by which each empty answer at the tip lengthens the interval."""
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

    interval_s: float = 0.24
    """The time between two calls while records come: records are delivered within a quarter of a second (KCL:
    idleTimeBetweenReadsInMillis).
    """
    idle_interval_s: float = 1.0
    """The time between two calls at the tip of a silent shard; the consumer reaches it after some empty answers."""
    request_records_max: int = RECORDS_MAX
    """How many records one call asks for: AWS takes 1 to 10,000 (KCL: maxRecords). Ask for fewer where the memory of a
    page matters more than the price of calls.
    """

    def _faults(self) -> list[str]:
        if self.request_records_max <= RECORDS_MAX:
            return []
        return [f"request_records_max is from 1 to {RECORDS_MAX}, not {self.request_records_max}"]


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


_MIB = 1024 * 1024
BUFFER_BYTES_MAX = 256 * _MIB
PAGE_BYTES_MAX = 16 * _MIB
"""The most memory that one page takes, by estimate: 10 MiB of data (AWS API reference, GetRecords), and what Python
adds.
"""
FIRST_RECORD_BYTES = 64 * 1024
"""The size that a Kinesis record counts with until a page has shown better: an aggregate of tiny records takes that."""
WORTH_BYTES = 256 * 1024
"""A shard that holds records does not fetch for less room than this: tiny pages would use up the shard's five calls."""
FALL = 0.7
"""The part to which the learned size of a record falls at most with each page; it rises at once."""


class Buffer:
    """The buffer of one consumer: the bound that its shards share."""

    def __init__(
        self,
        bytes_max: int = BUFFER_BYTES_MAX,
        *,
        shard_bytes_max: int | None = None,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        """``shard_bytes_max``: the most bytes that one shard may hold; None: as much as the bound. ``lock``: it is held
        during each change, where several threads make them; the same thread may take it again.
        """
        self.lock = nullcontext() if lock is None else lock
        self.bytes_max = bytes_max
        self.shard_bytes_max = bytes_max if shard_bytes_max is None else shard_bytes_max
        self._shares: set[Share] = set()
        self._used: dict[Share, None] = {}  # The shares that hold or have reserved something.
        self._waiting: dict[Share, None] = {}  # They stand in the order in which they asked.
        self._beyond: int | None = 0  # The bytes that all shares have of the common half; None: to be counted.

    def share(self, wake: Callable[[], None]) -> Share:
        """Return room for one shard. ``wake`` is called when a share that got no room may ask again."""
        with self.lock:
            share = Share(self, wake)
            self._shares.add(share)
            self._divide()
            return share

    @property
    def bytes_held(self) -> int:
        """The bytes that all shards hold and have reserved."""
        return sum(share.held + share.reserved for share in self._shares)

    @property
    def part_bytes(self) -> int:
        """The bytes of a shard's part of the half that is divided."""
        return self.bytes_max // 2 // max(1, len(self._shares))

    @property
    def common_left(self) -> int:
        """The bytes that are left of the half that is for shards that are behind."""
        if self._beyond is None:
            part_bytes = self.part_bytes
            self._beyond = sum(max(0, share.held + share.reserved - part_bytes) for share in self._used)
        return max(0, self.bytes_max // 2 - self._beyond)

    def leave(self, share: Share) -> None:
        """Let a share go: what it had is free."""
        with self.lock:
            if share in self._shares:
                self._shares.remove(share)
                self._used.pop(share, None)
                self._waiting.pop(share, None)
                self._divide()
                self.wake_next()

    def wait(self, share: Share) -> None:
        """Put a share at the end of the line of shares that are to be woken, unless it stands there."""
        self._waiting.setdefault(share)

    def wake_next(self) -> None:
        """Wake the first share in the line, where there is room worth asking for; it wakes the next one."""
        while self._waiting and self.common_left >= min(WORTH_BYTES, self.bytes_max // 4):
            share = next(iter(self._waiting))
            del self._waiting[share]
            if share.woken():
                return

    def changed(self, share: Share, beyond: int) -> None:
        """Note that a share takes another amount now: ``beyond`` bytes more of the common half (less: below 0)."""
        if share.held + share.reserved:
            self._used[share] = None
        else:
            self._used.pop(share, None)
        if self._beyond is not None:
            self._beyond += beyond
        if beyond < 0 and self._waiting:
            self.wake_next()

    def _divide(self) -> None:
        """Divide anew: the parts are other ones when a share comes or goes. What they make of the common half is
        counted when it is asked for: a thousand shards that come at once would otherwise cost a million looks.
        """
        self._beyond = None


class Share:
    """The bytes that one shard holds, and what it may fetch."""

    __slots__ = ("_buffer", "_has_left", "_record_bytes", "_wake", "held", "reserved", "waits")

    def __init__(self, buffer: Buffer, wake: Callable[[], None]) -> None:
        self.held = 0
        """The memory of the shard's records that were fetched and are not settled."""
        self.reserved = 0
        """The memory that is reserved for the page that is asked for."""
        self.waits = False
        """True from the moment in which there is no room until the share is woken."""
        self._buffer = buffer
        self._wake = wake
        self._record_bytes: int | None = None
        self._has_left = False

    def ask(self, *, behind: bool) -> int | None:
        """Return how many Kinesis records may be fetched now: their room is reserved until `came`. None: there is no
        room, and the share will be woken. ``behind``: the last page did not reach the tip.
        """
        with self._buffer.lock:
            return self._ask(behind)

    def _ask(self, behind: bool) -> int | None:
        self._reserve(0)
        self.waits = False
        if self._has_left:
            return RECORDS_MAX
        buffer, each = self._buffer, self._record_bytes or FIRST_RECORD_BYTES
        part_bytes = buffer.part_bytes
        least = max(each, min(WORTH_BYTES, part_bytes // 4, buffer.shard_bytes_max // 4))
        room = max(0, part_bytes - self.held)
        if behind or room < least:
            room += buffer.common_left
        room = min(room, buffer.shard_bytes_max - self.held, PAGE_BYTES_MAX)
        # A shard that holds nothing fetches all the same: a record that is larger than any room must come one day.
        if self.held and room < least:
            self.waits = True
            buffer.wait(self)
            return None
        records = max(1, min(RECORDS_MAX, room // each))
        self._reserve(records * each)
        buffer.wake_next()
        return records

    def came(self, records: int, held_bytes: int) -> None:
        """Note that a page of ``records`` Kinesis records came, or none did (0). `change` says what of it is kept."""
        if records:
            mean = max(1, held_bytes // records)
            self._record_bytes = max(mean, int((self._record_bytes or 0) * FALL))
        with self._buffer.lock:
            self._reserve(0)

    def change(self, held_bytes: int) -> None:
        """Add ``held_bytes`` to what the shard holds; a number below 0 subtracts."""
        with self._buffer.lock:
            before = self.beyond
            self.held += held_bytes
            if not self._has_left:
                self._buffer.changed(self, self.beyond - before)
                if held_bytes < 0 and self.waits and self.held < self._buffer.part_bytes:
                    self.woken()

    def leave(self) -> None:
        """Leave the buffer: nothing more is fetched, and what is held counts no more."""
        with self._buffer.lock:
            self._has_left = True
            self._buffer.leave(self)
            self.woken()

    def woken(self) -> bool:
        """Let the share ask again. False: it does not wait."""
        waited, self.waits = self.waits, False
        if waited:
            self._wake()
        return waited

    @property
    def beyond(self) -> int:
        """The bytes that the share has of the common half."""
        return max(0, self.held + self.reserved - self._buffer.part_bytes)

    def _reserve(self, reserved: int) -> None:
        before = self.beyond
        self.reserved = reserved
        if not self._has_left:
            self._buffer.changed(self, self.beyond - before)
