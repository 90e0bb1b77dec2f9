"""A shard's records are ready-made JSON, found by counter or by time of arrival.

No object is kept per record. A run is what one call appended: records with one time of arrival and counters in a
row, whose texts (``{"SequenceNumber":...},`` with the comma) lie in one piece of memory. The log is a few columns
with one entry per run. A record's ordinal is its place in the shard, counted from the shard's first record on,
trimmed or not.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

TRIMMED_RUNS_MAX = 1_024
"""The trimmed runs that may be at the head of the columns before these are shortened; as many as are kept may be, too.
"""


class Segment(NamedTuple):
    """Records that are appended together: their texts joined, and per record the length of its text and its payload."""

    first_counter: int
    """The first record's counter, which is above all counters of the log; the next records have the next counters."""
    text: bytes
    lengths: bytes
    """The bytes of each record's text, its comma included, as 32-bit numbers in this machine's order."""
    payloads: bytes
    """The bytes of data and partition key of each record, as 32-bit numbers in this machine's order."""


class Page(NamedTuple):
    """A piece of a log. ``texts`` joined is a JSON list's content with a comma at its end."""

    texts: list[bytes]
    records: int
    payload_bytes: int
    next_ordinal: int
    last_arrival_ms: int
    """The arrival of the last record in the page; 0 when the page is empty."""


def _sum(numbers: bytes, start: int, stop: int) -> int:
    return sum(memoryview(numbers).cast("I")[start:stop])


class ShardLog:
    """The records of one shard, in order; times of arrival never go back."""

    __slots__ = (
        "_arrivals",
        "_counters",
        "_firsts",
        "_head",
        "_lengths",
        "_payload_ends",
        "_payloads",
        "_texts",
        "end",
        "first",
        "last_arrival_ms",
        "payload_end",
    )

    def __init__(self) -> None:
        self._firsts = array("Q")
        self._counters = array("Q")
        self._arrivals = array("Q")
        self._payload_ends = array("Q")
        self._texts: list[bytes] = []
        self._lengths: list[bytes] = []
        self._payloads: list[bytes] = []
        self._head = 0
        """The first run that is kept."""
        self.first = 0
        """The ordinal of the oldest record that is not trimmed; equal to ``end`` when there is none."""
        self.end = 0
        """The ordinal that the next record will have."""
        self.payload_end = 0
        """Payload bytes of all records that there ever were."""
        self.last_arrival_ms = 0

    def append(self, segment: Segment, arrival_ms: int) -> None:
        """Add records that arrive at ``arrival_ms``, or at the last arrival if the clock went back."""
        arrival_ms = self.last_arrival_ms = max(arrival_ms, self.last_arrival_ms)
        count = len(segment.lengths) // 4
        self._firsts.append(self.end)
        self._counters.append(segment.first_counter)
        self._arrivals.append(arrival_ms)
        self.payload_end += _sum(segment.payloads, 0, count)
        self._payload_ends.append(self.payload_end)
        self._texts.append(segment.text)
        self._lengths.append(segment.lengths)
        self._payloads.append(segment.payloads)
        self.end += count

    def trim(self, horizon_ms: int) -> None:
        """Let go of the records that arrived before ``horizon_ms``."""
        head = self._head
        if head == len(self._arrivals) or self._arrivals[head] >= horizon_ms:
            return
        self._head = bisect_left(self._arrivals, horizon_ms, head)
        for run in range(head, self._head):
            self._texts[run] = self._lengths[run] = self._payloads[run] = b""
        self.first = self._firsts[self._head] if self._head < len(self._firsts) else self.end
        if self._head > min(TRIMMED_RUNS_MAX, len(self._firsts) // 2):
            columns = (self._firsts, self._counters, self._arrivals, self._payload_ends)
            for column in (*columns, self._texts, self._lengths, self._payloads):
                del column[: self._head]
            self._head = 0

    def ordinal_at_counter(self, counter: int) -> int:
        """Return the ordinal of the first kept record whose counter is ``counter`` or more; ``end`` when there is
        none.
        """
        run = bisect_right(self._counters, counter, self._head) - 1
        if run < self._head:
            return self.first
        return min(self._end_of(run), self._firsts[run] + counter - self._counters[run])

    def ordinal_at_time(self, arrival_ms: int) -> int:
        """Return the ordinal of the first kept record that arrived at ``arrival_ms`` or later; ``end`` when there is
        none.
        """
        run = bisect_left(self._arrivals, arrival_ms, self._head)
        return self._firsts[run] if run < len(self._firsts) else self.end

    def stamp_of(self, ordinal: int) -> tuple[int, int]:
        """Return (counter, arrival in ms) of a kept record."""
        run = self._run_of(ordinal)
        return self._counters[run] + ordinal - self._firsts[run], self._arrivals[run]

    def read(self, ordinal: int, records_max: int, payload_bytes_max: int) -> Page:
        """Read on from ``ordinal`` (kept, or ``end``), within both bounds; but if there is a record, return one."""
        if ordinal >= self.end:
            return self.nothing(ordinal)
        run = self._run_of(ordinal)
        before = self._payload_before(run, ordinal)
        stop = self._stop(run, min(self.end, ordinal + records_max), before + payload_bytes_max)
        if stop <= ordinal:
            stop = ordinal + 1
        last = self._run_of(stop - 1)
        texts = self._texts[run : last + 1]
        cut = stop - self._firsts[last]
        if stop < self._end_of(last):
            texts[-1] = texts[-1][: _sum(self._lengths[last], 0, cut)]
        skipped = ordinal - self._firsts[run]
        if skipped:
            texts[0] = texts[0][_sum(self._lengths[run], 0, skipped) :]
        payload = self._payload_before(last, stop) - before
        return Page(texts, stop - ordinal, payload, stop, self._arrivals[last])

    def nothing(self, ordinal: int) -> Page:
        """Return a page without records, before ``ordinal``."""
        return Page([], 0, 0, ordinal, 0)

    def _run_of(self, ordinal: int) -> int:
        return bisect_right(self._firsts, ordinal, self._head) - 1

    def _end_of(self, run: int) -> int:
        return self._firsts[run + 1] if run + 1 < len(self._firsts) else self.end

    def _payload_before(self, run: int, ordinal: int) -> int:
        """Return the payload of all records before ``ordinal``, which is in the run or just behind it."""
        within = ordinal - self._firsts[run]
        payloads = self._payloads[run]
        return self._payload_ends[run] - _sum(payloads, within, len(payloads) // 4)

    def _stop(self, run: int, stop: int, payload_end_max: int) -> int:
        """Return the ordinal up to which records may be read: at most ``stop``, and payload up to
        ``payload_end_max``.
        """
        cut = bisect_right(self._payload_ends, payload_end_max, run)
        if cut == len(self._firsts) or self._firsts[cut] >= stop:
            return stop
        ordinal = self._firsts[cut]
        payload = self._payload_before(cut, ordinal)
        for size in memoryview(self._payloads[cut]).cast("I"):
            payload += size
            if payload > payload_end_max or ordinal == stop:
                break
            ordinal += 1
        return ordinal
