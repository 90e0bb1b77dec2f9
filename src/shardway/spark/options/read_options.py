"""The options for reading. Each option that is listed does something."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from shardway.model import OutsidePolicy, StartingPosition
from shardway.spark.options.caps import Caps
from shardway.spark.options.option import Option
from shardway.spark.options.stream_options import StreamOptions
from shardway.spark.options.texts import parse_position, parse_url

_OF_LEASES = ("lease_table", "continue_from_leases", "lease_interval_ms", "lease_failover_ms", "dynamodb_endpoint_url")
"""The fields that say nothing without an application."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLeases:
    """The lease table that a query shares."""

    application: str
    table: str
    start_there: bool
    """True where a query without a Spark checkpoint begins where the leases say."""
    interval_s: float
    failover_s: float
    endpoint_url: str | None


class ReadOptions(StreamOptions, frozen=True, kw_only=True):
    """The options of one source."""

    streaming: bool = True
    """False for a batch read."""
    starting_position: Annotated[
        Literal["TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"] | None,
        Option(
            "TRIM_HORIZON, LATEST, AT_TIMESTAMP",
            "Where a query without a Spark checkpoint begins (`earliest` is TRIM_HORIZON). LATEST becomes a time at "
            "the first start and is never evaluated again.",
            "LATEST (streams), TRIM_HORIZON (batch)",
            parse_position,
        ),
    ] = None
    starting_timestamp: Annotated[
        dt.datetime | None,
        Option(
            "ISO 8601 or epoch seconds",
            "With AT_TIMESTAMP the query begins at the first record that arrived at or after this time. Alone it means "
            "AT_TIMESTAMP.",
        ),
    ] = None
    ending_timestamp: Annotated[
        dt.datetime | None,
        Option(
            "ISO 8601 or epoch seconds",
            "Batch reads end before the first record that arrived at or after this time.",
            "now",
            stream=False,
        ),
    ] = None
    max_records_per_trigger: Annotated[
        int | None,
        Meta(ge=1),
        Option(
            "rows",
            "About how many rows a micro-batch takes. It takes three times as many at most: see “Admission”.",
            "no cap",
            batch=False,
        ),
    ] = None
    max_bytes_per_trigger: Annotated[
        int | None,
        Meta(ge=1),
        Option(
            "bytes",
            "About how many bytes of data a micro-batch takes. It takes three times as many at most: see “Admission”.",
            "no cap",
            batch=False,
        ),
    ] = None
    fail_on_data_loss: Annotated[
        bool,
        Option(
            "boolean",
            "true: the query stops when records were, or may have been, lost before they were read. false: it logs a "
            "warning, counts the loss, and goes on with what is left.",
        ),
    ] = True
    aggregates_outside_range: Annotated[
        OutsidePolicy,
        Option(
            "deliver, drop, raise",
            "What becomes of a KPL aggregate with user records whose hash keys are outside their shard's range (made "
            "before a split). deliver: the source delivers and counts them. drop: it drops the aggregate whole, as the "
            "KCL does. raise: the task fails.",
        ),
    ] = OutsidePolicy.DELIVER
    max_partitions: Annotated[
        int,
        Meta(ge=1),
        Option("tasks", "The most tasks of a batch. Small batches take fewer: one for about 16 MiB."),
    ] = 100
    poll_interval_ms: Annotated[
        int,
        Meta(ge=200),
        Option(
            "milliseconds",
            "How often the driver looks at a shard that has nothing new: one GetRecords call of the five per second.",
            batch=False,
        ),
    ] = 1_000
    cut_lag_ms: Annotated[
        int,
        Meta(ge=0),
        Option(
            "milliseconds",
            "The source cuts a live batch at most this far behind the service's clock. Where shards are busy it is "
            "less, down to 15.",
            batch=False,
        ),
    ] = 500
    available_now_ms: Annotated[
        int | None,
        Meta(ge=0),
        Option(
            "epoch milliseconds",
            "With the trigger AvailableNow the query reads what was in the stream at this time of the driver's clock, "
            "if that is less than a minute ago. A caller that sets it to its own start saves the second that the "
            "driver else waits to be sure of the service's time; `shardway run` does.",
            "the query's start",
            batch=False,
        ),
    ] = None
    outage_timeout_ms: Annotated[
        int,
        Meta(ge=1_000),
        Option(
            "milliseconds",
            "How long the driver, and each task, retries while the service cannot be reached, refuses, fails, or "
            "returns none of the records that are to be read. Then the query ends with the last error.",
        ),
    ] = 120_000
    application_name: Annotated[
        str | None,
        Option(
            "string",
            "The query also writes what is committed to this application's lease table, as the KCL does, and a query "
            "without a Spark checkpoint goes on from there; see “Leases”.",
            batch=False,
        ),
    ] = None
    lease_table: Annotated[
        str | None, Option("string", "The DynamoDB table with the leases.", "applicationName", batch=False)
    ] = None
    continue_from_leases: Annotated[
        bool,
        Option(
            "boolean",
            "false: a query without a Spark checkpoint begins at `startingPosition`, whatever the leases say. It does "
            "not set them back; it replaces those that belong to another stream, or to a former one of this name.",
            batch=False,
        ),
    ] = True
    lease_interval_ms: Annotated[
        int,
        Meta(ge=100),
        Option(
            "milliseconds",
            "The least time between two writes of a lease; one write covers all that came in between.",
            batch=False,
        ),
    ] = 5_000
    lease_failover_ms: Annotated[
        int,
        Meta(ge=100),
        Option(
            "milliseconds",
            "The failover time of the application's workers: at the start, an owner that does not renew its leases for "
            "this long counts as dead.",
            batch=False,
        ),
    ] = 10_000
    dynamodb_endpoint_url: Annotated[
        str | None,
        Option(
            "URL",
            "The address of DynamoDB. Without it, `AWS_ENDPOINT_URL_DYNAMODB` and its like count, then AWS's own "
            "address. `endpointUrl` is for Kinesis.",
            "the SDK's rules",
            parse_url,
            batch=False,
        ),
    ] = None

    @property
    def start(self) -> StartingPosition:
        """Where a query without a Spark checkpoint begins."""
        if self.starting_timestamp is not None:
            return StartingPosition.at_timestamp(self.starting_timestamp)
        return StartingPosition(self.starting_position or ("LATEST" if self.streaming else "TRIM_HORIZON"))

    @property
    def caps(self) -> Caps:
        """How much a batch takes."""
        return Caps(self.max_records_per_trigger, self.max_bytes_per_trigger)

    @property
    def poll_interval_s(self) -> float:
        """Seconds between two looks at a shard that has nothing new."""
        return self.poll_interval_ms / 1000

    @property
    def outage_s(self) -> float:
        """How many seconds calls are repeated."""
        return self.outage_timeout_ms / 1000

    @property
    def available_now_s(self) -> float | None:
        """The driver's time (epoch seconds) up to which AvailableNow reads; None for the time at which the query
        begins.
        """
        return None if self.available_now_ms is None else self.available_now_ms / 1000

    @property
    def leases(self) -> QueryLeases | None:
        """The lease table that the query shares; None where it shares none."""
        if self.application_name is None:
            return None
        return QueryLeases(
            application=self.application_name,
            table=self.lease_table or self.application_name,
            start_there=self.continue_from_leases,
            interval_s=self.lease_interval_ms / 1000,
            failover_s=self.lease_failover_ms / 1000,
            endpoint_url=self.dynamodb_endpoint_url,
        )

    def rules(self, given: Mapping[str, str]) -> Iterator[str]:
        """Yield what is wrong with the stream, the start, and leases without an application."""
        yield from super().rules(given)
        kind, moment, ending = self.starting_position, self.starting_timestamp, self.ending_timestamp
        if moment is not None and kind not in (None, "AT_TIMESTAMP"):
            yield f"startingTimestamp contradicts startingPosition {kind}"
        elif moment is not None and ending is not None and ending < moment:
            yield "endingTimestamp is before startingTimestamp"
        elif kind == "AT_TIMESTAMP" and moment is None:
            yield "startingPosition AT_TIMESTAMP needs startingTimestamp"
        elif kind == "LATEST" and not self.streaming:
            yield "a batch read from LATEST has no rows: give TRIM_HORIZON or a startingTimestamp"
        if self.application_name is None:
            names = (given[field] for field in _OF_LEASES if field in given)
            yield from (f"{name} is given without applicationName: it has no meaning alone" for name in names)
