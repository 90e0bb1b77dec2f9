"""What became of user records. One outcome object stands for all records that shared a fate.

A record's own ``PutResult`` (or error) is made when somebody asks for it: most records are only counted.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.errors import PutError
from penstock.model import PutResult

if TYPE_CHECKING:
    from collections.abc import Sequence


class EntryResult(Protocol):
    """What PutRecords answers for one entry: where it is, or why it was not taken."""

    @property
    def shard_id(self) -> str | None:
        """As PutRecords answers it."""

    @property
    def sequence_number(self) -> str | None:
        """As PutRecords answers it."""

    @property
    def error_code(self) -> str | None:
        """As PutRecords answers it."""

    @property
    def error_message(self) -> str | None:
        """As PutRecords answers it."""


class Written(NamedTuple):
    """User records of one chunk that were written as, or in, one Kinesis record."""

    shard_id: str
    sequence_number: int
    attempts: int
    doubtful: bool
    """True if they may be in the stream twice."""
    indices: Sequence[int] | None = None
    """Inside of an aggregate: which records of the chunk these are, in rising order; None for a record on its own."""
    first_sub: int = 0
    """The sub-sequence number of the first of them."""


class NotWritten(NamedTuple):
    """User records that are not known to be written."""

    kind: type[PutError]
    message: str
    attempts: int
    may_be_written: bool
    shard_id: str | None
    reason: str

    def error(self) -> PutError:
        """The error to raise for one of them: a new one each time, as a traceback is added to it."""
        return self.kind(
            self.message,
            attempts=self.attempts,
            may_be_written=self.may_be_written,
            shard_id=self.shard_id,
            reason=self.reason,
        )


Outcome = Written | NotWritten | EntryResult
"""An ``EntryResult`` stands for a record that was put on its own and taken at the first attempt: the usual case."""


def result_of(outcome: Outcome, index: int) -> PutResult:
    """The result of the chunk's record ``index``. Raises its PutError if it was not written."""
    if isinstance(outcome, Written):
        sub = None
        if outcome.indices is not None:
            sub = outcome.first_sub + bisect_left(outcome.indices, index)
        return PutResult(outcome.shard_id, outcome.sequence_number, sub, outcome.attempts, outcome.doubtful)
    if isinstance(outcome, NotWritten):
        raise outcome.error()
    return PutResult(outcome.shard_id or "", int(outcome.sequence_number or 0), None, 1, False)
