"""What a flush that ran out of time tells of a record."""

from __future__ import annotations

import msgspec

from penstock.model import OutRecord


class Unwritten(msgspec.Struct, frozen=True):
    """A record that has no outcome yet. It is still being put."""

    record: OutRecord
    sent: bool
    """True if a request has carried it, so that it may be written already."""

    def __repr__(self) -> str:
        size = len(self.record.data)
        return f"Unwritten({size} bytes, {'sent, no answer yet' if self.sent else 'never sent'})"
