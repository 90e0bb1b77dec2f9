"""The pages of Spark jobs: by the lease rows of queries, and by the places that the console was started with."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from shardway.aws.dynamodb.values import typed_item
from shardway.console.looks.topics import POINTS_MAX, JobTrail
from shardway.errors import OptionError
from shardway.inspect import JobsReport, JobView
from shardway.inspect.jobs.metrics_page import QUERIES_MAX
from shardway.inspect.moments import utc
from tests.cli.tables_kit import make_table
from tests.console.asking import TOKEN, ask, looked_at
from tests.inspect.job_places import committed, offset, planned, query_rows, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shardway.local import LocalKinesis
    from tests.console.conftest import MakeGate

PROGRAM = {"authorization": f"Bearer {TOKEN}", "accept": "text/html"}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Of a query with two batches, whose name is none of HTML's."""
    folder = tmp_path / "<b>orders-to-lake"
    now_s = time.time()
    for number in range(2):
        began_s = now_s - 20 + 10 * number
        planned(folder, number, began_s, text_of(offset(began_s - 1)))
        committed(folder, number, began_s + 2)
    return folder


@pytest.fixture
def copied(service: LocalKinesis) -> Iterator[None]:
    """An application whose rows a Spark query keeps up."""
    dynamodb: Any = boto3.client("dynamodb", endpoint_url=service.endpoint_url, region_name=service.region)
    make_table(dynamodb, "copied", *(typed_item(row.attributes()) for row in query_rows(time.time() - 30)))
    yield
    dynamodb.delete_table(TableName="copied")
    dynamodb.close()


async def test_jobs_of_places_are_listed_with_their_verdicts(
    make_gate: MakeGate, checkpoint: Path, tmp_path: Path
) -> None:
    gate = make_gate(jobs=(str(checkpoint), str(tmp_path / "none.jsonl")))
    listed = await ask(gate, "GET", "/jobs", headers=PROGRAM)
    assert listed.status == 200
    assert "&lt;b&gt;orders-to-lake</a>" in listed.text
    assert "<b>" not in listed.text
    assert '<span class="verdict good">ok</span>' in listed.text
    assert "none.jsonl cannot be read as a job&#39;s" in listed.text  # one that fails leaves the others
    one = await ask(gate, "GET", "/job?place=0&name=%3Cb%3Eorders-to-lake", headers=PROGRAM)
    assert one.status == 200
    assert 'href="/streams/orders"' in one.text
    assert "Lag over the last" in one.text
    assert one.text.count('<th scope="row" class="number">') == 2


async def test_a_job_shows_what_its_expectations_counted(make_gate: MakeGate, tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [{"event": "checked", "job": "orders"}]
    batch = dict.fromkeys(("rows", "dead_letters", "duplicates", "late", "shards", "possible_losses"), 1)
    counts = {"<b>positive": {"met": 40, "not_met": 1_002}, "small": {"met": 41, "not_met": 0}}
    more = {"batch": 7, "lag_s": {"orders": 1.0}, "seconds": 1.0, "dropped": 501, "expectations": counts}
    lines += [{"event": "batch", **batch, **more}] * 2
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    one = await ask(make_gate(jobs=(str(path),)), "GET", "/job?place=0&name=orders", headers=PROGRAM)
    assert "<dt>Dropped</dt><dd>1,002</dd>" in one.text
    assert "&lt;b&gt;positive</th>" in one.text
    assert '<td class="number">80</td><td class="number"><span class="nears">2,004</span></td>' in one.text
    assert '<td class="number">82</td><td class="number">0</td>' in one.text


@pytest.mark.parametrize(
    "query", ["place=1&name=x", "place=-1&name=x", "place=/etc/passwd&name=x", "name=x", "place=0&name=x"]
)
async def test_a_browser_names_no_place(make_gate: MakeGate, checkpoint: Path, query: str) -> None:
    gate = make_gate(jobs=(str(checkpoint),))
    answer = await ask(gate, "GET", f"/job?{query}", headers=PROGRAM)
    assert answer.status == 404
    live = await ask(gate, "GET", f"/live?page=job&{query}", headers=PROGRAM, until=lambda text: "beat" in text)
    assert "Traceback" not in live.text


async def test_without_places_the_page_says_how_to_give_one(make_gate: MakeGate) -> None:
    answer = await ask(make_gate(), "GET", "/jobs", headers=PROGRAM)
    assert "(--job)" in answer.text


async def test_a_query_is_seen_by_its_lease_rows(make_gate: MakeGate, copied: None) -> None:
    gate = make_gate()
    await ask(gate, "GET", "/", headers=PROGRAM)
    application = await ask(gate, "GET", "/applications/copied", headers=PROGRAM)
    assert "Spark query" in application.text
    listed = await ask(gate, "GET", "/jobs", headers=PROGRAM)
    queries = listed.text.partition('data-part="queries"')[2].partition("</section>")[0]
    assert ">copied</a>" in queries
    assert 'href="/streams/orders"' in queries
    assert "unowned" not in queries  # that no worker owns the rows is right


async def test_of_applications_that_a_page_does_not_judge_no_shard_is_asked(make_gate: MakeGate, copied: None) -> None:
    gate = make_gate(streams={"copied": "orders"})
    sampler = gate.console.sampler
    lag = ("lag", "copied", "orders")
    await sampler.sample(gate.console.topics.applications(), wait_s=30.0)
    await sampler.sample(gate.console.topics.application("copied"), wait_s=30.0)
    await ask(gate, "GET", "/streams/orders", headers=PROGRAM)
    assert lag not in looked_at(sampler)
    await ask(gate, "GET", "/jobs", headers=PROGRAM)
    assert lag in looked_at(sampler)


async def test_an_open_page_is_told_of_changes(make_gate: MakeGate, checkpoint: Path) -> None:
    gate = make_gate(jobs=(str(checkpoint),))
    sampler = gate.console.sampler
    await ask(gate, "GET", "/live?page=jobs", headers=PROGRAM, until=lambda text: "beat" in text)
    assert ("jobs", str(checkpoint)) in looked_at(sampler)


@pytest.mark.parametrize("place", ["s3://bucket/checkpoint", ""])
def test_a_place_that_cannot_be_looked_at_ends_the_start(make_gate: MakeGate, place: str) -> None:
    with pytest.raises(OptionError):
        make_gate(jobs=(place,))


def test_what_is_remembered_of_jobs_is_bounded() -> None:
    trail = JobTrail()
    for number in range(POINTS_MAX + 5):
        jobs = [JobView(name=f"{one}", place="x", source="metrics") for one in range(3)]
        trail.took(JobsReport(place="x", taken_at=utc(float(number)), jobs=jobs))
    assert {len(one) for one in trail.looks.values()} == {POINTS_MAX}
    for number in range(3 * QUERIES_MAX):
        job = JobView(name=f"other-{number}", place="x", source="metrics")
        trail.took(JobsReport(place="x", taken_at=utc(0.0), jobs=[job]))
    assert len(trail.looks) == 2 * QUERIES_MAX
