"""A task reads exactly its ranges from a real (local) service, whatever happens on the way."""

from __future__ import annotations

import contextlib
import gc
import logging
import pickle
import subprocess
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from shardway.aws.options import ConnectionOptions
from shardway.core.aggregation.writer import encode_aggregate
from shardway.errors import AccessDeniedError, DataLossError, NotFoundError, StalledError, ThrottledError
from shardway.local.embedded import LocalKinesis
from shardway.local.faults import Fault
from shardway.model import StreamName
from shardway.spark.ranges import EndKind, ShardPartition
from shardway.spark.task import connections, fetcher, range_cursor
from shardway.spark.task.partition_reader import read_partition
from tests.interrupting import ROOT, TASKS, THREADS, InterruptedAt
from tests.spark.scenes import Row, Scene, range_of, rows_of, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway.local.faults import How
    from shardway.spark.ranges import ShardRange

HOUR_S = 3600.0


@pytest.fixture(scope="module")
def running() -> Iterator[LocalKinesis]:
    with LocalKinesis(clock_running=False) as local:
        yield local
        connections.close_connections()


@pytest.fixture
def local(running: LocalKinesis, monkeypatch: pytest.MonkeyPatch) -> LocalKinesis:
    """The service as new, with waits of milliseconds."""
    running.reset()
    running.faults.clear()
    monkeypatch.setattr(range_cursor, "EMPTY_PAUSE_S", 0.001)
    monkeypatch.setattr(fetcher, "BACKOFF_BASE_S", 0.001)
    return running


def numbered(count: int, size: int = 8) -> list[bytes]:
    return [b"%08d" % n + bytes(size - 8) for n in range(count)]


# --- ends -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "end"), [(0, 99), (0, 0), (7, 8), (40, 99)])
def test_exclusive_and_inclusive_ends(local: LocalKinesis, first: int, end: int) -> None:
    scene = Scene(local)
    scene.put(0, *numbered(100))
    log = scene.log(0)
    before = scene.read((range_of(0, log[first:], EndKind.EXCLUSIVE, log[end]),))
    assert [row.data for row in before] == numbered(100)[first:end]
    with_it = scene.read((range_of(0, log[first:], EndKind.INCLUSIVE, log[end]),))
    assert [row.data for row in with_it] == numbered(100)[first : end + 1]
    assert [row.sequence_number for row in with_it] == [int(r.sequence_number) for r in log[first : end + 1]]


def test_what_comes_after_the_end_is_not_read(local: LocalKinesis) -> None:
    scene = Scene(local)
    scene.put(0, *numbered(10))
    chain = (whole(0, scene.log(0)),)
    scene.put(0, *numbered(20))
    assert [row.data for row in scene.read(chain)] == numbered(10)


def test_the_end_of_a_shard(local: LocalKinesis) -> None:
    scene = Scene(local)
    scene.put(0, *numbered(10))
    scene.split(0)
    assert [row.data for row in scene.read((range_of(0, scene.log(0), EndKind.SHARD_END),))] == numbered(10)


def test_no_chains_no_rows(local: LocalKinesis) -> None:
    assert Scene(local).batches() == []


def test_the_tip_before_the_end_is_an_error(local: LocalKinesis) -> None:
    scene = Scene(local)
    scene.put(0, *numbered(3))
    log = scene.log(0)
    never = whole(0, log)._replace(end_kind=EndKind.EXCLUSIVE, end_sequence_number=int(log[-1].sequence_number) + 1)
    with pytest.raises(StalledError, match=r"shardId-000000000000 \[.*an empty page at the tip"):
        scene.read((never,), no_progress_s=0.1)


def test_an_open_shard_has_no_end(local: LocalKinesis) -> None:
    scene = Scene(local)
    scene.put(0, *numbered(3))
    with pytest.raises(StalledError, match="end of the shard"):
        scene.read((range_of(0, scene.log(0), EndKind.SHARD_END),), no_progress_s=0.1)


# --- order ------------------------------------------------------------------------------------------


def test_parents_come_before_their_children(local: LocalKinesis) -> None:
    """A split followed by a merge: the diamond 0 -> 1, 2 -> 3, in one chain."""
    scene = Scene(local)
    scene.put(0, *numbered(30))
    scene.split(0)
    scene.put(1, *numbered(20))
    scene.put(2, *numbered(25))
    scene.merge(1, 2)
    scene.put(3, *numbered(10))
    logs = [scene.log(shard) for shard in range(4)]
    chain = (*(range_of(shard, logs[shard], EndKind.SHARD_END) for shard in range(3)), whole(3, logs[3]))
    rows = scene.read(chain, batch_rows_max=7)
    assert [(row.shard_id[-1], row.data) for row in rows] == [
        (str(shard), record.data) for shard in range(4) for record in logs[shard]
    ]


def many_shards(local: LocalKinesis, shards: int = 9) -> tuple[Scene, list[tuple[ShardRange, ...]]]:
    scene = Scene(local, shards)
    chains: list[tuple[ShardRange, ...]] = []
    for shard in range(shards):
        scene.put(shard, *numbered(40 + 60 * (shard % 4), size=1000 + 100 * shard))
        chains.append((whole(shard, scene.log(shard)),))
    return scene, chains


def assert_shards_whole_and_in_order(scene: Scene, rows: list[Row]) -> None:
    for shard in {int(row.shard_id[-12:]) for row in rows}:
        got = [(row.sequence_number, row.data) for row in rows if int(row.shard_id[-12:]) == shard]
        assert got == [(int(record.sequence_number), record.data) for record in scene.log(shard)]


@pytest.mark.parametrize("chains_max", [1, 2, 4, 100])
def test_all_attempts_yield_the_same_batches(local: LocalKinesis, chains_max: int) -> None:
    """However the answers come in: delayed at random, in pages of other sizes, after failures."""
    scene, chains = many_shards(local)
    shape = {"chains_max": chains_max, "batch_bytes_max": 100_000, "prefetch_bytes_max": 400_000}
    first = scene.batches(*chains, **shape)
    assert_shards_whole_and_in_order(scene, rows_of(first))
    assert len(first) > 5
    connections.close_connections()  # a new worker knows nothing of the stream's records
    for how in ("delay", "throttle", "expired_iterator"):
        more: dict[str, Any] = {"delay_s": 0.02} if how == "delay" else {}
        order = local.faults.add(Fault(how=how, operation="GetRecords", probability=0.3, seed=chains_max, **more))
        again = scene.batches(*chains, **shape)
        order.clear()
        assert order.hits > 0
        assert [batch.to_pydict() for batch in again] == [batch.to_pydict() for batch in first]


def test_chains_are_read_at_the_same_time(local: LocalKinesis) -> None:
    """While the first shard's answer is held up, the others are asked."""
    scene, chains = many_shards(local, 4)
    slow = local.faults.add(Fault(how="delay", operation="GetRecords", delay_s=0.3, shard="shardId-000000000000"))
    local.reset_stats()
    batches = read_partition(scene.partition(*chains, batch_rows_max=10))
    first = next(batches)
    assert first.column("shard_id").to_pylist() == ["shardId-000000000000"] * 10
    assert slow.hits >= 1
    assert local.stats().calls("GetRecords") >= 4
    assert_shards_whole_and_in_order(scene, rows_of([first, *batches]))


def test_rows_of_many_small_chains_share_a_batch(local: LocalKinesis) -> None:
    scene = Scene(local, 5)
    chains = []
    for shard in range(5):
        scene.put(shard, *numbered(3))
        chains.append((whole(shard, scene.log(shard)),))
    (batch,) = scene.batches(*chains, chains_max=2)
    assert batch.column("shard_id").to_pylist() == [f"shardId-{n:012d}" for n in range(5) for _ in range(3)]


def test_memory_for_pages_is_bounded(local: LocalKinesis) -> None:
    """40 MB behind one row: no more is fetched than the bound and a page allow."""
    scene = Scene(local, 4)
    chains = []
    for shard in range(4):
        scene.put(shard, *numbered(10, size=1_000_000))
        chains.append((whole(shard, scene.log(shard)),))
    local.reset_stats()
    connections.close_connections()  # a new worker expects the largest pages
    batches = read_partition(scene.partition(*chains, batch_rows_max=1, prefetch_bytes_max=4 * 2**20))
    next(batches)
    fetched = local.stats().operations["GetRecords"].response_bytes
    assert fetched < 4 * 2**20 + 14 * 2**20
    batches.close()


# --- what is inside records -------------------------------------------------------------------------


def test_aggregates_across_the_ends_of_pages(local: LocalKinesis) -> None:
    scene = Scene(local)
    expected: list[tuple[int, bytes]] = []
    records = []
    for number in range(60):
        users = [b"%d-%d" % (number, sub) + bytes(20_000) for sub in range(number % 4 + 1)]
        if number % 3:
            records.append(encode_aggregate([("key", data, None) for data in users]))
            expected += enumerate(users)
        else:
            records.append(users[0])
            expected.append((0, users[0]))
    scene.put(0, *records)
    shape = {"prefetch_bytes_max": 600_000, "batch_bytes_max": 150_000}
    chain = (whole(0, scene.log(0)),)
    scene.read(chain, **shape)  # learns how large a record is, and so how many make a page
    local.reset_stats()
    rows = scene.read(chain, **shape)
    assert [(row.sub_sequence_number, row.data) for row in rows] == expected
    assert local.stats().calls("GetRecords", "task") > 6


def test_a_record_of_10_mib_between_small_ones(local: LocalKinesis) -> None:
    scene = Scene(local)
    params = {"StreamARN": scene.run(scene.client.describe_stream_summary(scene.stream)).stream_arn}
    scene.run(scene.client.call("UpdateMaxRecordSize", {**params, "MaxRecordSizeInKiB": 10_240}))
    large = bytes(10 * 2**20 - 100)
    scene.put(0, b"before")
    scene.put(0, large)
    scene.put(0, b"after", b"")
    assert [row.data for row in scene.read((whole(0, scene.log(0)),))] == [b"before", large, b"after", b""]


# --- failures ---------------------------------------------------------------------------------------


FAULTS: tuple[How, ...] = ("throttle", "server_error", "reset", "lost_reply", "truncate")
CALLS = [(how, operation) for how in FAULTS for operation in ("GetShardIterator", "GetRecords")]


@pytest.mark.parametrize(("how", "operation"), [*CALLS, ("expired_iterator", "GetRecords")])
def test_failures_are_repeated(local: LocalKinesis, how: How, operation: str) -> None:
    scene = Scene(local)
    scene.put(0, *numbered(50, size=30_000))
    chain = (whole(0, scene.log(0)),)
    order = local.faults.add(Fault(how=how, operation=operation, tag="task", count=3))
    assert [row.data for row in scene.read(chain, prefetch_bytes_max=10)] == numbered(50, size=30_000)
    assert order.hits == 3


def test_an_iterator_that_expires_is_replaced(local: LocalKinesis) -> None:
    """The task stood still for ten minutes of the service's time, as behind a slow sink."""
    scene = Scene(local)
    scene.put(0, *numbered(50, size=30_000))
    chain = (whole(0, scene.log(0)),)
    batches = read_partition(scene.partition(chain, prefetch_bytes_max=10, batch_rows_max=1))
    first = next(batches)
    local.clock.advance(600)
    assert [row.data for row in rows_of([first, *batches])] == numbered(50, size=30_000)


def test_a_shard_that_only_refuses_fails_the_task_in_time(local: LocalKinesis) -> None:
    scene = Scene(local)
    scene.put(0, b"x")
    chain = (whole(0, scene.log(0)),)
    local.faults.add(Fault(how="throttle", operation="GetRecords"))
    with pytest.raises(StalledError, match=r"range shardId-000000000000 .* the read came no nearer") as caught:
        scene.read(chain, no_progress_s=0.2)
    assert isinstance(caught.value.__cause__, ThrottledError)


def test_what_repeating_cannot_help_is_raised_at_once(local: LocalKinesis) -> None:
    scene = Scene(local)
    scene.put(0, b"x")
    chain = (whole(0, scene.log(0)),)
    order = local.faults.add(Fault(how="access_denied", operation="GetRecords"))
    with pytest.raises(AccessDeniedError) as caught:
        scene.read(chain)
    assert order.hits == 1
    assert "while reading stream orders, range shardId-000000000000" in caught.value.__notes__[0]


def test_the_shards_limits_are_kept_after_the_first_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """5 calls and 2 MiB a second and shard, enforced by the service in real time."""
    with LocalKinesis() as local:
        scene = Scene(local, 2)
        for shard in range(2):
            scene.put(shard, *numbered(8, size=400_000))
        chains = [(whole(shard, scene.log(shard)),) for shard in range(2)]
        local.set_limits(per_shard=True)
        rows = scene.read(*chains, prefetch_bytes_max=10)
        local.set_limits(per_shard=False)
        assert_shards_whole_and_in_order(scene, rows)
        counts = local.stats().tags["task"]["GetRecords"]
        assert counts.errors < counts.calls / 2
        connections.close_connections()


def test_a_task_that_is_ended_early_leaves_nothing_behind(local: LocalKinesis) -> None:
    scene, chains = many_shards(local)
    held = local.faults.add(Fault(how="delay", operation="GetRecords", delay_s=60.0, skip=3))
    batches = read_partition(scene.partition(*chains, batch_rows_max=1, prefetch_bytes_max=10))
    next(batches)
    batches.close()
    held.clear()
    assert_shards_whole_and_in_order(scene, scene.read(*chains))


# --- trimmed ----------------------------------------------------------------------------------------


def half_trimmed(local: LocalKinesis) -> tuple[Scene, list[Any], list[Any]]:
    """Records 0 to 9 are past the 24 hours of retention, 10 to 19 are not."""
    scene = Scene(local)
    scene.put(0, *numbered(10))
    local.clock.advance(20 * HOUR_S)
    scene.put(0, *numbered(20)[10:])
    log = scene.log(0)
    local.clock.advance(5 * HOUR_S)
    left = scene.log(0)
    assert [record.data for record in left] == numbered(20)[10:]
    return scene, log, left


@pytest.mark.parametrize("at_risk", [False, True])
@pytest.mark.parametrize("kind", [EndKind.EXCLUSIVE, EndKind.INCLUSIVE])
def test_a_trimmed_start(local: LocalKinesis, caplog: pytest.LogCaptureFixture, kind: EndKind, at_risk: bool) -> None:
    scene, log, left = half_trimmed(local)
    chain = (range_of(0, log, kind, log[15], at_risk=at_risk),)
    said = f"record {log[0].sequence_number} .* oldest record left is {left[0].sequence_number}"
    with pytest.raises(DataLossError, match=said):
        scene.read(chain)
    with caplog.at_level(logging.WARNING):
        rows = scene.read(chain, fail_on_data_loss=False)
    assert [row.data for row in rows] == numbered(20)[10 : 15 if kind is EndKind.EXCLUSIVE else 16]
    assert "Going on with what is left" in caplog.text


@pytest.mark.parametrize("at_risk", [False, True])
def test_a_range_that_is_trimmed_as_a_whole(local: LocalKinesis, at_risk: bool) -> None:
    scene, log, _ = half_trimmed(local)
    chain = (range_of(0, log, EndKind.EXCLUSIVE, log[7], at_risk=at_risk),)
    with pytest.raises(DataLossError, match="after the whole range"):
        scene.read(chain)
    assert scene.read(chain, fail_on_data_loss=False) == []


def test_a_trimmed_end_with_records_after_it(local: LocalKinesis) -> None:
    scene, log, _ = half_trimmed(local)
    for kind in (EndKind.EXCLUSIVE, EndKind.INCLUSIVE):
        assert scene.read((range_of(0, log[2:], kind, log[9]),), fail_on_data_loss=False) == []


def test_all_is_trimmed_and_nothing_came_since(local: LocalKinesis) -> None:
    scene, log, _ = half_trimmed(local)
    local.clock.advance(30 * HOUR_S)
    chain = (whole(0, log, at_risk=True),)
    with pytest.raises(DataLossError, match="nothing came after it"):
        scene.read(chain, no_progress_s=0.5)
    assert scene.read(chain, no_progress_s=0.5, fail_on_data_loss=False) == []


def test_a_start_at_risk_that_is_still_there_is_read_whole(local: LocalKinesis) -> None:
    scene, _, left = half_trimmed(local)
    rows = scene.read((whole(0, left, at_risk=True),), prefetch_bytes_max=10)
    assert [row.data for row in rows] == numbered(20)[10:]


def test_what_retention_takes_while_the_task_stands_still_is_noticed(local: LocalKinesis) -> None:
    scene = Scene(local)
    scene.put(0, *numbered(10, size=60_000))
    local.clock.advance(HOUR_S)
    scene.put(0, *numbered(20, size=60_000)[10:])
    log = scene.log(0)
    local.clock.advance(22 * HOUR_S)
    chain = (whole(0, log, at_risk=True),)
    scene.read(chain, prefetch_bytes_max=10)  # learns how many records make a small page
    batches = read_partition(scene.partition(chain, prefetch_bytes_max=10, batch_rows_max=1))
    next(batches)
    local.clock.advance(1.5 * HOUR_S)
    with pytest.raises(DataLossError, match=f"the oldest record left is {log[10].sequence_number}"):
        list(batches)


def test_a_shard_that_is_gone(local: LocalKinesis) -> None:
    scene = Scene(local)
    scene.put(0, *numbered(10))
    log = scene.log(0)
    scene.split(0)
    local.clock.advance(30 * HOUR_S)
    chain = (range_of(0, log, EndKind.SHARD_END),)
    with pytest.raises(DataLossError, match=r"shardId-000000000000 \[.*the shard does not exist any more"):
        scene.read(chain)
    assert scene.read(chain, fail_on_data_loss=False) == []


def test_a_stream_that_does_not_exist_is_never_taken_for_loss(local: LocalKinesis) -> None:
    scene = Scene(local)
    scene.put(0, *numbered(10))
    partition = scene.partition((whole(0, scene.log(0)),), fail_on_data_loss=False)
    partition.stream = StreamName("nowhere")
    with pytest.raises(NotFoundError, match="nowhere"):
        list(read_partition(partition))


def test_a_stream_that_was_made_again(local: LocalKinesis) -> None:
    scene = Scene(local)
    scene.put(0, *numbered(10))
    log = scene.log(0)
    scene.run(scene.client.call("DeleteStream", {"StreamName": "orders"}))
    local.clock.advance(100)
    Scene(local).put(0, *numbered(5))
    with pytest.raises(DataLossError, match="after the whole range"):
        scene.read((whole(0, log),))
    assert scene.read((whole(0, log),), fail_on_data_loss=False) == []


# --- processes --------------------------------------------------------------------------------------


def test_a_partition_is_small_and_survives_pickling(local: LocalKinesis) -> None:
    scene, chains = many_shards(local, 4)
    partition = scene.partition(*chains)
    pickled = pickle.dumps(partition)
    again = pickle.loads(pickled)
    assert isinstance(again, ShardPartition)
    assert (again, hash(again), repr(again)) == (partition, hash(partition), repr(partition))
    assert [b.to_pydict() for b in read_partition(again)] == [b.to_pydict() for b in read_partition(partition)]
    hundred = scene.partition(*(((chains[0][0]._replace(first_sequence_number=10**55 + n)),) for n in range(100)))
    assert len(pickle.dumps(hundred)) < 15_000


FORKING = """
import os, pickle, sys
from shardway.spark.task.partition_reader import read_partition
partition = pickle.loads(sys.stdin.buffer.read())
count = sum(batch.num_rows for batch in read_partition(partition))
for _ in range(2):
    child = os.fork()
    if child == 0:
        again = sum(batch.num_rows for batch in read_partition(partition))
        os._exit(0 if again == count else 1)
    assert os.waitpid(child, 0)[1] == 0, "the child did not read what its parent did"
print(count, sum(batch.num_rows for batch in read_partition(partition)))
"""


def test_a_forked_worker_makes_its_own_connection(local: LocalKinesis) -> None:
    """Spark's workers are forks of a daemon."""
    scene, chains = many_shards(local, 3)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING],
        input=pickle.dumps(scene.partition(*chains)), capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    total = len(scene.read(*chains))
    assert (done.returncode, done.stdout.decode().split(), done.stderr) == (0, [str(total)] * 2, b"")


def test_connections_are_kept_and_bounded(local: LocalKinesis) -> None:
    scene = Scene(local)
    kept = connections.connection_for(scene.wire)
    assert connections.connection_for(scene.wire) is kept
    numbers = range(connections.CONNECTIONS_MAX)
    others = [connections.connection_for(ConnectionOptions(region=f"eu-west-{n}")) for n in numbers]
    assert len({id(one) for one in others}) == connections.CONNECTIONS_MAX
    assert connections.connection_for(scene.wire) is not kept


def test_what_a_record_takes_is_learnt() -> None:
    connection = connections.Connection(ConnectionOptions(region="eu-west-1"))
    assert connection.record_bytes("orders") is None
    connection.note_record_bytes("orders", 1_000, 10)
    assert connection.record_bytes("orders") == 100
    connection.note_record_bytes("orders", 10_000, 10)
    assert connection.record_bytes("orders") == 1_000
    seen = []
    for _ in range(20):
        connection.note_record_bytes("orders", 1_000, 10)
        seen.append(connection.record_bytes("orders") or 0)
    assert all(later < earlier for earlier, later in pairwise(seen))
    assert seen[-1] == pytest.approx(100, rel=0.1)
    connection.close()


def test_pace_of_a_shard() -> None:
    pace = fetcher.ShardPace()
    pace.note_answer(10.0, 14 * 2**20)
    assert pace.wait_s(10.0) == 0.0
    pace.note_refusal()
    assert pace.wait_s(10.0) == pytest.approx(14 * 0.75 / 2)
    assert pace.wait_s(20.0) == 0.0
    pace.note_answer(20.0, 100)
    pace.note_answer(20.1, 100)
    assert pace.wait_s(20.1) == pytest.approx(0.3)


# --- signal handlers that raise -----------------------------------------------------------------------


@pytest.mark.timeout(300, method="thread")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning")
def test_a_task_that_is_interrupted_at_any_moment_leaves_the_connection_to_the_next_one(local: LocalKinesis) -> None:
    """Ctrl-C raises in Spark's Python processes, which are kept for further tasks."""
    scene = Scene(local)
    scene.put(0, *numbered(20))
    chain = (whole(0, scene.log(0)),)
    assert len(scene.read(chain)) == 20  # the connection is there
    at, reached = 0, "-"
    parts = ("partition_reader", "chain_reader", "range_cursor", "fetcher", "connections")
    modules = (f"{ROOT}/spark/task/{part}.py" for part in parts)
    within = (
        *THREADS,
        *modules,
        f"{ROOT}/runtime/threads/",
        *TASKS,
    )
    while reached:
        interruption = InterruptedAt(at, KeyboardInterrupt, within=within)
        with contextlib.suppress(KeyboardInterrupt):
            interruption.run(lambda: scene.read(chain))
        reached = interruption.reached
        assert len(scene.read(chain)) == 20, reached
        at += 1
    assert at > 30
    gc.collect()  # a coroutine that was made, and not begun before the signal came, warns: here, not later
