"""The rates of the last hour: what is asked of CloudWatch, how seldom, and what pages show without it."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING, Any

import boto3
import msgspec
import pytest

from shardway import ConnectionOptions, Consumer, Credentials
from shardway.console.looks.figures import MINUTES, HourAnswers
from shardway.console.looks.lag_history import FIGURES
from shardway.console.looks.rates import (
    AGAIN_S,
    LATE_S,
    STREAMS_MAX,
    HourlyTraffic,
    RateKeeper,
    Rates,
    _by_second,
    figures_an_hour,
)
from shardway.console.looks.worker_rates import FRESH_S, reading_of
from shardway.core.leases import Checkpoint, LeaseRow
from shardway.inspect import ApplicationReport, Store
from shardway.inspect.applications.views import ApplicationView, WorkerView, lease_view
from shardway.options import LeaseOptions
from shardway.stores.sqlite import SqliteLeaseTable
from shardway.testing import Fault
from tests.cli.tables_kit import SHARDS, lease, make_table
from tests.console.asking import TOKEN, ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway.local import LocalKinesis
    from tests.console.conftest import MakeGate

PROGRAM = {"authorization": f"Bearer {TOKEN}", "accept": "text/html"}


class Counted:
    """Answers GetMetricData as a wire does, and keeps what was asked."""

    def __init__(self, body: bytes = b'{"MetricDataResults":[]}') -> None:
        self.asked: list[dict[str, Any]] = []
        self.wire = self
        self.now_s = 1_800_000_030.0
        self._body = body

    async def call(self, service: str, operation: str, body: bytes) -> bytes:
        assert (service, operation) == ("cloudwatch", "GetMetricData")
        self.asked.append(msgspec.json.decode(body))
        return self._body


async def test_a_stream_is_asked_for_once_in_five_minutes_however_many_pages_show_it() -> None:
    now = [0.0]
    keeper, inspector = RateKeeper(clock=lambda: now[0]), Counted()
    asked: Any = inspector
    for _ in range(50):
        await keeper.rates(asked, ["orders"])
    await keeper.rates(asked, ["orders", "clicks"])
    names = [
        [one["MetricStat"]["Metric"]["Dimensions"][0]["Value"] for one in call["MetricDataQueries"]]
        for call in inspector.asked
    ]
    assert names == [["orders", "orders"], ["clicks", "clicks"]]
    assert keeper.figures == 4
    now[0] = AGAIN_S
    await keeper.rates(asked, ["orders", "clicks"])
    assert keeper.figures == 8


async def test_the_count_of_streams_and_so_the_cost_is_bounded() -> None:
    keeper, inspector = RateKeeper(), Counted()
    asked: Any = inspector
    await keeper.rates(asked, [f"stream-{number}" for number in range(5_000)])
    assert sum(len(call["MetricDataQueries"]) for call in inspector.asked) == 2 * STREAMS_MAX
    assert figures_an_hour(5_000) == figures_an_hour(STREAMS_MAX) == 1_200
    assert figures_an_hour(1) == 24
    await keeper.rates(asked, [])
    assert len(inspector.asked) == 1


def test_a_silent_minute_is_zero_once_cloudwatch_cannot_be_late_any_more() -> None:
    begin_s = 1_800_000_000
    found = _by_second({1: 120.0}, HourAnswers(begin_s, begin_s + 3600.0, []))
    late = int(LATE_S // 60)
    assert found[:3] == [0.0, 2.0, 0.0]
    assert found[-late:] == [None] * late
    assert found[-late - 1] == 0.0
    assert _by_second({}, HourAnswers(begin_s, begin_s + 3600.0, [])) == [None] * MINUTES


def test_totals_leave_out_streams_without_figures_and_minutes_that_some_stream_lacks() -> None:
    rates = Rates(
        {
            "a": HourlyTraffic([1.0, 2.0], [10.0, 20.0]),
            "b": HourlyTraffic([3.0, None], [0.0, 0.0]),
            "c": HourlyTraffic([None, None], [None, None]),
        },
        None,
    )
    assert rates.total("records") == [4.0, None]
    assert rates.newest("records") == 4.0
    assert rates.total("bytes") == [10.0, 20.0]
    assert Rates({}, None).newest("bytes") is None


@pytest.fixture
def told(service: LocalKinesis) -> Iterator[str]:
    """A stream whose figures CloudWatch has."""
    client = boto3.client("cloudwatch", endpoint_url=service.endpoint_url, region_name=service.region)
    minute_s = int(service.clock.now()) // 60 * 60
    data = [
        {
            "MetricName": metric,
            "Dimensions": [{"Name": "StreamName", "Value": "clicks"}],
            "Timestamp": dt.datetime.fromtimestamp(minute_s - 60 * number, dt.UTC),
            "Value": value,
        }
        for number in range(1, 20)
        for metric, value in (("IncomingRecords", 6_000.0), ("IncomingBytes", 6_144_000.0))
    ]
    client.put_metric_data(Namespace="AWS/Kinesis", MetricData=data)
    yield "clicks"
    client.close()


async def _text(gate: Any, target: str, wanted: str) -> str:
    """Load a page until it shows what a look brings."""
    text, end_s = "", time.monotonic() + 20
    while wanted not in text and time.monotonic() < end_s:
        text = (await ask(gate, "GET", target, headers=PROGRAM)).text
    return text


async def test_a_stream_and_the_overview_show_their_rates_unasked(make_gate: MakeGate, told: str) -> None:
    gate: Any = make_gate()
    page = await _text(gate, f"/streams/{told}", "Records a second")
    assert "100 <svg" in page
    assert 'aria-label="the last hour, now 100.0 KiB a second"' in page
    page = await _text(gate, "/", '<td class="number">100</td>')
    assert '<td class="number">100</td>' in page
    assert "the last hour, now 100 records/s" in page
    cost = (await ask(gate, "GET", "/cost", headers=PROGRAM)).text
    assert "24 an hour for one stream" in cost
    assert "1200 at most" in cost


async def test_without_the_permission_for_cloudwatch_the_rest_is_shown_and_it_is_not_asked_again_and_again(
    make_gate: MakeGate, service: LocalKinesis
) -> None:
    service.faults.add(Fault(how="access_denied", operation="GetMetricData"))
    gate: Any = make_gate()
    page = await _text(gate, "/streams/orders", "The rates are not shown")
    assert "The credentials lack the permission for GetMetricData" in page
    assert "shardId-000000000001" in page
    overview = await _text(gate, "/", "Rates are not shown")
    assert "orders" in overview
    figures = gate.console.topics.rate_keeper.figures
    for _ in range(5):
        await ask(gate, "GET", "/streams/orders", headers=PROGRAM)
    assert gate.console.topics.rate_keeper.figures == figures


async def test_a_stream_of_which_cloudwatch_has_no_figure_is_told_so(make_gate: MakeGate) -> None:
    assert "CloudWatch has no figure of the last hour" in await _text(make_gate(), "/streams/orders", "no figure")


# --- how far an application was behind, before any page showed it -----------------------------------


@pytest.fixture
def behind(service: LocalKinesis) -> Iterator[str]:
    """An application whose workers told CloudWatch how far they were behind: one shard more than the other."""
    name = "told-behind"
    made: dict[str, Any] = {"endpoint_url": service.endpoint_url, "region_name": service.region}
    dynamodb, cloudwatch = boto3.client("dynamodb", **made), boto3.client("cloudwatch", **made)
    make_table(dynamodb, name, *(lease(one, "TRIM_HORIZON", 7, "w") for one in SHARDS))
    minute_s = int(service.clock.now()) // 60 * 60
    data = [
        {
            "MetricName": "MillisBehindLatest",
            "Dimensions": [{"Name": "Operation", "Value": "ProcessTask"}, {"Name": "ShardId", "Value": shard}],
            "Timestamp": dt.datetime.fromtimestamp(minute_s - 60 * number, dt.UTC),
            "Value": value,
        }
        for number in range(1, 30)
        for shard, value in zip(SHARDS, (1_000.0, 90_000.0), strict=True)
    ]
    cloudwatch.put_metric_data(Namespace=name, MetricData=data)
    yield name
    dynamodb.delete_table(TableName=name)
    dynamodb.close()
    cloudwatch.close()


async def test_the_chart_begins_with_what_the_workers_told_cloudwatch_which_is_asked_once(
    make_gate: MakeGate, behind: str
) -> None:
    gate: Any = make_gate(streams={behind: "orders"})
    page = await _text(gate, f"/applications/{behind}?stream=orders", "as the workers told CloudWatch")
    assert '<polyline class="line told"' in page
    assert "at most 1 m 30 s" in page
    assert gate.console.topics.figures_of_lag == FIGURES
    for _ in range(3):
        await ask(gate, "GET", f"/applications/{behind}?stream=orders", headers=PROGRAM)
    assert gate.console.topics.figures_of_lag == FIGURES


async def test_without_the_permission_the_chart_begins_with_the_first_look(
    make_gate: MakeGate, behind: str, service: LocalKinesis
) -> None:
    service.faults.add(Fault(how="access_denied", operation="GetMetricData"))
    gate: Any = make_gate(streams={behind: "orders"})
    page = await _text(gate, f"/applications/{behind}?stream=orders", "the chart begins with the second one")
    assert "the chart begins with the second one" in page
    assert "as the workers told CloudWatch" not in page


# --- what the workers' lease rows say, where CloudWatch has no figure --------------------------------


def _report(name: str, *rows: tuple[str, float | None, float]) -> ApplicationReport:
    """An application by the owner of each lease, what the owner says that it reads, and how old the owner's row is."""
    leases = [
        LeaseRow(
            key=f"shardId-{number:012}",
            checkpoint=Checkpoint.TRIM_HORIZON,
            owner=owner,
            throughput_kib_s=throughput,
        )
        for number, (owner, throughput, _) in enumerate(rows)
    ]
    workers = [
        WorkerView(worker_id=owner, leases=1, kind="shardway", updated_at=NOW - dt.timedelta(seconds=age_s))
        for owner, _, age_s in rows
    ]
    return ApplicationReport(
        application=ApplicationView(
            name=name,
            store="dynamodb",
            kinds=["shardway"],
            streams=["orders"],
            leases=[lease_view(one) for one in leases],
            workers=workers,
            unreadable={},
            other_rows=[],
            client_version=None,
            table_migration=None,
            tables=[],
        ),
        missing=[],
        calls={},
    )


NOW = dt.datetime(2026, 11, 25, tzinfo=dt.UTC)


def test_the_rate_of_a_stream_is_that_of_the_application_that_reads_most() -> None:
    slow = _report("slow", ("w0", 1.0, 1.0), ("w1", 0.5, 1.0))
    fast = _report("fast", ("w0", 2.0, 1.0), ("w1", None, 1.0), ("w2", 1.0, 1.0))
    assert reading_of([slow, fast], "orders", NOW) == ("fast", 3.0 * 1024)
    assert reading_of([slow], "orders", NOW) == ("slow", 1.5 * 1024)


def test_rows_of_a_worker_that_died_and_rows_without_a_rate_tell_nothing() -> None:
    assert reading_of([_report("dead", ("w0", 9.0, FRESH_S + 1.0), ("w1", 1.0, 1.0))], "orders", NOW) == ("dead", 1024)
    assert reading_of([_report("dead", ("w0", 9.0, FRESH_S + 1.0))], "orders", NOW) is None
    assert reading_of([_report("mute", ("w0", None, 1.0))], "orders", NOW) is None
    assert reading_of([], "orders", NOW) is None


@pytest.mark.parametrize("refused", [False, True])
async def test_a_stream_and_the_overview_show_what_workers_read_and_say_where_that_is_from(
    make_gate: MakeGate, service: LocalKinesis, tmp_path: Any, refused: bool
) -> None:
    if refused:
        service.faults.add(Fault(how="access_denied", operation="GetMetricData"))
    table = SqliteLeaseTable(tmp_path / "leases.sqlite").of("billing")
    made: dict[str, Any] = {"endpoint_url": service.endpoint_url, "region": service.region}
    connection = ConnectionOptions(**made, credentials=Credentials("local", "local"))
    kinesis = boto3.client("kinesis", endpoint_url=service.endpoint_url, region_name=service.region)
    kinesis.put_record(StreamName="orders", PartitionKey="k", Data=bytes(100_000))
    gate: Any = make_gate(store=Store.parse(f"sqlite:{tmp_path / 'leases.sqlite'}", None))
    leases = LeaseOptions(table=table, failover_s=2.0)
    async with Consumer(
        "orders", application="billing", connection=connection, starting_position="TRIM_HORIZON", leases=leases
    ) as consumer:
        async for _ in consumer:
            break
        page = await _text(gate, "/streams/orders", "Bytes a second, read")
        assert "Bytes a second, read" in page
        assert "read so much, as their lease rows say" in page
        assert ("The credentials lack the permission for GetMetricData" in page) == refused
        assert "Where CloudWatch has no figure, Bytes/s is what the workers" in await _text(gate, "/", "lease rows say")
    kinesis.close()
