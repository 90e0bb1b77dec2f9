"""Where a new owner goes on."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from penstock.core.ledger.page import Placed, R

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.leases.checkpoint import Checkpoint


def behind(records: Sequence[R], checkpoint: Checkpoint) -> Sequence[R]:
    """Those of a page that lie behind a checkpoint: an aggregate may lie on both sides of it.

    All of them, where the checkpoint is no position; none behind the shard's end.
    """
    if checkpoint.is_end:
        return ()
    if not checkpoint.is_position or not records:
        return records
    index = bisect_right(records, tuple(checkpoint.position), key=_position)
    return records[index:] if index else records


def _position(record: Placed) -> tuple[int, int]:
    return record.sequence_number, record.sub_sequence_number
