"""The options of ``format("shardway")`` have their names, types, defaults and units in one table.

Spark hands options over as strings, with names in any case. The table is also what the reference page is made from.
All faults are reported at once; an unknown name gets the nearest right one.
"""

from __future__ import annotations

import datetime as dt
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from shardway.aws.options import region_fault, url_fault
from shardway.errors import OptionError
from shardway.model import OutsidePolicy, StartingPosition, StreamName

# --- reading --------------------------------------------------------------------------------------


class Caps(NamedTuple):
    """The limits that a batch should not exceed by much; None stands for no cap."""

    rows: int | None = None
    bytes: int | None = None

    @property
    def none(self) -> bool:
        """True when nothing is capped."""
        return self.rows is None and self.bytes is None

    def share(self, rows: float, size: float) -> float:
        """Return how much of the caps ``rows`` and ``size`` (bytes) are: 1.0 is full."""
        return max(rows / self.rows if self.rows else 0.0, size / self.bytes if self.bytes else 0.0)


UNCAPPED = Caps()
"""Caps that limit nothing."""


class Option(NamedTuple):
    """One option as the reference page shows it."""

    name: str
    type: str
    default: str
    about: str
    parse: Callable[[str], Any]
    batch: bool = True
    stream: bool = True


def any_text(text: str) -> str:
    """Parse any text but an empty one."""
    if not text.strip():
        raise ValueError("is empty")
    return text.strip()


def _url(text: str) -> str:
    if fault := url_fault(text):
        raise ValueError(fault)
    return text.rstrip("/")


def _region(text: str) -> str:
    region = text.strip()
    if region_fault(region):
        raise ValueError(f"must look like eu-west-1, not {text!r}")
    return region


def boolean(text: str) -> bool:
    """Parse ``true`` or ``false``."""
    if text.strip().lower() in ("true", "false"):
        return text.strip().lower() == "true"
    raise ValueError("must be true or false")


def whole(least: int) -> Callable[[str], int]:
    """Return a parser of whole numbers that are ``least`` or more."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ValueError(f"must be a whole number, not {text!r}") from None
        if number < least:
            raise ValueError(f"must be at least {least}")
        return number

    return parse


_POSITIONS = {
    "TRIM_HORIZON": "TRIM_HORIZON",
    "EARLIEST": "TRIM_HORIZON",
    "LATEST": "LATEST",
    "AT_TIMESTAMP": "AT_TIMESTAMP",
}


def _position(text: str) -> str:
    kind = _POSITIONS.get(text.strip().upper())
    if kind is None:
        raise ValueError(f"must be TRIM_HORIZON, LATEST or AT_TIMESTAMP, not {text!r}")
    return kind


def _timestamp(text: str) -> dt.datetime:
    try:
        return dt.datetime.fromtimestamp(float(text), dt.UTC)
    except (ValueError, OverflowError, OSError):
        if _MILLISECONDS.fullmatch(text.strip()):
            seconds = int(text) / 1000
            raise ValueError(
                f"must be epoch seconds, and {text!r} looks like milliseconds: give {seconds:.3f}"
            ) from None
    try:
        moment = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(
            f"must be ISO 8601 with a time zone (2026-11-21T10:00:00Z) or epoch seconds, not {text!r}"
        ) from None
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} needs a time zone (2026-11-21T10:00:00Z)")
    return moment.astimezone(dt.UTC)


def _outside(text: str) -> OutsidePolicy:
    try:
        return OutsidePolicy(text.strip().lower())
    except ValueError:
        raise ValueError(f"must be deliver, drop or raise, not {text!r}") from None


REACH_OPTIONS = (
    Option("streamName", "string", "-", "The stream's name. Either this or `streamARN` is required.", any_text),
    Option(
        "streamARN",
        "string",
        "-",
        "The stream's ARN. It may be one of another account, through a resource policy. It names the region too.",
        any_text,
    ),
    Option(
        "region",
        "string",
        "the SDK's chain",
        "The AWS region. It must agree with `streamARN`. Tasks use the region that the driver finds.",
        _region,
    ),
    Option(
        "endpointUrl",
        "URL",
        "the SDK's rules",
        "The address of Kinesis (a local one, a VPC endpoint). Without it, `AWS_ENDPOINT_URL_KINESIS` and its like "
        "count, for tasks too as the driver has them; then AWS's own address.",
        _url,
    ),
    Option(
        "roleArn",
        "ARN",
        "-",
        "The role that the driver and the tasks assume. It is refreshed before it expires.",
        any_text,
    ),
    Option("roleSessionName", "string", "made up", "The session name for `roleArn`.", any_text),
    Option("roleExternalId", "string", "-", "The external id for `roleArn`.", any_text),
    Option("stsEndpointUrl", "URL", "the SDK's rules", "The address of STS, for `roleArn`.", _url),
)
"""The options that say which stream it is, where it is, and with which credentials it is reached; reading and writing
share them.
"""

READ_OPTIONS = (
    *REACH_OPTIONS[:4],
    Option(
        "startingPosition",
        "TRIM_HORIZON, LATEST, AT_TIMESTAMP",
        "LATEST (streams), TRIM_HORIZON (batch)",
        "Where a query without a Spark checkpoint begins (`earliest` is TRIM_HORIZON). LATEST becomes a time at the "
        "first start and is never evaluated again.",
        _position,
    ),
    Option(
        "startingTimestamp",
        "ISO 8601 or epoch seconds",
        "-",
        "With AT_TIMESTAMP the query begins at the first record that arrived at or after this time. Alone it means "
        "AT_TIMESTAMP.",
        _timestamp,
    ),
    Option(
        "endingTimestamp",
        "ISO 8601 or epoch seconds",
        "now",
        "Batch reads end before the first record that arrived at or after this time.",
        _timestamp,
        stream=False,
    ),
    Option(
        "maxRecordsPerTrigger",
        "rows",
        "no cap",
        "About how many rows a micro-batch takes. It takes three times as many at most: see “Admission”.",
        whole(1),
        batch=False,
    ),
    Option(
        "maxBytesPerTrigger",
        "bytes",
        "no cap",
        "About how many bytes of data a micro-batch takes. It takes three times as many at most: see “Admission”.",
        whole(1),
        batch=False,
    ),
    Option(
        "failOnDataLoss",
        "boolean",
        "true",
        "true: the query stops when records were, or may have been, lost before they were read. false: it logs a "
        "warning, counts the loss, and goes on with what is left.",
        boolean,
    ),
    Option(
        "aggregatesOutsideRange",
        "deliver, drop, raise",
        "deliver",
        "What becomes of a KPL aggregate with user records whose hash keys are outside their shard's range (made "
        "before a split). deliver: the source delivers and counts them. drop: it drops the aggregate whole, as the "
        "KCL does. raise: the task fails.",
        _outside,
    ),
    *REACH_OPTIONS[4:],
    Option(
        "maxPartitions",
        "tasks",
        "100",
        "The most tasks of a batch. Small batches take fewer: one for about 16 MiB.",
        whole(1),
    ),
    Option(
        "pollIntervalMs",
        "milliseconds",
        "1000",
        "How often the driver looks at a shard that has nothing new: one GetRecords call of the five per second.",
        whole(200),
        batch=False,
    ),
    Option(
        "cutLagMs",
        "milliseconds",
        "500",
        "The source cuts a live batch at most this far behind the service's clock. Where shards are busy it is less, "
        "down to 15.",
        whole(0),
        batch=False,
    ),
    Option(
        "availableNowMs",
        "epoch milliseconds",
        "the query's start",
        "With the trigger AvailableNow the query reads what was in the stream at this time of the driver's clock, if "
        "that is less than a minute ago. A caller that sets it to its own start saves the second that the driver else "
        "waits to be sure of the service's time; `shardway run` does.",
        whole(0),
        batch=False,
    ),
    Option(
        "outageTimeoutMs",
        "milliseconds",
        "120000",
        "How long the driver, and each task, retries while the service cannot be reached, refuses, fails, or returns "
        "none of the records that are to be read. Then the query ends with the last error.",
        whole(1000),
    ),
    Option(
        "applicationName",
        "string",
        "-",
        "The query also writes what is committed to this application's lease table, as the KCL does, and a query "
        "without a Spark checkpoint goes on from there; see “Leases”.",
        any_text,
        batch=False,
    ),
    Option("leaseTable", "string", "applicationName", "The DynamoDB table with the leases.", any_text, batch=False),
    Option(
        "continueFromLeases",
        "boolean",
        "true",
        "false: a query without a Spark checkpoint begins at `startingPosition`, whatever the leases say. It does not "
        "set them back; it begins those anew that belong to another stream, or to a former one of this name.",
        boolean,
        batch=False,
    ),
    Option(
        "leaseIntervalMs",
        "milliseconds",
        "5000",
        "The least time between two writes of a lease; one write covers all that came in between.",
        whole(100),
        batch=False,
    ),
    Option(
        "leaseFailoverMs",
        "milliseconds",
        "10000",
        "The failover time of the application's workers: at the start, an owner that does not renew its leases for "
        "this long counts as dead.",
        whole(100),
        batch=False,
    ),
    Option(
        "dynamodbEndpointUrl",
        "URL",
        "the SDK's rules",
        "The address of DynamoDB. Without it, `AWS_ENDPOINT_URL_DYNAMODB` and its like count, then AWS's own address. "
        "`endpointUrl` is for Kinesis.",
        _url,
        batch=False,
    ),
)
"""All options for reading. Each option that is listed does something."""

ALIASES = {"endpoint": "endpointUrl", "initialposition": "startingPosition", "regionname": "region"}
"""Names that other connectors use for the same thing, lower case."""

_CREDENTIALS = {"awsaccesskey", "awsaccesskeyid", "awssecretkey", "awssecretaccesskey", "sessiontoken"}
_FAN_OUT = {"consumermode", "consumertype", "consumername", "consumernameprefix", "consumerarn", "fanoutconsumerarn"}
"""Names, in lower case, by which other connectors ask for enhanced fan-out."""
_STREAM_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_HINT = ": did you mean "
_MILLISECONDS = re.compile(r"\d{12,14}")
_SPARKS_OWN = {"checkpointlocation", "path", "queryname"}


_LEASES = ("leaseTable", "continueFromLeases", "leaseIntervalMs", "leaseFailoverMs", "dynamodbEndpointUrl")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLeases:
    """The options of the lease table that a query shares."""

    application: str
    table: str
    start_there: bool = True
    interval_s: float = 5.0
    failover_s: float = 10.0
    endpoint_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of one source, checked."""

    stream: StreamName
    region: str | None = None
    endpoint_url: str | None = None
    start: StartingPosition = StartingPosition.LATEST
    ending_timestamp: dt.datetime | None = None
    caps: Caps = UNCAPPED
    fail_on_data_loss: bool = True
    aggregates_outside_range: OutsidePolicy = OutsidePolicy.DELIVER
    role_arn: str | None = None
    role_session_name: str | None = None
    role_external_id: str | None = None
    sts_endpoint_url: str | None = None
    tasks_max: int = 100
    poll_interval_s: float = 1.0
    cut_lag_ms: int = 500
    outage_s: float = 120.0
    available_now_s: float | None = None
    """The driver's time (epoch seconds) up to which AvailableNow reads; None for the time at which the query begins."""
    leases: QueryLeases | None = None


def parse_read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Check the options for reading. Raises OptionError with all faults at once; reads and calls nothing."""
    faults: list[str] = []
    values = values_of(given, READ_OPTIONS, faults, streaming=streaming)
    stream = stream_of(values, faults)
    start = _start(values, streaming, faults)
    leases = _leases(values, faults)
    if faults or stream is None or start is None:
        raise OptionError(faults)
    return ReadOptions(
        stream=stream,
        region=values.get("region") or region_of(stream),
        endpoint_url=values.get("endpointUrl"),
        start=start,
        ending_timestamp=values.get("endingTimestamp"),
        caps=Caps(values.get("maxRecordsPerTrigger"), values.get("maxBytesPerTrigger")),
        fail_on_data_loss=values.get("failOnDataLoss", True),
        aggregates_outside_range=values.get("aggregatesOutsideRange", OutsidePolicy.DELIVER),
        role_arn=values.get("roleArn"),
        role_session_name=values.get("roleSessionName"),
        role_external_id=values.get("roleExternalId"),
        sts_endpoint_url=values.get("stsEndpointUrl"),
        tasks_max=values.get("maxPartitions", 100),
        poll_interval_s=values.get("pollIntervalMs", 1000) / 1000,
        cut_lag_ms=values.get("cutLagMs", 500),
        outage_s=values.get("outageTimeoutMs", 120_000) / 1000,
        available_now_s=values["availableNowMs"] / 1000 if "availableNowMs" in values else None,
        leases=leases,
    )


def _leases(values: dict[str, Any], faults: list[str]) -> QueryLeases | None:
    application = values.get("applicationName")
    if application is None:
        faults += [
            f"{name} is given without applicationName: it has no meaning alone" for name in _LEASES if name in values
        ]
        return None
    return QueryLeases(
        application=application,
        table=values.get("leaseTable", application),
        start_there=values.get("continueFromLeases", True),
        interval_s=values.get("leaseIntervalMs", 5_000) / 1000,
        failover_s=values.get("leaseFailoverMs", 10_000) / 1000,
        endpoint_url=values.get("dynamodbEndpointUrl"),
    )


def check_options(given: Mapping[str, str]) -> None:
    """Raise OptionError for options that are wrong for each use: a source's options come before its use is known.

    An option that only readers have, or only writers, tells the use.
    """
    reading, writing = _names(READ_OPTIONS), _names(SINK_OPTIONS)
    names = {ALIASES.get(key.lower(), key).lower() for key in given}
    uses: list[Callable[[], object]] = []
    if not names & (writing - reading) or names & (reading - writing):
        uses += [
            lambda: parse_read_options(given, streaming=True),
            lambda: parse_read_options(given, streaming=False),
        ]
    if not names & (reading - writing):
        uses.append(lambda: parse_sink_options(given))
    faults: list[list[str]] = []
    for use in uses:
        try:
            use()
        except OptionError as error:
            faults.append(error.faults)
        else:
            return
    common = [fault for fault in faults[0] if all(fault in others for others in faults)]
    # A misspelt name has its hint in the use that it belongs to, and is wrong in the other one too.
    misspelt = [fault for others in faults for fault in others if _HINT in fault]
    if common or misspelt:
        raise OptionError(list(dict.fromkeys([*common, *misspelt])))


def values_of(
    given: Mapping[str, str], table: Sequence[Option], faults: list[str], *, streaming: bool = True
) -> dict[str, Any]:
    """Return the values of the options of a table, by name; what is wrong is added to ``faults``."""
    known = {option.name.lower(): option for option in table}
    values: dict[str, Any] = {}
    strange: list[str] = []
    for key, text in given.items():
        option = known.get(ALIASES.get(key.lower(), key).lower())
        if option is None:
            if not _unknown(key, faults, table):
                strange.append(key)
        elif not (option.stream if streaming else option.batch):
            faults.append(f"{option.name} is for {'batch' if streaming else 'streaming'} reads only")
        elif option.name in values:
            faults.append(f"{option.name} is given twice, once under another name")
        else:
            try:
                values[option.name] = option.parse(str(text))
            except ValueError as error:
                faults.append(f"{option.name} {error}")
    if strange:
        right = ", ".join(option.name for option in table)
        use = "reading" if table is READ_OPTIONS else "writing"
        which = f"no option {strange[0]}" if len(strange) == 1 else f"no options {', '.join(strange)}"
        faults.append(f"there {'is' if len(strange) == 1 else 'are'} {which}; those for {use} are {right}")
    faults += [
        f"{name} is given without roleArn: it has no meaning alone"
        for name in ("roleSessionName", "roleExternalId", "stsEndpointUrl")
        if name in values and "roleArn" not in values
    ]
    return values


def _names(table: Sequence[Option]) -> set[str]:
    return {option.name.lower() for option in table}


def _unknown(key: str, faults: list[str], table: Sequence[Option]) -> bool:
    """Say what is wrong with an option that a table lacks. Return False where nothing is known of it: the right ones
    are then listed once, for all of these.
    """
    writing, lower = table is not READ_OPTIONS, key.lower()
    if lower in _SPARKS_OWN or lower.startswith("__"):
        return True
    if lower in _CREDENTIALS:
        faults.append(
            f"{key} is not taken: options are shown in plans and sent to every executor. Credentials come from the AWS "
            "SDK's chain on each machine (environment, profile, instance or pod role); roleArn assumes a role"
        )
        return True
    if lower in _FAN_OUT:
        faults.append(f"{key} is not taken: this source reads by GetRecords, and has no enhanced fan-out")
        return True
    elsewhere = {option.name.lower(): option.name for option in (READ_OPTIONS if writing else SINK_OPTIONS)}
    name = elsewhere.get(ALIASES.get(lower, lower).lower())
    if name is not None:
        faults.append(f"{name} is for {'reading' if writing else 'writing'} only")
        return True
    names = {option.name.lower(): option.name for option in table}
    near = difflib.get_close_matches(lower, names, n=1, cutoff=0.6)
    if near:
        faults.append(f"there is no option {key}{_HINT}{names[near[0]]}?")
    return bool(near)


def stream_of(values: dict[str, Any], faults: list[str]) -> StreamName | None:
    """Return the stream that streamName or streamARN names; None if what they say is wrong."""
    name, arn = values.get("streamName"), values.get("streamARN")
    if name and arn:
        faults.append("streamName and streamARN contradict each other: give one of them")
        return None
    if arn is not None:
        parts = arn.split(":")
        if len(parts) != 6 or parts[0] != "arn" or parts[2] != "kinesis" or not parts[5].startswith("stream/"):
            faults.append("streamARN must look like arn:aws:kinesis:eu-west-1:123456789012:stream/orders")
            return None
        if values.get("region") not in (None, parts[3]):
            faults.append(f"region {values['region']} contradicts streamARN, which is in {parts[3]}")
            return None
        return StreamName(arn=arn)
    if name is None:
        faults.append("streamName (or streamARN) is required")
        return None
    if name.startswith("arn:"):
        faults.append("streamName holds an ARN: give it as streamARN")
        return None
    if "," in name:
        faults.append("streamName holds several names: a source reads one stream; read each, and join them with union")
        return None
    if not _STREAM_NAME.fullmatch(name):
        faults.append("streamName must be 1 to 128 letters, digits, _ . and -")
        return None
    return StreamName(name=name)


def _start(values: dict[str, Any], streaming: bool, faults: list[str]) -> StartingPosition | None:
    kind, moment = values.get("startingPosition"), values.get("startingTimestamp")
    ending = values.get("endingTimestamp")
    if moment is not None:
        if kind not in (None, "AT_TIMESTAMP"):
            faults.append(f"startingTimestamp contradicts startingPosition {kind}")
            return None
        if ending is not None and ending < moment:
            faults.append("endingTimestamp is before startingTimestamp")
            return None
        return StartingPosition.at_timestamp(moment)
    if kind == "AT_TIMESTAMP":
        faults.append("startingPosition AT_TIMESTAMP needs startingTimestamp")
        return None
    if kind == "LATEST" and not streaming:
        faults.append("a batch read from LATEST has no rows: give TRIM_HORIZON or a startingTimestamp")
        return None
    return StartingPosition(kind or ("LATEST" if streaming else "TRIM_HORIZON"))


def region_of(stream: StreamName) -> str | None:
    """Return the region that an ARN names; None for a stream without an ARN."""
    return stream.arn.split(":")[3] if stream.arn else None


# --- writing --------------------------------------------------------------------------------------
# This part has the options for writing with ``format("shardway")``, and the columns that a DataFrame must then have.

MIB = 1024 * 1024

BUFFER_BYTES_MAX = 16 * MIB
BUFFER_BYTES_MAX_LEAST = 11 * MIB
"""The least bytes of the buffer: a record of 10 MiB, the largest that Kinesis takes, and its book-keeping fit in."""
WRITE_TIMEOUT_MS = 120_000

NO_STAMPS = "none"
BY_POSITION = "position"
POSITION_COLUMNS = ("stream", "shard_id", "sequence_number", "sub_sequence_number")
"""The columns of the source that name the record that a row comes from."""

_IGNORED = frozenset({*POSITION_COLUMNS, "approximate_arrival_timestamp"})
"""Columns of the source that may stay in a DataFrame that is written; the service gives the record its own values."""
_TEXT = ("string", "varchar", "char")
_INTEGERS = ("tinyint", "smallint", "int", "bigint")

SINK_OPTIONS = (
    *REACH_OPTIONS,
    Option(
        "aggregation",
        "boolean",
        "false",
        "Pack rows into KPL aggregates: fewer and larger Kinesis records, for less cost and more throughput. Readers "
        "must open them, as the source here, the KCL and the KPL's readers do.",
        boolean,
    ),
    Option(
        "orderedByKey",
        "boolean",
        "false",
        "Keep the order of each partition key within a task, also when records are refused and put again; see “Order”.",
        boolean,
    ),
    Option(
        "stamps",
        "`none`, `position`, or a column",
        "none",
        "Write each row in an envelope that says which row it is, so that a reader can remove duplicates. It says so "
        "by the position of the record that the row comes from, or by a key column (string or integer); see “Stamps”.",
        any_text,
    ),
    Option(
        "stampIndex",
        "an integer column",
        "-",
        "With `stamps` `position`, where a record of the source becomes several rows: the column that numbers them, "
        "the same in every run (`posexplode` makes one).",
        any_text,
    ),
    Option(
        "bufferBytesMax",
        "bytes",
        f"{BUFFER_BYTES_MAX:,}",
        "The most memory of a task for rows that are not written yet: data, partition key and 256 bytes each. When it "
        "is full, the task waits.",
        whole(BUFFER_BYTES_MAX_LEAST),
    ),
    Option(
        "writeTimeoutMs",
        "milliseconds",
        f"{WRITE_TIMEOUT_MS:,}",
        "A task fails when none of the rows that it holds was written for this long.",
        whole(1_000),
    ),
)
"""All options for writing. Each option that is listed does something."""


class SinkOptions(NamedTuple):
    """The options of one sink, checked."""

    stream: StreamName
    region: str | None = None
    endpoint_url: str | None = None
    role_arn: str | None = None
    role_session_name: str | None = None
    role_external_id: str | None = None
    sts_endpoint_url: str | None = None
    aggregation: bool = False
    ordered_by_key: bool = False
    stamps: str = NO_STAMPS
    """The kind of stamps: ``none``, ``position``, or the name of a key column."""
    stamp_index: str | None = None
    buffer_bytes_max: int = BUFFER_BYTES_MAX
    write_timeout_s: float = WRITE_TIMEOUT_MS / 1000


class SinkColumns(NamedTuple):
    """The places, from 0, of the columns that are written. None stands for a column that is not there."""

    partition_key: int
    data: int
    explicit_hash_key: int | None = None
    position: tuple[int, int, int, int] | None = None
    """The places of POSITION_COLUMNS, where rows are stamped by position."""
    row_index: int | None = None
    key: int | None = None
    """The place of the key column that rows are stamped by."""


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Check the options for writing. Raises OptionError with all faults at once; reads and calls nothing."""
    faults: list[str] = []
    values = values_of(given, SINK_OPTIONS, faults)
    stream = stream_of(values, faults)
    stamps = values.get("stamps", NO_STAMPS)
    if stamps.lower() in (NO_STAMPS, BY_POSITION):
        stamps = stamps.lower()
    if "stampIndex" in values and stamps != BY_POSITION:
        faults.append("stampIndex numbers the rows of one source position: it needs stamps position")
    if faults or stream is None:
        raise OptionError(faults)
    return SinkOptions(
        stream=stream,
        region=values.get("region") or region_of(stream),
        endpoint_url=values.get("endpointUrl"),
        role_arn=values.get("roleArn"),
        role_session_name=values.get("roleSessionName"),
        role_external_id=values.get("roleExternalId"),
        sts_endpoint_url=values.get("stsEndpointUrl"),
        aggregation=values.get("aggregation", False),
        ordered_by_key=values.get("orderedByKey", False),
        stamps=stamps,
        stamp_index=values.get("stampIndex"),
        buffer_bytes_max=values.get("bufferBytesMax", BUFFER_BYTES_MAX),
        write_timeout_s=values.get("writeTimeoutMs", WRITE_TIMEOUT_MS) / 1000,
    )


def sink_columns(schema: Any, options: SinkOptions) -> SinkColumns:
    """Find the columns in a schema (StructType) that is written. Raises OptionError with all faults.

    A column that is not written is a fault: its values would be dropped in silence. Columns of the source are let pass.
    """
    faults: list[str] = []
    fields = {field.name.lower(): (place, field) for place, field in enumerate(schema.fields)}

    def place_of(name: str, types: Sequence[str], why: str) -> int:
        if name.lower() not in fields:
            near = difflib.get_close_matches(name.lower(), list(fields), n=1)
            hint = f" (is it {fields[near[0]][1].name}?)" if near else ""
            faults.append(f"there is no column {name}{hint}: {why}")
            return -1
        place, field = fields[name.lower()]
        found = field.dataType.simpleString().partition("(")[0]
        if found not in types:
            faults.append(f"column {field.name} must be {' or '.join(types)}, not {field.dataType.simpleString()}")
        return int(place)

    data = place_of("data", ("binary", *_TEXT), "it holds what is written, binary or string")
    partition_key = place_of("partition_key", _TEXT, "it chooses the shard of each row, and rows of one key have order")
    hash_key = place_of("explicit_hash_key", _TEXT, "") if "explicit_hash_key" in fields else None
    position = index = key = None
    if options.stamps == BY_POSITION:
        why = "stamps position takes it from the source"
        found = [place_of(name, _TEXT, why) for name in POSITION_COLUMNS[:3]]
        position = (found[0], found[1], found[2], place_of(POSITION_COLUMNS[3], ("bigint", "int"), why))
        if options.stamp_index is not None:
            index = place_of(options.stamp_index, _INTEGERS, "stampIndex names it")
    elif options.stamps != NO_STAMPS:
        key = place_of(options.stamps, (*_TEXT, *_INTEGERS), "stamps names it")
    used = {data, partition_key, hash_key, index, key, *(position or ())}
    unused = [field.name for name, (place, field) in fields.items() if place not in used and name not in _IGNORED]
    if unused and not faults:
        faults.append(
            f"{', '.join(unused)}: not written, as a record has data and a partition key only. Put what it needs into "
            'data (to_json(struct("*")), for example) and select data and partition_key'
        )
    if len(fields) < len(schema.fields):
        faults.append("two columns have the same name")
    if faults:
        raise OptionError(faults)
    return SinkColumns(partition_key, data, hash_key, position, index, key)
