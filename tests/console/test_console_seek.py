"""Seek through the console: what was shown is what is written, row by row, where the row is still as it was."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from tests.cli.tables_kit import SHARDS, lease, make_table
from tests.console.asking import TOKEN, VIEWER_TOKEN, ask

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shardway.local import LocalKinesis
    from tests.console.conftest import MakeGate

PROGRAM = {"authorization": f"Bearer {TOKEN}", "accept": "text/html"}
VIEWER = {"authorization": f"Bearer {VIEWER_TOKEN}", "accept": "text/html"}
PAGE = "/applications/sought/seek"
WHERE = f"{PAGE}?stream=orders&to=trim-horizon"
AT = "49590338271490256608559692538361571095921575989136588898"


@pytest.fixture
def dynamodb(service: LocalKinesis) -> Iterator[Any]:
    """With an application whose workers have stopped."""
    client = boto3.client("dynamodb", endpoint_url=service.endpoint_url, region_name=service.region)
    make_table(client, "sought", *(lease(one, AT, 7, None) for one in SHARDS))
    yield client
    client.delete_table(TableName="sought")
    client.close()


def checkpoints(client: Any) -> list[str]:
    rows = client.scan(TableName="sought", ConsistentRead=True)["Items"]
    return [row["checkpoint"]["S"] for row in sorted(rows, key=lambda row: str(row["leaseKey"]["S"]))]


def plan_in(text: str) -> str:
    return text.partition('name="plan" value="')[2].partition('"')[0]


def kept_in(folder: Path) -> list[Path]:
    return list(folder.glob("sought-*.positions.json"))


async def test_a_plan_is_shown_confirmed_written_and_noted(make_gate: MakeGate, dynamodb: Any, tmp_path: Path) -> None:
    gate = make_gate(allow_writes=True)
    shown = await ask(gate, "GET", WHERE, headers=PROGRAM)
    number = plan_in(shown.text)
    assert shown.status == 200
    assert "2 leases move" in shown.text
    assert checkpoints(dynamodb) == [AT, AT]
    for confirm in ("", "sough", "orders"):
        form = {"plan": number, "confirm": confirm}
        assert (await ask(gate, "POST", PAGE, headers=PROGRAM, form=form)).status == 400
    assert checkpoints(dynamodb) == [AT, AT]
    form = {"plan": number, "confirm": "sought"}
    done = await ask(gate, "POST", PAGE, headers=PROGRAM, form=form)
    assert done.status == 200, done.text
    assert "It is done." in done.text
    assert checkpoints(dynamodb) == ["TRIM_HORIZON"] * 2
    assert (await ask(gate, "POST", PAGE, headers=PROGRAM, form=form)).status == 409  # once
    begun, ended = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert (begun["action"], begun["outcome"], ended["outcome"]) == ("app.sought", "begun", "done")
    assert begun["before"] == dict.fromkeys(SHARDS, AT)
    assert begun["after"] == dict.fromkeys(SHARDS, "TRIM_HORIZON")
    (kept,) = kept_in(tmp_path)
    assert {one["sequence_number"] for one in json.loads(kept.read_text())["shards"].values()} == {AT}
    assert kept.stat().st_mode & 0o077 == 0


async def test_a_viewer_sees_the_plan_and_writes_nothing(make_gate: MakeGate, dynamodb: Any) -> None:
    gate = make_gate(allow_writes=True)
    shown = await ask(gate, "GET", WHERE, headers=VIEWER)
    assert "2 leases move" in shown.text
    assert plan_in(shown.text) == ""
    assert "A writer may apply this plan" in shown.text
    number = plan_in((await ask(gate, "GET", WHERE, headers=PROGRAM)).text)
    form = {"plan": number, "confirm": "sought"}
    assert (await ask(gate, "POST", PAGE, headers=VIEWER, form=form)).status == 403
    assert checkpoints(dynamodb) == [AT, AT]


async def test_a_row_that_has_changed_since_is_left_and_told(make_gate: MakeGate, dynamodb: Any) -> None:
    gate = make_gate(allow_writes=True)
    number = plan_in((await ask(gate, "GET", WHERE, headers=PROGRAM)).text)
    dynamodb.put_item(TableName="sought", Item=lease(SHARDS[1], AT, 8, None))
    done = await ask(gate, "POST", PAGE, headers=PROGRAM, form={"plan": number, "confirm": "sought"})
    assert done.status == 502
    assert "It is done." not in done.text
    assert checkpoints(dynamodb)[1] == AT


@pytest.mark.parametrize("to", ["yesterday", "seq:5", "shard"])
async def test_a_place_that_is_none_writes_nothing(make_gate: MakeGate, dynamodb: Any, to: str) -> None:
    answer = await ask(make_gate(allow_writes=True), "GET", f"{PAGE}?stream=orders&to={to}", headers=PROGRAM)
    assert answer.status in (200, 400)
    assert plan_in(answer.text) == "" or "This cannot be written" in answer.text
    assert checkpoints(dynamodb) == [AT, AT]
