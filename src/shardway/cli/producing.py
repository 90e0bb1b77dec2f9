"""The commands that put records share this: options, what they say, and how they end."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shardway.cli.accounts import Account, Batch, Report
from shardway.cli.completing import complete_streams
from shardway.cli.delivery import PROGRESS_INTERVAL_S, Delivery
from shardway.cli.interrupt import StoppedError, Stopping
from shardway.cli.looking import named_streams
from shardway.cli.output import show, warn
from shardway.errors import FlushTimeoutError, OptionError
from shardway.events import ProducerMetrics, RecordsExpired, RecordsFailed
from shardway.telemetry.log import log_events
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from shardway.events import Event
    from shardway.events.producer_snapshot import ProducerSnapshot
    from shardway.options.producer import ProducerOptions
    from shardway.runtime.producer.producer import Producer


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
        self._is_started = False

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
        from shardway.options.metrics import MetricsOptions
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
                    async with named_streams(self._connection, self.stream):
                        await self.stopping.unless_asked(producer.start())
                    self._is_started = True
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
        if self._is_started:  # what goes wrong before is raised
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
