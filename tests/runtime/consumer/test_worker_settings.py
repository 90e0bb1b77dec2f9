"""Intervals and bounds of a worker as options: what is chosen holds, what is not follows from the failover time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from penstock.core.leases import LeaseRow, writes
from penstock.core.leases.tenure import LeaseTimes
from penstock.core.ledger.settings import LedgerSettings
from penstock.core.shard.checkpoints import Every, Prompt
from penstock.errors import OptionError
from penstock.runtime.dead_letters import DeadLettersTo
from penstock.runtime.feeds import FanOutOptions
from penstock.runtime.worker.settings import WorkerSettings
from penstock.stores.memory import MemoryLeaseTable
from tests.runtime.consumer.fleet_kit import DEADLINE_S, fleet_of
from tests.runtime.consumer.outcome_kit import checkpoint_reaches, consumer_of, put
from tests.runtime.consumer.reading_kit import SHARD_ID, lease_of

if TYPE_CHECKING:
    from penstock.core.ledger.letter import Letter
    from penstock.local import LocalKinesis

LONG_S = 100 * DEADLINE_S
"""A failover time of which no fraction passes in a test."""


def test_the_times_of_leases_follow_from_the_failover_time_unless_they_are_given() -> None:
    assert WorkerSettings(failover_s=40.0).times == LeaseTimes.of(40.0)
    given: dict[str, Any] = {"renew_interval_s": 4.0, "margin_s": 1.0, "retry_s": 0.3, "unconfirmed_max_s": 70.0}
    assert WorkerSettings(failover_s=40.0, **given).times == LeaseTimes(failover_s=40.0, **given)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"renew_interval_s": 9.6}, "renew_interval_s < failover_s - margin_s"),
        ({"renew_interval_s": 0.0}, "renew_interval_s"),
        ({"margin_s": -1.0}, "margin_s"),
        ({"retry_s": 0.0}, "retry_s"),
        ({"unconfirmed_max_s": 5.0}, "unconfirmed_max_s"),
        ({"scan_interval_s": 11.0}, "scan_interval_s"),
        ({"scan_interval_s": 0.0}, "scan_interval_s"),
        ({"close_grace_s": 0.0}, "close_grace_s"),
        ({"kcl_look_interval_s": 0.0}, "kcl_look_interval_s"),
        ({"dead_letters_at_once_max": 0}, "dead_letters_at_once_max"),
    ],
    ids=str,
)
def test_times_that_would_not_do_are_named(wrong: dict[str, Any], name: str) -> None:
    with pytest.raises(OptionError, match=name):
        WorkerSettings(failover_s=10.0, **wrong)


def test_times_of_subscriptions_that_would_not_do_are_named() -> None:
    with pytest.raises(OptionError) as told:
        FanOutOptions(renew_after_s=10, silence_max_s=0, failures_max=0, backoff_s=6.0)
    assert [fault.split()[0] for fault in told.value.faults] == [
        "silence_max_s", "failures_max", "renew_jitter_s", "backoff_max_s",
    ]  # fmt: skip


async def test_leases_are_renewed_as_often_as_is_wanted(local: LocalKinesis) -> None:
    async with fleet_of(local, failover_s=LONG_S, renew_interval_s=0.05) as fleet:
        fleet.start("a")
        await fleet.until(lambda: len(fleet.held()["a"]) == 1)
        async with asyncio.timeout(DEADLINE_S):
            while (await lease_of(fleet.table)).counter < 6:
                await asyncio.sleep(0.02)


async def test_leases_are_looked_at_as_often_as_is_wanted(local: LocalKinesis) -> None:
    """No row announces that the lease is free: its owner has no row among the workers."""
    table = MemoryLeaseTable()
    await table.create(LeaseRow(key=SHARD_ID, owner="a stranger"))
    async with fleet_of(local, table, failover_s=LONG_S, scan_interval_s=0.05) as fleet:
        worker = fleet.start("a")
        await fleet.until(lambda: bool(worker.leases()))
        assert fleet.held() == {"a": set()}
        await table.write(writes.free(await lease_of(table)))
        await fleet.until(lambda: fleet.held() == {"a": {SHARD_ID}})


@pytest.mark.parametrize(
    "cadence", [Prompt(), Every(records=3), Every(seconds=0.05)], ids=["prompt", "records", "time"]
)
async def test_checkpoints_are_written_as_often_as_is_wanted(local: LocalKinesis, kinesis: Any, cadence: Any) -> None:
    """No renewal comes to take them along."""
    numbers = put(kinesis, b"0", b"1", b"2")
    leases = MemoryLeaseTable()
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, cadence=cadence, failover_s=LONG_S) as consumer:
        (reader,) = [await anext(consumer.shards())]
        batch = await reader.next_batch()
        assert batch is not None
        batch.ack()
        await checkpoint_reaches(leases, numbers[-1])


async def test_dead_letters_are_written_again_as_soon_and_side_by_side_as_is_wanted(
    local: LocalKinesis, kinesis: Any
) -> None:
    """Twenty failures in a row would take minutes with the defaults, and ten letters go side by side."""
    numbers = put(kinesis, *[b"%d" % number for number in range(10)])
    leases = MemoryLeaseTable()
    kept: list[Letter] = []
    failures = at_work = most = 0

    async def keep(letter: Letter) -> None:
        nonlocal failures, at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0.001)
        at_work -= 1
        if letter.position.sequence_number == numbers[0] and failures < 20:
            failures += 1
            raise OSError("not yet")
        kept.append(letter)

    ledger = LedgerSettings(letter_backoff_s=0.001, letter_backoff_max_s=0.002)
    chosen: dict[str, Any] = {"dead_letters": DeadLettersTo(keep), "dead_letters_at_once_max": 2, "cadence": Prompt()}
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, ledger=ledger, **chosen) as consumer:
        (reader,) = [await anext(consumer.shards())]
        batch = await reader.next_batch()
        assert batch is not None
        batch.dead_letter()
        await checkpoint_reaches(leases, numbers[-1])
    assert sorted(letter.position.sequence_number for letter in kept) == numbers
    assert (failures, most) == (20, 2)
