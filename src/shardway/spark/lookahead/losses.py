"""Losses are found before anything is read: were records lost between a stored position and the next record?

AWS does not say so: an iterator at a trimmed sequence number answers with empty pages for ever, one at a trimmed time
starts at the oldest record. So a position near or past the retention is opened by its time, and the first record that
comes is compared with the one that should.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from shardway.errors import DataLossError
from shardway.model import StreamName
from shardway.spark.lookahead.lookahead import Lookahead
from shardway.spark.positions import Kind, ShardPosition

log = logging.getLogger("shardway.spark")

RISK_MARGIN_MS = 10 * 60 * 1000
"""A position is opened by time unless it is so many milliseconds younger than the retention: trimming is not exact.
"""


class Loss(NamedTuple):
    """A loss of records, which is certain or possible."""

    shard_id: str | None
    certain: bool
    what: str


def after_trimmed(shard_id: str, number: int | None) -> Loss:
    """Return the possible loss of a shard that was read up to a record which is trimmed."""
    what = f"record {number} was read, and is trimmed, so later records that were not read may be trimmed too"
    return Loss(shard_id, False, what)


class LossPolicy:
    """Decides what becomes of losses: an error (``failOnDataLoss=true``), or a warning for each, and their number."""

    def __init__(self, stream: StreamName, *, fail: bool) -> None:
        self._stream = stream
        self._fail = fail
        self.count = 0
        """The number of losses that were passed over, with those in the offset that the query began with."""

    def report(self, loss: Loss) -> None:
        """Raise DataLossError for a loss, or warn of it and count it."""
        where = f"stream {self._stream}" + (f", shard {loss.shard_id}" if loss.shard_id else "")
        surely = "records were lost" if loss.certain else "records may have been lost"
        message = f"{where}: {surely}: {loss.what}"
        if self._fail:
            raise DataLossError(
                f"{message}. To go on with what is left, set failOnDataLoss to false for one start; to begin anew, use "
                "a new checkpoint directory; a longer retention of the stream gives the query more time"
            )
        self.count += 1
        log.warning("%s; going on with what is left (failOnDataLoss is false)", message)


def is_at_risk(position: ShardPosition, horizon_ms: int) -> bool:
    """True when the position's record may be trimmed: the position is to be opened by its time."""
    return position.kind in (Kind.NEXT, Kind.AFTER) and position.witness_ms < horizon_ms + RISK_MARGIN_MS


def find_loss(
    shard_id: str, position: ShardPosition, look: Lookahead, horizon_ms: int, *, by_time: bool
) -> Loss | None:
    """Return what was lost between a stored position and the records that were found behind it.

    With ``by_time``, ``look`` begins at the position's time, and for ``AFTER`` with its very record if that is there.
    A witness of 0 says that the query wants whatever is left. ``horizon_ms`` is the oldest arrival time that the
    stream's retention still covers.
    """
    first = look.first.sequence_number if look.first else None
    if position.kind is Kind.NEXT:
        if first == position.sequence_number:
            return None
        found = f"the next record there is {first}" if first is not None else "nothing is left behind it"
        if look.crossing:
            found = "a long silence follows it"
        return Loss(shard_id, True, f"{position.sequence_number} is the next to read, but it is trimmed; {found}")
    if position.kind is Kind.AFTER:
        if not by_time or first == position.sequence_number:
            return None
        return after_trimmed(shard_id, position.sequence_number)
    if position.kind in (Kind.SINCE, Kind.BEGINNING) and 0 < position.witness_ms < horizon_ms:
        hours = (horizon_ms - position.witness_ms) / 3_600_000
        what = f"the shard was last looked at {hours:.1f} h before the oldest time that the retention covers"
        return Loss(shard_id, False, what)
    return None
