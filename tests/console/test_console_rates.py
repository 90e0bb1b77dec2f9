"""The rates of the last hour: what is asked of CloudWatch, how seldom, and what pages show without it."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING, Any

import boto3
import msgspec
import pytest

from penstock.console.figures import MINUTES, Hour
from penstock.console.lag_history import FIGURES
from penstock.console.rates import (
    AGAIN_S,
    LATE_S,
    STREAMS_MAX,
    RateKeeper,
    Rates,
    Taken,
    _by_second,
    figures_an_hour,
)
from penstock.testing import Fault
from tests.cli.tables_kit import SHARDS, lease, make_table
from tests.console.asking import TOKEN, ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.local import LocalKinesis
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
    found = _by_second({1: 120.0}, Hour(begin_s, begin_s + 3600.0, []))
    late = int(LATE_S // 60)
    assert found[:3] == [0.0, 2.0, 0.0]
    assert found[-late:] == [None] * late
    assert found[-late - 1] == 0.0
    assert _by_second({}, Hour(begin_s, begin_s + 3600.0, [])) == [None] * MINUTES


def test_totals_leave_out_streams_without_figures_and_minutes_that_some_stream_lacks() -> None:
    rates = Rates(
        {
            "a": Taken([1.0, 2.0], [10.0, 20.0]),
            "b": Taken([3.0, None], [0.0, 0.0]),
            "c": Taken([None, None], [None, None]),
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
