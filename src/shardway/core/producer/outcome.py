"""The outcome of records: written, with a shard and a sequence number, or not known to be written.

One outcome object stands for all records that shared a fate. A record's own ``PutResult`` (or error) is made when the
caller asks for it, as most records are only counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count as numbers_from
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, Protocol

from shardway.model import PutResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shardway.errors import PutError


THROTTLED = "ProvisionedThroughputExceededException"
NOT_DONE = frozenset({THROTTLED, "KMSThrottlingException", "LimitExceededException", "ThrottlingException"})
"""Error codes of entries that certainly were not written. After other codes (InternalFailure) they may have been."""


class EntryResult(Protocol):
    """The answer of PutRecords for one entry: where the record is, or why it was not taken."""

    @property
    def shard_id(self) -> str | None:
        """The shard id that PutRecords answers."""

    @property
    def sequence_number(self) -> str | None:
        """The sequence number that PutRecords answers."""

    @property
    def error_code(self) -> str | None:
        """The error code that PutRecords answers."""

    @property
    def error_message(self) -> str | None:
        """The error message that PutRecords answers."""


class NotWritten(NamedTuple):
    """User records that are not known to be written."""

    kind: type[PutError]
    message: str
    attempts: int
    may_be_written: bool
    shard_id: str | None
    reason: str

    def error(self) -> PutError:
        """Return the error to raise for one of the records: a new one each time, as a traceback is added to it."""
        return self.kind(
            self.message,
            attempts=self.attempts,
            may_be_written=self.may_be_written,
            shard_id=self.shard_id,
            reason=self.reason,
        )


Outcome = PutResult | NotWritten
"""The outcome of one record."""

Fate = PutResult | NotWritten | Sequence[EntryResult] | list[PutResult]
"""The outcome of records that were settled together. One ``PutResult`` is that of the first of them, where all were
written as, or in, one Kinesis record. ``EntryResult``s stand for records that were put on their own and taken at the
first attempt: the usual case.
"""


def outcomes_of(fate: Fate, count: int) -> Iterable[Outcome]:
    """Return the outcome of each of ``count`` records that share a fate."""
    if isinstance(fate, PutResult):
        return _consecutive_results(fate, count)
    if isinstance(fate, NotWritten):
        return repeat(fate, count)
    return [
        entry
        if isinstance(entry, PutResult)
        else PutResult(entry.shard_id or "", int(entry.sequence_number or 0), None, 1, False)
        for entry in fate
    ]


def _consecutive_results(first: PutResult, count: int) -> Iterator[PutResult]:
    """Return the results of ``count`` records that stand one behind the other."""
    sub = first.sub_sequence_number
    subs: Iterable[int | None] = repeat(None) if sub is None else numbers_from(sub)
    return map(
        PutResult,
        repeat(first.shard_id, count),
        repeat(first.sequence_number),
        subs,
        repeat(first.attempts),
        repeat(first.duplicates_possible),
    )
