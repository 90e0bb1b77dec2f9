"""The rate at which one producer writes to one shard, learnt from what the shard refuses.

A shard takes 1,000 records and 1 MiB a second from all its writers together, and says to each of them only what
it refuses. Nobody tells a producer how many others there are.

**The law.** The *share* is the fraction of the shard's limit that this producer goes at. It grows by
``GROWTH_PER_S · sqrt(share)`` a second, and falls by ``CUT_PER_S`` times each amount that was refused (in seconds of
the whole limit: 10 of 1,000 records a second are 0.01 s). Where both balance, a producer is refused
``GROWTH_PER_S / CUT_PER_S · sqrt(share)`` of the limit, so two that share a shard have 1.4 % of their records refused
and four have 2 %; and since the refused ones of each are in proportion to what it sends while the growth is not, the
one that sends more falls until both send the same. Nothing is halved: a shard that is overloaded by 2 % refuses
2 %, so the cut may be as small as the fault. The service's own burst (a second's worth) hides an overload for a
while; that delays the signal, but by this law the mean of what is refused stays the same, however the rates swing.

- Much refused at once (many new writers) cuts by more, ``CUT_STEEPER`` times the fraction refused lately.
- No refusal for long (a writer has left) speeds the growth up with the square of that time.
- The share never exceeds 1: a producer that is alone is refused nothing.

**Portions.** A producer that is held back sends portions of ``PORTION_S``, each a random bit larger or smaller, and
not single records as their tokens come. Many of them would be one request each; and two producers with one period
fall into step, where the one that always comes second finds the shard's bucket empty.
"""

from __future__ import annotations

from math import exp, isfinite, sqrt
from typing import TYPE_CHECKING

from penstock.core.pacing import TokenBucket

if TYPE_CHECKING:
    from random import Random

GROWTH_PER_S = 0.02
"""How fast a share of 1 grows, in shares a second, while refusals come in now and then."""

CUT_PER_S = 2.0
"""The share that is given up for each second's worth of the limit that was refused."""

CUT_STEEPER = 3.0
"""Refusals cut by ``1 + CUT_STEEPER · the fraction refused lately``."""

LATELY_S = 0.5
"""What was answered counts e-fold less after this time in the fraction refused lately."""

QUIET_S = 5.0
"""After this time without a refusal, the growth is twice as fast, after three times as long ten times."""

SHARE_MIN = 0.01
"""At this share it is still asked for room, however much is refused."""

BURST_S = 0.25
"""How much of the limit may be sent at once after a pause."""

PORTION_S = 0.05
"""How much of its own rate a producer that is held back gathers before it sends, on average."""

BIG_PAUSE_S = 1.0
"""A record larger than the burst waits for a pause of at most this long, in which the shard's own bucket fills."""

WAIT_MAX_S = 1.0
"""No wait is longer, because the share may have grown by then: ask again."""

_REFRESH_S = 0.01


class AdaptiveRate:
    """How much may be written to one shard now, by a producer that does not know of the shard's other writers.

    ``now_s`` is of any clock that the caller uses throughout, in seconds; amounts are Kinesis records and payload
    bytes (data and partition keys). What is sent is taken, whether it will be accepted or not; what is sent again is
    taken again. Answers may come in any order and may be missing (an unknown outcome is neither accepted nor refused).
    """

    __slots__ = (
        "_accepted_lately",
        "_bucket",
        "_bytes_burst",
        "_bytes_per_s",
        "_lately_at_s",
        "_opens_at_s",
        "_portion_s",
        "_records_burst",
        "_records_per_s",
        "_refreshed_s",
        "_refused_at_s",
        "_refused_lately",
        "_rng",
        "_share",
        "_taken_at_s",
    )

    def __init__(
        self,
        *,
        records_per_s: float = 1_000,
        bytes_per_s: float = 1_048_576,
        now_s: float,
        rng: Random,
        share: float = 1.0,
    ) -> None:
        """``records_per_s`` and ``bytes_per_s`` are the shard's limits; ``share`` is where to start, in (0, 1]."""
        if not (isfinite(records_per_s) and isfinite(bytes_per_s)):
            raise ValueError("a shard's limits are finite")
        if not 0 < share <= 1:
            raise ValueError("a share lies above 0 and at or below 1")
        self._records_per_s = records_per_s
        self._bytes_per_s = bytes_per_s
        self._records_burst = max(1.0, records_per_s * BURST_S)
        self._bytes_burst = bytes_per_s * BURST_S
        self._share = max(SHARE_MIN, share)
        self._bucket = TokenBucket(
            records_per_s=records_per_s * self._share,
            bytes_per_s=bytes_per_s * self._share,
            records_burst=self._records_burst,
            bytes_burst=self._bytes_burst,
            now_s=now_s,
        )
        self._rng = rng
        self._opens_at_s = now_s
        self._portion_s = 0.0
        self._refreshed_s = now_s
        self._refused_at_s = now_s
        self._taken_at_s = now_s - BIG_PAUSE_S
        self._accepted_lately = 0.0
        self._refused_lately = 0.0
        self._lately_at_s = now_s

    @property
    def share(self) -> float:
        """The fraction of the shard's limit that it goes at, in (0, 1], as of the last call."""
        return self._share

    def allowance(self, now_s: float) -> tuple[int, int]:
        """(records, payload bytes) that may be sent now; (0, 0) when nothing may.

        A record that is larger than the bytes given, though not (0, 0), goes when ``wait_s`` of it is 0.0.
        """
        if now_s < self._opens_at_s:
            return 0, 0
        self._refresh(now_s)
        records, payload_bytes = self._bucket.level(now_s)
        if self._portion_s:
            missing_s = self._portion_missing_s(records, payload_bytes)
            if missing_s > 0:
                self._opens_at_s = now_s + min(missing_s, PORTION_S)
                return 0, 0
            self._portion_s = 0.0
        if records < 1 or payload_bytes < 1:
            return 0, 0
        return int(records), int(payload_bytes)

    def take(self, now_s: float, records: int, payload_bytes: int) -> None:
        """Note what is sent. More than the allowance leaves a debt, which is paid before anything else may be sent."""
        bucket = self._bucket
        bucket.charge(now_s, records=records, payload_bytes=payload_bytes)
        self._taken_at_s = now_s
        records_left, bytes_left = bucket.level(now_s)
        jitter = 0.5 + self._rng.random()
        portion_s = PORTION_S * jitter
        if records_left < bucket.records_per_s * 0.01 or bytes_left < bucket.bytes_per_s * 0.01:
            self._portion_s = portion_s
            missing_s = self._portion_missing_s(records_left, bytes_left)
            self._opens_at_s = now_s + min(missing_s, portion_s)

    def wait_s(self, now_s: float, records: int, payload_bytes: int) -> float:
        """Seconds until that much may be sent if nothing else is; 0.0: now. Never above ``WAIT_MAX_S``: ask again.

        What is larger than the burst waits until the bucket is full and a pause was made.
        """
        self._refresh(now_s)
        bucket = self._bucket
        portion_s = self._portion_s
        if portion_s == 0.0:
            wait = bucket.wait_s(now_s, records=records, payload_bytes=payload_bytes)
            if wait > 0:
                portion_s = PORTION_S
        else:
            wait = bucket.wait_s(now_s, records=records, payload_bytes=payload_bytes)
        if portion_s:
            wait = max(wait, self._portion_missing_s(*bucket.level(now_s)))
        if payload_bytes > self._bytes_burst or records > self._records_burst:
            pause_s = min(BIG_PAUSE_S, self._limit_s(records, payload_bytes))
            wait = max(wait, self._taken_at_s + pause_s - now_s)
        return min(wait, WAIT_MAX_S)

    def accepted(self, now_s: float, records: int, payload_bytes: int) -> None:
        """Note what the shard has taken, when the answer came."""
        self._fade(now_s)
        self._accepted_lately += self._limit_s(records, payload_bytes)

    def refused(self, now_s: float, records: int, payload_bytes: int) -> None:
        """Note what the shard has refused because its throughput was exceeded, when the answer came."""
        if not records and not payload_bytes:
            return
        self._refresh(now_s)
        self._fade(now_s)
        amount = self._limit_s(records, payload_bytes)
        self._refused_lately += amount
        fraction = self._refused_lately / max(0.2, self._refused_lately + self._accepted_lately)
        cut = CUT_PER_S * amount * (1.0 + CUT_STEEPER * fraction)
        self._refused_at_s = max(self._refused_at_s, now_s)
        self._go_at(now_s, max(SHARE_MIN, self._share - cut))

    def _limit_s(self, records: int, payload_bytes: int) -> float:
        """An amount, in seconds of the shard's whole limit."""
        return max(records / self._records_per_s, payload_bytes / self._bytes_per_s)

    def _portion_missing_s(self, records: float, payload_bytes: float) -> float:
        bucket, portion_s = self._bucket, self._portion_s or PORTION_S
        return max(
            portion_s - records / bucket.records_per_s,
            portion_s - payload_bytes / bucket.bytes_per_s,
            (1.0 - records) / bucket.records_per_s,
            0.0,
        )

    def _refresh(self, now_s: float) -> None:
        passed_s = now_s - self._refreshed_s
        if passed_s < _REFRESH_S:
            return
        if self._share < 1.0:
            start, end = self._refreshed_s - self._refused_at_s, now_s - self._refused_at_s
            # The integral of 1 + (t / QUIET_S)² over the time passed.
            growing_s = passed_s + (end**3 - start**3) / (3 * QUIET_S**2)
            self._go_at(now_s, min(1.0, self._share + GROWTH_PER_S * sqrt(self._share) * growing_s))
        self._refreshed_s = now_s

    def _go_at(self, now_s: float, share: float) -> None:
        self._share = share
        self._bucket.set_rates(now_s, records_per_s=self._records_per_s * share, bytes_per_s=self._bytes_per_s * share)

    def _fade(self, now_s: float) -> None:
        passed_s = now_s - self._lately_at_s
        if passed_s > 0:
            kept = exp(-passed_s / LATELY_S)
            self._accepted_lately *= kept
            self._refused_lately *= kept
            self._lately_at_s = now_s
