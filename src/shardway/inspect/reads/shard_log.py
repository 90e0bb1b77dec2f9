"""Say how an inspector reads a shard's log from any position, and what becomes of a position that is trimmed."""

from __future__ import annotations

from shardway.core.log.cursor import LogCursor, Policy
from shardway.core.log.silence import NEAR_TIP_MS
from shardway.core.log.transitions import State
from shardway.errors import (
    NotFoundError,
)
from shardway.model import IteratorAt

LOOKING = Policy(returns=True)
"""The policy of an inspector's cursor. Where an iterator has expired, the cursor reads again at the last record that
came: so a silence longer than the retention does not end at a number that is trimmed.
"""


def refuse_trimmed(log: LogCursor, at: IteratorAt, behind_ms: int | None, shard: str) -> None:
    """Raise NotFoundError where a reading that began at a sequence number finds nothing, far from the tip: its record
    is trimmed.
    """
    far = (behind_ms or 0) > NEAR_TIP_MS
    if at.sequence_number is not None and log.state is State.FRESH and log.silence.leads_nowhere and far:
        raise NotFoundError(
            "ResourceNotFoundException",
            f"{shard} has no record {at.sequence_number} any more: it is trimmed, and so may be what followed it. "
            "Begin at trim-horizon, or at a time",
            operation="GetRecords",
        )
