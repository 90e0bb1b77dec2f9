"""Make records of chosen sizes and keys for a load, which a reader can check.

Each record's data is one JSON object: ``{"run":"5f0c1a2b","index":17,"time":1767225600.123,"pad":"..."}``. ``run``
is the same for all records of one run, ``index`` counts them from 0 without a gap, ``time`` is when it was made, in
epoch seconds, and ``pad`` fills it up with letters that compress badly.
"""

from __future__ import annotations

import math
import random
import string
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from shardway.errors import OptionError
from shardway.model import OutRecord

if TYPE_CHECKING:
    from collections.abc import Callable


SIZE_MIN = 80
"""The bytes that a record needs for its run, index and time."""
SIZE_MAX = 1024 * 1024 - 256
"""The bytes of the largest record: a stream takes 1 MiB with the key, if it is not set to take more."""
KEYS_MAX = 1_000_000
LOGNORMAL_SIGMA = 1.0
"""The deviation of the logarithm of a size: two thirds of the sizes are within a factor of e of the median."""
_LETTERS = (string.ascii_letters + string.digits).encode()


class Size(NamedTuple):
    """How large the data of a record is, in bytes: ``[low, high]`` evenly, or lognormal with a mean."""

    low: int
    high: int
    mean: int | None = None

    @classmethod
    def parse(cls, text: str) -> Size:
        """Return the size that a text names: ``512``, ``100-2000``, or ``lognormal:512``. Raises OptionError."""
        kind, _, mean = text.rpartition(":")
        low, _, high = text.partition("-")
        if kind == "lognormal" and mean.isdecimal():
            size = cls(SIZE_MIN, SIZE_MAX, int(mean))
            wrong = not SIZE_MIN <= int(mean) <= SIZE_MAX
        elif low.isdecimal() and (high.isdecimal() or "-" not in text):
            size = cls(int(low), int(high or low))
            wrong = not SIZE_MIN <= size.low <= size.high <= SIZE_MAX
        else:
            raise OptionError(f"--size {text}: write bytes, as in 512, 100-2000 or lognormal:512")
        if wrong:
            raise OptionError(f"--size {text}: sizes are from {SIZE_MIN} to {SIZE_MAX} bytes, the smaller one first")
        return size

    def sampler(self, rng: random.Random) -> Callable[[], int]:
        """Return a function that draws one size."""
        low, high = self.low, self.high
        if self.mean is not None:
            mu = math.log(self.mean) - LOGNORMAL_SIGMA**2 / 2  # the mean of a lognormal is exp(mu + sigma² / 2)
            return lambda: min(max(low, round(rng.lognormvariate(mu, LOGNORMAL_SIGMA))), high)
        return (lambda: low) if low == high else (lambda: rng.randint(low, high))


class Workload:
    """Makes the records of one run, one after the other."""

    def __init__(self, *, size: Size, keys: int, skew: float, run: str, rng: random.Random) -> None:
        """``keys`` partition keys; the k-th most frequent one comes with a chance in proportion to k**-skew.

        Raises OptionError.
        """
        faults = []
        if not 1 <= keys <= KEYS_MAX:
            faults.append(f"--keys {keys}: from 1 to {KEYS_MAX}")
        if not 0 <= skew <= 10:
            faults.append(f"--skew {skew}: from 0 (all keys alike) to 10")
        if faults:
            raise OptionError(faults)
        self.made = 0
        """The number of records that were made, which is the index of the next one."""
        self._rng = rng
        self._run_id = run
        self._size = size.sampler(rng)
        self._keys = [f"key-{number}" for number in range(keys)]
        self._weights = list(accumulate(float(k) ** -skew for k in range(1, keys + 1))) if skew else None
        self._letters = bytes(rng.choices(_LETTERS, k=2 * SIZE_MAX))

    def take(self, count: int, now_s: float) -> list[OutRecord]:
        """Make the next ``count`` records. ``now_s``: the time in them, in epoch seconds."""
        keys = self._rng.choices(self._keys, cum_weights=self._weights, k=count)
        first = self.made
        self.made += count
        return [OutRecord(self._data(first + place, now_s), key) for place, key in enumerate(keys)]

    def _data(self, index: int, now_s: float) -> bytes:
        head = f'{{"run":"{self._run_id}","index":{index},"time":{now_s:.3f},"pad":"'.encode()
        length = max(0, self._size() - len(head) - 2)
        start = index * 7919 % SIZE_MAX  # another part of the letters for each record
        return head + self._letters[start : start + length] + b'"}'
