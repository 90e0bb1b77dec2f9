"""Turn the properties of a MultiLangDaemon into options of a consumer here."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from shardway.core.leases.tenure.times import FAILOVER_S
from shardway.core.log.pace import PollingOptions
from shardway.core.shard.checkpoints.cadence import Prompt
from shardway.errors import OptionError
from shardway.kclpy.daemon import DaemonOptions
from shardway.kclpy.known_properties import remarks_on
from shardway.kclpy.session import OnError, SessionOptions
from shardway.model import StartingPosition
from shardway.options.consumer import BufferOptions, CheckpointOptions, ConsumerOptions, FanOutOptions, HandoffOptions
from shardway.options.leases import LeaseOptions
from shardway.policies import Retry, SettlingOptions
from shardway.telemetry.cloudwatch_datums import DIMENSIONS, LEVELS, CloudWatchChoice
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class KclOptions:
    """All options that a worker is made from."""

    stream: str
    application: str
    worker_id: str | None
    connection: ConnectionOptions
    consumer: ConsumerOptions
    daemon: DaemonOptions
    metrics: CloudWatchChoice | None = None
    """The choice of what is sent to CloudWatch; None where nothing is."""
    metrics_connection: ConnectionOptions | None = None
    """The connection to CloudWatch."""
    remarks: tuple[str, ...] = ()
    """The lines that say which properties mean nothing here."""


@dataclass
class _Properties:
    """Properties by name, in any case, with the faults found."""

    values: dict[str, str]
    faults: list[str] = field(default_factory=list)

    def text(self, *names: str) -> str | None:
        """Return the first of these properties that is given."""
        return next((value for name in names if (value := self.values.get(name.lower()))), None)

    def number(self, name: str, *, least: float, per: float = 1.0) -> float | None:
        """Return a number of at least ``least``, divided by ``per``; None where there is none."""
        if (value := self.text(name)) is None:
            return None
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if not least <= number < float("inf"):
            self.faults.append(f"{name} must be a number of at least {least:g}, not {value!r}")
            return None
        return number / per

    def flag(self, name: str) -> bool:
        """Return True for the text ``true``."""
        return (self.text(name) or "").lower() == "true"


def options_of(
    properties: Mapping[str, str],
    *,
    target: str,
    shim: bool = False,
    on_error: OnError = OnError.RETRY,
    connection: ConnectionOptions | None = None,
) -> KclOptions:
    """Return the options that properties say. ``connection`` is what the command line says of AWS, and goes before.
    Raises OptionError with all faults.
    """
    given = _Properties({name.lower(): value.strip() for name, value in properties.items()})
    stream = given.text("streamArn", "streamName")
    application = given.text("applicationName")
    given.faults += [
        f"{name} is not given: in the properties, or by --set {name}=..."
        for name, value in (("streamName", stream), ("applicationName", application))
        if value is None
    ]
    connection = _connection(given, connection or ConnectionOptions())
    daemon = _daemon(given, target=target, shim=shim, on_error=on_error)
    metrics = _metrics(given)
    consumer = _consumer(given, connection)
    if given.faults:
        raise OptionError(given.faults)
    assert stream is not None
    assert application is not None
    return KclOptions(
        stream=stream,
        application=application,
        worker_id=given.text("workerId"),
        connection=connection,
        consumer=consumer,
        daemon=daemon,
        metrics=metrics,
        metrics_connection=_metrics_connection(given, connection),
        remarks=remarks_on(properties),
    )


def _consumer(given: _Properties, connection: ConnectionOptions) -> ConsumerOptions:
    """Return what the properties say of the consumer's work."""
    leases_max = given.number("maxLeasesForWorker", least=1)
    leases = LeaseOptions(
        table=given.text("leaseTableName", "tableName"),
        connection=_dynamo_connection(given, connection),
        failover_s=given.number("failoverTimeMillis", least=1000, per=1000) or FAILOVER_S,
        leases_max=None if leases_max is None or leases_max >= 2**31 - 1 else int(leases_max),
    )
    drain_s = given.number("gracefulLeaseHandoffTimeoutMillis", least=1, per=1000)
    stalled_s = given.number("logWarningForTaskAfterMillis", least=1, per=1000)
    records_max = given.number("maxRecords", least=1)
    return ConsumerOptions(
        starting_position=_start(given),
        leases=leases,
        checkpoints=CheckpointOptions(cadence=Prompt(), manual=True),
        handoff=HandoffOptions() if drain_s is None else HandoffOptions(drain_deadline_s=drain_s),
        settling=SettlingOptions() if stalled_s is None else SettlingOptions(deadline_s=stalled_s),
        buffer=BufferOptions() if records_max is None else BufferOptions(batch_records_max=int(records_max)),
        polling=_polling_options(given),
        fan_out=_fan_out(given),
        retry=Retry(failures_max=None),
    )


def _start(given: _Properties) -> StartingPosition:
    at_s = given.number("initialPositionInStreamExtended", least=0)
    if at_s is None:
        at_s = given.number("timestampAtInitialPositionInStream", least=0)
    if at_s is not None:
        return StartingPosition.at_timestamp(dt.datetime.fromtimestamp(at_s, dt.UTC))
    word = (given.text("initialPositionInStream") or "LATEST").upper()
    if word == "AT_TIMESTAMP":
        given.faults.append("initialPositionInStream AT_TIMESTAMP needs initialPositionInStreamExtended: epoch seconds")
    elif word not in ("LATEST", "TRIM_HORIZON"):
        given.faults.append(f"initialPositionInStream is LATEST, TRIM_HORIZON or AT_TIMESTAMP, not {word}")
    return StartingPosition.TRIM_HORIZON if word == "TRIM_HORIZON" else StartingPosition.LATEST


def _polling_options(given: _Properties) -> PollingOptions:
    idle_s = given.number("idleTimeBetweenReadsInMillis", least=200, per=1000)
    return PollingOptions() if idle_s is None else PollingOptions(interval_s=idle_s, idle_interval_s=max(idle_s, 1.0))


def _fan_out(given: _Properties) -> FanOutOptions | None:
    mode = (given.text("retrievalMode") or "DEFAULT").upper()
    if mode not in ("DEFAULT", "FANOUT", "POLLING"):
        given.faults.append(f"retrievalMode is DEFAULT, FANOUT or POLLING, not {mode}")
    return None if mode == "POLLING" else FanOutOptions(consumer_name=given.text("fanoutConfig.consumerName"))


def _daemon(given: _Properties, *, target: str, shim: bool, on_error: OnError) -> DaemonOptions:
    empty_s = None
    if given.flag("callProcessRecordsEvenForEmptyRecordList"):
        empty_s = given.number("idleTimeBetweenReadsInMillis", least=200, per=1000) or 1.0
    session = {
        "answer_timeout_s": given.number("timeoutInSeconds", least=1),
        "end_again_s": given.number("taskBackoffTimeMillis", least=1, per=1000),
        "empty_call_after_s": empty_s,
    }
    return DaemonOptions(
        target=target,
        shim=shim,
        session=SessionOptions(on_error=on_error, **_set_options(session)),
        **_set_options({"stop_s": given.number("shutdownGraceMillis", least=0, per=1000)}),
    )


def _set_options(options: Mapping[str, float | None]) -> dict[str, Any]:
    """Return the options that the file has; the others keep their defaults."""
    return {name: value for name, value in options.items() if value is not None}


def _connection(given: _Properties, connection: ConnectionOptions) -> ConnectionOptions:
    return msgspec.structs.replace(
        connection,
        region=connection.region or given.text("regionName"),
        endpoint_url=connection.endpoint_url or _url(given.text("kinesisEndpoint")),
    )


def _dynamo_connection(given: _Properties, connection: ConnectionOptions) -> ConnectionOptions | None:
    """Return the connection to the lease table; None if the table is reached as the stream is."""
    endpoint = _url(given.text("dynamoDBEndpoint"))
    if endpoint is None and given.text("kinesisEndpoint") is None:
        return None
    return msgspec.structs.replace(connection, endpoint_url=endpoint)


def _metrics(given: _Properties) -> CloudWatchChoice | None:
    """Return what goes to CloudWatch. Where nothing is said, the KCL sends all there is, which costs; here nothing is
    sent.
    """
    wanted = (given.text("metricsLevel") or "NONE").upper()
    level = next((name for name in LEVELS if name == wanted), None)
    if level is None:
        given.faults.append(f"metricsLevel is {', '.join(LEVELS)}, not {wanted}")
        return None
    named = [one.strip() for one in (given.text("metricsEnabledDimensions") or "").split(",") if one.strip()]
    chosen = tuple(name for name in DIMENSIONS if "ALL" in named or name in named)
    odd = [name for name in named if name not in ("ALL", "Operation", "StreamId", *DIMENSIONS)]
    if odd:
        given.faults.append(f"metricsEnabledDimensions holds ALL, Operation, ShardId, WorkerIdentifier, not {odd[0]}")
    return None if level == "NONE" else CloudWatchChoice(level=level, dimensions=chosen)


def _metrics_connection(given: _Properties, connection: ConnectionOptions) -> ConnectionOptions:
    endpoint = _url(given.text("cloudWatchEndpoint"))
    if endpoint is None and given.text("kinesisEndpoint") is None:
        return connection
    return msgspec.structs.replace(connection, endpoint_url=endpoint)


def _url(endpoint: str | None) -> str | None:
    return endpoint if endpoint is None or "://" in endpoint else f"https://{endpoint}"
