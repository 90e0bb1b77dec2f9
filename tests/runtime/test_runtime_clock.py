"""Time that a machine sleeps through counts for leases, whatever the loop's clock says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from shardway.core.leases import Done, LeaseRow
from shardway.core.leases.tenure import commands as tenure_commands
from shardway.core.leases.tenure.machine import claim
from shardway.core.leases.tenure.state import State
from shardway.core.leases.tenure.times import LeaseTimes
from shardway.runtime.clocks import NAP_S, SteadyClock
from shardway.runtime.shard.tenure_keeper import TenureKeeper
from shardway.stores.memory import MemoryLeaseTable


@dataclass
class Sleep:
    slept_s: float = 1234.5

    def __call__(self) -> float:
        return self.slept_s


async def test_a_clock_jumps_by_what_was_slept_and_never_goes_back() -> None:
    loop, sleep = asyncio.get_running_loop(), Sleep()
    clock = SteadyClock(loop, sleep)
    assert loop.time() <= clock() <= loop.time(), "what was slept before does not count"
    sleep.slept_s += NAP_S / 2
    assert clock() <= loop.time(), "two clocks are never read at the same moment"
    sleep.slept_s += 100
    assert loop.time() + 100 <= clock() <= loop.time() + 100 + NAP_S
    sleep.slept_s -= 50
    assert clock() >= loop.time() + 100
    assert SteadyClock(loop)() <= loop.time(), "this machine has not slept since"


async def test_an_owner_that_wakes_after_its_failover_time_delivers_nothing() -> None:
    table, sleep = MemoryLeaseTable(), Sleep()
    row = LeaseRow(key="a")
    assert await table.create(row) == Done(row)
    clock = SteadyClock(asyncio.get_running_loop(), sleep)
    heard: list[object] = []
    keeper = TenureKeeper(table, claim(row, "w", LeaseTimes.of(60.0), clock()), clock=clock)
    keeper.listen(heard.append)
    keeping = asyncio.create_task(keeper.run())
    try:
        assert await keeper.began
        assert keeper.may_deliver()
        sleep.slept_s += 61
        assert not keeper.may_deliver(), "before anything was heard or done"
        keeper.confirm_worker_row(clock())
        async with asyncio.timeout(20):
            while keeper.tenure.state is not State.HELD or not keeper.may_deliver():
                await asyncio.sleep(0.01)
        assert any(isinstance(one, tenure_commands.FenceFell) for one in heard), (
            "a write that was sent after waking has lifted the fence"
        )
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
