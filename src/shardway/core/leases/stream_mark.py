"""The mark of a stream in its leases: a stream that is deleted and made again has the same name and the same shard ids.

Where lease keys do not name the stream, each row does, by its ARN and the time of its creation. Where a row does not,
as rows of KCL workers, its positions show it: no record of a stream is older than the stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from shardway.core.sequence import second_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardway.core.leases.row import LeaseRow


CLOCKS_DIFFER_S = 60
"""The clock of a record's time may differ from that of a stream's creation by so many seconds."""


class StreamMark(NamedTuple):
    """A stream, among all that ever had its name."""

    arn: str
    created_s: int
    """The time of creation in epoch seconds; 0: the service does not tell it."""

    @property
    def text(self) -> str:
        """The text that a row holds."""
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


def disowned_text(rows: Iterable[LeaseRow], mark: StreamMark) -> str:
    """Return what is wrong with leases that a stream disowns, for a message."""
    listed = list(rows)
    named = next((row.of_stream for row in listed if row.of_stream is not None), None)
    keys = ", ".join(row.key for row in listed[:3]) + (", ..." if len(listed) > 3 else "")
    whose = "a former stream of this name" if named is None or named.rpartition(" ")[0] == mark.arn else named
    return f"{len(listed)} leases ({keys}) are of {whose}, and not of {mark.arn}, created at {mark.created_s}"
