"""The commands that put records share this: options, an account of each record, what they say, and how they end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections import Counter, deque
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer

from shardway.cli.completing import complete_streams
from shardway.cli.interrupt import StoppedError, Stopping
from shardway.cli.output import of_bytes, of_seconds, show, warn
from shardway.errors import (
    FlushTimeoutError,
    OptionError,
    PutError,
    RecordExpiredError,
    RecordRefusedError,
    RecordWithdrawnError,
)
from shardway.events import ProducerMetrics, RecordsExpired, RecordsFailed
from shardway.tasks import awaited, drop
from shardway.telemetry.log import log_events
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Sequence

    from shardway.events import Event
    from shardway.model import OutRecord
    from shardway.options import ProducerOptions
    from shardway.runtime.producer.handles import Puts
    from shardway.runtime.producer.metrics import ProducerSnapshot
    from shardway.runtime.producer.producer import Producer

# --- an account -----------------------------------------------------------------------------------
# The account says what became of the records of one command: counts, and the numbers of records not written.

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
        """Records not written of which an attempt may have succeeded all the same."""
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


# --- delivery -------------------------------------------------------------------------------------
# Batches of records go through a producer, and an account says what became of each record.

BATCHES_MAX = 256
"""The batches whose outcomes are waited for. Together with the producer's own buffer, this bounds the memory."""
PROGRESS_INTERVAL_S = 1.0
"""Seconds between the numbers of a run that shows them."""
BATCH_RECORDS_MAX = 500
BATCH_BYTES_MAX = 512 * 1024
"""The bytes of a batch. This and `BATCH_RECORDS_MAX` are small enough for the producer to take a batch whole or not at
all.
"""


class Batcher:
    """Gathers records into batches that are not too large: the number of records times the largest one is within
    `BATCH_BYTES_MAX`.
    """

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._records: list[OutRecord] = []
        self._largest_bytes = 0

    def add(self, number: int, record: OutRecord) -> Iterator[Batch]:
        """Add a record, and yield the batch before it, if that batch is full."""
        largest = max(self._largest_bytes, len(record.data))
        count = len(self._records) + 1
        if count > BATCH_RECORDS_MAX or (count > 1 and count * largest > BATCH_BYTES_MAX):
            yield from self.take()
            largest = len(record.data)
        self._largest_bytes = largest
        self._numbers.append(number)
        self._records.append(record)

    def take(self) -> Iterator[Batch]:
        """Yield the records that are there as a batch, if there are any."""
        if self._records:
            yield Batch(self._numbers, self._records)
            self._numbers, self._records, self._largest_bytes = [], [], 0


class Delivery:
    """Puts batches as fast as the producer takes them, and enters them into the account in the order of the puts."""

    def __init__(self, producer: Producer[Any], account: Account, stopping: Stopping) -> None:
        self._producer = producer
        self._account = account
        self._stopping = stopping
        self._put: deque[tuple[Sequence[int], Puts]] = deque()

    async def run(self, batches: AsyncGenerator[Batch, None], *, flush_s: float) -> None:
        """Put all batches, until the end is asked for, and wait for their outcomes; after a signal for ``flush_s``.

        Every batch that was taken from ``batches`` is in the account at the end.
        """
        try:
            async with contextlib.aclosing(batches), contextlib.aclosing(self._stopping.until_asked(batches)) as wanted:
                async for batch in wanted:
                    await self._put_batch(batch)
        finally:
            # It is done after an error, too: batches that the producer has taken are not given up.
            await self._end(awaited(self._settle_all()), flush_s)

    async def _put_batch(self, batch: Batch) -> None:
        self._account.given += len(batch.records)
        try:
            puts = await self._stopping.unless_asked(self._producer.put_many(batch.records))
        except StoppedError:
            self._account.lose(batch.numbers, "never sent", may_be_written=False)
            return
        self._put.append((batch.numbers, puts))
        while self._put and self._put[0][1].done():
            self._settle_first()
        if len(self._put) >= BATCHES_MAX:
            with contextlib.suppress(StoppedError):
                await self._stopping.unless_asked(_settled(self._put[0][1]))

    async def _settle_all(self) -> None:
        while self._put:
            await self._put[0][1].settled()
            self._settle_first()

    def _settle_first(self) -> None:
        numbers, puts = self._put.popleft()
        self._account.settle(numbers, puts.failures())

    async def _end(self, settling: asyncio.Future[None], flush_s: float) -> None:
        """Wait for all outcomes; after a signal no longer than ``flush_s``, and after a second signal not at all."""
        await _first(settling, self._stopping.signalled.wait())
        if not settling.done():
            await _first(settling, self._stopping.at_once.wait(), timeout_s=flush_s)
        if not settling.done():
            with contextlib.suppress(FlushTimeoutError):
                await self._producer.close(0)  # gives everything its outcome
        await settling


async def _settled(puts: Puts) -> None:
    await puts.settled()


async def _first(task: asyncio.Future[None], other: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> None:
    """Wait until either is done."""
    beside = awaited(other)
    try:
        await asyncio.wait((task, beside), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        drop(beside)


# --- the commands ---------------------------------------------------------------------------------


def _not_negative(seconds: float) -> float:
    if seconds < 0:
        raise OptionError("--flush must be at least 0")
    return seconds


Stream = Annotated[
    str, typer.Argument(help="Name or ARN of the stream.", metavar="STREAM", autocompletion=complete_streams)
]
Region = Annotated[str | None, typer.Option(help="AWS region. Without it, the AWS SDK's rules find the region.")]
EndpointUrl = Annotated[
    str | None, typer.Option("--endpoint-url", help="Address of Kinesis, in place of AWS's own.", metavar="URL")
]
Profile = Annotated[str | None, typer.Option(help="AWS profile to take credentials and settings from.")]
Aggregation = Annotated[bool, typer.Option("--aggregation", help="Pack records into KPL aggregates.")]
OrderedByKey = Annotated[bool, typer.Option("--ordered-by-key", help="Keep the order of each partition key.")]
RecordTtl = Annotated[
    float,
    typer.Option("--record-ttl", help="Seconds after which a record that is not written is given up.", metavar="S"),
]
Flush = Annotated[
    float,
    typer.Option(
        "--flush", help="Seconds to wait, after Ctrl-C, for records in flight.", metavar="S", callback=_not_negative
    ),
]


class Run:
    """One command that puts records. It is made of the command's options, and runs once."""

    def __init__(
        self,
        stream: str,
        *,
        options: ProducerOptions,
        region: str | None,
        endpoint_url: str | None,
        profile: str | None,
        stop_on_loss: bool,
        on_metrics: Callable[[ProducerSnapshot], None] | None = None,
    ) -> None:
        """With ``stop_on_loss`` a record that is not written ends the run. ``on_metrics`` gets each interval's
        snapshot.

        Raises OptionError.
        """
        self.stream = stream
        self.account = Account()
        self.stopping = Stopping()
        self._options = options
        self._connection = ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile)
        self._stop_on_loss = stop_on_loss
        self._on_metrics = on_metrics
        self._log = log_events(cli_logger())
        self._started = False

    async def deliver(
        self,
        batches: AsyncGenerator[Batch, None],
        *,
        flush_s: float,
        watch: Callable[[Producer[Any]], contextlib.AbstractAsyncContextManager[None]] | None = None,
    ) -> ProducerSnapshot:
        """Put all batches, and return what was done since the start. Raises ShardwayError when the stream cannot be
        reached.
        """
        from shardway.options import MetricsOptions
        from shardway.runtime.producer.producer import Producer

        producer: Producer[Any] = Producer(
            self.stream,
            connection=self._connection,
            options=self._options,
            metrics=None if self._on_metrics is None else MetricsOptions(interval_s=PROGRESS_INTERVAL_S),
            on_event=self._on_event,
        )
        with self.stopping.listening():
            try:
                with contextlib.suppress(StoppedError):
                    await self.stopping.unless_asked(producer.start())
                    self._started = True
                    async with watch(producer) if watch else contextlib.nullcontext():
                        await Delivery(producer, self.account, self.stopping).run(batches, flush_s=flush_s)
                return producer.metrics()
            finally:
                # Everything has its outcome by now, if nothing went wrong: there is nothing to wait for.
                with contextlib.suppress(FlushTimeoutError):
                    await producer.close(0)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, ProducerMetrics):
            if self._on_metrics is not None:
                self._on_metrics(event.snapshot)
            return
        if self._stop_on_loss and isinstance(event, RecordsExpired | RecordsFailed):
            self.stopping.ask()
        if self._started:  # what goes wrong before is raised
            self._log(event)


def finish(report: Report, *, as_json: bool) -> None:
    """Show how the command ended, and end with the status that says so."""
    show(report.to_json(), report.to_text(), as_json=as_json)
    for line in report.complaints():
        warn(line)
    if report.status:
        raise typer.Exit(report.status)


class _ToStandardError(logging.Handler):
    """Writes log lines as the command writes its remarks, which works beside a progress bar, too."""

    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


def cli_logger() -> logging.Logger:
    """Return the logger for what has to be known while the command runs: warnings and errors."""
    return _logger("shardway.cli", logging.WARNING)


def stop_logger() -> logging.Logger:
    """Return the logger that also shows what is to be known while the command stops."""
    return _logger("shardway.cli.stop", logging.INFO)


def _logger(name: str, level: int) -> logging.Logger:
    logger = logging.getLogger(name)
    if not logger.handlers:
        logger.addHandler(_ToStandardError(level))
        logger.setLevel(level)
        logger.propagate = False
    return logger
