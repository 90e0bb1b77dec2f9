"""The properties of a MultiLangDaemon, as settings of a worker here."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.core.feeding.poll_pace import PollTimes
from penstock.core.ledger.settings import LedgerSettings, Retry
from penstock.core.shard.checkpoints import Prompt
from penstock.errors import OptionError
from penstock.kclpy.daemon import DaemonSettings
from penstock.kclpy.known_properties import remarks_on
from penstock.kclpy.session import OnError, SessionSettings
from penstock.model import StartAt
from penstock.runtime.feeds.fan_out import FanOutTimes
from penstock.runtime.worker.settings import WorkerSettings
from penstock.wiring import LeaseTableOptions, WireSettings

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class KclOptions:
    """All that a worker is made from."""

    stream: str
    application: str
    worker_id: str | None
    leases: LeaseTableOptions
    wire: WireSettings
    worker: WorkerSettings
    daemon: DaemonSettings
    remarks: tuple[str, ...] = ()
    """What of the properties means nothing here, a line each."""


@dataclass
class _Properties:
    """Properties by name, in any case, with the faults found."""

    values: dict[str, str]
    faults: list[str] = field(default_factory=list)

    def text(self, *names: str) -> str | None:
        """The first of these that is given."""
        return next((value for name in names if (value := self.values.get(name.lower()))), None)

    def number(self, name: str, *, least: float, per: float = 1.0) -> float | None:
        """A number of at least ``least``, divided by ``per``."""
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
        """True for ``true``."""
        return (self.text(name) or "").lower() == "true"


def options_of(
    properties: Mapping[str, str],
    *,
    target: str,
    shim: bool = False,
    on_error: OnError = OnError.RETRY,
    wire: WireSettings | None = None,
) -> KclOptions:
    """What properties say. ``wire`` is what the command line says of AWS, and goes before. Raises OptionError."""
    given = _Properties({name.lower(): value.strip() for name, value in properties.items()})
    stream = given.text("streamArn", "streamName")
    application = given.text("applicationName")
    given.faults += [
        f"{name} is not given: in the properties, or by --set {name}=..."
        for name, value in (("streamName", stream), ("applicationName", application))
        if value is None
    ]
    wire = _wire(given, wire or WireSettings())
    worker, daemon = _worker(given), _daemon(given, target=target, shim=shim, on_error=on_error)
    if given.faults:
        raise OptionError(given.faults)
    assert stream is not None
    assert application is not None
    return KclOptions(
        stream=stream,
        application=application,
        worker_id=given.text("workerId"),
        leases=LeaseTableOptions(table=given.text("leaseTableName", "tableName"), wire=_dynamo_wire(given, wire)),
        wire=wire,
        worker=WorkerSettings(**worker),
        daemon=daemon,
        remarks=remarks_on(properties),
    )


def _worker(given: _Properties) -> dict[str, Any]:
    """The worker's settings."""
    failover_s = given.number("failoverTimeMillis", least=1000, per=1000) or 10.0
    found: dict[str, Any] = {
        "failover_s": failover_s,
        "look_interval_s": min(0.5, failover_s / 5),
        "start_at": _start(given),
        "cadence": Prompt(),
        "checkpoint_when_told": True,
        "polling": _polling(given),
        "fan_out": _fan_out(given),
        "fan_out_consumer": given.text("fanoutConfig.consumerName"),
    }
    if leases_max := given.number("maxLeasesForWorker", least=1):
        found["leases_max"] = None if leases_max >= 2**31 - 1 else int(leases_max)
    if records_max := given.number("maxRecords", least=1):
        found["batch_records_max"] = int(records_max)
    if drain_s := given.number("gracefulLeaseHandoffTimeoutMillis", least=1, per=1000):
        found["drain_deadline_s"] = drain_s
    ledger = LedgerSettings(retry=Retry(tries_max=None))
    if stalled_s := given.number("logWarningForTaskAfterMillis", least=1, per=1000):
        ledger = LedgerSettings(retry=Retry(tries_max=None), settle_deadline_s=stalled_s)
    found["ledger"] = ledger
    return found


def _start(given: _Properties) -> StartAt:
    at_s = given.number("initialPositionInStreamExtended", least=0)
    if at_s is None:
        at_s = given.number("timestampAtInitialPositionInStream", least=0)
    if at_s is not None:
        return StartAt.at_timestamp(dt.datetime.fromtimestamp(at_s, dt.UTC))
    word = (given.text("initialPositionInStream") or "LATEST").upper()
    if word == "AT_TIMESTAMP":
        given.faults.append("initialPositionInStream AT_TIMESTAMP needs initialPositionInStreamExtended: epoch seconds")
    elif word not in ("LATEST", "TRIM_HORIZON"):
        given.faults.append(f"initialPositionInStream is LATEST, TRIM_HORIZON or AT_TIMESTAMP, not {word}")
    return StartAt.TRIM_HORIZON if word == "TRIM_HORIZON" else StartAt.LATEST


def _polling(given: _Properties) -> PollTimes:
    idle_s = given.number("idleTimeBetweenReadsInMillis", least=200, per=1000)
    return PollTimes() if idle_s is None else PollTimes(interval_s=idle_s, idle_interval_s=max(idle_s, 1.0))


def _fan_out(given: _Properties) -> FanOutTimes | None:
    mode = (given.text("retrievalMode") or "DEFAULT").upper()
    if mode not in ("DEFAULT", "FANOUT", "POLLING"):
        given.faults.append(f"retrievalMode is DEFAULT, FANOUT or POLLING, not {mode}")
    return None if mode == "POLLING" else FanOutTimes()


def _daemon(given: _Properties, *, target: str, shim: bool, on_error: OnError) -> DaemonSettings:
    empty_s = None
    if given.flag("callProcessRecordsEvenForEmptyRecordList"):
        empty_s = given.number("idleTimeBetweenReadsInMillis", least=200, per=1000) or 1.0
    session = SessionSettings(
        on_error=on_error,
        answer_timeout_s=given.number("timeoutInSeconds", least=1),
        end_again_s=given.number("taskBackoffTimeMillis", least=1, per=1000) or SessionSettings.end_again_s,
        empty_call_after_s=empty_s,
    )
    stop_s = given.number("shutdownGraceMillis", least=0, per=1000)
    return DaemonSettings(
        target=target, shim=shim, session=session, stop_s=DaemonSettings.stop_s if stop_s is None else stop_s
    )


def _wire(given: _Properties, wire: WireSettings) -> WireSettings:
    return msgspec.structs.replace(
        wire,
        region=wire.region or given.text("regionName"),
        endpoint_url=wire.endpoint_url or _url(given.text("kinesisEndpoint")),
    )


def _dynamo_wire(given: _Properties, wire: WireSettings) -> WireSettings | None:
    """For the lease table, if it is not to be reached as the stream is."""
    endpoint = _url(given.text("dynamoDBEndpoint"))
    if endpoint is None and given.text("kinesisEndpoint") is None:
        return None
    return msgspec.structs.replace(wire, endpoint_url=endpoint)


def _url(endpoint: str | None) -> str | None:
    return endpoint if endpoint is None or "://" in endpoint else f"https://{endpoint}"
