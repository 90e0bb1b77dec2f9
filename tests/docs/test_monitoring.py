"""Alarms and dashboards: made of the table of names, read by the tools that take them, fired and cleared."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import typing
from typing import TYPE_CHECKING, Any

import pytest
from scripts.monitoring import ALARMS, APPLICATION, FOLDER, STREAM

from scripts import monitoring
from shardway import events
from shardway.events.consumer_snapshot import ShardLevels, WorkerLevels
from shardway.runtime.producer.meter import ProducerMeter
from shardway.telemetry import prometheus_page
from shardway.telemetry.cloudwatch_datums import CloudWatchChoice, datums
from shardway.telemetry.cloudwatch_requests import requests
from shardway.telemetry.consumer_meter import ConsumerMeter
from shardway.telemetry.exporting import Totals
from tests.telemetry.cloudwatch_stand_in import CloudWatch, evaluate
from tests.telemetry.number_kit import consumer_event, producer_event

if TYPE_CHECKING:
    from pathlib import Path

PROMTOOL = shutil.which("promtool")
LABELS = f'{APPLICATION}="billing",{STREAM}="orders",instance="i",job="j",messaging_system="aws.kinesis"'


def test_the_files_are_those_that_the_script_makes() -> None:
    assert {path.name for path in FOLDER.iterdir() if path.suffix != ".md"} == set(monitoring.files())
    for name, text in monitoring.files().items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, "run python -m scripts.monitoring"


def test_times_are_shortened_all_alike_or_not_at_all() -> None:
    times = monitoring.AS_SHIPPED.shortened(30)
    assert {whole / short for whole, short in zip(monitoring.AS_SHIPPED, times, strict=True)} == {30}
    assert "for: 10s" in monitoring.prometheus_rules(times)
    with pytest.raises(ValueError, match="rate, again"):
        monitoring.AS_SHIPPED.shortened(7)


def test_each_name_in_them_is_on_the_page_for_prometheus() -> None:
    totals = Totals()
    event = consumer_event()
    event.snapshot.batches_failed, event.snapshot.tables_failed = {"KeyError": 1}, {"InternalFailure": 1}
    totals.add(event, 1005.0)
    totals.add(producer_event(), 1005.0)
    found = [point for point, _ in totals.points(1006.0)]
    page = prometheus_page.encode(found).decode()
    text = monitoring.prometheus_rules() + json.dumps(monitoring.grafana_prometheus())
    named = set(re.findall(r"\b(?:shardway|messaging|aws_kinesis)_[a-z_]+\b(?=[{\[)])", text))
    assert len(named) > 15
    assert {name for name in named - {APPLICATION, STREAM} if f"\n{name}{{" not in page} == set()


# --- Prometheus -----------------------------------------------------------------------------------

SERIES: dict[str, dict[str, str]] = {
    "ShardwayLagUsesRetention": {monitoring.USED: "0x5 0.3x20 0x30"},
    "ShardwayLagUsesHalfOfRetention": {monitoring.USED: "0x5 0.6x20 0x30"},
    "ShardwayLossForeseen": {monitoring.USED: "0+0.01x50 0x60"},
    "ShardwayNoNumbers": {monitoring.AGE: "0x5 180x20 0x30"},
    "ShardwayProcessGone": {"up": "1x5 0x20 1x60", monitoring.AGE: "1x5 _x20 1x60"},
    "ShardwayReadsFail": {monitoring.READS_FAILED: "0x3 0+10x20 200x60", monitoring.SINCE_READ: "0x3 0+60x20 0x60"},
    "ShardwayLeaseTableFails": {monitoring.TABLES_FAILED: "0+5x20 100x60"},
    "ShardwayNothingSettled": {monitoring.SETTLED: "0x20 60+60x40", monitoring.LAG: "600x20 0x40"},
    "ShardwayRecordsHeldUp": {monitoring.OUT: "0+60x15 0x60"},
    "ShardwayHandlersFail": {monitoring.FAILURES: "0+1x20 20x40"},
    "ShardwayDeadLetters": {monitoring.DEAD: "0x3 1x60"},
    "ShardwayLeasesWithoutOwner": {monitoring.FREE: "1x20 0x40"},
    "ShardwayReadsRefused": {monitoring.READS_REFUSED: "0+60x30 1800x40"},
    "ShardwayPutsRefused": {monitoring.PUTS_REFUSED: "0+600x30 18000x40"},
    "ShardwayRecordsLost": {monitoring.GAPS: "_x3 1x60"},  # it is found before the first scrape
}
"""What makes each alarm fire, and clear again: a value for each minute."""
FIRES_AT_MIN = {"ShardwayLossForeseen": 45, "ShardwayReadsRefused": 25, "ShardwayPutsRefused": 25}


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
        if alarm.name == "ShardwayProcessGone":
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


QUIET_SERIES: dict[str, dict[str, str]] = {
    "a handler fails twice within five minutes": {monitoring.FAILURES: "0x9 1x3 2x60"},
    "the lease table fails twice within five minutes": {monitoring.TABLES_FAILED: "0x9 1x3 2x60"},
    "numbers that are told each minute, scraped just before": {monitoring.AGE: "60.4x60"},
}
"""What must ring nothing: a value for each minute."""


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not here (Debian: the package prometheus)")
def test_what_is_no_fault_rings_nothing_in_prometheus(tmp_path: Path) -> None:
    assert PROMTOOL is not None
    always = {monitoring.AGE: "1x60"}
    nothing = {"expr": 'count_over_time(ALERTS{alertstate="firing"}[1h])', "eval_time": "60m", "exp_samples": []}
    tests = [
        {
            "interval": "1m",
            "input_series": [
                {"series": f"{name}{{{LABELS}}}", "values": values} for name, values in {**always, **series}.items()
            ],
            "promql_expr_test": [nothing],
        }
        for series in QUIET_SERIES.values()
    ]
    unit = {"rule_files": [str(FOLDER / "prometheus-rules.yml")], "evaluation_interval": "15s", "tests": tests}
    (tmp_path / "unit.yml").write_text(json.dumps(unit), encoding="utf-8")
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
    template = monitoring.cloudformation()["Resources"].values()
    for body, resource in zip(bodies, template, strict=True):
        alarm = resource["Properties"]
        queried = body.get("metric_query")
        looked = queried[0]["metric"][0] if queried else body
        wanted = alarm["Metrics"][0]["MetricStat"]["Metric"] if queried else alarm
        assert str(looked["metric_name"]).strip('"') == wanted["MetricName"]
        assert len(looked.get("dimensions", {})) == len(wanted.get("Dimensions", ()))
        assert (body["threshold"], body["evaluation_periods"]) == (alarm["Threshold"], alarm["EvaluationPeriods"])
        if queried:
            assert str(queried[1]["expression"]).strip('"') == alarm["Metrics"][1]["Expression"]
    assert len(found["variable"]) == 3


NAMES = {"Application": "billing", "Stream": "orders", "AlarmTopic": "arn:aws:sns:eu-west-1:123456789012:alarms"}


def minute(at_min: int, *, used: float = 0.0, free: int = 0, refused: int = 0, **counts: int) -> list[bytes]:
    """The requests that a consumer and a producer make of a minute."""
    snapshot = ConsumerMeter(0.0).interval(60.0, "w", WorkerLevels(at_s=60.0))
    shard = ShardLevels(
        stream="orders", shard_id="s", millis_behind_latest=0, since_read_s=0.0, oldest_unsettled_s=None, lag_s=0.0,
        retention_used=used, records_held=0, bytes_held=0, records_in_flight=0,
    )  # fmt: skip
    snapshot.workers = {"w": WorkerLevels(at_s=60.0, shards=(shard,), leases=1, leases_free=free, workers=1)}
    snapshot.fetches_refused = refused
    for name, count in counts.items():
        setattr(snapshot, name, {"InternalFailure": count} if name == "tables_failed" else count)
    written = ProducerMeter(0.0).interval(60.0)
    written.records_refused = refused * 10
    told: list[list[Any]] = [
        [events.ConsumerMetrics("orders", "billing", "w", snapshot)], [events.ProducerMetrics("orders", written)],
    ]  # fmt: skip
    found = [datum for one in told for datum in datums(one, CloudWatchChoice())]
    return requests(found, at_min * 60.0 + 30.0)


@pytest.mark.parametrize(
    ("bad", "minutes", "rings"),
    [
        ({}, 20, set()),
        ({"used": 0.3}, 5, {"LagUsesRetention"}),
        ({"used": 0.6}, 5, {"LagUsesRetention", "LagUsesHalfOfRetention"}),
        ({"used": "grows"}, 25, {"LossForeseen"}),
        (None, 5, {"NoNumbers"}),
        ({"records_failed": 3}, 6, {"HandlersFail"}),
        ({"records_dead_lettered": 1}, 1, {"DeadLetters"}),
        ({"gaps": 1}, 1, {"RecordsLost"}),
        ({"free": 1}, 6, {"LeasesWithoutOwner"}),
        ({"leases_lost": 1}, 6, {"LeasesLost"}),
        ({"tables_failed": 2}, 6, {"LeaseTableFails"}),
        ({"refused": 30}, 16, {"ReadsRefused", "PutsRefused"}),
    ],
    ids=lambda value: "-".join(sorted(value)) if isinstance(value, set) else "",
)
def test_cloudwatch_fires_and_clears(bad: dict[str, Any] | None, minutes: int, rings: set[str]) -> None:
    cloudwatch, template = CloudWatch(), monitoring.cloudformation()["Resources"]
    begun_min, ended_min = 60, 60 + minutes
    for at_min in range(ended_min + 60):
        told = bad if begun_min <= at_min < ended_min else {}
        if told is None:
            continue
        if told.get("used") == "grows":
            told = {"used": 0.06 + (at_min - begun_min) * 60 / 86_400}
        for body in minute(at_min, **told):
            cloudwatch.put(body)

    def ringing(at_min: int) -> set[str]:
        return {name for name, one in template.items() if evaluate(cloudwatch, one["Properties"], NAMES, at_min * 60.0)}

    assert ringing(begun_min) == set()
    assert ringing(ended_min) == rings
    assert ringing(ended_min + 60) == set()


def test_what_is_no_fault_rings_nothing_in_cloudwatch() -> None:
    """Two single failures within five minutes, and a worker that tells its numbers each minute, late once."""
    cloudwatch, template = CloudWatch(), monitoring.cloudformation()["Resources"]
    for at_min in range(60):
        if at_min == 40:
            continue
        failing = {"records_failed": 3, "tables_failed": 1, "leases_lost": 1} if at_min in (20, 23) else {}
        for body in minute(at_min, **failing):
            cloudwatch.put(body)
    for at_min in range(5, 60):
        for one in template.values():
            assert not evaluate(cloudwatch, one["Properties"], NAMES, at_min * 60.0)


def test_the_names_on_cloudwatchs_dashboards_are_sent() -> None:
    sent = {(one.name, dict(one.dimensions).get("Operation")) for one in datums([consumer_event()], CloudWatchChoice())}
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


def _lost(given: Any, back: Any, where: str) -> list[str]:
    """Members that did not come back as they were."""
    if isinstance(given, dict):
        return [
            one for key, value in given.items() for one in _lost(value, (back or {}).get(key), f"{where}/{key}")
        ]  # fmt: skip
    if isinstance(given, list):
        return [
            one
            for number, value in enumerate(given)
            for one in _lost(value, back[number] if back and number < len(back) else None, f"{where}/{number}")
        ]
    return [] if given == back else [f"{where}: {given!r} became {back!r}"]


def _wrong(value: Any, where: str) -> list[str]:
    """Fields that are not of the type that their class says."""
    if isinstance(value, list):
        return [one for number, item in enumerate(value) for one in _wrong(item, f"{where}/{number}")]
    if not type(value).__module__.startswith("grafana_foundation_sdk"):
        return []
    found = []
    for name, kind in typing.get_type_hints(type(value)).items():
        field = getattr(value, name, None)
        plain = [one for one in (kind, *typing.get_args(kind)) if one in (str, int, float, bool)]
        if field is not None and plain and typing.get_origin(kind) in (None, typing.Union):
            options = typing.get_args(kind) or (kind,)
            fits = any(not isinstance(one, type) or isinstance(field, one) for one in options if one is not type(None))
            found += [] if fits or (float in options and isinstance(field, int)) else [f"{where}/{name}: {field!r}"]
        found += _wrong(field, f"{where}/{name}")
    return found


@pytest.mark.parametrize("made", [monitoring.grafana_prometheus(), monitoring.grafana_cloudwatch()], ids=["p", "c"])
def test_grafanas_own_models_take_each_member_of_a_dashboard(made: dict[str, Any]) -> None:
    """The models are made of the schemas that Grafana publishes: what they do not know does not come back."""
    plugins = pytest.importorskip("grafana_foundation_sdk.cog.plugins")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.dashboard import Dashboard

    plugins.register_default_plugins()

    def through(given: dict[str, Any]) -> list[str]:
        read = Dashboard.from_json(given)
        return _lost(given, json.loads(JSONEncoder().encode(read)), "") + _wrong(read, "")

    assert through(made) == []
    panel = {**made["panels"][0], "hight": 8, "title": 7}
    assert through({**made, "panels": [panel]}) == [
        "/panels/0/hight: 8 became None", "/panels/0/title: 7",
    ]  # fmt: skip
