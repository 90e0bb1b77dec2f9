"""Of which stream leases are: one that is deleted and made anew has the same name and the same shard ids.

Where lease keys do not name the stream, each row does, by its ARN and the time of its creation. What no row says, as
those of KCL workers and of version 0.1, the positions tell: no record of a stream is older than the stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.core.sequence import second_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.core.leases.row import LeaseRow

CLOCKS_DIFFER_S = 60
"""Between what tells the time of a record, and that of a stream's creation."""


class StreamMark(NamedTuple):
    """A stream, among all that ever had its name."""

    arn: str
    created_s: int
    """Epoch seconds; 0: the service does not tell."""

    @property
    def text(self) -> str:
        """As a row holds it."""
        return f"{self.arn} {self.created_s}"

    def disowns(self, row: LeaseRow) -> bool:
        """True for a lease that is certainly of another stream, or of a former one of this name."""
        if row.of_stream is not None:
            arn, _, created = row.of_stream.rpartition(" ")
            return arn != self.arn or (created not in ("0", str(self.created_s)) and self.created_s != 0)
        if not row.checkpoint.is_position:
            return False
        arrived_s = second_of(row.checkpoint.position.sequence_number)
        return arrived_s is not None and arrived_s < self.created_s - CLOCKS_DIFFER_S


def told(rows: Iterable[LeaseRow], mark: StreamMark) -> str:
    """What is wrong with leases that a stream disowns, for a message."""
    listed = list(rows)
    named = next((row.of_stream for row in listed if row.of_stream is not None), None)
    keys = ", ".join(row.key for row in listed[:3]) + (", ..." if len(listed) > 3 else "")
    whose = "a former stream of this name" if named is None or named.rpartition(" ")[0] == mark.arn else named
    return f"{len(listed)} leases ({keys}) are of {whose}, and not of {mark.arn}, created at {mark.created_s}"
