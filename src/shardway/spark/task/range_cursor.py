"""A range's cursor says which records of a page belong to the range, when the range is done, and what is a loss.

Where the log is read is the matter of the log's cursor (`shardway.core.log.cursor`), by the policy `RANGE`. A range is
bounded by records that the driver saw, so each answer of the service can be judged:

- the first record must come. If a later one comes in its place, records were trimmed before they were read. Wherever a
  range is started again, the last record that was read must come again;
- an end that was seen must come too. If the log goes on without it, it was trimmed meanwhile, and what lay before it
  may be gone as well;
- a shard that ends, or a tip that is reached, before the range's end: an error, never the end of the range.
"""

from __future__ import annotations

import datetime as dt
import logging
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from shardway.core.log.cursor import LogCursor, Policy
from shardway.core.log.transitions import NextStep, Sign
from shardway.errors import (
    DataLossError,
    StalledError,
)
from shardway.spark.ranges import EndKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway.aws.kinesis.shapes import GetRecordsPage, WireRecord
    from shardway.core.log.cursor import Step
    from shardway.model import IteratorAt
    from shardway.spark.ranges import ShardRange, TaskOptions

logger = logging.getLogger("shardway.spark")

EMPTY_PAUSE_S = 0.25
"""Seconds before the next call after an empty page: within the 5 calls a second that all readers of a shard share."""
TRIMMED_WAIT_SHARE = 0.1
"""How long the tip must be seen, as a part of ``no_progress_s``, before a range at risk counts as wholly trimmed."""
RANGE = Policy(by_time=True, returns=True, expects=True, doubts_end=False)
"""The policy of a range. Its end was seen, so more has to come until then; so has the last record that was read,
wherever the range is started again. A number that is trimmed is looked for by its time: from a trimmed time on, the log
begins at its oldest record.
"""


class RangeCursor:
    """Keeps how far a range is read. ``take`` judges a page and returns the records of it that are in the range."""

    def __init__(self, range_: ShardRange, stream: str, options: TaskOptions) -> None:
        self.range = range_
        self.done = False
        """True when the range is read to its end (or what is left of it)."""
        self.lost = False
        """True when records of the range are, or may be, gone, and the query goes on without them."""
        self.iterator: str | None = None
        """The iterator for the next GetRecords; None where one is to be asked for at `start`."""
        self.pause_s = 0.0
        """Seconds to wait before the next call."""
        self.waited_s = 0.0
        """Seconds that calls and pauses took since the last progress."""
        self._stream = stream
        self._options = options
        self._is_read = False  # the anchor of the log's cursor was read: it is left out when it comes again
        self._log = LogCursor(
            RANGE, anchor=range_.first_sequence_number, anchor_s=range_.first_arrival_s, is_doubted=range_.at_risk
        )

    def start(self) -> IteratorAt:
        """Return where to ask for an iterator when there is none: at the first record, or at the last one read.

        The last one read must come again, and is skipped: a reader that starts *after* a record does not see what was
        trimmed behind it.
        """
        return self._log.ask()

    def take(self, page: GetRecordsPage, spent_s: float) -> list[WireRecord]:
        """Return the records of the page that are in the range. ``spent_s`` is what getting the page took.

        Raises DataLossError if records are gone (and losses fail the query), StalledError if the range's end
        cannot be reached, or not in ``no_progress_s``.
        """
        self.iterator = page.next_shard_iterator
        log, records, was_met = self._log, page.records, self._log.is_met
        step = log.page(
            records,
            behind_ms=page.millis_behind_latest,
            is_last=self.iterator is None,
            tip_counts=self._tip_counts(spent_s),
        )
        taken: list[WireRecord] = []
        if records:
            self.pause_s = 0.0
            if step.sign is not Sign.OLDER:
                taken = self._select(records, step.start, step.sign)
        if taken:
            self._is_read, self.waited_s = True, 0.0
        else:
            self.waited_s += spent_s
        if self.done:
            return taken
        if self.iterator is None:
            self._end_with_shard(was_met=was_met or step.sign in (Sign.MET, Sign.BEYOND))
        elif not records:
            self._judge_empty_page(page, step)
        elif taken and self.range.at_risk:
            self.iterator = None  # an iterator moves on in silence when retention overtakes it
        return taken

    def refuse_sequence_number(self) -> bool:
        """Ask by time from here on, as the service takes no iterator at the sequence number (it is another stream's).

        Return False if it was asked by time already.
        """
        if not self._log.by_number:
            return False
        self._log.refused()
        self.iterator = None
        return True

    def end_without_shard(self) -> None:
        """End the range, as the service does not know the shard any more: what is left of the range is lost."""
        self._lose("the shard does not exist any more: it was closed, and its last record is past the retention")
        self.done = True

    def check_time(self, spent_s: float, cause: Exception | str) -> None:
        """Raise StalledError when the range came no nearer to its end for ``no_progress_s``. ``cause``: the last answer
        or error.
        """
        if self.waited_s + spent_s >= self._options.no_progress_s:
            raise StalledError(
                f"{self}: the read came no nearer to its end in {self.waited_s + spent_s:.0f} s; last: {cause}. The "
                "driver saw that end, a record or the end of the shard, when it planned the batch, so the task cannot "
                "stop before it. Spark may run the task again"
            ) from (cause if isinstance(cause, Exception) else None)

    def __str__(self) -> str:
        at = f"after {self._log.known}" if self._is_read else "at its start"
        return f"stream {self._stream}, range {self.range}, {at}"

    def _tip_counts(self, spent_s: float) -> bool:
        """True when nothing came of a range at risk, and the tip has been seen for so long that the range is gone."""
        return self.range.at_risk and self.waited_s + spent_s >= self._options.no_progress_s * TRIMMED_WAIT_SHARE

    def _select(self, records: list[WireRecord], start: int, sign: Sign) -> list[WireRecord]:
        """Return the records of a page that are in the range, from the anchor on, or from what came in its place."""
        if sign is Sign.MET:
            start += self._is_read and _number(records[start]) == self._log.anchor
        elif sign is Sign.BEYOND:
            self._note_trimmed_anchor(records[start])
        stop = self._stop(records)
        return records[start:stop] if start or stop < len(records) else records

    def _note_trimmed_anchor(self, record: WireRecord) -> None:
        number = _number(record)
        whole = not self._is_read and self._beyond_end(number)
        self._lose(
            f"record {self._log.anchor} (arrived {_utc(self._log.anchor_s)}) is trimmed; the oldest record left is "
            f"{number} (arrived {_utc(record.approximate_arrival_timestamp)}), "
            + ("after the whole range" if whole else "and what lay between them is gone")
        )

    def _beyond_end(self, number: int) -> bool:
        end = self.range.end_sequence_number
        if end is None:
            return False
        return number >= end if self.range.end_kind is EndKind.EXCLUSIVE else number > end

    def _stop(self, records: Sequence[WireRecord]) -> int:
        """Return where the range ends in these records, and note when it does."""
        end = self.range.end_sequence_number
        if end is None or _number(records[-1]) < end:
            return len(records)
        self.done = True
        if self.range.end_kind is EndKind.EXCLUSIVE:
            stop = bisect_left(records, end, key=_number)
            met = _number(records[stop]) == end
        else:
            stop = bisect_right(records, end, key=_number)
            met = stop > 0 and _number(records[stop - 1]) == end
        if not met and not self.lost:
            self._lose(
                f"the log goes on after {end}, but that record itself, the range's end, is not there any more: it was "
                "trimmed while the range was read, and records before it may be gone too"
            )
        return stop

    def _end_with_shard(self, *, was_met: bool) -> None:
        if not was_met:
            self._lose(f"the shard is closed, and from record {self._log.anchor} on all of it is trimmed")
        elif self.range.end_kind is not EndKind.SHARD_END:
            raise StalledError(
                f"{self}: the shard ended before the range's end, which was seen when the batch was planned"
            )
        self.done = True

    def _judge_empty_page(self, page: GetRecordsPage, step: Step) -> None:
        """Judge an empty page: over a silence it is progress; at the tip the service may lag; at a trimmed record there
        is no end of such pages.
        """
        self.pause_s = EMPTY_PAUSE_S
        if step.sign is Sign.CROSSING:
            self.waited_s = 0.0
        elif step.does is NextStep.ASK:
            self.iterator = None
        elif step.is_loss:
            self._lose(f"from record {self._log.anchor} on all of it is trimmed, and nothing came after it")
            self.done = True
        else:
            behind_ms = page.millis_behind_latest
            self.check_time(0.0, f"an empty page {'at' if behind_ms == 0 else f'{behind_ms} ms behind'} the tip")

    def _lose(self, what: str) -> None:
        """Raise for a loss, or warn of it if the query is to go on."""
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{self}: {what}. To go on with what is left, set failOnDataLoss to false; to have more time, "
                "raise the stream's retention"
            )
        self.lost = True
        logger.warning("%s: %s. Going on with what is left, because failOnDataLoss is false", self, what)


def _number(record: WireRecord) -> int:
    return int(record.sequence_number)


def _utc(epoch_s: float) -> str:
    return dt.datetime.fromtimestamp(epoch_s, dt.UTC).isoformat(timespec="milliseconds")
