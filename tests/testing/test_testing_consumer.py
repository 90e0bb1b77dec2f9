"""`TestConsumer` as users' tests use it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.aggregation.writer import encode_aggregate
from shardway.events import RecordDeadLettered
from shardway.model import OutRecord, Position, StartingPosition
from shardway.policies import DeadLettersTo, DeadLettersToFile, Retry
from shardway.testing import TestConsumer, UnsettledError, VirtualLoop, records_of_file
from shardway.testing.consumer import passing_time
from tests.options_kit import arguments_of

if TYPE_CHECKING:
    from pathlib import Path

    from shardway.core.ledger.letter import Letter
    from shardway.runtime.shard.batch import Batch

SHARD = "shardId-000000000000"


class Billing:
    """A program as users write it: it bills orders."""

    def __init__(self) -> None:
        self.billed: list[int] = []

    async def run(self, consumer: Any) -> None:
        async for batch in consumer:
            with batch:
                await self.bill(batch)

    async def bill(self, batch: Batch[Any]) -> None:
        for value in batch.values:
            if value["order"] < 0:
                raise ValueError("a negative order")
            self.billed.append(value["order"])
            await asyncio.sleep(0)


def orders(*numbers: int) -> list[dict[str, int]]:
    return [{"order": number} for number in numbers]


async def test_a_program_runs_to_the_end_of_what_it_is_fed() -> None:
    billing = Billing()
    async with TestConsumer(orders(1, 2, 3), deserializer=json.loads) as consumer:
        await billing.run(consumer)
    assert billing.billed == [1, 2, 3]
    assert consumer.unsettled == consumer.not_checkpointed == []
    assert consumer.retried == []
    assert consumer.dead_letters == []
    (last,) = consumer.stream.ends().values()
    assert consumer.checkpoints == {SHARD: last}


async def test_a_handler_is_run_to_the_end_too() -> None:
    billing = Billing()
    async with TestConsumer(orders(1, 2), shards=2, deserializer=json.loads) as consumer:
        await consumer.run_batches(billing.bill)
    assert sorted(billing.billed) == [1, 2]
    assert consumer.not_checkpointed == []


async def test_what_a_policy_does_is_shown() -> None:
    settings = dict[str, Any](
        retry=Retry(batch_failures_max=1, failures_max=2, base_s=0.001, cap_s=0.002),
        dead_letters=DeadLettersToFile(path="never-written"),
    )
    billing = Billing()
    async with TestConsumer(orders(1, -2, 3), deserializer=json.loads, **arguments_of(**settings)) as consumer:
        await billing.run(consumer)
    assert billing.billed[-1] == 3
    (letter,) = consumer.dead_letters
    assert (letter.data, letter.error_type, letter.attempts) == (b'{"order": -2}', "ValueError", 4)
    assert {one.error_type for one in consumer.retried} == {"ValueError"}
    assert consumer.retried[0].next_step == "Halve"
    assert consumer.not_checkpointed == []


async def test_a_handler_that_always_fails_is_the_cause_of_what_is_raised() -> None:
    async def fail(batch: Any) -> None:
        raise LookupError("no such customer")

    with pytest.raises(UnsettledError, match=r"The handler failed \d+ times, last with LookupError \(test_") as told:
        async with TestConsumer(orders(1), skip_waits=True, patience_s=0.2) as consumer:
            await consumer.run_batches(fail)
    assert isinstance(told.value.__cause__, LookupError)


async def test_the_failures_of_a_dead_letter_are_those_that_tries_max_counts() -> None:
    """Whether it was alone from the first, in a batch that was halved, or behind another one that failed."""
    retry = Retry(failures_max=3, base_s=0.001, cap_s=0.002)
    settings = dict[str, Any](retry=retry, dead_letters=DeadLettersToFile(path="never-written"))

    async def fail(given: Any) -> None:
        raise LookupError

    for way in ("run_batches", "run_records"):
        async with TestConsumer(orders(1, 2, 3), **arguments_of(**settings)) as consumer:
            await getattr(consumer, way)(fail)
        told = [event for event in consumer.events if isinstance(event, RecordDeadLettered)]
        assert [event.failures for event in told] == [3, 3, 3]
        assert all(event.attempts >= 3 for event in told)


async def test_a_function_of_the_settings_gets_the_dead_letters_too() -> None:
    got: list[Letter] = []

    async def keep(letter: Letter) -> None:
        got.append(letter)

    for write in (keep, got.append):
        settings = dict[str, Any](dead_letters=DeadLettersTo(write))
        async with TestConsumer(["a", "b"], **arguments_of(**settings)) as consumer:
            async for batch in consumer:
                batch.ack(0)
                batch.dead_letter(1)
        assert [letter.data for letter in consumer.dead_letters] == [b"b"]
    assert [letter.data for letter in got] == [b"b", b"b"]


async def test_records_that_are_never_settled_are_named_instead_of_a_test_that_hangs() -> None:
    consumer = TestConsumer(["a", "b"], patience_s=0.2)

    async def forget_the_second() -> None:
        async with consumer:
            async for batch in consumer:
                batch.ack(0)

    with pytest.raises(UnsettledError, match=f"1 records are not settled.*{SHARD} .*1 of them were delivered"):
        await forget_the_second()
    assert [record.data for record in consumer.unsettled] == [b"b"]
    assert [record.data for record in consumer.not_checkpointed] == [b"b"]


async def test_an_error_of_the_test_goes_before() -> None:
    async def fail() -> None:
        async with TestConsumer(["a"]) as consumer:
            async for _ in consumer:
                raise KeyError

    with pytest.raises(KeyError):
        await fail()


async def test_a_consumer_that_is_fed_as_it_goes_stays_open() -> None:
    got: list[bytes] = []

    async def note(batch: Batch[Any]) -> None:
        got.extend(record.data for record in batch)

    async with TestConsumer() as consumer:
        running = asyncio.create_task(consumer.run_batches(note))
        await consumer.settled()
        for text in ("a", "b"):
            (put,) = consumer.feed(text)
            await consumer.settled()
            assert got[-1] == text.encode()
            assert consumer.checkpoints[put.shard_id] == Position(put.sequence_number)
        await consumer.close()
        await running
    assert got == [b"a", b"b"]


async def test_the_next_consumer_goes_on_where_the_first_has_come_to() -> None:
    async with TestConsumer(["a", "b", "c"], ends=False) as first:
        async for batch in first:
            batch.settle_through(0)
            break
    assert [record.data for record in first.not_checkpointed] == [b"b", b"c"]
    got = []
    async with first.successor(ends=True) as second:
        async for batch in second:
            with batch:
                got += [record.data for record in batch]
    assert got == [b"b", b"c"]


async def test_records_come_in_every_form(tmp_path: Path) -> None:
    async with TestConsumer(
        [b"bytes", "text", {"a": 1}, [1, 2], OutRecord(b"out", "its-key"), encode_aggregate([("k", b"in", None)])]
    ) as consumer:
        got = [record async for record in consumer.records() if record.ack() is not None]
    assert [one.record.data for one in got] == [b"bytes", b"text", b'{"a": 1}', b"[1, 2]", b"out", b"in"]
    assert got[4].record.partition_key == "its-key"
    async with TestConsumer([got[4].record]) as consumer:
        async for batch in consumer:
            with batch:
                assert batch.records[0].partition_key == "its-key"


async def test_a_shard_that_is_split_is_read_to_its_end_before_its_children() -> None:
    ended: list[str] = []
    got: list[tuple[str, bytes]] = []

    async def told(shards: Any) -> None:
        ended.extend(shard.shard_id for shard in shards)

    async with TestConsumer(["a"], ends=False, on_shards_ended=told) as consumer:
        children = consumer.split()
        for child in children:
            consumer.feed(child, shard=child)

        async def note(batch: Batch[Any]) -> None:
            got.extend((batch.shard_id, record.data) for record in batch)

        running = asyncio.create_task(consumer.run_batches(note))
        await consumer.settled()
        assert consumer.checkpoints[SHARD] == "SHARD_END"
        assert got[0] == (SHARD, b"a")
        assert {data.decode() for _, data in got[1:]} == set(children)
        merged = consumer.merge(*children)
        consumer.feed("z")
        await consumer.settled()
        await consumer.close()
        await running
    assert got[-1] == (merged, b"z")
    assert ended == [SHARD, *children] or ended == [SHARD, *reversed(children)]


async def test_time_passes_without_waiting() -> None:
    loop = asyncio.get_running_loop()
    woken: list[float] = []
    async with TestConsumer(["a"], ends=False) as consumer:
        began_s = loop.time()
        for delay_s in (3600.0, 60.0):
            loop.call_later(delay_s, lambda: woken.append(loop.time() - began_s))
        async for batch in consumer:
            if batch.attempt == 1:
                batch.nack(delay_s=30.0)
                await consumer.pass_time(29.0)
                assert batch.unsettled() == []
                await consumer.pass_time(31.5)
            else:
                batch.ack()
                break
        assert [round(one) for one in woken] == [60]
        await consumer.settled()


async def test_hours_without_a_record_are_crossed_behind_a_checkpoint_and_from_the_oldest_on() -> None:
    """A page crosses an hour of the log, here as on AWS: what follows a night is behind several empty ones."""

    async def all_of(consumer: TestConsumer) -> list[bytes]:
        got = []
        async with consumer:
            async for batch in consumer:
                with batch:
                    got += [record.data for record in batch]
        return got

    first = TestConsumer(["a"])
    assert await all_of(first) == [b"a"]
    async with TestConsumer(
        stream=first.stream, application="meanwhile", starting_position=StartingPosition.LATEST
    ) as other:
        await other.pass_time(4 * 3600.0)
    assert first.stream.model.limits.page_span_s <= 3600
    assert await all_of(first.successor(["b"])) == [b"b"]
    assert await all_of(TestConsumer(["c"], stream=first.stream, application="a new one")) == [b"a", b"b", b"c"]


async def test_waits_may_be_skipped() -> None:
    settings = dict[str, Any](retry=Retry(failures_max=None, base_s=50.0, cap_s=5000.0))
    tries = 0
    async with TestConsumer(["a"], skip_waits=True, **arguments_of(**settings)) as consumer:
        async for batch in consumer:
            with batch:
                tries += 1
                if tries < 5:
                    raise ConnectionError
    assert tries == 5
    assert [one.attempt for one in consumer.retried] == [1, 2, 3, 4]


async def test_a_lease_may_be_lost_and_come_back() -> None:
    told: list[str] = []

    def note(what: str) -> Any:
        async def heard(shards: Any) -> None:
            told.extend(f"{what} {shard.origin.value}" for shard in shards)

        return heard

    async with TestConsumer(
        ["a"], ends=False, on_shards_assigned=note("assigned"), on_shards_lost=note("lost")
    ) as consumer:
        async for batch in consumer:
            await consumer.lose()
            assert batch.ack() is False
            assert consumer.elsewhere == {SHARD}
            assert [record.data for record in consumer.unsettled] == [b"a"]
            await consumer.settled()
            break
        await consumer.get_back(SHARD)
        async for batch in consumer:
            assert batch.ack() is True
            break
        await consumer.settled()
        assert consumer.unsettled == []
    assert told[:3] == ["assigned new", "lost new", "assigned taken"]


async def test_a_shard_may_be_handed_over_and_come_back() -> None:
    revoked: list[str] = []

    async def told(shards: Any) -> None:
        revoked.extend(shard.shard_id for shard in shards)

    async with TestConsumer(["a", "b"], shards=1, ends=False, on_shards_revoked=told) as consumer:
        async for batch in consumer:
            batch.ack(0)
            batch.ack(1)
            break
        await consumer.hand_over()
        assert revoked == [SHARD]
        assert consumer.elsewhere == {SHARD}
        assert consumer.not_checkpointed == []
        consumer.feed("c")
        await consumer.get_back(SHARD)
        async for batch in consumer:
            assert [record.data for record in batch] == [b"c"]
            batch.ack()
            break


async def test_what_a_program_holds_when_its_shard_goes_comes_again() -> None:
    async with TestConsumer(["a"], ends=False) as consumer:
        async for batch in consumer:
            held = batch
            break_off = asyncio.create_task(consumer.hand_over())
            await break_off
            assert held.ack() is False
            await consumer.get_back(SHARD)
            break
        async for batch in consumer:
            assert [record.data for record in batch] == [b"a"]
            assert batch.token > held.token
            batch.ack()
            break


async def test_a_program_that_holds_records_does_not_hold_up_the_end() -> None:
    held: list[Batch[Any]] = []
    loop = asyncio.get_running_loop()
    async with TestConsumer(["a"], ends=False) as consumer:
        async for shard in consumer.shards():
            batch = await shard.next_batch()
            assert batch is not None
            held.append(batch)
            break
        began_s = loop.time()
    assert loop.time() - began_s >= consumer.options.handoff.drain_deadline_s
    assert held[0].ack() is False
    assert [record.data for record in consumer.not_checkpointed] == [b"a"]


def test_it_runs_in_virtual_time_too() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        settings = dict[str, Any](retry=Retry(failures_max=None, base_s=50.0, cap_s=5000.0))
        times: list[float] = []
        async with TestConsumer(["a"], patience_s=60, **arguments_of(**settings)) as consumer:
            async for batch in consumer:
                with batch:
                    times.append(loop.time())
                    if len(times) < 5:
                        raise ConnectionError
        return times

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        times = runner.run(main())
    assert len(times) == 5
    assert times[-1] - times[0] > 1


async def test_on_a_loop_of_another_kind_everything_works_but_time_passes_as_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(passing_time, "_is_of_asyncio", lambda loop: False)
    async with TestConsumer(["a"], ends=False, **arguments_of(failover_s=2.5)) as consumer:
        async for batch in consumer:
            with batch:
                pass
            break
        await consumer.settled()
        with pytest.raises(RuntimeError, match="on an event loop of asyncio's own, not on a"):
            await consumer.pass_time(1)
        await consumer.lose()
        assert consumer.elsewhere == {SHARD}


async def test_a_shard_that_is_not_there_is_said() -> None:
    async with TestConsumer(shards=2) as consumer:
        with pytest.raises(ValueError, match="say which shard; open are shardId-000000000000, shardId-000000000001"):
            consumer.split()
        with pytest.raises(ValueError, match="there is no open shard shardId-000000000009"):
            consumer.split("shardId-000000000009")
        with pytest.raises(ValueError, match="nowhere is not held; held are"):
            await consumer.lose("nowhere")
    with pytest.raises(RuntimeError, match="is not started"):
        await TestConsumer().pass_time(1)


async def test_records_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text('{"order": 1, "customer": {"id": 7}}\n\n{"order": 2, "customer": {"id": "x"}}\n')
    got = []
    async with TestConsumer(records_of_file(path, key="customer.id"), deserializer=json.loads) as consumer:
        async for batch in consumer:
            with batch:
                got += [
                    (record.partition_key, value["order"]) for record, value in zip(batch, batch.values, strict=True)
                ]
    assert got == [("7", 1), ("x", 2)]
    with pytest.raises(ValueError, match="it has no field order"):
        list(records_of_file(path, key="order.id"))


async def test_dead_letters_of_a_file_are_fed_as_the_records_that_they_were(tmp_path: Path) -> None:
    async with TestConsumer(
        [OutRecord(b"bad", "its-key")], **arguments_of(dead_letters=DeadLettersTo(lambda _: None))
    ) as consumer:
        async for batch in consumer:
            batch.dead_letter()
    (letter,) = consumer.dead_letters
    path = tmp_path / "letters.jsonl"
    path.write_bytes(letter.to_json() + b"\n")
    async with TestConsumer(records_of_file(path)) as consumer:
        async for batch in consumer:
            with batch:
                (record,) = batch.records
                assert (record.data, record.partition_key) == (b"bad", "its-key")
    path.write_bytes(letter.without_data().to_json())
    with pytest.raises(ValueError, match="line 1: the dead letter does not hold its record's data"):
        list(records_of_file(path))
