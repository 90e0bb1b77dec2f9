"""Spark jobs as they look from beside: their numbers, their checkpoint directory, their lines, their lease rows."""

from __future__ import annotations

import http.server
import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.leases.checkpoint import Checkpoint
from shardway.errors import OptionError
from shardway.events import QueryMetrics
from shardway.events.query_snapshot import QuerySnapshot
from shardway.inspect import JobBatch, JobLook, JobState, JobView, Look, State, check_leases, jobs_at, judge, judge_job
from shardway.inspect.applications.views import ApplicationRows, application_view, query_position
from shardway.inspect.jobs.jobs import place_of
from shardway.inspect.jobs.lines_file import LOG_BYTES_MAX
from shardway.inspect.jobs.metrics_page import EXPECTATIONS_MAX, METRICS_BYTES_MAX, QUERIES_MAX, jobs_of_metrics
from shardway.inspect.jobs.verdicts import SILENT_S
from shardway.inspect.jobs.views import BATCHES_MAX, JobExpectation
from shardway.inspect.moments import utc
from shardway.model import Position
from shardway.spark.offsets import INITIAL
from shardway.tasks import logged, thread
from shardway.telemetry.metric_table import AGE
from shardway.telemetry.points import Point, common_to, points
from shardway.telemetry.prometheus_page import encode
from tests.inspect.job_places import NUMBER, committed, offset, planned, query_rows, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NOW_S = 1_790_000_000.0


# --- numbers --------------------------------------------------------------------------------------


def page(*events: QueryMetrics, age_s: float = 2.0) -> str:
    told: list[Point] = []
    for one in events:
        told += [*points(one), Point(AGE, common_to(one), age_s)]
    return encode(told).decode()


def snapshot(**changed: Any) -> QuerySnapshot:
    values: dict[str, Any] = {
        "period_start_s": 0.0, "period_end_s": 10.0, "batches": 3, "records_read": 1200, "records_late": 1,
        "records_dead_lettered": 2, "records_duplicate": 5, "lag_s": 4.5, "shards": 8, "shards_unread": 6, **changed,
    }  # fmt: skip
    found = QuerySnapshot(**values)
    for _ in range(found.batches):
        found.batch_s.add(2.0)
    return found


def test_the_numbers_of_queries_are_read_as_a_job_serves_them() -> None:
    text = page(
        QueryMetrics("orders", 'late "orders"\\\n', snapshot()),
        QueryMetrics("clicks", 'late "orders"\\\n', snapshot(lag_s=7.0, possible_losses=1, shards_silent=2)),
        QueryMetrics("orders", "other", snapshot(batches=0, lag_s=None)),
    )
    one, other = jobs_of_metrics(text, "http://job:9464", NOW_S)
    assert (one.name, other.name) == ('late "orders"\\\n', "other")
    assert (one.batches, one.records, one.dead_letters, one.duplicates, one.late) == (6, 2400, 4, 10, 2)
    assert one.batch_s == pytest.approx(2.0)
    assert one.told_at == utc(NOW_S - 2.0)
    assert [(each.stream, each.lag_s, each.shards, each.shards_unread) for each in one.streams] == [
        ("clicks", 7.0, 8, 6), ("orders", 4.5, 8, 6),
    ]  # fmt: skip
    assert (one.streams[0].shards_silent, one.streams[0].possible_losses) == (2, 1)
    assert one.lag_s == 7.0
    assert (other.lag_s, other.batch_s) == (None, None)


def test_the_counts_of_expectations_are_read_as_a_job_serves_them() -> None:
    counts = {"records_dropped": 4, "expectations_met": {"a": 7, "b.c-1": 0}}
    some = snapshot(**counts, expectations_not_met={"a": 1, "b.c-1": 8})
    (one,) = jobs_of_metrics(page(QueryMetrics("orders", "job", some)), "x", NOW_S)
    assert one.dropped == 4
    assert one.expectations == {"a": JobExpectation(7, 1), "b.c-1": JobExpectation(0, 8)}
    many = snapshot(expectations_met={f"e{number}": 1 for number in range(500)}, expectations_not_met={})
    (one,) = jobs_of_metrics(page(QueryMetrics("orders", "job", many)), "x", NOW_S)
    assert len(one.expectations) == EXPECTATIONS_MAX


def test_a_consumer_in_the_same_process_is_no_job() -> None:
    text = page(QueryMetrics("orders", "job", snapshot()))
    consumer = text.replace('"job"', '"billing"').replace("shardway_query_", "shardway_other_")
    assert [one.name for one in jobs_of_metrics(consumer + text, "x", NOW_S)] == ["job"]


@pytest.mark.parametrize(
    "text",
    ["", "# HELP x\n", "shardway_query_batches_total 3\n", "shardway_query_batches_total{} 3", "\x00{}\n" * 9,
     'shardway_query_batches_total{messaging_consumer_group_name="a} 3'],
)  # fmt: skip
def test_a_page_without_queries_tells_of_no_job(text: str) -> None:
    assert list(jobs_of_metrics(text, "x", NOW_S)) == []


def test_a_page_of_a_great_many_queries_and_of_no_numbers_is_bounded() -> None:
    lines = [f'shardway_query_batches_total{{messaging_consumer_group_name="{number}"}} NaN' for number in range(500)]
    found = list(jobs_of_metrics("\n".join(lines), "x", NOW_S))
    assert len(found) == QUERIES_MAX
    assert found[0].batches is None


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Serves one answer; the address."""
    servers = []

    def begin(body: bytes, status: int = 200, **headers: str) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status if self.path == "/metrics" else 404)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        runner = thread(server.serve_forever, "a-job", logged("the server of a test failed"))
        servers.append((server, runner))
        return f"http://127.0.0.1:{server.server_port}"

    yield begin
    for server, runner in servers:
        server.shutdown()
        server.server_close()
        runner.join(10)


def test_a_job_is_asked_where_it_serves_its_numbers(serve: Callable[..., str]) -> None:
    url = serve(page(QueryMetrics("orders", "job", snapshot())).encode())
    for address in (url, f"{url}/", f"{url}/metrics"):
        assert [one.name for one in jobs_at(address).jobs] == ["job"]


def test_what_an_address_answers_instead_is_told(serve: Callable[..., str]) -> None:
    with pytest.raises(OptionError, match="status 404"):
        jobs_at(serve(b"") + "/elsewhere")
    with pytest.raises(OptionError, match="status 302"):  # it leads to no other address
        jobs_at(serve(b"", 302, Location="http://169.254.169.254/latest"))
    with pytest.raises(OptionError, match="has more than"):
        jobs_at(serve(b"x" * (METRICS_BYTES_MAX + 1)))
    with pytest.raises(OptionError, match=r"http://\*\*\*@127.0.0.1:9 cannot be read as a job's: it does not answer"):
        jobs_at("http://user:secret@127.0.0.1:9")


@pytest.mark.parametrize("place", ["s3://bucket/x", "hdfs://host/x", "abfss://x@y/z", "", " ", "a\nb", "ftp://host"])
def test_a_place_that_cannot_be_looked_at_is_refused(place: str) -> None:
    with pytest.raises(OptionError):
        place_of(place)


# --- a checkpoint directory -----------------------------------------------------------------------


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Of a query that reads our stream and another source: three batches are committed, and one is under way."""
    folder = tmp_path / "orders-to-lake"
    folder.mkdir()
    (folder / "metadata").write_text('{"id":"6d2f0c0e-1111"}')
    (folder / "offsets").mkdir()
    (folder / "offsets" / ".3.crc").write_text("")
    for number in range(3):
        began_s = NOW_S - 40 + 10 * number
        planned(folder, number, began_s, text_of(offset(began_s - 1 - number)), '{"logOffset":7}')
        committed(folder, number, began_s + 2)
    planned(folder, 3, NOW_S - 5, text_of(offset(NOW_S - 6)), '{"logOffset":8}')
    return folder


def test_a_checkpoint_directory_tells_its_batches(checkpoint: Path) -> None:
    (job,) = jobs_at(str(checkpoint), NOW_S).jobs
    assert (job.name, job.query_id, job.source) == ("orders-to-lake", "6d2f0c0e-1111", "checkpoint")
    assert (job.batch, job.planned, job.planned_at) == (2, 3, utc(NOW_S - 5))
    assert [(one.batch, one.seconds, one.lag_s) for one in job.recent] == [(0, 2.0, 3.0), (1, 2.0, 4.0), (2, 2.0, 5.0)]
    (stream,) = job.streams
    assert (stream.stream, stream.lag_s, stream.shards, stream.shards_unread) == ("orders", 5.0, 2, 1)
    assert judge_job(job, (), NOW_S).state is JobState.OK
    found = judge_job(job, (), NOW_S + 600)
    assert (found.state, found.why) == (JobState.STALLED, "batch 3 was begun 10 m 5 s ago and is not committed")
    committed(checkpoint, 3, NOW_S)
    (job,) = jobs_at(f"file://{checkpoint}", NOW_S).jobs
    assert (job.batch, job.planned) == (3, None)
    assert "nothing tells whether records wait" in judge_job(job, (), NOW_S + 600).why


def test_of_many_batches_the_newest_are_read(checkpoint: Path) -> None:
    for number in range(4, 4 + BATCHES_MAX):
        planned(checkpoint, number, NOW_S + number, text_of(offset(NOW_S + number)))
        committed(checkpoint, number, NOW_S + number + 1)
    (job,) = jobs_at(str(checkpoint), NOW_S).jobs
    assert [one.batch for one in job.recent] == list(range(4, 4 + BATCHES_MAX))


def test_a_query_that_has_planned_no_batch_yet_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"x"}')
    (job,) = jobs_at(str(tmp_path), NOW_S).jobs
    assert judge_job(job, (), NOW_S).state is JobState.UNKNOWN
    planned(tmp_path, 0, NOW_S, json.dumps(INITIAL))
    committed(tmp_path, 0, NOW_S)
    assert jobs_at(str(tmp_path), NOW_S).jobs[0].streams == []


@pytest.mark.parametrize("text", ["", "v2\n{}\n{}", "v1\n[]\n{}", "v1\nno json\n{}", "v1\n\xff"])
def test_a_directory_that_is_no_checkpoint_directory_is_told(tmp_path: Path, text: str) -> None:
    with pytest.raises(OptionError, match="no checkpoint directory"):
        jobs_at(str(tmp_path))
    planned(tmp_path, 0, NOW_S, "{}")
    committed(tmp_path, 0, NOW_S)
    (tmp_path / "offsets" / "0").write_text(text)
    with pytest.raises(OptionError, match="cannot be read as a job's"):
        jobs_at(str(tmp_path))


# --- lines ----------------------------------------------------------------------------------------


def shown(path: Path, *, ends: int | None = None, error: str | None = None) -> None:
    """What a run prints, by the run's own code."""
    from shardway.pipeline.job.errors.exit_codes import ExitCode
    from shardway.pipeline.job.run.output import RunOutput
    from shardway.pipeline.job.run.reports import BatchReport, ExpectationReport, Totals

    out = io.StringIO()
    show = RunOutput(as_json=True, out=out, errors=io.StringIO())
    show._event("checked", job="orders-to-lake", stream="orders", sinks=[])
    show.started("orders-to-lake", "6d2f0c0e")
    totals = Totals()
    for number in range(3):
        report = BatchReport(
            batch=number, rows=100, rows_per_s=50.0, seconds=2.0, lag_s={"orders": 3.0 + number}, dead_letters=1,
            duplicates=2, late=0, bytes=1000, shards=4, aggregates_outside_range=0, possible_losses=0, dropped=3,
            expectations={"positive": ExpectationReport(met=95, not_met=number)},
        )  # fmt: skip
        totals.add(report)
        show.batch(report)
    if error is not None:
        show.wrong([error], ExitCode.SINK, "sink")
    if ends is not None:
        show.ended("orders-to-lake", "stopped", ExitCode(ends), totals, 9.0)
    path.write_text(path.read_text() + out.getvalue() if path.exists() else out.getvalue())


def test_the_lines_of_a_run_tell_its_batches(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    shown(path)
    with path.open("a") as file:
        file.write("no json\n[1]\n{}\n")
    (job,) = jobs_at(str(path)).jobs
    assert (job.name, job.query_id, job.source) == ("orders-to-lake", "6d2f0c0e", "lines")
    assert (job.batch, job.batches, job.records, job.dead_letters, job.duplicates) == (2, 3, 300, 3, 6)
    assert (job.dropped, job.expectations) == (9, {"positive": JobExpectation(285, 3)})
    assert [(one.stream, one.lag_s, one.shards) for one in job.streams] == [("orders", 5.0, 4)]
    assert judge_job(job, (), path.stat().st_mtime).state is JobState.OK


@pytest.mark.parametrize(
    ("values", "state", "why"),
    [
        ({"ends": 0}, JobState.ENDED, "stopped after 9 s"),
        ({"error": "sink lake failed: no disk"}, JobState.FAILED, "sink lake failed: no disk"),
        ({"error": "sink lake failed: no disk", "ends": 6}, JobState.FAILED, "sink lake failed: no disk"),
    ],
)
def test_the_lines_of_a_run_tell_how_it_ended(
    tmp_path: Path, values: dict[str, Any], state: JobState, why: str
) -> None:
    path = tmp_path / "run.jsonl"
    shown(path, **values)
    assert judge_job(jobs_at(str(path)).jobs[0], (), NOW_S) == (state, why)
    shown(path)  # it was started again, into the same file
    assert jobs_at(str(path)).jobs[0].outcome is None


def test_the_progress_of_any_query_is_read(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    lines = []
    for number in range(3):
        end: Any = offset(NOW_S + 10 * number - 30 * number).to_dict()
        lines.append(
            {
                "id": "6d2f", "name": "copy", "batchId": number, "timestamp": utc(NOW_S + 10 * number).isoformat(),
                "durationMs": {"addBatch": 900, "triggerExecution": 1000},
                "sources": [
                    {"endOffset": end if number else json.dumps(end), "numInputRows": 10},
                    {"endOffset": {"logOffset": 1}, "numInputRows": 5},
                ],
            }
        )  # fmt: skip
    lines.append({**lines[-1], "batchId": 3, "durationMs": {"latestOffset": 1}})  # nothing happened
    path.write_text("\n".join(map(json.dumps, lines)))
    (job,) = jobs_at(str(path)).jobs
    assert (job.name, job.batch, job.records) == ("copy", 2, 30)
    assert [(one.at, one.lag_s) for one in job.recent] == [
        (utc(NOW_S + 1), 1.0), (utc(NOW_S + 11), 31.0), (utc(NOW_S + 21), 61.0),
    ]  # fmt: skip
    found = judge_job(job, (), NOW_S + 30)
    assert (found.state, found.why) == (JobState.FALLING_BEHIND, "the lag grows by 3.00 s each second")


def test_of_a_long_file_the_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("x" * LOG_BYTES_MAX + "\n")
    shown(path)
    assert jobs_at(str(path)).jobs[0].batches == 3
    path.write_text("x" * LOG_BYTES_MAX + "\n")
    with pytest.raises(OptionError, match="no line of it"):
        jobs_at(str(path))
    with pytest.raises(OptionError, match="No such file"):
        jobs_at(str(tmp_path / "none"))


# --- verdicts -------------------------------------------------------------------------------------


def job_of(lag_s: float | None, age_s: float = 1.0, **changed: Any) -> JobView:
    from shardway.inspect import JobStream

    values = {"name": "job", "place": "x", "source": "metrics", "told_at": utc(NOW_S - age_s), **changed}
    return JobView(streams=[JobStream(stream="orders", lag_s=lag_s)], **values)


def looks(*points: tuple[float, int, float]) -> list[JobLook]:
    return [JobLook(NOW_S + at_s, batch, lag_s) for at_s, batch, lag_s in points]


@pytest.mark.parametrize(
    ("job", "seen", "state"),
    [
        (job_of(1.0), [], JobState.OK),
        (job_of(1.0, age_s=SILENT_S + 1), [], JobState.STOPPED),
        (job_of(None), [], JobState.UNKNOWN),
        (job_of(100.0), looks((0, 1, 100.0)), JobState.UNKNOWN),
        (job_of(100.0), looks((-10, 1, 80.0), (0, 2, 100.0)), JobState.FALLING_BEHIND),
        (job_of(100.0), looks((-10, 1, 120.0), (0, 2, 100.0)), JobState.CATCHING_UP),
        (job_of(100.0), looks((-10, 1, 100.0), (0, 2, 100.0)), JobState.STEADY),
        (job_of(300.0), looks((-200, 7, 100.0), (0, 7, 300.0)), JobState.STALLED),
        (job_of(300.0, source="lines", recent=[JobBatch(batch=1, lag_s=300.0)]), [], JobState.UNKNOWN),
    ],
)
def test_a_job_is_judged_by_its_numbers(job: JobView, seen: list[JobLook], state: JobState) -> None:
    assert judge_job(job, seen, NOW_S).state is state


# --- lease rows -----------------------------------------------------------------------------------


def test_the_rows_of_a_query_tell_where_it_stands() -> None:
    from shardway.core.leases.listing import Listing

    read, ended = query_rows(NOW_S)
    assert query_position(read) is not None
    view = application_view("copy", "dynamodb", ApplicationRows(Listing([read, ended], {}, {})))
    assert view.kinds == ["Shardway", "Spark query"]
    assert view.streams == ["orders"]
    first = view.leases[0].query
    assert first is not None
    assert (first.kind, first.sequence_number, first.read_until) == ("next", str(NUMBER), utc(NOW_S))
    assert check_leases(view).status.name == "OK"  # that no worker owns them is right


def test_a_row_that_a_worker_has_or_has_moved_is_none_of_a_query() -> None:
    from dataclasses import replace

    read = query_rows(NOW_S)[0]
    assert query_position(replace(read, owner="worker")) is None
    assert query_position(replace(read, checkpoint=Checkpoint.at(Position(NUMBER + 1, 0)))) is None
    assert query_position(replace(read, others={"shardwayPosition": "1 nonsense"})) is None
    assert query_position(replace(read, others={})) is None


def test_leases_of_a_query_are_judged_without_an_owner() -> None:
    values: dict[str, Any] = {"owner": None, "sequence_number": 5, "by_query": True}
    at_tip = [Look(at_s=0.0, counter=1, behind_s=0.0, **values)]
    assert judge(at_tip).state is State.OK
    still = [Look(at_s=at_s, counter=1, behind_s=100.0 + at_s, **values) for at_s in (0.0, 60.0, 130.0)]
    found = judge(still)
    assert found.state is State.STALLED
    assert found.why.startswith("the query does not run")
    assert judge([Look(at_s=0.0, counter=1, owner=None, sequence_number=5, behind_s=0.0)]).state is State.UNOWNED
