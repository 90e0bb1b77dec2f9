"""Pacing: token buckets in two dimensions, and waits that grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


_DOUBLINGS_MAX = 1000  # 2.0**1024 does not fit into a float.


class TokenBucket:
    """A token bucket in two dimensions, as Kinesis limits a shard: records *and* bytes per second.

    Either dimension can be left unlimited (``float("inf")``); calls can be counted in place of records.
    ``now_s`` is of any clock that the caller uses throughout; when it goes back, nothing is refilled until it
    has caught up.

    A bucket starts full. What is larger than a whole burst goes when the bucket is full and leaves it in
    debt, so that a 10 MiB record passes a 1 MiB/s bucket and is paid for afterwards.
    """

    __slots__ = (
        "_at_s",
        "_bytes",
        "_records",
        "bytes_burst",
        "bytes_per_s",
        "records_burst",
        "records_per_s",
    )

    def __init__(
        self,
        *,
        records_per_s: float,
        bytes_per_s: float,
        records_burst: float | None = None,
        bytes_burst: float | None = None,
        now_s: float = 0.0,
    ) -> None:
        """The bursts are one second's worth each, if not given."""
        self.records_burst = records_per_s if records_burst is None else records_burst
        self.bytes_burst = bytes_per_s if bytes_burst is None else bytes_burst
        if min(records_per_s, bytes_per_s, self.records_burst, self.bytes_burst) <= 0:
            raise ValueError("rates and bursts must be above zero")
        self.records_per_s = records_per_s
        self.bytes_per_s = bytes_per_s
        self._records = self.records_burst
        self._bytes = self.bytes_burst
        self._at_s = now_s

    def take(self, now_s: float, *, records: int = 0, payload_bytes: int = 0) -> bool:
        """Take both amounts if both are there, else nothing. Return whether they were taken."""
        self._refill(now_s)
        if not self._affords(records, payload_bytes):
            return False
        self._records -= records
        self._bytes -= payload_bytes
        return True

    def charge(self, now_s: float, *, records: int = 0, payload_bytes: int = 0) -> None:
        """Take both amounts whether they are there or not; what is missing becomes debt."""
        self._refill(now_s)
        self._records -= records
        self._bytes -= payload_bytes

    def wait_s(self, now_s: float, *, records: int = 0, payload_bytes: int = 0) -> float:
        """Return the seconds until ``take`` of the same amounts succeeds, if others take nothing meanwhile; 0.0 if it
        does now.
        """
        self._refill(now_s)
        if self._affords(records, payload_bytes):
            return 0.0
        wait = 0.0
        if self._records < (records_needed := min(records, self.records_burst)):
            wait = (records_needed - self._records) / self.records_per_s
        if self._bytes < (bytes_needed := min(payload_bytes, self.bytes_burst)):
            wait = max(wait, (bytes_needed - self._bytes) / self.bytes_per_s)
        # The wait is a hair more than needed: rounding must not make a caller that wakes exactly then wait again.
        wait = wait * (1 + 1e-9) + 1e-6
        return wait + max(0.0, self._at_s - now_s)

    def give_back(self, *, records: int = 0, payload_bytes: int = 0) -> None:
        """Return what was taken but not used (a call that was never sent) to the bucket, which never gets more than
        full.
        """
        self._records = min(self.records_burst, self._records + records)
        self._bytes = min(self.bytes_burst, self._bytes + payload_bytes)

    def set_rates(self, now_s: float, *, records_per_s: float, bytes_per_s: float) -> None:
        """Go on at other rates from now; what has gathered until now stays, and so do the bursts."""
        if min(records_per_s, bytes_per_s) <= 0:
            raise ValueError("rates must be above zero")
        self._refill(now_s)
        self.records_per_s = records_per_s
        self.bytes_per_s = bytes_per_s

    def empty(self, now_s: float) -> None:
        """Forget what has gathered (the service has just said that its own bucket is empty). A debt stays."""
        self._refill(now_s)
        self._records = min(self._records, 0.0)
        self._bytes = min(self._bytes, 0.0)

    def level(self, now_s: float) -> tuple[float, float]:
        """Return the (records, bytes) that are in the bucket; negative while in debt."""
        self._refill(now_s)
        return self._records, self._bytes

    def _affords(self, records: int, payload_bytes: int) -> bool:
        return (records == 0 or self._records >= min(records, self.records_burst)) and (
            payload_bytes == 0 or self._bytes >= min(payload_bytes, self.bytes_burst)
        )

    def _refill(self, now_s: float) -> None:
        passed_s = now_s - self._at_s
        if passed_s > 0:
            self._records = min(self.records_burst, self._records + passed_s * self.records_per_s)
            self._bytes = min(self.bytes_burst, self._bytes + passed_s * self.bytes_per_s)
            self._at_s = now_s


def full_jitter_s(attempt: int, *, base_s: float, cap_s: float, rng: Random) -> float:
    """Return the seconds to wait before repeating, after ``attempt`` failures (1 = the first).

    Uniform in [0, min(cap, base · 2^(attempt-1))].     "Full jitter" spreads clients that failed together
    over the whole interval (AWS Architecture Blog, Exponential Backoff And Jitter).
    """
    if attempt < 1:
        raise ValueError("attempts count from 1")
    return rng.uniform(0.0, min(cap_s, base_s * 2.0 ** min(attempt - 1, _DOUBLINGS_MAX)))


class Backoff:
    """The waits of one loop that fails now and then: they grow with each failure, and a success resets them."""

    __slots__ = ("attempt", "base_s", "cap_s", "rng")

    def __init__(self, *, base_s: float, cap_s: float, rng: Random) -> None:
        if not 0 < base_s <= cap_s:
            raise ValueError("a backoff needs 0 < base_s <= cap_s")
        self.base_s = base_s
        self.cap_s = cap_s
        self.rng = rng
        self.attempt = 0
        """The number of failures since the last success."""

    def next_s(self) -> float:
        """Note a failure; return the seconds to wait before the next attempt."""
        self.attempt += 1
        return full_jitter_s(self.attempt, base_s=self.base_s, cap_s=self.cap_s, rng=self.rng)

    def reset(self) -> None:
        """Note a success."""
        self.attempt = 0
