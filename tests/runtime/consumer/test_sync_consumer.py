"""The consumer for plain threads: the same things, over the same implementation."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from shardway import CheckpointError, Position, ShardReadError, StartingPosition, SyncConsumer, by_key
from shardway.checkpoints import PendingChoice
from shardway.dead_letters import DeadLettersTo
from shardway.errors import NotFoundError
from shardway.leases import MemoryLeaseTable, Origin
from shardway.local import LocalKinesis
from tests.runtime.consumer.face_kit import DEADLINE_S, QUICK_RETRIES, STREAM, consumer_of, put

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shardway import AssignedShard
    from shardway.checkpoints import PendingCheckpoint

pytestmark = pytest.mark.timeout(DEADLINE_S)
STREAMS = {STREAM: 2}


def sync_of(local: LocalKinesis, leases: Any, **given: Any) -> SyncConsumer[Any]:
    made: SyncConsumer[Any] = consumer_of(local, leases, face=SyncConsumer[Any], **given)
    return made


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def until(condition: Callable[[], object]) -> None:
    waiting = threading.Event()
    while not condition():
        waiting.wait(0.01)


def test_batches_and_a_second_consumer_that_goes_on(local: LocalKinesis, kinesis: Any) -> None:
    wanted = put(kinesis, range(40))
    table = MemoryLeaseTable()
    got: Counter[bytes] = Counter()
    for _ in range(2):
        with sync_of(local, table, retry=QUICK_RETRIES) as consumer:
            failed = False
            for batch in consumer:
                with batch:
                    assert (batch.stream, batch.token > 0, batch.attempt > 0) == (STREAM, True, True)
                    assert [record.data for record in batch] == list(batch.values)
                    if not failed:
                        failed = True
                        raise ValueError("not yet")
                    got.update(record.data for record in batch.records)
                if set(got) == set(wanted):
                    break
        wanted += put(kinesis, range(len(wanted), len(wanted) + 10))
    assert set(got.values()) == {1}


def test_single_records_many_at_once_and_positions(local: LocalKinesis, kinesis: Any) -> None:
    wanted = put(kinesis, range(12), key=lambda _: "one")
    with sync_of(local, MemoryLeaseTable()) as consumer:
        got = []
        for record in consumer.records():
            with record:
                got.append(record.data)
            if len(got) == 5:
                break
        assert got == wanted[:5]
        assert consumer.position(record) == Position(record.record.sequence_number)
        while len(got) < 12:
            for batch in consumer.getmany(4):
                got += [one.data for one in batch]
                assert batch.ack(0)
                assert len(batch.unsettled()) == len(batch) - 1
                assert batch.settle_through(batch.records[-1])
                assert batch.unsettled() == []
        assert got == wanted
        assert consumer.getmany(4, wait_s=0.01) == []
        consumer.seek(batch, StartingPosition.TRIM_HORIZON)
        consumer.pause()
        assert consumer.getmany(1, wait_s=0.01) == []
        consumer.resume()
        (again,) = consumer.getmany(1)
        assert again.values == [b"0"]
        assert again.nack()
        assert consumer.statistics().records_delivered >= 13
    assert not again.ack()  # it is closed
    assert consumer.getmany() == []
    assert list(consumer) == []
    assert consumer.statistics().shards == ()
    consumer.close()


def test_handlers_in_threads_by_key(local: LocalKinesis, kinesis: Any) -> None:
    wanted = put(kinesis, range(60), key=lambda data: str(int(data) % 6))
    got: dict[int, list[int]] = {key: [] for key in range(6)}
    both = threading.Barrier(2)
    names: set[str] = set()

    def handle(record: Any) -> None:
        number = int(record.data)
        if not got[number % 6]:
            both.wait(DEADLINE_S)  # two keys are with handlers at the same time
        names.add(threading.current_thread().name.rpartition("_")[0])
        got[number % 6].append(number)

    with sync_of(local, MemoryLeaseTable()) as consumer:
        running = in_thread(lambda: consumer.run_records(handle, concurrency=by_key(4), handlers_max=4))
        until(lambda: sum(map(len, got.values())) == len(wanted))
        consumer.close()
        running.join(DEADLINE_S)
        assert not running.is_alive()
    assert got == {key: list(range(key, 60, 6)) for key in range(6)}
    assert names == {"shardway-handler"}


def test_a_thread_for_each_shard(local: LocalKinesis, kinesis: Any) -> None:
    wanted = put(kinesis, range(40))
    got: Counter[bytes] = Counter()
    threads: list[threading.Thread] = []

    def work(shard: Any) -> None:
        for batch in shard:
            with batch:
                assert batch.shard_id == shard.shard_id
                got.update(record.data for record in batch)

    def offer() -> None:
        threads.extend(in_thread(partial(work, shard)) for shard in consumer.shards())

    with sync_of(local, MemoryLeaseTable()) as consumer:
        offering = in_thread(offer)
        until(lambda: len(got) == len(wanted))
    for thread in (offering, *threads):
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    assert set(got.values()) == {1}


def test_callbacks_run_in_a_thread_and_may_use_the_consumer(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, range(4))
    told: list[tuple[str, Origin, str]] = []

    def note(what: str) -> Any:
        def on(shards: Sequence[AssignedShard]) -> None:
            told.extend((what, shard.origin, threading.current_thread().name) for shard in shards)
            if what == "assigned":
                for shard in shards:
                    consumer.seek(shard, StartingPosition.TRIM_HORIZON)

        return on

    with sync_of(
        local,
        MemoryLeaseTable(),
        on_shards_assigned=note("assigned"),
        on_shards_revoked=note("revoked"),
        starting_position=StartingPosition.LATEST,
    ) as consumer:
        count = 0
        while count < 4:
            for batch in consumer.getmany():
                with batch:
                    count += len(batch)
    assert Counter(what for what, *_ in told) == {"assigned": 2, "revoked": 2}
    assert {name.rpartition("_")[0] for *_, name in told} == {"shardway-callbacks"}


def test_errors_come_to_the_thread_that_asks(local: LocalKinesis, kinesis: Any) -> None:
    with sync_of(local, MemoryLeaseTable()) as consumer:
        until(lambda: len(consumer.statistics().shards) == 2)
        kinesis.delete_stream(StreamName=STREAM)
        with pytest.raises(ShardReadError, match=STREAM):
            consumer.run_batches(lambda batch: None)
    with pytest.raises(NotFoundError), sync_of(local, MemoryLeaseTable()):
        raise AssertionError("not reached")
    assert not [thread for thread in threading.enumerate() if thread.name == "shardway-consumer"]


def test_an_iteration_in_another_thread_ends_with_the_consumer(local: LocalKinesis, kinesis: Any) -> None:
    for _ in range(5):
        with sync_of(local, MemoryLeaseTable()) as consumer:
            threads = [
                in_thread(lambda consumer=consumer: list(consumer)),  # type: ignore[misc]
                in_thread(lambda consumer=consumer: list(consumer.records())),  # type: ignore[misc]
                in_thread(lambda consumer=consumer: consumer.getmany()),  # type: ignore[misc]
                in_thread(lambda consumer=consumer: consumer.run_batches(print)),  # type: ignore[misc]
            ]
        for thread in threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()


# --- collections, and checkpoints of a shard ---------------------------------------------------------


def test_collections_of_a_key_in_a_thread(local: LocalKinesis, kinesis: Any) -> None:
    """Complete ones as they come, the rest by age; what failed comes again; what waits when it is left, too."""
    put(kinesis, range(20), key=lambda data: str(int(data) % 2))
    got: list[tuple[object, list[int]]] = []
    with sync_of(local, MemoryLeaseTable(), retry=QUICK_RETRIES) as consumer:
        failed = False
        with closing(consumer.collect(lambda record: record.partition_key, records=4, age_s=0.5)) as groups:
            for group in groups:
                with group:
                    numbers = [int(record.data) for record in group.records]
                    assert len(group) == len(numbers) <= 4
                    assert {number % 2 for number in numbers} == {int(str(group.key))}
                    if not failed:
                        failed = True
                        raise ValueError("not yet")
                    got.append((group.key, numbers))
                if sum(len(numbers) for _, numbers in got) == 20:
                    break
        assert sorted(number for _, numbers in got for number in numbers) == list(range(20))
        until(lambda: all(shard.records_in_flight == 0 for shard in consumer.statistics().shards))
        put(kinesis, [b"20"], key=lambda _: "0")
        with closing(consumer.collect(lambda record: record.partition_key, records=4, age_s=0.01)) as groups:
            left = next(groups)
        (again,) = consumer.getmany()
        assert [record.data for record in left.records] == [record.data for record in again] == [b"20"]
        assert again.attempt > 1
        assert again.ack()
    assert not left.ack()  # it is closed
    assert list(consumer.collect(lambda record: record, records=1)) == []


def test_collections_of_one_shard_and_each_way_to_settle_them(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, range(4), key=lambda _: "one")
    letters: list[Any] = []
    chosen = {"dead_letters": DeadLettersTo(letters.append), "retry": QUICK_RETRIES}
    with sync_of(local, MemoryLeaseTable(), **chosen) as consumer:
        shard = next(one for one in consumer.shards() if one.shard_id == shard_of(consumer, 4))
        with closing(shard.collect(lambda record: record.data, records=1)) as groups:
            first, second, third, fourth = (next(groups) for _ in range(4))
            assert first.skip(reason="not wanted")
            assert second.dead_letter(error=ValueError("no"))
            assert third.nack(delay_s=0.0)
            assert fourth.fail(ValueError("once"))
            again = {group.key: group for group in (next(groups), next(groups))}
            assert set(again) == {b"2", b"3"}
            assert all(group.ack() for group in again.values())
        until(lambda: len(letters) == 1)
        until(lambda: all(one.records_in_flight == 0 for one in consumer.statistics().shards))
        assert letters[0].data == b"1"


def shard_of(consumer: SyncConsumer[Any], records: int) -> str:
    """The shard that holds so many."""

    def found() -> list[str]:
        return [one.shard_id for one in consumer.statistics().shards if one.records_held == records]

    until(found)
    return found()[0]


def test_a_pending_checkpoint_that_is_kept_is_found_and_committed_by_a_thread(
    local: LocalKinesis, kinesis: Any
) -> None:
    """Also by a new owner that was told to keep it: its only way to it is the shard."""
    put(kinesis, range(4), key=lambda _: "one")
    table = MemoryLeaseTable()
    with sync_of(local, table, drain_deadline_s=0.1) as consumer:
        (batch,) = consumer.getmany()
        pending = consumer.prepare(batch, b"half done")
        assert (pending.position, pending.state) == (Position(batch.records[-1].sequence_number), b"half done")
        wanted = batch.shard_id
    with pytest.raises(CheckpointError, match="closed"):
        consumer.commit(pending)
    with pytest.raises(CheckpointError, match="closed"):
        consumer.prepare(batch)
    assert len(batch.unsettled()) == 4  # it can still be looked at
    with sync_of(local, table, on_pending=lambda found: PendingChoice.KEEP) as consumer:
        shard = next(one for one in consumer.shards() if one.shard_id == wanted)

        def kept() -> PendingCheckpoint:
            found = consumer.pending(shard)
            assert found is not None
            return found

        assert (kept().position, kept().state) == (pending.position, b"half done")
        again = shard.next_batch()
        assert again is not None
        with pytest.raises(CheckpointError, match="settle the others"):
            consumer.commit(kept())
        assert again.ack()
        consumer.commit(kept())
        assert consumer.pending(shard) is None
        assert shard.stored == shard.settled
        assert shard.stored.position == pending.position
    assert shard.is_over
    assert shard.next_batch() is None
