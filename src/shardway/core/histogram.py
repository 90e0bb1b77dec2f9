"""A histogram says how often which value occurred: it has logarithmic buckets and can be added to others without loss.

Its buckets are the same for every histogram and need no set-up, so two of them merge by adding counts, in any order,
and a quantile of the merged one is as good as of one that saw all values.

They are those of OpenTelemetry's exponential histograms of scale 5, and of Prometheus's native histograms of schema 5:
32 buckets for each doubling, and a bucket holds its upper bound and not its lower one. So both take these counts as
they are, and a classic bucket whose bound is a power of two is cut from them exactly.
"""

from __future__ import annotations

from math import ceil, frexp, log2
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

SCALE = 5
"""The scale, as OpenTelemetry and Prometheus name it: a bucket's bounds are 2 ** (1 / 2 ** SCALE) apart."""
BUCKETS_PER_DOUBLING = 1 << SCALE
_GROWTH: float = 2.0 ** (1 / BUCKETS_PER_DOUBLING)  # This leads from one bucket to the next.
RELATIVE_ERROR_MAX = (_GROWTH - 1) / (_GROWTH + 1)
"""The largest error of a quantile, against the value counted: 1.09 %. It is half a bucket, measured from its harmonic
middle.
"""

_LOWEST_EXPONENT = -30
_HIGHEST_EXPONENT = 50
VALUE_MIN = 2.0**_LOWEST_EXPONENT
"""The smallest value that does not count as zero: 0.93 ns, where values are seconds."""
VALUE_MAX = 2.0**_HIGHEST_EXPONENT
"""The value above which all share the last bucket: 1 PiB, where values are bytes. ``max`` is still exact."""
_OFFSET = -_LOWEST_EXPONENT * BUCKETS_PER_DOUBLING  # of a stored index: VALUE_MIN is the upper bound of bucket 0
BUCKETS_MAX = BUCKETS_PER_DOUBLING * (_HIGHEST_EXPONENT - _LOWEST_EXPONENT) + 2
"""The most buckets that are kept, whatever the values."""

_UNITS = 2.0**40  # the sum is kept in whole units of 2**-40: adding floats would depend on their order


class Histogram:
    """Counts of values >= 0 (seconds, bytes, attempts, ...), sparse: only buckets that hold something take memory.

    ``count``, ``min`` and ``max`` are exact; ``sum`` is exact but for 1e-12 per value; a quantile of values in
    [`VALUE_MIN`, `VALUE_MAX`] is within `RELATIVE_ERROR_MAX`. Only one thread at a time may use it.
    """

    __slots__ = ("_buckets", "_max", "_min", "_units", "_zeros", "count")

    def __init__(self) -> None:
        self.count = 0
        """The number of values that were counted."""
        self._zeros = 0
        self._buckets: dict[int, int] = {}
        self._units = 0
        self._min = float("inf")
        self._max = -1.0

    def add(self, value: float, count: int = 1) -> None:
        """Count ``value`` (finite, >= 0) ``count`` times (0 is nothing). Raises ValueError for anything else."""
        if not (0 <= value < 1e300 and count > 0):
            if count == 0:
                return
            raise ValueError(f"a histogram counts finite values from 0 on, at least 0 times; not {value} {count} times")
        if value < VALUE_MIN:
            self._zeros += count
        else:
            index = _index(value) if value <= VALUE_MAX else BUCKETS_MAX - 1
            buckets = self._buckets
            if index in buckets:
                buckets[index] += count
            else:
                buckets[index] = count
        self.count += count
        self._units += int(value * _UNITS) * count
        if value < self._min:
            self._min = value
        if value > self._max:
            self._max = value

    def merge(self, other: Histogram) -> None:
        """Count all that ``other`` has counted, too."""
        buckets = self._buckets
        for index, count in other._buckets.items():
            buckets[index] = buckets.get(index, 0) + count
        self._zeros += other._zeros
        self.count += other.count
        self._units += other._units
        self._min = min(self._min, other._min)
        self._max = max(self._max, other._max)

    def copy(self) -> Histogram:
        """Return another histogram with the same counts."""
        return self + Histogram()

    def __add__(self, other: Histogram) -> Histogram:
        if not isinstance(other, Histogram):
            return NotImplemented
        both = Histogram()
        both.merge(self)
        both.merge(other)
        return both

    @property
    def sum(self) -> float:
        """The sum of all values; 0.0 when there are none."""
        return self._units / _UNITS

    @property
    def mean(self) -> float | None:
        """The mean value; None when there are none."""
        return self.sum / self.count if self.count else None

    @property
    def min(self) -> float | None:
        """The smallest value; None when there are none."""
        return self._min if self.count else None

    @property
    def max(self) -> float | None:
        """The largest value; None when there are none."""
        return self._max if self.count else None

    @property
    def zeros(self) -> int:
        """The number of values that were smaller than `VALUE_MIN`."""
        return self._zeros

    def buckets(self) -> Iterator[tuple[int, int]]:
        """The number and the count of each bucket that holds something, rising. Bucket ``n`` holds the values above
        ``2 ** (n / BUCKETS_PER_DOUBLING)``, up to and with ``2 ** ((n + 1) / BUCKETS_PER_DOUBLING)``, as
        OpenTelemetry numbers them; the last one holds all above `VALUE_MAX`.
        """
        counts = self._buckets
        for index in sorted(counts):
            yield index - _OFFSET - 1, counts[index]

    def quantile(self, q: float) -> float | None:
        """Return the smallest value that at least the part ``q`` (0 to 1) of all values do not exceed; None without
        values.

        0 gives the smallest value and 1 the largest, both exactly.
        """
        if not 0 <= q <= 1:
            raise ValueError(f"a quantile is asked for with a number from 0 to 1, not {q}")
        if not self.count:
            return None
        rank = max(1, ceil(q * self.count))
        if rank == self.count:
            return self._max
        if rank == 1:
            return self._min
        below = self._zeros
        value = 0.0
        for index in sorted(self._buckets):
            if below >= rank:
                break
            below += self._buckets[index]
            value = _middle(index)
        return min(max(value, self._min), self._max)

    def summary(self) -> dict[str, float | int | None]:
        """Return the usual figures, for people: count, mean, min, p50, p90, p99, p999, max."""
        quantiles = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
        return {
            "count": self.count,
            "mean": self.mean,
            "min": self.min,
            **{name: self.quantile(q) for name, q in quantiles.items()},
            "max": self.max,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return all of it in JSON's types; equal histograms give equal dicts. The sum is text: it may be above 64
        bits.
        """
        return {
            "buckets_per_doubling": BUCKETS_PER_DOUBLING,
            "count": self.count,
            "sum_2_40": str(self._units),
            "min": self.min,
            "max": self.max,
            "zeros": self._zeros,
            "buckets": [[index, self._buckets[index]] for index in sorted(self._buckets)],
        }

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Histogram:
        """Make a histogram of what `to_dict` returned. Raises ValueError for something else, or for other buckets."""
        try:
            per_doubling = given["buckets_per_doubling"]
            buckets = {int(index): int(count) for index, count in given["buckets"]}
            found = cls()
            found._buckets = buckets
            found._zeros = int(given["zeros"])
            found._units = int(given["sum_2_40"])
            found.count = int(given["count"])
            if found.count:
                found._min, found._max = float(given["min"]), float(given["max"])
        except (KeyError, TypeError, ValueError) as fault:
            raise ValueError(f"this is no histogram: {type(fault).__name__}: {fault}") from None
        if per_doubling != BUCKETS_PER_DOUBLING:
            raise ValueError(f"a histogram of {per_doubling} buckets per doubling; here are {BUCKETS_PER_DOUBLING}")
        if (
            found.count != found._zeros + sum(buckets.values())
            or any(not 0 <= index < BUCKETS_MAX for index in buckets)
            or min((found._zeros, *(count - 1 for count in buckets.values()))) < 0
        ):
            raise ValueError("this is no histogram: its counts contradict each other")
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return (
            self.count == other.count
            and self._units == other._units
            and self._zeros == other._zeros
            and self._min == other._min
            and self._max == other._max
            and self._buckets == other._buckets
        )

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        if not self.count:
            return "Histogram(empty)"
        p50, p99 = self.quantile(0.5), self.quantile(0.99)
        return f"Histogram(count={self.count}, min={self._min:g}, p50={p50:g}, p99={p99:g}, max={self._max:g})"


def _middle(index: int) -> float:
    """Return the value that stands for a bucket: as far, relatively, from its lower end as from its upper one."""
    low: float = 2.0 ** ((index - _OFFSET - 1) / BUCKETS_PER_DOUBLING)
    return low * (1 + RELATIVE_ERROR_MAX)


def _index(value: float) -> int:
    """Return the stored index of the bucket for a value in [`VALUE_MIN`, `VALUE_MAX`].

    The logarithm of the whole value would round to the power of two where the value is a little above it, and the value
    would be counted one bucket too low. The logarithm of the fraction keeps them apart.
    """
    fraction, exponent = frexp(value)
    return ceil(log2(fraction) * BUCKETS_PER_DOUBLING) + exponent * BUCKETS_PER_DOUBLING + _OFFSET
