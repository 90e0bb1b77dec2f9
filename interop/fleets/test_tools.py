"""The tools that look, at tables that KCL workers use at that moment: what they say, and that they disturb nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from interop.fleets.journey import BY_COUNT, SHARDS
from interop.fleets.processes import KCL_2, KCL_3
from interop.fleets.writing import KEYS

if TYPE_CHECKING:
    from collections.abc import Callable

    from interop.fleets.journey import Journey

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]

FLEETS = pytest.mark.parametrize(
    ("version", "settings", "seed"), [(KCL_2, {}, 2), (KCL_3, BY_COUNT, 3)], ids=[KCL_2, KCL_3]
)
SHARDWAY = [sys.executable, "-c", "import sys; from shardway.cli import main; sys.exit(main())"]
TOOL_TIMEOUT_S = 120.0


class Tools:
    """The command line, beside one fleet."""

    def __init__(self, fleet: Journey) -> None:
        own = fleet.own
        self.application, self.stream = own["application"], own["stream"]
        self._environment = os.environ | {
            "AWS_ENDPOINT_URL": own["kinesis"],
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
        }

    def run(self, *words: str, said: str = "") -> subprocess.CompletedProcess[str]:
        """One command; nothing else may be said on standard error."""
        done = subprocess.run(
            [*SHARDWAY, *words],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=TOOL_TIMEOUT_S,
        )
        assert done.stderr == said or (said and said in done.stderr), done.stderr
        return done

    def lines(self, *words: str) -> list[dict[str, Any]]:
        """What it tells, as lines of JSON."""
        return [json.loads(line) for line in self.run(*words, "-o", "jsonl").stdout.splitlines()]

    def report(self, *words: str) -> dict[str, Any]:
        """What it tells, as JSON."""
        found: dict[str, Any] = json.loads(self.run(*words, "-o", "json").stdout)
        return found

    def doctor(self, window: str, *more: str) -> dict[str, list[str]]:
        """What is found that is no mere information: evidence by id."""
        words = ("doctor", self.application, "--stream", self.stream, "--window", window, *more)
        findings = self.report(*words)["findings"]
        return {one["id"]: one["evidence"] for one in findings if one["severity"] != "info"}


@FLEETS
def test_tools_beside_kcl_workers(
    journey: Callable[..., Journey], version: str, settings: dict[str, object], seed: int
) -> None:
    """Two workers that are well, one that is killed, none that is left, and one that comes after all."""
    with journey(f"tools beside KCL {version}", kcl_settings=settings, seed=seed) as fleet:
        tools = Tools(fleet)
        fleet.step("KCL starts")
        fleet.kcl(version, "kcl-1")
        fleet.shares(kcl_1=SHARDS)
        fleet.kcl(version, "kcl-2")  # of two that start together, one of KCL 3.x may keep all leases
        fleet.shares(kcl_1=2, kcl_2=2)
        fleet.flow()
        fleet.step("tools look")
        two_that_are_well(tools, version)
        no_seek_while_they_live(tools, fleet)
        fleet.shares(kcl_1=2, kcl_2=2)
        fleet.step("one is killed")
        fleet.kill("kcl-1")
        fleet.shares(kcl_2=SHARDS)
        held = tools.report("app", "describe", tools.application)["application"]
        assert {one["owner"] for one in held["leases"]} == {"kcl-2"}
        fleet.step("all are killed")
        fleet.kill("kcl-2")
        compared = ("--history", str(fleet.folder / "looks"))
        assert tools.doctor("25s", *compared)["SHW-D018"] == [f"kcl-2: {SHARDS} leases"]
        lag = tools.report("app", "lag", tools.application, "--stream", tools.stream, *compared)
        assert {one["state"] for one in lag["shards"]} == {"stopped"}
        checked = tools.run("check", "lag", tools.application, "--stream", tools.stream, *compared)
        assert (checked.returncode, checked.stdout[:14]) == (2, "LAG CRITICAL -")
        fleet.step("another comes")
        fleet.kcl(version, "kcl-3")
        fleet.shares(kcl_3=SHARDS)
        fleet.finish()
    fleet.check()


def two_that_are_well(tools: Tools, version: str) -> None:
    application = tools.report("app", "describe", tools.application)["application"]
    assert application["kinds"] == ["KCL 2.x" if version == KCL_2 else "KCL 3.5 or later"]
    workers = {one["worker_id"]: one for one in application["workers"]}
    assert {name: one["leases"] for name, one in workers.items()} == {"kcl-1": 2, "kcl-2": 2}
    assert sum(one["leader"] for one in workers.values()) == (version == KCL_3)
    assert application["unreadable"] == {}
    lag = tools.report("app", "lag", tools.application, "--stream", tools.stream, "--window", "10s")
    assert (lag["state"], len(lag["shards"]), lag["without_lease"]) == ("ok", SHARDS, [])
    assert tools.doctor("15s") == {}
    for words in (
        ("check", "lag", tools.application, "--stream", tools.stream),
        ("check", "leases", tools.application),
    ):
        assert tools.run(*words).returncode == 0
    the_stream(tools)
    exported = json.loads(tools.run("app", "export", tools.application).stdout)
    assert [one["exact"] for one in exported["shards"].values()] == [True] * SHARDS
    assert tools.application in {one["name"] for one in tools.lines("app", "ls")}
    (frame,) = tools.lines("top", tools.application, "--stream", tools.stream, "--frames", "1")
    assert (frame["schema"], frame["state"], len(frame["shards"])) == ("shardway.lag/1", "ok", SHARDS)


def the_stream(tools: Tools) -> None:
    """What is in the stream while KCL workers read it."""
    described = tools.report("stream", "describe", tools.stream)
    assert (described["stream"]["open_shards"], described["missing"]) == (SHARDS, [])
    heat = tools.report("stream", "heat", tools.stream, "--since", "10s")
    assert {one["shard_id"] for one in heat["shards"]} == {one["shard_id"] for one in described["shards"]}
    assert all(one["complete"] and not one["hot"] and one["records"] for one in heat["shards"])
    records = tools.lines("records", "tail", tools.stream, "--starting-position", "5s", "--no-follow")
    assert {one["shard_id"] for one in records} == {one["shard_id"] for one in heat["shards"]}
    for one in records:
        assert one["partition_key"] == f"key-{int(one['data']) % KEYS}"
    first = records[0]
    again = tools.lines("records", "get", tools.stream, first["sequence_number"])
    assert again == [first]


def no_seek_while_they_live(tools: Tools, fleet: Journey) -> None:
    """A preview tells which leases have live owners; nothing is written, also when it is asked for."""
    saying = "shardway: looking whether the owners of leases live\n"
    words = ("app", "seek", tools.application, "--stream", tools.stream, "--to", "trim-horizon", "--failover", "5s")
    plan = json.loads(tools.run(*words, "-o", "json", said=saying).stdout)
    assert {one["life"] for one in plan["moves"]} == {"live owner"}
    assert {one["before"]["owner"] for one in plan["moves"]} == {"kcl-1", "kcl-2"}
    kept = fleet.folder / "kept.json"
    for more in ((), ("--handoff",)):
        refused = tools.run(*words, "--apply", "--yes", "--save", str(kept), *more, said="nothing was written")
        assert refused.returncode == 1
        assert "stop that worker" in refused.stderr
        assert not kept.exists()
