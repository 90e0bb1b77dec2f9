"""The pace of one producer to one shard: a rate that is learnt from what the shard refuses.

A shard takes 1,000 records and 1 MiB a second from all its writers together, and tells each of them only what it
refuses. A producer does not know how many others there are.

**The share** is the fraction of the shard's limit that a producer goes at. It grows by ``GROWTH_PER_S``, and falls by
``CUT_PER_S`` times what was refused, in seconds of the whole limit (10 of 1,000 records a second are 0.01 s). Both
balance when a producer is refused GROWTH_PER_S / CUT_PER_S, 0.67 % of the limit: two producers that share a shard
have 1.3 % of their records refused, four 2.7 %. The growth is the same for all, and a producer
that sends more is refused more, so its share falls until all send the same.

Nothing is halved, since a shard that is overloaded by 2 % refuses 2 %: the cut can be as small as the fault. The
service's own burst (a second's worth) hides an overload for a while; the refusals then come late and many at once,
but their mean stays the same.

- A cut stops a little below the rate that was accepted lately: many refusals of one cause (several requests on
  their way, a service that counts by the second and refuses all until the next one) count once.
- No refusal for long, because another writer has left, speeds the growth up with the square of that time.
- The share is never above 1: a producer that is alone is refused nothing.
- Before the first refusal the share grows to 1 within a second.

**Portions.** A producer that is held back sends portions of about ``PORTION_S``, not single records as their tokens
come, which would be a request each. Their sizes are random: of two producers with one period, the one that always
comes second would find the shard's bucket empty.

Two things it cannot even out. A writer that does not give way (a fixed rate, a producer of another make) keeps what
it takes, and the share settles where 0.67 % of the limit is refused beside it. And a shard that is full has room for
a small record sooner than for a large one: beside small records, a producer of aggregates gets less than half.
"""

from __future__ import annotations

from math import exp, inf
from typing import TYPE_CHECKING

from shardway.core.pacing import TokenBucket

if TYPE_CHECKING:
    from random import Random

START_SHARE = 0.5
"""The share at which a producer starts. Alone it is at 1 a second later; many that start together are refused less than
at 1.
"""

RAMP_PER_S = 0.5
"""The speed at which the share grows from the start until the first refusal, in shares a second."""

GROWTH_PER_S = 0.01
"""The speed at which the share grows once something was refused, in shares a second."""

CUT_PER_S = 1.5
"""The share that is given up for each second's worth of the whole limit that was refused."""

KEPT = 0.85
"""No cut goes below this part of the rate that was accepted lately."""

LATELY_S = 1.0
"""The time after which what was accepted counts e-fold less: a second at least, as a service may count by seconds."""

QUIET_S = 7.0
"""The time after the last refusal at which the growth is twice as fast; after three times as long it is ten times as
fast.
"""

SHARE_MIN = 0.01
"""The share at which room is still asked for, however much is refused."""

BURST_S = 0.25
"""The part of the whole limit that may be sent at once after a pause, in seconds."""

PORTION_S = 0.05
"""The part of its own rate that a producer that is held back gathers before it sends, on average, in seconds."""

BIG_PAUSE_S = 1.0
"""The longest pause, in seconds, that a record larger than the burst waits for, in which the shard's own bucket
fills.
"""

WAIT_MAX_S = 1.0
"""The longest wait, in seconds, because the share may have grown by then."""

_HELD_S = 0.005  # A producer with less of its rate in the bucket is held back.
_GROWN_S = 0.01  # Growth is added up no more often than this.


class AdaptiveRate:
    """The rate that may be written to one shard now, by a producer that does not know of the shard's other writers.

    ``now_s`` is of any clock that the caller uses throughout, in seconds; amounts are Kinesis records and payload
    bytes (data and partition keys). What is sent is taken, whether it will be accepted or not; what is sent again is
    taken again. Answers may come in any order and may be missing (an unknown outcome is neither accepted nor refused).
    """

    __slots__ = (
        "_accepted_lately_s",
        "_bucket",
        "_bytes_burst",
        "_bytes_per_s",
        "_faded_at_s",
        "_grown_at_s",
        "_is_ramping",
        "_opens_at_s",
        "_portion_s",
        "_records_burst",
        "_records_per_s",
        "_refused_at_s",
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
        share: float = START_SHARE,
    ) -> None:
        """``records_per_s`` and ``bytes_per_s`` are the shard's whole limits; ``share`` in (0, 1] is where to start."""
        if not (0 < records_per_s < inf and 0 < bytes_per_s < inf):
            raise ValueError("a shard's limits are above zero and finite")
        if not 0 < share <= 1:
            raise ValueError("a share is above 0 and at most 1")
        self._records_per_s = records_per_s
        self._bytes_per_s = bytes_per_s
        self._records_burst = max(1.0, records_per_s * BURST_S)
        self._bytes_burst = max(1.0, bytes_per_s * BURST_S)
        self._share = max(SHARE_MIN, share)
        self._bucket = TokenBucket(
            records_per_s=records_per_s * self._share,
            bytes_per_s=bytes_per_s * self._share,
            records_burst=self._records_burst,
            bytes_burst=self._bytes_burst,
            now_s=now_s,
        )
        self._rng = rng
        self._is_ramping = True
        self._grown_at_s = self._refused_at_s = self._faded_at_s = now_s
        self._accepted_lately_s = self._share * LATELY_S  # It begins as if it had run at this share before.
        self._taken_at_s = now_s - BIG_PAUSE_S
        self._portion_s = 0.0  # above 0: held back until so much has gathered, in seconds of its own rate
        self._opens_at_s = now_s

    @property
    def share(self) -> float:
        """The fraction of the shard's limit that the producer goes at, in (0, 1], as of the last call."""
        return self._share

    def allowance(self, now_s: float) -> tuple[int, int]:
        """Return the (records, payload bytes) that may be sent now; (0, 0) when nothing may.

        A record that does not fit into the bytes may go nevertheless if it is larger than the burst: ask ``wait_s``.
        """
        if now_s < self._opens_at_s:
            return 0, 0
        self._grow(now_s)
        records, payload_bytes = self._bucket.level(now_s)
        if self._portion_s:
            missing_s = self._missing_s(records, payload_bytes)
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
        left_s = min(records_left / bucket.records_per_s, bytes_left / bucket.bytes_per_s)
        if left_s < _HELD_S:
            # The size is random: producers of one size and one period would find the bucket empty, or full, for ever.
            self._portion_s = PORTION_S * (0.5 + self._rng.random())
            self._opens_at_s = now_s + min(self._missing_s(records_left, bytes_left), PORTION_S)

    def wait_s(self, now_s: float, records: int, payload_bytes: int) -> float:
        """Return the seconds until that much may be sent if nothing else is; 0.0: now. It is at most ``WAIT_MAX_S``:
        then ask again.

        More than the burst waits for a full bucket; a record larger than it also until nothing was sent for as long as
        the shard's own bucket needs to take it.
        """
        self._grow(now_s)
        bucket = self._bucket
        wait = bucket.wait_s(now_s, records=records, payload_bytes=payload_bytes)
        if wait > 0 or self._portion_s:
            wait = max(wait, self._missing_s(*bucket.level(now_s)), self._opens_at_s - now_s)
        if payload_bytes > records * self._bytes_burst:
            pause_s = min(BIG_PAUSE_S, payload_bytes / self._bytes_per_s)
            wait = max(wait, self._taken_at_s + pause_s - now_s)
        # The wait is a microsecond more than needed: rounding must not make a caller that wakes exactly then wait
        # again.
        return min(wait + 1e-6, WAIT_MAX_S) if wait > 0 else 0.0

    def note_accepted(self, now_s: float, records: int, payload_bytes: int) -> None:
        """Note what the shard took, when the answer came."""
        self._fade(now_s)
        self._accepted_lately_s += self._limit_s(records, payload_bytes)

    def note_refused(self, now_s: float, records: int, payload_bytes: int) -> None:
        """Note what the shard refused because its throughput was exceeded, when the answer came."""
        self._grow(now_s)
        self._fade(now_s)
        self._is_ramping = False
        self._refused_at_s = max(self._refused_at_s, now_s)
        cut = self._share - CUT_PER_S * self._limit_s(records, payload_bytes)
        kept = min(self._share, KEPT * self._accepted_lately_s / LATELY_S)
        self._go_at(now_s, max(cut, kept, SHARE_MIN))

    def _limit_s(self, records: int, payload_bytes: int) -> float:
        """Return an amount in seconds of the shard's whole limit."""
        return max(records / self._records_per_s, payload_bytes / self._bytes_per_s)

    def _missing_s(self, records: float, payload_bytes: float) -> float:
        """Return the seconds until a portion has gathered, of what is in the bucket now; 0.0 or less: it has."""
        bucket, portion_s = self._bucket, self._portion_s or PORTION_S
        return max(
            portion_s - records / bucket.records_per_s,
            portion_s - payload_bytes / bucket.bytes_per_s,
            (1.0 - records) / bucket.records_per_s,
        )

    def _grow(self, now_s: float) -> None:
        passed_s = now_s - self._grown_at_s
        if passed_s < _GROWN_S:
            return
        self._grown_at_s = now_s
        if self._share == 1.0:
            return
        if self._is_ramping:
            growth = RAMP_PER_S * passed_s
        else:
            end_s = now_s - self._refused_at_s
            start_s = end_s - passed_s
            # The integral of GROWTH_PER_S · (1 + (t / QUIET_S)²) over the time passed.
            growth = GROWTH_PER_S * (passed_s + (end_s**3 - start_s**3) / (3 * QUIET_S**2))
        self._go_at(now_s, min(1.0, self._share + growth))

    def _go_at(self, now_s: float, share: float) -> None:
        self._share = share
        self._bucket.set_rates(now_s, records_per_s=self._records_per_s * share, bytes_per_s=self._bytes_per_s * share)

    def _fade(self, now_s: float) -> None:
        passed_s = now_s - self._faded_at_s
        if passed_s > 0:
            self._accepted_lately_s *= exp(-passed_s / LATELY_S)
            self._faded_at_s = now_s
