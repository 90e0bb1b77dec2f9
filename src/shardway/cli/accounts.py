"""Account for what was put: which records are written, which are not, and the report of it."""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from shardway.cli.output import of_bytes, of_seconds
from shardway.errors import PutError, RecordExpiredError, RecordRefusedError, RecordWithdrawnError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shardway.events.producer_snapshot import ProducerSnapshot
    from shardway.model import OutRecord


RANGES_MAX = 100
"""The ranges of numbers that are listed; further numbers are only counted."""


class NumberRanges:
    """Numbers that come mostly in rising order, as ranges: ``5-9, 12``. The first `RANGES_MAX` ranges are kept."""

    def __init__(self) -> None:
        self.ranges: list[list[int]] = []
        self.left_out = 0
        """The count of numbers that are not in the ranges."""

    def add(self, number: int) -> None:
        """Add one number."""
        if self.ranges and self.ranges[-1][1] + 1 == number and not self.left_out:
            self.ranges[-1][1] = number
        elif len(self.ranges) < RANGES_MAX:
            self.ranges.append([number, number])
        else:
            self.left_out += 1

    def __str__(self) -> str:
        shown = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in self.ranges)
        return shown + (f", and {self.left_out} more" if self.left_out else "")


class Batch(NamedTuple):
    """Records that are put together, and each record's number (that of its line, or its index)."""

    numbers: Sequence[int]
    records: Sequence[OutRecord]


class Account:
    """What became of all records, as far as it is known."""

    def __init__(self) -> None:
        self.given = 0
        """Records that were to be put."""
        self.written = 0
        self.not_written: Counter[str] = Counter()
        """Reason -> records that were not written."""
        self.may_be_written = 0
        """Records that are told as failed, though an attempt may have written them."""
        self.numbers = NumberRanges()
        """The numbers of the records not written."""

    @property
    def complete(self) -> bool:
        """True when all records that were to be put are written."""
        return self.written == self.given

    def settle(self, numbers: Sequence[int], failures: Iterable[tuple[int, PutError]]) -> None:
        """Enter a batch that has all outcomes. ``numbers`` are those of its records; ``failures`` are places in the
        batch, each with its error.
        """
        self.written += len(numbers)
        for place, error in failures:
            self.written -= 1
            kind = _KINDS.get(type(error), "not written")
            reason = f"{kind} ({error.reason})" if error.reason else kind
            self.lose(numbers[place : place + 1], reason, may_be_written=error.may_be_written)

    def lose(self, numbers: Sequence[int], reason: str, *, may_be_written: bool) -> None:
        """Enter records that are not known to be written."""
        self.not_written[reason] += len(numbers)
        self.may_be_written += len(numbers) * may_be_written
        for number in numbers:
            self.numbers.add(number)


_KINDS: dict[type[PutError], str] = {
    RecordExpiredError: "expired",
    RecordRefusedError: "refused",
    RecordWithdrawnError: "given up at the end",
}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a command that put records, for people and for programs."""

    stream: str
    account: Account
    metrics: ProducerSnapshot
    what: str
    """How the records are numbered: ``lines`` or ``indexes``."""
    interrupted: signal.Signals | None = None
    fault: str | None = None
    """What else kept the command from its end."""
    further: dict[str, Any] = {}
    """Further members of the JSON."""

    @property
    def status(self) -> int:
        """The process's exit status: 0 when all is written, 128 + the signal when one ended it, else 1."""
        if self.interrupted is not None:
            return 128 + self.interrupted
        return 0 if self.account.complete and self.fault is None else 1

    def to_json(self) -> dict[str, Any]:
        """Return one object, whose ``complete`` says whether all that was given to the producer is written."""
        account = self.account
        return {
            "stream": self.stream,
            "complete": account.complete,
            "interrupted": None if self.interrupted is None else self.interrupted.name,
            "fault": self.fault,
            "records": account.given,
            "written": account.written,
            "not_written": account.not_written.total(),
            "not_written_reasons": dict(account.not_written),
            f"not_written_{self.what}": account.numbers.ranges,
            f"not_written_{self.what}_left_out": account.numbers.left_out,
            "may_be_written": account.may_be_written,
            **self.further,
            "metrics": self.metrics.summary(),
        }

    def to_text(self) -> str:
        """Return one line on what was written."""
        found = self.metrics
        text = (
            f"{self.stream}: {self.account.written:,} records written, {of_bytes(found.user_bytes_put)}, "
            f"in {of_seconds(found.period_s)}: {found.records_per_s:,.0f} records/s, {of_bytes(found.bytes_per_s)}/s"
        )
        if found.latency_s.count:
            p50, p99 = (of_seconds(found.latency_s.quantile(q)) for q in (0.5, 0.99))
            text += f"; p50 {p50}, p99 {p99}"
        if found.records_refused:
            text += f"; {found.records_refused:,} refusals"
        if found.duplicates_possible:
            text += f"; {found.duplicates_possible:,} may be written twice"
        return text

    def complaints(self) -> list[str]:
        """Return what went wrong, a line each."""
        account = self.account
        lines = [] if self.fault is None else [self.fault]
        if self.interrupted is not None:
            lines.append(f"ended by {self.interrupted.name}")
        if not account.complete:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in account.not_written.most_common())
            doubt = f"; {account.may_be_written:,} may be written all the same" if account.may_be_written else ""
            count = account.not_written.total()
            lines.append(f"{count:,} records are not written: {reasons}{doubt}; {self.what} {account.numbers}")
        return lines
