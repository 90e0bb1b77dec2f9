"""Intervals and bounds of a worker as options: what is chosen holds, what is not follows from the failover time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from shardway import ByKey, GiveUp, Redeliver, Skip, Unordered
from shardway.core.leases import LeaseRow, writes
from shardway.core.leases.tenure.times import LeaseTimes
from shardway.core.shard.checkpoints.cadence import Every, Prompt
from shardway.core.shard.machine import LETTERS_AT_ONCE_MAX
from shardway.errors import OptionError
from shardway.options import ConsumerOptions, LeaseOptions
from shardway.policies import DeadLettersTo, DeadLettersToFile, DeadLettersToStream
from shardway.runtime.consumer.arguments import OWN, ConsumerArguments, SyncConsumerArguments
from shardway.stores.memory import MemoryLeaseTable
from tests.options_kit import options_of
from tests.runtime.consumer.fleet_kit import DEADLINE_S, fleet_of
from tests.runtime.consumer.outcome_kit import checkpoint_reaches, consumer_of, put
from tests.runtime.consumer.reading_kit import SHARD_ID, lease_of

if TYPE_CHECKING:
    from shardway.core.ledger.letter import Letter
    from shardway.local import LocalKinesis

LONG_S = 100 * DEADLINE_S
"""A failover time of which no fraction passes in a test."""


def test_what_no_option_sets_follows_from_the_failover_time() -> None:
    times = options_of(failover_s=40.0).times
    assert (times.lease, times.look_interval_s) == (LeaseTimes.of(40.0), 0.5)
    assert options_of(failover_s=1.0).times.look_interval_s == 0.2


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"failover_s": 0.0}, "failover_s must be more than 0, not 0.0"),
        ({"leases_max": -1}, "leases_max must be at least 0, not -1"),
        ({"warm_deadline_s": -1.0}, "warm_deadline_s must be at least 0, not -1.0"),
        ({"kcl_steal_wait_s": -1.0}, "kcl_steal_wait_s must be at least 0, not -1.0"),
        ({"upkeep_interval_s": float("nan")}, "upkeep_interval_s must be more than 0, not nan"),
        ({"fan_out": 17}, "fan_out is FanOutOptions, not 17"),
    ],
    ids=str,
)
def test_options_that_would_not_do_are_named(wrong: dict[str, Any], name: str) -> None:
    with pytest.raises(OptionError, match=name):
        options_of(**wrong)


def test_all_faults_of_a_group_are_named_at_once() -> None:
    with pytest.raises(OptionError) as told:
        LeaseOptions(failover_s=0, leases_max=-1, read_capacity_units=5)
    assert len(told.value.faults) == 3


@pytest.mark.parametrize(
    ("kind", "given", "told"),
    [
        (ByKey, {"slots_max": 0}, "slots_max must be more than 0, not 0"),
        (Unordered, {"slots_max": "many"}, "slots_max is a whole number, not a str"),
        (GiveUp, {"cool_down_s": -1.0}, "cool_down_s must be at least 0, not -1.0"),
        (
            Redeliver,
            {"then": Skip},
            "then is Warn or DeadLetters or Skip or Stop or GiveUp, not the class Skip: call it",
        ),
        (Every, {}, "give records or seconds or both"),
        (Every, {"records": 0}, "records must be more than 0, not 0"),
        (DeadLettersToFile, {"path": 3}, "path is Path or a text, not 3"),
        (DeadLettersToStream, {"stream": "letters", "with_data": "no"}, "with_data is True or False, not a str"),
    ],
    ids=str,
)
def test_a_policy_is_checked_as_options_are(kind: Any, given: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        kind(**given)


def test_a_table_of_another_kind_takes_nothing_that_is_for_dynamodb() -> None:
    with pytest.raises(OptionError) as told:
        LeaseOptions(table=MemoryLeaseTable(), owner_index=True, tags={"team": "billing"})
    assert told.value.faults == [
        "tags is for a table in DynamoDB, and table is another kind",
        "owner_index is for a table in DynamoDB, and table is another kind",
    ]


def test_a_name_that_never_was_is_no_argument() -> None:
    odd: dict[str, Any] = {"failover": 3.0}
    with pytest.raises(TypeError, match="has no argument 'failover': is 'failover_s' meant"):
        LeaseOptions(**odd)


def test_every_argument_of_a_consumer_is_an_option_or_its_own() -> None:
    typed = {*ConsumerArguments.__annotations__}
    assert {*typed, "split"} == {*OWN, *(name for name in ConsumerOptions.__struct_fields__ if name[0] != "_")}
    assert {*SyncConsumerArguments.__annotations__} == typed


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
    """Twenty failures in a row would take minutes with the defaults, and sixteen letters go side by side."""
    numbers = put(kinesis, *[b"%d" % number for number in range(40)])
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

    ledger = dict[str, Any](letter_backoff_s=0.001, letter_backoff_max_s=0.002)
    chosen: dict[str, Any] = {"dead_letters": DeadLettersTo(keep), "cadence": Prompt()}
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, **ledger, **chosen) as consumer:
        (reader,) = [await anext(consumer.shards())]
        batch = await reader.next_batch()
        assert batch is not None
        batch.dead_letter()
        await checkpoint_reaches(leases, numbers[-1])
    assert sorted(letter.position.sequence_number for letter in kept) == numbers
    assert (failures, most) == (20, LETTERS_AT_ONCE_MAX)
