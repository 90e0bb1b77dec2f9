"""Many things side by side."""

from __future__ import annotations

import asyncio

import pytest

from shardway.errors import ThrottledError
from shardway.waiting import side_by_side


@pytest.mark.parametrize("at_once_max", [1, 3, 100])
async def test_so_many_are_done_at_the_same_time_and_no_more(at_once_max: int) -> None:
    now, most, done = 0, 0, list[int]()

    async def work(one: int) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        done.append(one)

    await side_by_side(work, range(10), at_once_max)
    assert (sorted(done), most) == (list(range(10)), min(10, at_once_max))
    await side_by_side(work, [], at_once_max)


async def test_what_one_raises_holds_up_no_other_and_what_cannot_be_mended_comes_first() -> None:
    done = []

    async def work(one: int) -> None:
        await asyncio.sleep(0)
        if one == 1:
            raise ThrottledError("ProvisionedThroughputExceededException", "", operation="GetItem", status=400)
        if one == 3:
            raise PermissionError("no")
        done.append(one)

    with pytest.raises(PermissionError):
        await side_by_side(work, range(5), 2)
    assert done == [0, 2, 4]


async def test_a_cancellation_ends_all() -> None:
    began = 0

    async def work(_: int) -> None:
        nonlocal began
        began += 1
        await asyncio.Event().wait()

    task = asyncio.ensure_future(side_by_side(work, range(9), 3))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
    assert began == 3
