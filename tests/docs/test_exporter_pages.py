"""Each exporter has a page, and the page's program prints what the page shows."""

from __future__ import annotations

import contextlib
import io
import re
from typing import TYPE_CHECKING

import pytest

from shardway import telemetry
from shardway.telemetry.names import AGE, LOSSES, TABLE
from tests.docs.doc_pages import DOCS, blocks

if TYPE_CHECKING:
    from pathlib import Path

PAGES = sorted((DOCS / "guides" / "exporters").glob("*.md"))
NEEDS = {"prometheus-client": "prometheus_client", "opentelemetry": "opentelemetry.sdk.metrics"}


def test_each_exporter_has_a_page_and_the_overview_names_it() -> None:
    overview = (DOCS / "guides" / "exporters.md").read_text(encoding="utf-8")
    for name in telemetry.__all__:
        if name.endswith(("Exporter", "Collector")):
            (page,) = [page for page in PAGES if f"[{name}](exporters/{page.name})" in overview]
            assert f"`{name}`" in page.read_text(encoding="utf-8")


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_program_of_a_page_prints_what_the_page_shows(page: Path) -> None:
    if page.stem in NEEDS:
        pytest.importorskip(NEEDS[page.stem])
    (program,) = [block for block in blocks(page, "python") if "LocalKinesis" in block.text]
    (printed,) = blocks(page, "text")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(program.text, page.name, "exec"), {"__name__": "page"})
    assert printed.text.strip() in out.getvalue()
