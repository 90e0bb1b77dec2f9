"""What the commands that put records share: their options, how they say what happens, and how they end."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.account import Account, Report
from penstock.cli.delivery import Delivery
from penstock.cli.interrupt import StoppedError, Stopping
from penstock.cli.output import show, warn
from penstock.errors import FlushTimeoutError, OptionError
from penstock.events import ProducerMetrics, RecordsExpired, RecordsFailed
from penstock.telemetry.log import log_events
from penstock.wiring import WireSettings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from penstock.cli.account import Batch
    from penstock.events import Event
    from penstock.options import ProducerOptions
    from penstock.runtime.producer import Producer
    from penstock.runtime.producer_metrics import ProducerSnapshot


def _not_negative(seconds: float) -> float:
    if seconds < 0:
        raise OptionError("--flush must be at least 0")
    return seconds


Stream = Annotated[str, typer.Argument(help="Name or ARN of the stream.")]
Region = Annotated[str | None, typer.Option(help="AWS region; else as the AWS SDK finds it.")]
EndpointUrl = Annotated[
    str | None, typer.Option("--endpoint-url", help="Where Kinesis is, in place of AWS.", metavar="URL")
]
Profile = Annotated[str | None, typer.Option(help="AWS profile to take credentials and settings from.")]
Aggregate = Annotated[bool, typer.Option("--aggregate", help="Pack records into KPL aggregates.")]
Ordered = Annotated[bool, typer.Option("--ordered", help="Keep the order of each partition key.")]
TimeToLive = Annotated[
    float, typer.Option("--ttl", help="Seconds after which a record that is not written is given up.", metavar="S")
]
Flush = Annotated[
    float,
    typer.Option(
        "--flush", help="Seconds to wait for what is under way, after Ctrl-C.", metavar="S", callback=_not_negative
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")]


class Run:
    """One command that puts records: made of its options, run once."""

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
        """With ``stop_on_loss`` a record that is not written ends the run. ``on_metrics`` hears of each interval.

        Raises OptionError.
        """
        self.stream = stream
        self.account = Account()
        self.stopping = Stopping()
        self._options = options
        self._wire = WireSettings(region=region, endpoint_url=endpoint_url, profile=profile)
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
        """Put all batches; what was done since the start. Raises PenstockError when the stream cannot be reached."""
        from penstock.runtime.producer import Producer

        producer: Producer[Any] = Producer(self.stream, wire=self._wire, options=self._options, on_event=self._on_event)
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
    """Show how it ended, and end with the status that says so."""
    show(report.to_json(), report.to_text(), as_json=as_json)
    for line in report.complaints():
        warn(line)
    if report.status:
        raise typer.Exit(report.status)


class _ToStandardError(logging.Handler):
    """Writes as all remarks of the command are written, also beside a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


def cli_logger() -> logging.Logger:
    """For what has to be known while it runs: warnings and errors."""
    logger = logging.getLogger("penstock.cli")
    if not logger.handlers:
        logger.addHandler(_ToStandardError(logging.WARNING))
        logger.propagate = False
    return logger
