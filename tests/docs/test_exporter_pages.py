"""Each exporter has a part of the page on exporters, and that part's program prints what the page shows."""

from __future__ import annotations

import contextlib
import io
import re

import pytest

from shardway import telemetry
from shardway.telemetry.metric_table import AGE, LOSSES, TABLE
from tests.docs.doc_pages import DOCS, part, programs

PAGE = DOCS / "guides" / "exporters.md"
EXPORTERS = [name for name in telemetry.__all__ if name.endswith(("Exporter", "Collector"))]
NEEDS = {"PrometheusCollector": "prometheus_client", "OpenTelemetryExporter": "opentelemetry.sdk.metrics"}


@pytest.mark.parametrize("name", EXPORTERS)
def test_each_exporter_has_a_part_of_the_page_and_the_overview_names_it(name: str) -> None:
    assert f"[{name}](#{name.lower()})" in PAGE.read_text(encoding="utf-8")
    assert f"`{name}`" in part(PAGE, name)


def test_what_to_watch_names_ten_numbers_that_there_are_and_alarms_that_there_are() -> None:
    page = (DOCS / "guides" / "watching.md").read_text(encoding="utf-8")
    names = {metric.prometheus_name for metric in (*TABLE, AGE, LOSSES)}
    watched = re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE)
    assert len(watched) == 10
    assert set(re.findall(r"`((?:shardway|messaging|aws)_\w+)`", page)) <= names
    rules = (DOCS / "monitoring" / "prometheus-rules.yml").read_text(encoding="utf-8")
    for alarm in re.findall(r"`(Shardway\w+)`", page):
        assert alarm.endswith("Exporter") or f"alert: {alarm}\n" in rules


def test_a_shard_costs_what_the_page_says() -> None:
    by_shard = [called for metric in TABLE for called in metric.cloudwatch if called.by_shard and called.operation]
    assert len(by_shard) == 8
    assert len([metric for metric in TABLE if metric.shard_name]) == 9


@pytest.mark.parametrize("name", EXPORTERS)
def test_the_program_of_an_exporter_prints_what_the_page_shows(name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    text = part(PAGE, name)
    (program,) = [one for one in programs(text) if "LocalKinesis" in one]
    (printed,) = re.findall(r"^```text\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(program, PAGE.name, "exec"), {"__name__": "page"})
    assert printed.strip() in out.getvalue()
