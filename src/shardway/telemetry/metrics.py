"""What a metric is: its kind, its unit, and its names in each way out, Prometheus's among them."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache

import msgspec

SYSTEM = ("messaging.system", "aws.kinesis")
STREAM = "messaging.destination.name"
SHARD = "messaging.destination.partition.id"
APPLICATION = "messaging.consumer.group.name"
OPERATION = "messaging.operation.name"
ERROR_TYPE = "error.type"
ORIGIN = "shardway.origin"
EXPECTATION = "shardway.expectation"


class Kind(StrEnum):
    """Whether a number is a count, a level or a histogram."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Reporter(StrEnum):
    """Which part reports a number."""

    CONSUMER = "consumer"
    PRODUCER = "producer"
    QUERY = "query"
    """A query of Spark, on its driver; a job of ``shardway run`` is one, too."""


class Level(StrEnum):
    """The level of detail from which on the KCL, or the KPL, sends a number to CloudWatch."""

    SUMMARY = "SUMMARY"
    DETAILED = "DETAILED"


class CloudWatchName(msgspec.Struct, frozen=True, kw_only=True):
    """A name that a number has in CloudWatch."""

    name: str
    operation: str | None = None
    """The KCL's dimension ``Operation``; None for the KPL, which has none, and for a name of our own."""
    unit: str = "Count"
    """The unit, as PutMetricData names it."""
    level: Level = Level.DETAILED
    factor: float = 1.0
    """The number in CloudWatch's unit for 1 in the unit of `Metric`: 1000 where CloudWatch has milliseconds."""
    zeros: str = ""
    """The names of the fields that count failures, with spaces between them. Where there are any, CloudWatch gets the
    share of successes: a 0 for each failure, and a 1 for each success.
    """
    zeros_counted: bool = False
    """True where the number itself counts failures, too, as a call that failed after it took its time."""
    by_shard: bool = False
    """True where the KCL has a dimension ``ShardId``. `Metric.of_shard` or `Metric.level` names the number of a shard.
    """
    by_worker: bool = False
    """True where the KCL has a dimension ``WorkerIdentifier``."""


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """A number, with all of its names."""

    name: str
    """OpenTelemetry's name, the KCL's, or Shardway's."""
    kind: Kind
    unit: str
    """The unit, as OpenTelemetry writes it (UCUM)."""
    help: str
    of: Reporter
    field: str
    """The field of the snapshot that holds the number."""
    attributes: tuple[tuple[str, str], ...] = ()
    """The attributes beside those that all numbers have."""
    by: str | None = None
    """The name of the attribute whose values are the keys of the field, which is a dict."""
    of_shard: str | None = None
    """The field of a shard's own snapshot that holds the number; None: the number is not counted by shard."""
    level: str | None = None
    """The field of `ShardLevels`, or of `WorkerLevels`, for a gauge of shards, or of workers; ``held`` is no field, but
    the number of a worker's shards. The highest value of all, or their sum (``sums``), is reported.
    """
    sums: bool = False
    """True for a gauge whose values of several shards, or workers, add up."""
    factor: float = 1.0
    """The number in this unit for 1 in the field: 0.001 where the field has milliseconds."""
    cloudwatch: tuple[CloudWatchName, ...] = ()

    @property
    def shardway_name(self) -> str:
        """The name of the snapshot, and of the field in it."""
        return f"{self.of.value.title()}Snapshot.{self.level or self.field}"

    @property
    def shard_name(self) -> str | None:
        """The name of the same level of one shard, where it is reported. A sum over `name` would count a shard twice if
        both had one name. None: the number is no level of shards.
        """
        if self.level is None or self.field != "shards":
            return None
        return self.name.replace("shardway.consumer.", "shardway.shard.")

    @property
    def prometheus_name(self) -> str:
        """The name in Prometheus, as an OpenTelemetry collector would translate it."""
        return prometheus_name(self)


_PROMETHEUS_UNITS = {"s": "seconds", "ms": "milliseconds", "By": "bytes"}


@lru_cache(maxsize=1024)
def prometheus_name(metric: Metric) -> str:
    """Return a number's name in OpenTelemetry's translation: with the unit in words, ``_total`` for counters, and
    ``_ratio`` for gauges of unit 1.
    """
    name = prometheus_label(metric.name)
    unit = _PROMETHEUS_UNITS.get(metric.unit, "")
    if metric.unit == "1" and metric.kind is Kind.GAUGE:
        unit = "ratio"
    if unit and not name.endswith(f"_{unit}"):
        name = f"{name}_{unit}"
    return f"{name}_total" if metric.kind is Kind.COUNTER and not name.endswith("_total") else name


@lru_cache(maxsize=1024)
def prometheus_label(name: str) -> str:
    """Return a name with only the characters that Prometheus takes."""
    return "".join(letter if letter.isascii() and (letter.isalnum() or letter == "_") else "_" for letter in name)
