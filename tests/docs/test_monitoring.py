"""Alarms and dashboards: made of the table of names, read by the tools that take them, fired and cleared."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from scripts.monitoring import ALARMS, APPLICATION, CLOUDWATCH_ALARMS, FOLDER, STREAM

from penstock import events
from penstock.telemetry import prometheus
from penstock.telemetry.cloudwatch import CloudWatchChoice, Datum, datums
from penstock.telemetry.consumer_metrics import ConsumerMeter, ShardLevels, WorkerLevels
from penstock.telemetry.exporting import Totals
from scripts import monitoring
from tests.telemetry.number_kit import consumer_event, producer_event

if TYPE_CHECKING:
    from pathlib import Path

PROMTOOL = shutil.which("promtool")
LABELS = f'{APPLICATION}="billing",{STREAM}="orders",instance="i",job="j",messaging_system="aws.kinesis"'


def test_the_files_are_those_that_the_script_makes() -> None:
    assert {path.name for path in FOLDER.iterdir() if path.suffix != ".md"} == set(monitoring.files())
    for name, text in monitoring.files().items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, "run python -m scripts.monitoring"


def test_each_name_in_them_is_on_the_page_for_prometheus() -> None:
    totals = Totals()
    event = consumer_event()
    event.snapshot.batches_failed, event.snapshot.tables_failed = {"KeyError": 1}, {"InternalFailure": 1}
    totals.add(event, 1005.0)
    totals.add(producer_event(), 1005.0)
    found = [point for point, _ in totals.points(1006.0)]
    page = prometheus.encode(found).decode()
    text = monitoring.prometheus_rules() + json.dumps(monitoring.grafana_prometheus())
    named = set(re.findall(r"\b(?:penstock|messaging|aws_kinesis)_[a-z_]+\b(?=[{\[)])", text))
    assert len(named) > 15
    assert {name for name in named - {APPLICATION, STREAM} if f"\n{name}{{" not in page} == set()


# --- Prometheus -----------------------------------------------------------------------------------

SERIES: dict[str, dict[str, str]] = {
    "PenstockLagUsesRetention": {monitoring.USED: "0x5 0.3x20 0x30"},
    "PenstockLagUsesHalfOfRetention": {monitoring.USED: "0x5 0.6x20 0x30"},
    "PenstockLossForeseen": {monitoring.USED: "0+0.01x50 0x60"},
    "PenstockNoNumbers": {monitoring.AGE: "0x5 120x20 0x30"},
    "PenstockProcessGone": {"up": "1x5 0x20 1x60", monitoring.AGE: "1x5 _x20 1x60"},
    "PenstockReadsFail": {monitoring.READS_FAILED: "0x3 0+10x20 200x60", monitoring.SINCE_READ: "0x3 0+60x20 0x60"},
    "PenstockLeaseTableFails": {monitoring.TABLES_FAILED: "0+5x20 100x60"},
    "PenstockNothingSettled": {monitoring.SETTLED: "0x20 60+60x40", monitoring.LAG: "600x20 0x40"},
    "PenstockHandlersFail": {monitoring.FAILURES: "0+1x20 20x40"},
    "PenstockDeadLetters": {monitoring.DEAD: "0x3 1x60"},
    "PenstockLeasesWithoutOwner": {monitoring.FREE: "1x20 0x40"},
    "PenstockReadsRefused": {monitoring.READS_REFUSED: "0+60x30 1800x40"},
    "PenstockPutsRefused": {monitoring.PUTS_REFUSED: "0+600x30 18000x40"},
    "PenstockRecordsLost": {monitoring.GAPS: "_x3 1x60"},  # it is found before the first scrape
}
"""What makes each alarm fire, and clear again: a value for each minute."""
FIRES_AT_MIN = {"PenstockLossForeseen": 45, "PenstockReadsRefused": 25, "PenstockPutsRefused": 25}


def test_each_alarm_has_a_series_that_fires_it() -> None:
    assert set(SERIES) == {alarm.name for alarm in ALARMS}


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not here (Debian: the package prometheus)")
def test_prometheus_fires_and_clears_each_alarm(tmp_path: Path) -> None:
    assert PROMTOOL is not None
    rules = FOLDER / "prometheus-rules.yml"
    checked = subprocess.run([PROMTOOL, "check", "rules", str(rules)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    tests = []
    for alarm in ALARMS:
        of_stream = alarm.expression.startswith("sum by (messaging_destination_name)")
        labels = {"severity": alarm.severity, STREAM: "orders"} | ({} if of_stream else {APPLICATION: "billing"})
        if alarm.name == "PenstockProcessGone":
            labels = dict(part.split("=") for part in LABELS.replace('"', "").split(",")) | {"severity": "warning"}
        told = {"exp_labels": labels, "exp_annotations": {"summary": alarm.summary, "description": alarm.does}}
        fires = FIRES_AT_MIN.get(alarm.name, 12)
        tests.append(
            {
                "interval": "1m",
                "input_series": [
                    {"series": f"{name}{{{LABELS}}}", "values": values} for name, values in SERIES[alarm.name].items()
                ],
                "alert_rule_test": [
                    {"eval_time": f"{fires}m", "alertname": alarm.name, "exp_alerts": [told]},
                    {"eval_time": "58m" if fires < 30 else "110m", "alertname": alarm.name, "exp_alerts": []},
                ],
            }
        )
    unit = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "unit.yml").write_text(json.dumps(unit), encoding="utf-8")  # JSON is YAML, too
    done = subprocess.run(
        [PROMTOOL, "test", "rules", str(tmp_path / "unit.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


# --- CloudWatch -----------------------------------------------------------------------------------


def test_cfn_lint_takes_the_template() -> None:
    pytest.importorskip("cfnlint")
    run = "import sys, cfnlint.runner; sys.exit(cfnlint.runner.main())"
    done = subprocess.run(
        [sys.executable, "-c", run, str(FOLDER / "cloudwatch-alarms.json")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_terraform_has_the_same_alarms() -> None:
    hcl2 = pytest.importorskip("hcl2")
    with (FOLDER / "cloudwatch-alarms.tf").open(encoding="utf-8") as file:
        found = hcl2.load(file)
    bodies = [body for one in found["resource"] for named in one.values() for body in named.values()]
    assert [str(body["metric_name"]).strip('"') for body in bodies] == [alarm.metric for alarm in CLOUDWATCH_ALARMS]
    assert len(found["variable"]) == 3


def minute(*, lag_ms: int | None, failed: int = 0, lost: int = 0) -> list[Datum]:
    """What a minute's numbers come to in CloudWatch; None: no worker told any."""
    if lag_ms is None:
        return []
    meter = ConsumerMeter(0.0)
    for _ in range(lost):
        meter.lost()
    shard = ShardLevels(
        stream="orders", shard_id="s", millis_behind_latest=lag_ms, since_read_s=0.0, oldest_unsettled_s=None,
        lag_s=lag_ms / 1000, retention_used=None, records_held=0, bytes_held=0, records_in_flight=0,
    )  # fmt: skip
    snapshot = meter.interval(60.0, "w", WorkerLevels(at_s=60.0, shards=(shard,)))
    snapshot.records_failed = failed
    return datums([events.ConsumerMetrics("orders", "billing", "w", snapshot)], CloudWatchChoice())


def is_alarm(properties: dict[str, Any], minutes: list[list[Datum]]) -> bool:
    """A small evaluator of one alarm over the last minutes, as CloudWatch's documentation describes it."""
    parameters = monitoring.cloudformation()["Parameters"]
    threshold = properties["Threshold"]
    if isinstance(threshold, dict):
        threshold = parameters[threshold["Ref"]]["Default"]
    wanted = tuple((one["Name"], one["Value"]) for one in properties["Dimensions"])
    breaching = 0
    for data in minutes[-properties["EvaluationPeriods"] :]:
        found = [one for one in data if (one.name, one.dimensions) == (properties["MetricName"], wanted)]
        if not found:
            breaching += properties["TreatMissingData"] == "breaching"
            continue
        together = found[0].together
        value = together.max if properties["Statistic"] == "Maximum" else together.sum
        breaching += value is not None and value > threshold
    return bool(breaching >= properties["DatapointsToAlarm"])


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("LagUsesRetention", {"lag_ms": 30_000_000}),
        ("LagUsesHalfOfRetention", {"lag_ms": 50_000_000}),
        ("LagUsesRetention", {"lag_ms": None}),
        ("HandlersFail", {"lag_ms": 0, "failed": 3}),
        ("LeasesLost", {"lag_ms": 0, "lost": 1}),
    ],
    ids=["quarter", "half", "nothing", "failing", "lost"],
)
def test_cloudwatch_fires_and_clears(name: str, bad: dict[str, Any]) -> None:
    alarm = monitoring.cloudformation()["Resources"][name]["Properties"]
    good = [minute(lag_ms=0)] * 5
    assert not is_alarm(alarm, good)
    assert is_alarm(alarm, [*good, *[minute(**bad)] * 5])
    assert not is_alarm(alarm, [*good, *[minute(**bad)] * 5, *good])
    assert not is_alarm(alarm, [*good, minute(**bad)]) or alarm["EvaluationPeriods"] == 1


def test_the_names_on_cloudwatchs_dashboards_are_sent() -> None:
    sent = {(one.name, dict(one.dimensions)["Operation"]) for one in datums([consumer_event()], CloudWatchChoice())}
    widgets = monitoring.cloudwatch_dashboard()["widgets"]
    named = {(metric[1], metric[3]) for widget in widgets for metric in widget["properties"]["metrics"]}
    for panel in monitoring.grafana_cloudwatch()["panels"]:
        named |= {(one["metricName"], one["dimensions"]["Operation"]) for one in panel["targets"]}
    assert named <= sent


# --- Grafana --------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [monitoring.grafana_prometheus(), monitoring.grafana_cloudwatch()], ids=["p", "c"])
def test_a_dashboard_is_one_that_any_grafana_imports(made: dict[str, Any]) -> None:
    assert made["id"] is None
    assert re.fullmatch(r"[a-z0-9-]{1,40}", made["uid"])
    names = {variable["name"] for variable in made["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)\b", json.dumps(made)))
    assert used - {"__rate_interval"} <= names
    ids = [panel["id"] for panel in made["panels"]]
    assert len(set(ids)) == len(ids)
    cells = [tuple(panel["gridPos"][side] for side in "xywh") for panel in made["panels"]]
    assert len(set(cells)) == len(cells)
    assert all(x + w <= 24 for x, _, w, _ in cells)
    for panel in made["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
