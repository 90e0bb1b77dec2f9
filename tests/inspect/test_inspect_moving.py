"""The policy for moving: each of its statements allows the calls that a move makes to its tables, and no other."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, cast

import pytest

from shardway.core.leases.worker_row import WorkerRow
from shardway.inspect import Goal, Store, apply_plan, lease_table, plan_import, plan_seek, positions_of
from shardway.inspect.moments import utc
from shardway.wiring import ConnectionOptions
from tests.docs.doc_pages import DOCS
from tests.inspect.scenes import shard_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.inspect import Plan
    from tests.inspect.scenes import Scene

pytestmark = pytest.mark.xdist_group("inspected-tables")
FAILOVER_S = 0.3


class Moving:
    """One application's table, for writing, and which calls went to it."""

    def __init__(self, scene: Scene, application: str) -> None:
        connection = ConnectionOptions(region=scene.local.region, endpoint_url=scene.local.endpoint_url)
        self.calls: dict[str, set[str]] = {}
        """By the ends of the tables' names: "" or "-Workers"."""
        self.table = cast("Any", lease_table(Store(), application, connection))
        plain = self.table._client.call

        async def call(operation: str, parameters: dict[str, Any], **more: Any) -> Any:
            suffix = parameters["TableName"].removeprefix(application)
            self.calls.setdefault(suffix, set()).add(f"dynamodb:{operation}")
            return await plain(operation, parameters, **more)

        self.table._client.call = call

    async def apply(self, plan: Plan, *, handoff: bool = False) -> None:
        done = await apply_plan(plan, self.table, keep=lambda before: None, handoff=handoff)
        await self.table.close()
        assert done.complete


async def handed_over(scene: Scene) -> dict[str, set[str]]:
    """A lease is given by a Shardway worker, which dies over it; another lease is missing, and made."""
    scene.table()
    scene.table("-Workers", key="workerId")
    scene.lease(0, scene.put(0), owner="w1", process="p/w1")
    moving, worker = Moving(scene, scene.application), WorkerRow(worker_id="w1", failover_s=FAILOVER_S, counter=1)
    owner: Any = lease_table(
        Store(), scene.application, ConnectionOptions(region=scene.local.region, endpoint_url=scene.local.endpoint_url)
    )

    async def live() -> None:
        nonlocal worker
        while (await owner.get(shard_id(0))).handoff_to is None:
            worker = worker.next()
            await owner.put_worker(worker)
            await asyncio.sleep(FAILOVER_S / 10)

    living = asyncio.create_task(live())
    async with asyncio.timeout(60), scene.inspector() as inspector:
        plan = await plan_seek(inspector, scene.application, Goal("trim-horizon"), stream=scene.name)
        await moving.apply(plan, handoff=True)
        await living
    await owner.close()
    return moving.calls


async def imported(scene: Scene) -> dict[str, set[str]]:
    """Into an application that has no tables yet."""
    moving = Moving(scene, f"{scene.application}-new")
    async with asyncio.timeout(60), scene.inspector() as inspector:
        before = (await inspector.application(scene.application)).application
        document = positions_of(before, utc(scene.local.clock.now()))
        plan = await plan_import(inspector, f"{scene.application}-new", document, stream=scene.name)
        await moving.apply(plan)
    return moving.calls


async def test_each_statement_of_the_policy_is_what_a_move_calls(make: Callable[..., Scene]) -> None:
    policy = json.loads((DOCS / "iam" / "move.json").read_text(encoding="utf-8"))
    allowed = {one["Sid"]: set(one["Action"]) for one in policy["Statement"]}
    scene = make(kind="shardway")
    given, made = await handed_over(scene), await imported(scene)
    assert given == {"": allowed["MoveTheLeases"], "-Workers": allowed["ShowTheWorkerThatHoldsThem"]}
    making = allowed["OnlyForAnApplicationWithoutTables"]
    assert made[""] | made["-Workers"] == making | {"dynamodb:PutItem", "dynamodb:Scan"}
    assert allowed.keys() == {"MoveTheLeases", "ShowTheWorkerThatHoldsThem", "OnlyForAnApplicationWithoutTables"}
