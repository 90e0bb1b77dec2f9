"""Reading that was begun where a lease stood goes on, or begins again, once the lease stands elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardway.core.leases.row import LeaseRow
    from shardway.model import Position


def goes_on(begun: LeaseRow, row: LeaseRow, first: Position | None) -> bool:
    """Return whether reading that was begun where a lease stood has all that follows the lease as it stands now.
    ``first`` is the first position that was read; None: none was yet.

    Reading that begins at a time, or at LATEST as a word, may begin behind a record that the owner has stored as its
    checkpoint since: that owner may have opened LATEST earlier, or have sought an older place. Only a position that was
    met shows that nothing lies between. The same holds where an operator has moved the lease back.
    """
    if row.checkpoint.is_position:
        if begun.checkpoint.is_timed:
            return first is not None and first <= row.checkpoint.position
        return begun.checkpoint <= row.checkpoint
    if begun.checkpoint != row.checkpoint:
        return False
    before_ms, now_ms = begun.read_until_ms, row.read_until_ms
    if not row.checkpoint.is_timed or before_ms == now_ms:
        return True
    # What arrived up to the later time is settled. A word without a time may have been opened later than the row says.
    return before_ms is not None and now_ms is not None and before_ms < now_ms
