"""Makes the tables of the page of numbers from `shardway.telemetry.metric_table`.

``python -m scripts.reference_telemetry docs/reference/telemetry.md`` writes them anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from scripts.reference import attribute_docs, renew_files, renewed_with, struct_table, table

from shardway.events.consumer_snapshot import ConsumerShardSnapshot, ConsumerSnapshot, ShardLevels, WorkerLevels
from shardway.events.query_snapshot import QuerySnapshot
from shardway.telemetry.cloudwatch_datums import CloudWatchChoice
from shardway.telemetry.metric_table import AGE, LOSSES, TABLE
from shardway.telemetry.metrics import Reporter

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.telemetry.metrics import Metric


def names_table(of: Reporter) -> str:
    """Return the table of all numbers of a consumer, of a producer, or of a Spark query."""
    rows = []
    for metric in TABLE:
        if metric.of is not of:
            continue
        attributes = [f"`{name}={value}`" for name, value in metric.attributes]
        attributes += [f"`{metric.by}`"] if metric.by is not None else []
        shown = metric.help + (f"; by shard as `{metric.shard_name}`" if metric.shard_name else "")
        rows.append(
            (
                f"`{metric.shardway_name.partition('.')[2]}`",
                f"`{metric.name}`",
                ", ".join(attributes),
                f"{metric.kind.value}, {metric.unit}",
                f"`{metric.prometheus_name}`",
                shown,
            )
        )
    heads = ("field", "OpenTelemetry", "attributes of its own", "kind, unit", "Prometheus", "what it is")
    return table(heads, rows)


def cloudwatch_table(of: Reporter) -> str:
    """Return the table of those numbers of a consumer, a producer or a Spark query that go to CloudWatch, by their
    names there.
    """
    rows = []
    for metric in TABLE:
        for called in metric.cloudwatch if metric.of is of else ():
            dimensions = [f"Operation={called.operation}"] if called.operation else ["StreamName"]
            dimensions += ["ShardId"] if called.by_shard else []
            dimensions += ["WorkerIdentifier"] if called.by_worker else []
            rows.append(
                (
                    f"`{called.name}`",
                    ", ".join(dimensions),
                    called.unit,
                    called.level.value,
                    _of_name(metric, called.zeros),
                )
            )
    return table(("CloudWatch", "dimensions", "unit", "level", "field"), rows)


def _of_name(metric: Metric, zeros: str) -> str:
    field = f"`{metric.shardway_name.partition('.')[2]}`"
    if not zeros:
        return field
    failures = " and ".join(f"`{name}`" for name in zeros.split())
    return f"{field}: 1 for each success, 0 for each of {failures}"


def exporter_table() -> str:
    """Return the table of the numbers that an exporter tells of itself."""
    rows = [
        (f"`{one.name}`", f"{one.kind.value}, {one.unit}", f"`{one.prometheus_name}`", one.help)
        for one in (LOSSES, AGE)
    ]
    return table(("OpenTelemetry", "kind, unit", "Prometheus", "what it is"), rows)


def choice_table() -> str:
    """Return the table of the options of `CloudWatchChoice`."""
    about = attribute_docs(CloudWatchChoice)
    rows = [
        (f"`{field.name}`", str(field.type), f"`{field.default!r}`", about[field.name])
        for field in msgspec.structs.fields(CloudWatchChoice)
    ]
    return table(("option", "type", "default", "what it does"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "consumer": lambda: names_table(Reporter.CONSUMER),
    "producer": lambda: names_table(Reporter.PRODUCER),
    "query": lambda: names_table(Reporter.QUERY),
    "exporter": exporter_table,
    "CloudWatch choice": choice_table,
    "KCL": lambda: cloudwatch_table(Reporter.CONSUMER),
    "KPL": lambda: cloudwatch_table(Reporter.PRODUCER),
    "query in CloudWatch": lambda: cloudwatch_table(Reporter.QUERY),
    "query snapshot": lambda: struct_table(QuerySnapshot, set()),
    "snapshot": lambda: struct_table(ConsumerSnapshot, set()),
    "shard snapshot": lambda: struct_table(ConsumerShardSnapshot, set()),
    "worker levels": lambda: struct_table(WorkerLevels, set()),
    "shard levels": lambda: struct_table(ShardLevels, set()),
}


def renewed(page: str) -> str:
    """Return the text of a page with all its tables as the code has them now."""
    return renewed_with(page, TABLES)


if __name__ == "__main__":
    renew_files(renewed)
