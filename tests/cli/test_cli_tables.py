"""Tables fit the terminal: times, distances and verdicts stay whole, and what is cut can still be told apart."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardway.cli.lag_table import HEAD, lag_lines
from shardway.cli.tables import WIDTH_MIN, display_width, table_lines
from shardway.cli.top import _lines
from shardway.inspect import LagReport, ShardLag, State
from shardway.inspect.lag.reports import worst
from shardway.inspect.lag.verdicts import urgency
from shardway.inspect.moments import utc

NUMBER = "49680422878816985956712234883511993830675535596124897330"
OWNER = "ip-10-0-12-34.eu-west-1.compute.internal:4711:9f86d081884c7d659a2feaa0c55ad015"
SEEK = ("SHARD", "WAS", "NEXT RECORD", "DISTANCE", "OWNER", "WHY")
TIME = "2026-11-22T10:00:00Z"


def texts(head: Any, rows: Any, columns: int | None) -> list[str]:
    return [one.text for one in table_lines(head, rows, columns)]


@pytest.mark.parametrize("columns", [80, 120])
def test_the_preview_of_a_seek_fits_with_its_times_and_distances(columns: int) -> None:
    rows = [
        (f"shardId-{n:012d}", TIME, TIME, "59 m 59 s forward", f"{OWNER}: live owner", f"at the time, behind {NUMBER}")
        for n in (3, 1_204)
    ]
    lines = texts(SEEK, rows, columns)
    assert max(map(len, lines)) <= columns
    for shard, line in zip(("...003", "...1204"), [one for one in lines if one.startswith("...")], strict=True):
        assert line.startswith(shard)
        assert line.count(TIME) == 2
        assert "59 m 59 s forward" in line
    assert NUMBER[-10:] in "".join(lines)


def shard(number: int, state: State, behind_s: float, **more: Any) -> ShardLag:
    key = f"shardId-{number:012d}"
    values: dict[str, Any] = {
        "lease": key, "shard_id": key, "owner": OWNER, "state": state,
        "why": "the lease is renewed, but its checkpoint has not moved for 14 m while records wait",
        "checkpoint": NUMBER, "sub_sequence_number": 0, "behind_s": behind_s, "exact": True, "slope": 1.0,
        "left_s": None, "loses_in_s": 85_550.0, "may_have_lost": False,
    }  # fmt: skip
    return ShardLag(**{**values, **more})


def report(application: str, *shards: ShardLag) -> LagReport:
    return LagReport(
        application=application, stream="orders", taken_at=utc(0), window_s=0.0,
        state=worst([one.state for one in shards]), behind_s=max(one.behind_s or 0.0 for one in shards),
        loses_in_s=None, shards=sorted(shards, key=urgency), without_lease=[], missing=[], calls={},
    )  # fmt: skip


@pytest.mark.parametrize("trend", [False, True])
@pytest.mark.parametrize("columns", [80, 100, 120])
def test_a_lag_fits_with_its_whole_reason(columns: int, trend: bool) -> None:
    found = report("billing", shard(3, State.STALLED, 840.0), shard(4, State.OK, 1.0))
    lines = [one.text for one in lag_lines(found, columns, trend=trend)]
    assert max(map(len, lines)) <= columns
    assert "14 m" in lines[1]
    assert "23 h 45 m" in lines[1]
    joined = " ".join(" ".join(lines).split())
    assert "the lease is renewed, but its checkpoint has not moved for 14 m while records wait" in joined


def test_the_worst_shard_and_the_worst_application_are_in_sight_on_a_small_screen() -> None:
    many = [shard(n, State.OK, 1.0) for n in range(200)]
    many[150] = shard(150, State.STALLED, 840.0)
    well, ill = report("well", shard(0, State.OK, 0.0)), report("many", *many)
    gone = report("dead", shard(7, State.STOPPED, 3.0))
    lines = [one.text for one in _lines([well, ill, gone], 110)]
    heads = [one.split(" on orders")[0] for one in lines[:3]]
    assert heads == ["dead", "many", "well"]
    assert "stopped" in " ".join(lines[4:10])
    assert "...150  stalled" in " ".join(lines[4:16])


def test_what_fits_or_goes_to_a_file_is_as_it_was() -> None:
    rows = [("shardId-000000000001", "ok", "1 s", None, "w1", "at the tip")]
    assert texts(HEAD, rows, None) == texts(HEAD, rows, 200)
    assert "shardId-000000000001  ok" in texts(HEAD, rows, None)[1]


@given(
    st.lists(st.tuples(st.text(max_size=300), st.integers(), st.text(max_size=300)), max_size=5),
    st.integers(WIDTH_MIN, 200),
)
@example([("00\x1f\x1f\x1f\x08\x08⺀\U0002ebe1", 0, "")], WIDTH_MIN)
def test_no_line_is_wider_than_the_terminal(rows: list[tuple[str, int, str]], columns: int) -> None:
    made = table_lines(("NAME", "COUNT", "WHY"), rows, columns)
    assert all(display_width(one.text) <= max(columns, 30) for one in made)
    assert {one.row for one in made} == {None, *range(len(rows))}
