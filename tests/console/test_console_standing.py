"""How applications stand on the overview, where the console looks, and how figures are drawn over time."""

from __future__ import annotations

import datetime as dt
import itertools
import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from shardway.console.asgi import console_app
from shardway.console.charts import SERIES_MAX, lag_chart, short_name, spark
from shardway.console.location import account_in
from shardway.console.looks.standing import NOT_SEEN, Urgency, need_of, standing_of, totals_of
from shardway.console.page import _digits
from shardway.console.settings import ConsoleSettings
from shardway.inspect import LagReport, ShardLag
from shardway.inspect.lag.reports import State
from shardway.local.options import DEFAULT_ACCOUNT_ID
from shardway.waiting import wait_set
from tests.cli.tables_kit import SHARDS, lease, make_table
from tests.console.asking import TOKEN, ask

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shardway.local import LocalKinesis
    from shardway.wiring import ConnectionOptions
    from tests.console.conftest import MakeGate

PROGRAM = {"authorization": f"Bearer {TOKEN}", "accept": "text/html"}
DAY_S = 86_400.0


def report(
    state: State = State.OK, behind_s: float | None = 1.0, *, retention_s: float = DAY_S, slope: float | None = None,
    may_have_lost: bool = False,
) -> LagReport:  # fmt: skip
    loses_in_s = None if behind_s is None else retention_s - behind_s
    shard = ShardLag(
        lease="a", shard_id="shardId-000000000000", owner="w", state=state, why="", checkpoint="1",
        sub_sequence_number=0, behind_s=behind_s, exact=True, slope=slope, left_s=None, loses_in_s=loses_in_s,
        may_have_lost=may_have_lost,
    )  # fmt: skip
    return LagReport(
        application="a", stream="s", taken_at=dt.datetime(2026, 11, 1, tzinfo=dt.UTC), window_s=0.0, state=state,
        behind_s=behind_s, loses_in_s=loses_in_s, shards=[shard], without_lease=[], missing=[], calls={},
    )  # fmt: skip


# --- how an application stands --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behind_s", "retention_s", "colour"),
    [
        (9.0, DAY_S, ""),
        (0.24 * DAY_S, DAY_S, ""),
        (0.25 * DAY_S, DAY_S, "nears"),
        (0.5 * DAY_S, DAY_S, "loses"),
        (2 * DAY_S, 365 * DAY_S, ""),
        (None, DAY_S, ""),
    ],
)
def test_the_loss_of_data_is_coloured_by_the_part_of_the_retention_that_is_used(
    behind_s: float | None, retention_s: float, colour: str
) -> None:
    assert standing_of(report(State.OK, behind_s, retention_s=retention_s)).used_colour == colour


def test_a_good_day_has_no_warning_whatever_the_retention_is() -> None:
    for hours in (24, 48, 8760):
        standing = standing_of(report(State.OK, 2.0, retention_s=hours * 3600.0))
        assert (standing.colour, standing.used_colour) == ("good", "")


def test_an_application_that_waits_with_records_behind_it_is_watched_before_its_trend_is_known() -> None:
    assert need_of(State.UNKNOWN, 840.0) is Urgency.WATCH
    assert need_of(State.UNKNOWN, 2.0) is Urgency.OPEN
    assert need_of(State.UNKNOWN, None) is Urgency.OPEN
    assert standing_of(report(State.UNKNOWN, 840.0)).colour == "warn"


def test_each_verdict_has_a_need() -> None:
    needs = {state: need_of(state, 3600.0) for state in State}
    assert {needs[one] for one in (State.GONE, State.STOPPED, State.STALLED, State.FAR_BEHIND)} == {Urgency.SICK}
    assert {needs[one] for one in (State.OK, State.ENDED, State.CATCHING_UP)} == {Urgency.WELL}
    assert needs[State.STEADY] is Urgency.WATCH


def test_what_may_be_lost_already_is_sick() -> None:
    standing = standing_of(report(State.CATCHING_UP, 60.0, may_have_lost=True))
    assert (standing.need, standing.used, standing.used_colour) == (Urgency.SICK, 1.0, "loses")


def test_a_trend_is_an_arrow_and_says_in_words_what_it_means() -> None:
    arrows = {slope: standing_of(report(slope=slope)).trend for slope in (None, 0.01, 1.0, -2.0)}
    assert arrows[None] is None
    assert [one[0] for one in arrows.values() if one is not None] == ["→", "↗", "↘"]
    assert arrows[1.0] == ("↗", "the lag grows by 1.00 s each second")


def test_totals_count_the_sick_and_name_the_soonest_loss() -> None:
    reports = [report(), report(State.STALLED, 3600.0), report(State.UNKNOWN, 840.0), None]
    totals = totals_of((standing_of(one), one) for one in reports)
    assert (totals.applications, totals.sick, totals.watch, totals.well, totals.open) == (4, 1, 1, 1, 1)
    assert (totals.behind_s, totals.loses_in_s, totals.colour) == (3600.0, DAY_S - 3600.0, "")
    assert totals_of([(NOT_SEEN, None)]).loses_in_s is None
    assert totals_of([]).applications == 0


# --- drawing --------------------------------------------------------------------------------------


def test_the_lines_of_a_chart_have_their_names_and_values_at_their_ends_which_stand_inside_of_it() -> None:
    shards = {f"shardId-{number:012}": 200.0 for number in range(12)}
    drawn = str(lag_chart([(0.0, shards), (60.0, shards)], 60.0))
    for kind, width, height in (("large", 1000, 220), ("small", 360, 210)):
        one = re.search(rf'<svg class="chart {kind}".*?</svg>', drawn, re.DOTALL)
        assert one is not None
        names = re.findall(r'class="end end-\d" x="([\d.]+)" y="([\d.]+)">(.*?)</text>', one[0])
        told = "{} · 3 m 20 s" if kind == "large" else "{}"  # on a phone the list below has the values
        assert [name for _, _, name in names] == [told.format(number) for number in range(8)]
        heights = [float(y) for _, y, _ in names]
        assert all(after - before >= 14 for before, after in itertools.pairwise(heights))
        assert all(0 < one < height for one in heights)
        assert all(float(x) + 8 * len(name) < width for x, _, name in names)
        now = re.search(r'class="tick" x="([\d.]+)" y="[\d.]+">now<', one[0])
        assert now is not None
        assert float(now[1]) < width
    assert drawn.count("<li>") == SERIES_MAX


def test_a_chart_of_many_looks_has_a_bounded_count_of_points_and_ends_with_the_newest() -> None:
    drawn = str(lag_chart([(float(at), {"a": float(at)}) for at in range(10_000)], 9_999.0))
    points = re.findall(r'points="(.*?)"', drawn)
    assert all(len(one.split()) <= 361 for one in points)
    assert "now 2 h 46 m" in drawn


@pytest.mark.parametrize("points", [[], [(0.0, {"a": 1.0})]])
def test_one_look_is_no_chart(points: list[tuple[float, dict[str, float]]]) -> None:
    assert "<svg" not in lag_chart(points, 1.0)


def test_a_chart_takes_shards_that_come_and_go_and_names_that_are_hostile() -> None:
    name = '"><script>alert(1)</script>' + "x" * 60
    drawn = str(lag_chart([(0.0, {"a": 0.0}), (1.0, {}), (2.0, {name: 0.0})], 2.0))
    assert "<script>" not in drawn
    assert short_name(name).endswith("…")
    assert "<svg" in lag_chart([(0.0, {"a": 1.0}), (1.0, {})], 1.0)


def test_a_sparkline_has_gaps_where_no_number_is_known() -> None:
    drawn = str(spark([1.0, 2.0, None, None, 0.0, 4.0], 'records/s "now" 4'))
    assert drawn.count("<polyline") == 2
    assert "&#34;now&#34;" in drawn
    assert "<svg" not in spark([None, 1.0, None], "x")
    assert "<svg" in spark([0.0, 0.0], "x")


# --- where, and how much ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arns", "account"),
    [
        (["arn:aws:kinesis:eu-west-1:123456789012:stream/a"], "123456789012"),
        ([None, "arn:aws-cn:iam::210987654321:role/x"], "210987654321"),
        ([None, "no arn", "arn:aws:kinesis:eu-west-1:12:stream/a"], None),
        ([], None),
    ],
)
def test_an_account_is_known_by_any_arn(arns: list[str | None], account: str | None) -> None:
    assert account_in(arns) == account


def test_a_long_number_is_cut_for_the_eye_alone() -> None:
    number = "49680532863550020157113077900349422948475552693783363602"
    shown = str(_digits(number))
    assert re.sub(r"<.*?>", "", shown) == number
    assert f'title="{number}"' in shown
    assert _digits("TRIM_HORIZON") == "TRIM_HORIZON"


@pytest.fixture
def dynamodb(service: LocalKinesis) -> Iterator[Any]:
    import boto3

    dynamodb = boto3.client("dynamodb", endpoint_url=service.endpoint_url, region_name=service.region)
    make_table(dynamodb, "standing", *(lease(one, "TRIM_HORIZON", 7, "w") for one in SHARDS))
    yield dynamodb
    dynamodb.delete_table(TableName="standing")
    dynamodb.close()


async def test_the_header_names_region_and_account_of_what_it_looks_at(
    make_gate: MakeGate, service: LocalKinesis
) -> None:
    gate = make_gate()
    first = (await ask(gate, "GET", "/audit", headers=PROGRAM)).text
    assert f"{service.region} · account not known yet" in first
    await ask(gate, "GET", "/", headers=PROGRAM)
    page = (await ask(gate, "GET", "/audit", headers=PROGRAM)).text
    assert f"{service.region} · account {DEFAULT_ACCOUNT_ID} · {service.endpoint_url}" in page


@pytest.fixture
def quiet(service: LocalKinesis) -> Iterator[str]:
    """A stream of its own without records: other tests of the package leave records in those that all share."""
    import boto3

    kinesis = boto3.client("kinesis", endpoint_url=service.endpoint_url, region_name=service.region)
    kinesis.create_stream(StreamName="quiet", ShardCount=len(SHARDS))
    yield "quiet"
    kinesis.delete_stream(StreamName="quiet")
    kinesis.close()


async def test_the_overview_is_not_red_on_a_good_day(make_gate: MakeGate, dynamodb: Any, quiet: str) -> None:
    gate: Any = make_gate(streams={"standing": quiet})
    text = ""
    for counter in range(8, 28):
        for shard_id in SHARDS:  # a worker that lives renews its leases, however slow the looks are
            dynamodb.put_item(TableName="standing", Item=lease(shard_id, "TRIM_HORIZON", counter, "w"))
        change = gate.console.sampler.change
        text = (await ask(gate, "GET", "/", headers=PROGRAM)).text
        if "<dt>Well</dt><dd>1" in text:
            break
        await wait_set(change, 5.0)  # The page shows what was seen last: another look may be under way.
    assert "<dt>Well</dt><dd>1" in text
    assert 'class="loses"' not in text
    assert 'class="nears"' not in text


async def test_a_region_without_streams_and_applications_is_told_so(
    connection: ConnectionOptions, tmp_path: Path
) -> None:
    empty = msgspec.structs.replace(connection, region="ap-south-2")
    gate = console_app(ConsoleSettings(token=TOKEN, audit=str(tmp_path / "audit.jsonl")), empty)
    text = (await ask(gate, "GET", "/", headers=PROGRAM)).text
    assert "There is no stream here" in text
    assert "ap-south-2 · account not known yet" in text
    assert (await ask(gate, "GET", "/doctor", headers=PROGRAM)).status == 200
    await gate.console.close()
