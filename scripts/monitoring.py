"""Writes the alarms and dashboards of ``docs/monitoring`` out of the one table of names.

``python -m scripts.monitoring`` writes them anew. A test compares the files with what this program makes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from shardway.telemetry.cloudwatch_datums import KPL_NAMESPACE
from shardway.telemetry.metric_table import AGE as AGE_METRIC
from shardway.telemetry.metric_table import TABLE

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "monitoring"
APPLICATION = "messaging_consumer_group_name"
STREAM = "messaging_destination_name"
ERROR_TYPE = "error_type"


def name_of(name: str) -> str:
    """Return the name of a number in Prometheus."""
    return next(metric.prometheus_name for metric in TABLE if metric.name == name)


LAG, USED = name_of("shardway.consumer.lag"), name_of("shardway.consumer.retention.used")
FAILURES, DEAD = name_of("shardway.consumer.failures"), name_of("shardway.consumer.dead_lettered")
FREE, SETTLED = name_of("shardway.leases.free"), name_of("shardway.consumer.settled")
DELIVERED, FETCHED = name_of("messaging.client.consumed.messages"), name_of("shardway.consumer.fetched")
READS_REFUSED, PUTS_REFUSED = name_of("shardway.consumer.fetches_refused"), name_of("shardway.producer.refused")
HANDLED, STORED = name_of("messaging.process.duration"), name_of("shardway.consumer.store.duration")
SENT, PENDING = name_of("messaging.client.sent.messages"), name_of("shardway.producer.pending")
OUT = name_of("shardway.consumer.in_flight.oldest")
LATENCY, LEASES = name_of("shardway.producer.latency"), name_of("aws.kinesis.client.current_leases")
READS_FAILED, SINCE_READ = name_of("shardway.consumer.fetches_failed"), name_of("shardway.consumer.since_read")
TABLES_FAILED = name_of("shardway.table.failures")
GAPS, AGE = name_of("shardway.consumer.gaps"), AGE_METRIC.prometheus_name


class Times(NamedTuple):
    """The times for which the rules look back and wait, in seconds. A test that watches a real Prometheus shortens
    them.
    """

    rate: int = 300
    """The range of the rates of what is counted all the time."""
    again: int = 120
    """The longest time between two events of a kind that counts only if it happens again and again."""
    rare: int = 900
    """The range of counts of what is seldom, and matters each time."""
    trend: int = 1800
    """The range that a forecast is made of."""
    remembered: int = 3600
    """The time for which a part that has reported numbers is missed when it reports none."""
    silent: int = 60
    """The time after which a shard of which no read succeeds counts as not read."""
    mute: int = 90
    """The time after which a process that reports nothing is missed. Without an exporter that wants numbers more
    often, a consumer and a producer report them each 60 seconds. A scrape just before always finds them that old.
    """
    stuck: int = 300
    """The time for which there is lag, and nothing is settled."""
    minute: int = 60
    """The unit of the rules' ``for``."""

    def shortened(self, factor: int) -> Times:
        """Return all times divided by ``factor``. Raises ValueError where one of them would be no whole number of
        seconds, as one alarm would then be shortened more than another.
        """
        if odd := [name for name, seconds in self._asdict().items() if seconds % factor]:
            raise ValueError(f"{', '.join(odd)} cannot be divided by {factor}")
        return Times(*(seconds // factor for seconds in self))


AS_SHIPPED = Times()


class Alarm(NamedTuple):
    """One alarm of Prometheus."""

    name: str
    expression: str
    for_min: int
    severity: str
    summary: str
    does: str
    """The advice what to do."""


BY = f"by ({APPLICATION}, {STREAM})"


def counted(name: str, seconds: int) -> str:
    """Return the query for how much of a number was counted in the last ``seconds``. It also finds what a process had
    counted before it first reported the number, which `increase` does not see.
    """
    return f"(sum {BY} (increase({name}[{seconds}s])) > 0 or sum {BY} ({name} unless {name} offset {seconds}s) > 0)"


def alarms(times: Times = AS_SHIPPED) -> tuple[Alarm, ...]:
    """Return all alarms of Prometheus, with these times in their queries."""
    rate, again, remembered = f"[{times.rate}s]", f"[{times.again}s]", f"[{times.remembered}s]"
    gone = f"max {BY} (last_over_time({AGE}{remembered})) unless max {BY} ({AGE})"
    here = f"max by (job, instance) (last_over_time({AGE}{remembered}))"
    return (
        Alarm(
            "ShardwayLagUsesRetention", f"max {BY} ({USED}) > 0.25", 2, "warning",
            "a quarter of the stream's retention is used by records that are not settled",
            "look which shard is behind, and whether its handler fails, hangs or is too slow",
        ),
        Alarm(
            "ShardwayLagUsesHalfOfRetention", f"max {BY} ({USED}) > 0.5", 1, "critical",
            "half of the stream's retention is used by records that are not settled",
            "make the handlers work again or raise the retention: at 1 records are lost",
        ),
        Alarm(
            "ShardwayLossForeseen",
            f"max {BY} ({USED}) > 0.05 and max {BY} (predict_linear({USED}[{times.trend}s], 86400)) > 1", 10,
            "critical", "as lag grows now, records are lost within a day",
            "make the handlers faster, add workers or shards, or raise the retention",
        ),
        Alarm(
            "ShardwayNoNumbers", f"max {BY} ({AGE}) > {times.mute} or ({gone}) or absent({AGE})", 1, "critical",
            "no process tells numbers of this consumer or producer: they are gone, or their loops do not turn",
            "look whether the processes run, and what their logs say last",
        ),
        Alarm(
            "ShardwayProcessGone", f"up == 0 and on (job, instance) {here}", 1, "warning",
            "a process that told numbers does not answer",
            "look whether it runs, and what its log says last; others take its shards after the failover time",
        ),
        Alarm(
            "ShardwayNothingSettled",
            f"sum {BY} (rate({SETTLED}{rate})) == 0 and max {BY} ({LAG}) > {times.stuck}", 1, "critical",
            "nothing was settled for 5 minutes, though records wait",
            "look for handlers that hang: records_in_flight of the shards, and the log",
        ),
        Alarm(
            "ShardwayRecordsHeldUp", f"max {BY} ({OUT}) > {times.stuck}", 1, "warning",
            "records have been with a handler for 5 minutes: it hangs, or fails again and again",
            "look which shard it is, and at the log: RecordsStalled, BatchFailed, LoopBlocked",
        ),
        Alarm(
            "ShardwayReadsFail",
            f"sum {BY} (rate({READS_FAILED}{rate})) > 0 and max {BY} ({SINCE_READ}) > {times.silent}", 1, "critical",
            "reads of a shard fail, and none has succeeded for a minute",
            "error_type tells why: credentials that have expired, a permission, or a service that is away",
        ),
        Alarm(
            "ShardwayLeaseTableFails", f"sum {BY} (rate({TABLES_FAILED}{again})) > 0", 5, "critical",
            "calls to the lease table have failed again and again for 5 minutes: shards are let go, and nothing else "
            "shows it",
            "error_type tells why: credentials that have expired, a permission, or a table that is away",
        ),
        Alarm(
            "ShardwayHandlersFail", f"sum {BY} (rate({FAILURES}{again})) > 0", 5, "warning",
            "handlers have failed again and again for 5 minutes",
            "the log tells the class of the error and the line; error_type tells the class here",
        ),
        Alarm(
            "ShardwayDeadLetters", counted(DEAD, times.rare), 0, "warning",
            "records were given up and written as dead letters",
            "read the letters, mend the cause, and put them back: shardway dead-letters",
        ),
        Alarm(
            "ShardwayLeasesWithoutOwner", f"max {BY} ({FREE}) > 0", 5, "critical",
            "leases have had no worker that lives for 5 minutes: nothing reads their shards",
            "look whether workers are missing, or leases_max holds them back",
        ),
        Alarm(
            "ShardwayReadsRefused", f"sum {BY} (rate({READS_REFUSED}{rate})) > 0.1", 15, "warning",
            "shards have refused reads for 15 minutes: others read them too",
            "use enhanced fan-out, or read with fewer applications",
        ),
        Alarm(
            "ShardwayPutsRefused", f"sum by ({STREAM}) (rate({PUTS_REFUSED}{rate})) > 1", 15, "warning",
            "shards have refused records for 15 minutes",
            "add shards, or look for a hot partition key",
        ),
        Alarm(
            "ShardwayRecordsLost", counted(GAPS, times.rare), 0, "critical",
            "a checkpoint was older than the retention: records may be lost",
            "read CheckpointTrimmed in the log: it says where reading goes on",
        ),
    )  # fmt: skip


ALARMS = alarms()


def prometheus_rules(times: Times = AS_SHIPPED) -> str:
    """Return the rules for Prometheus as YAML. Their strings are JSON's, which YAML takes, too."""
    lines = ["# Made by scripts/monitoring.py.", "groups:", "  - name: shardway", "    rules:"]
    for alarm in alarms(times):
        lines += [
            f"      - alert: {alarm.name}",
            f"        expr: {json.dumps(alarm.expression)}",
            f"        for: {alarm.for_min * times.minute}s",
            "        labels:",
            f"          severity: {alarm.severity}",
            "        annotations:",
            f"          summary: {json.dumps(alarm.summary)}",
            f"          description: {json.dumps(alarm.does)}",
        ]
    return "\n".join(lines) + "\n"


# --- CloudWatch -----------------------------------------------------------------------------------


class CloudWatchAlarm(NamedTuple):
    """One alarm of CloudWatch. Its metric has the KCL's name where the KCL has the number, and else ours."""

    name: str
    metric: str
    statistic: str
    threshold: float
    periods: int
    summary: str
    operation: str | None = None
    """The value of the KCL's dimension ``Operation``."""
    missing: str = "notBreaching"
    comparison: str = "GreaterThanThreshold"
    period_s: int = 60
    expression: str | None = None
    """The metric math over ``used``, which is the metric."""
    of_producer: bool = False


RETENTION_USED = "shardway.consumer.retention.used"
CLOUDWATCH_ALARMS = (
    CloudWatchAlarm(
        "LagUsesRetention", RETENTION_USED, "Maximum", 0.25, 3,
        "a quarter of the stream's retention is used by records that are not settled",
    ),
    CloudWatchAlarm(
        "LagUsesHalfOfRetention", RETENTION_USED, "Maximum", 0.5, 2,
        "half of the stream's retention is used by records that are not settled",
    ),
    CloudWatchAlarm(
        "LossForeseen", RETENTION_USED, "Maximum", 1.0, 3, "as lag grows now, records are lost within a day",
        period_s=300, expression="IF(used > 0.05, used + 86400 * RATE(used), 0)",
    ),
    CloudWatchAlarm(
        "NoNumbers", "CurrentLeases", "SampleCount", 1.0, 3, "no worker tells numbers: none runs, or their loops hang",
        operation="RenewAllLeases", missing="breaching", comparison="LessThanThreshold",
    ),
    CloudWatchAlarm(
        "HandlersFail", "RecordsFailedProcessing", "Sum", 0.0, 5, "handlers have failed in each of 5 minutes",
        operation="ProcessTask",
    ),
    CloudWatchAlarm(
        "DeadLetters", "shardway.consumer.dead_lettered", "Sum", 0.0, 1,
        "records were given up and written as dead letters",
    ),
    CloudWatchAlarm(
        "RecordsLost", "shardway.consumer.gaps", "Sum", 0.0, 1,
        "a checkpoint was older than the retention: records may be lost",
    ),
    CloudWatchAlarm(
        "LeasesWithoutOwner", "shardway.leases.free", "Maximum", 0.0, 5,
        "leases have had no worker that lives for 5 minutes: nothing reads their shards",
    ),
    CloudWatchAlarm(
        "LeasesLost", "LostLeases", "Sum", 0.0, 5, "leases were lost in each of 5 minutes", operation="RenewAllLeases",
    ),
    CloudWatchAlarm(
        "LeaseTableFails", "shardway.table.failures", "Sum", 0.0, 5,
        "calls to the lease table have failed in each of 5 minutes: shards are let go",
    ),
    CloudWatchAlarm(
        "ReadsRefused", "shardway.consumer.fetches_refused", "Sum", 6.0, 15,
        "shards have refused reads for 15 minutes: others read them too",
    ),
    CloudWatchAlarm(
        "PutsRefused", "shardway.producer.refused", "Sum", 60.0, 15, "shards have refused records for 15 minutes",
        of_producer=True,
    ),
)  # fmt: skip


def cloudformation() -> dict[str, Any]:
    """Return a template for CloudFormation with the alarms."""
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "Alarms for a consumer and a producer. Made by scripts/monitoring.py.",
        "Parameters": {
            "Application": {"Type": "String", "Description": "The application's name, which is the namespace."},
            "Stream": {"Type": "String", "Description": "The stream that the producer writes to."},
            "AlarmTopic": {"Type": "String", "Description": "The ARN of the SNS topic that is told."},
        },
        "Resources": {
            alarm.name: {"Type": "AWS::CloudWatch::Alarm", "Properties": _properties(alarm)}
            for alarm in CLOUDWATCH_ALARMS
        },
    }


def _properties(alarm: CloudWatchAlarm) -> dict[str, Any]:
    metric: dict[str, Any] = {
        "Namespace": KPL_NAMESPACE if alarm.of_producer else {"Ref": "Application"},
        "MetricName": alarm.metric,
    }
    if alarm.operation is not None:
        metric["Dimensions"] = [{"Name": "Operation", "Value": alarm.operation}]
    elif alarm.of_producer:
        metric["Dimensions"] = [{"Name": "StreamName", "Value": {"Ref": "Stream"}}]
    looked: dict[str, Any] = {**metric, "Statistic": alarm.statistic, "Period": alarm.period_s}
    if alarm.expression is not None:
        of = {"Metric": metric, "Stat": alarm.statistic, "Period": alarm.period_s}
        looked = {
            "Metrics": [
                {"Id": "used", "MetricStat": of, "ReturnData": False},
                {"Id": "told", "Expression": alarm.expression, "Label": alarm.name, "ReturnData": True},
            ]
        }
    return {
        "AlarmDescription": alarm.summary,
        **looked,
        "EvaluationPeriods": alarm.periods,
        "DatapointsToAlarm": alarm.periods,
        "Threshold": alarm.threshold,
        "ComparisonOperator": alarm.comparison,
        "TreatMissingData": alarm.missing,
        "AlarmActions": [{"Ref": "AlarmTopic"}],
        "OKActions": [{"Ref": "AlarmTopic"}],
    }


def terraform() -> str:
    """Return the alarms of `cloudformation` for Terraform."""
    lines = ["# Made by scripts/monitoring.py."]
    for name, text in (
        ("application", "The application's name, which is the namespace."),
        ("stream", "The stream that the producer writes to."),
        ("alarm_topic", "The ARN of the SNS topic that is told."),
    ):
        lines += [f'variable "{name}" {{', "  type        = string", f"  description = {json.dumps(text)}", "}", ""]
    for alarm in CLOUDWATCH_ALARMS:
        label = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in alarm.name).lstrip("_")
        lines += [
            f'resource "aws_cloudwatch_metric_alarm" "{label}" {{',
            f'  alarm_name          = "${{var.application}}-{label}"',
            f"  alarm_description   = {json.dumps(alarm.summary)}",
            *_looked_at(alarm),
            f"  evaluation_periods  = {alarm.periods}",
            f"  datapoints_to_alarm = {alarm.periods}",
            f"  threshold           = {alarm.threshold:g}",
            f'  comparison_operator = "{alarm.comparison}"',
            f'  treat_missing_data  = "{alarm.missing}"',
            "  alarm_actions       = [var.alarm_topic]",
            "  ok_actions          = [var.alarm_topic]",
            "}",
            "",
        ]
    return "\n".join(lines)


def _looked_at(alarm: CloudWatchAlarm) -> list[str]:
    metric = [
        f"namespace           = {json.dumps(KPL_NAMESPACE) if alarm.of_producer else 'var.application'}",
        f'metric_name         = "{alarm.metric}"',
    ]
    if alarm.operation is not None:
        metric.append(f'dimensions          = {{ Operation = "{alarm.operation}" }}')
    elif alarm.of_producer:
        metric.append("dimensions          = { StreamName = var.stream }")
    period = f"period              = {alarm.period_s}"
    if alarm.expression is None:
        return [f"  {line}" for line in (*metric, f'statistic           = "{alarm.statistic}"', period)]
    return [
        "  metric_query {",
        '    id = "used"',
        "    metric {",
        *[f"      {line}" for line in (*metric, f'stat                = "{alarm.statistic}"', period)],
        "    }",
        "  }",
        "  metric_query {",
        '    id          = "told"',
        f"    expression  = {json.dumps(alarm.expression)}",
        f'    label       = "{alarm.name}"',
        "    return_data = true",
        "  }",
    ]


def cloudwatch_dashboard() -> dict[str, Any]:
    """Return a dashboard for CloudWatch on the KCL's names. APPLICATION and REGION stand for the real ones."""
    rows = [
        ("Lag", [("MillisBehindLatest", "ApplicationTracker", "Maximum")]),
        ("Records processed", [("RecordsProcessed", "ProcessTask", "Sum")]),
        ("Handlers", [("RecordProcessor.processRecords.Time", "ProcessTask", "p50"),
                      ("RecordProcessor.processRecords.Time", "ProcessTask", "p99")]),
        ("Records that failed", [("RecordsFailedProcessing", "ProcessTask", "Sum")]),
        ("Leases", [("CurrentLeases", "RenewAllLeases", "Sum"), ("LostLeases", "RenewAllLeases", "Sum")]),
        ("Workers", [("NumWorkers", "LeaseAssignmentManager", "Maximum")]),
    ]  # fmt: skip
    return {
        "widgets": [
            {
                "type": "metric", "x": 12 * (at % 2), "y": 6 * (at // 2), "width": 12, "height": 6,
                "properties": {
                    "title": title, "region": "REGION", "view": "timeSeries", "period": 60,
                    "metrics": [
                        ["APPLICATION", name, "Operation", operation, {"stat": statistic}]
                        for name, operation, statistic in metrics
                    ],
                },
            }
            for at, (title, metrics) in enumerate(rows)
        ]
    }  # fmt: skip


# --- Grafana --------------------------------------------------------------------------------------


def grafana_prometheus() -> dict[str, Any]:
    """Return a dashboard for Grafana on Prometheus's names."""
    chosen = f'{{{APPLICATION}=~"$application",{STREAM}=~"$stream"}}'
    of_stream = f'{{{STREAM}=~"$stream"}}'
    rate = "[$__rate_interval]"

    def quantile(name: str, q: float, selected: str) -> str:
        return f"histogram_quantile({q}, sum by (le) (rate({name}_bucket{selected}{rate})))"

    panels = [
        ("Lag: how old the oldest record may be", "s", [(f"max by ({STREAM}) ({LAG}{chosen})", f"{{{{{STREAM}}}}}")]),
        ("Retention used", "percentunit", [(f"max by ({STREAM}) ({USED}{chosen})", f"{{{{{STREAM}}}}}")]),
        ("Records", "rps", [(f"sum(rate({FETCHED}{chosen}{rate}))", "fetched"),
                            (f"sum(rate({DELIVERED}{chosen}{rate}))", "delivered"),
                            (f"sum(rate({SETTLED}{chosen}{rate}))", "settled")]),
        ("Handlers: time of a batch", "s", [(quantile(HANDLED, 0.5, chosen), "p50"),
                                            (quantile(HANDLED, 0.99, chosen), "p99")]),
        ("Failures and dead letters", "short",
         [(f"sum by ({ERROR_TYPE}) (rate({FAILURES}{chosen}{rate}))", f"{{{{{ERROR_TYPE}}}}}"),
          (f"sum(rate({DEAD}{chosen}{rate}))", "dead letters")]),
        ("From settled to stored", "s", [(quantile(STORED, 0.5, chosen), "p50"),
                                         (quantile(STORED, 0.99, chosen), "p99")]),
        ("Leases", "short", [(f"sum({LEASES}{chosen})", "held"), (f"max({FREE}{chosen})", "without an owner")]),
        ("Refusals", "short", [(f"sum(rate({READS_REFUSED}{chosen}{rate}))", "reads"),
                               (f"sum(rate({PUTS_REFUSED}{of_stream}{rate}))", "puts")]),
        ("Producer: user records", "rps",
         [(f"sum by ({ERROR_TYPE}) (rate({SENT}{of_stream}{rate}))", f"sent {{{{{ERROR_TYPE}}}}}")]),
        ("Producer: from put to outcome", "s", [(quantile(LATENCY, 0.5, of_stream), "p50"),
                                                (quantile(LATENCY, 0.99, of_stream), "p99")]),
        ("Producer: pending", "short", [(f"sum({PENDING}{of_stream})", "pending")]),
        ("Age of the numbers", "s", [(f"max by ({STREAM}) ({AGE}{of_stream})", f"{{{{{STREAM}}}}}")]),
    ]  # fmt: skip
    drawn = [
        _panel(at, title, unit, "prometheus", [
            {"expr": expression, "legendFormat": legend, "refId": chr(65 + number)}
            for number, (expression, legend) in enumerate(targets)
        ])
        for at, (title, unit, targets) in enumerate(panels)
    ]  # fmt: skip
    labels = [("application", APPLICATION), ("stream", STREAM)]
    variables = [
        {
            "name": name, "type": "query", "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "query": {"query": f"label_values({LAG}, {label})", "refId": name}, "refresh": 2, "includeAll": True,
            "multi": True, "allValue": ".*", "current": {},
        }
        for name, label in labels
    ]  # fmt: skip
    return _dashboard("shardway-prometheus", "Shardway (Prometheus)", "prometheus", drawn, variables)


def grafana_cloudwatch() -> dict[str, Any]:
    """Return a dashboard for Grafana on the KCL's names in CloudWatch. It fits a real KCL, too."""
    panels = [
        ("Lag", "ms", [("MillisBehindLatest", "ApplicationTracker", "Maximum")]),
        ("Records processed", "short", [("RecordsProcessed", "ProcessTask", "Sum")]),
        ("Handlers: time of a batch", "ms", [("RecordProcessor.processRecords.Time", "ProcessTask", "Average"),
                                             ("RecordProcessor.processRecords.Time", "ProcessTask", "Maximum")]),
        ("Records that failed", "short", [("RecordsFailedProcessing", "ProcessTask", "Sum")]),
        ("Leases", "short", [("CurrentLeases", "RenewAllLeases", "Sum"), ("LostLeases", "RenewAllLeases", "Sum")]),
        ("Workers", "short", [("NumWorkers", "LeaseAssignmentManager", "Maximum")]),
    ]  # fmt: skip
    drawn = [
        _panel(at, title, unit, "cloudwatch", [
            {
                "namespace": "$application", "metricName": name, "dimensions": {"Operation": operation},
                "statistic": statistic, "region": "$region", "period": "60", "matchExact": True,
                "queryMode": "Metrics", "metricQueryType": 0, "metricEditorMode": 0, "refId": chr(65 + number),
            }
            for number, (name, operation, statistic) in enumerate(targets)
        ])
        for at, (title, unit, targets) in enumerate(panels)
    ]  # fmt: skip
    variables = [
        {"name": "application", "type": "textbox", "query": "", "current": {}},
        {"name": "region", "type": "textbox", "query": "default", "current": {"text": "default", "value": "default"}},
    ]
    return _dashboard("shardway-cloudwatch", "Shardway and the KCL (CloudWatch)", "cloudwatch", drawn, variables)


def _panel(at: int, title: str, unit: str, kind: str, targets: list[dict[str, Any]]) -> dict[str, Any]:
    source = {"type": kind, "uid": "${datasource}"}
    return {
        "id": at + 1, "type": "timeseries", "title": title, "datasource": source,
        "gridPos": {"h": 8, "w": 12, "x": 12 * (at % 2), "y": 8 * (at // 2)},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [{"datasource": source, **target} for target in targets],
    }  # fmt: skip


def _dashboard(
    uid: str, title: str, kind: str, panels: list[dict[str, Any]], variables: list[dict[str, Any]]
) -> dict[str, Any]:
    source = {"name": "datasource", "type": "datasource", "query": kind, "current": {}, "refresh": 1}
    return {
        "id": None, "uid": uid, "title": title, "tags": ["shardway", "kinesis"], "schemaVersion": 39, "version": 1,
        "editable": True, "refresh": "30s", "time": {"from": "now-3h", "to": "now"}, "timezone": "browser",
        "templating": {"list": [source, *variables]}, "annotations": {"list": []}, "panels": panels,
    }  # fmt: skip


def files() -> dict[str, str]:
    """Return the text of each file, by the file's name."""

    def shown(value: Any) -> str:
        return json.dumps(value, indent=2) + "\n"

    return {
        "prometheus-rules.yml": prometheus_rules(),
        "cloudwatch-alarms.json": shown(cloudformation()),
        "cloudwatch-alarms.tf": terraform(),
        "cloudwatch-dashboard.json": shown(cloudwatch_dashboard()),
        "grafana-prometheus.json": shown(grafana_prometheus()),
        "grafana-cloudwatch.json": shown(grafana_cloudwatch()),
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
