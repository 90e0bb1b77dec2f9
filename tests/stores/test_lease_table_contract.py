"""What every lease table does alike: rows whole, writes by condition, races with one winner."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from shardway.aws.dynamodb.lease_table import DynamoLeaseTable
from shardway.core.assignment.kcl.fleet import Place
from shardway.core.assignment.kcl.rows import metrics_row
from shardway.core.leases import Checkpoint, Done, LeaseRow, Refused, writes
from shardway.core.leases.conditional_write import resolve
from shardway.core.leases.worker_row import WorkerRow
from shardway.ports import SharedWithKcl
from tests.stores.lease_kit import at, done, full_row, made

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.core.leases import Write
    from shardway.ports import LeaseTable

WRITERS = 32


# --- rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [full_row(), LeaseRow(key="shardId-000000000000")], ids=["full", "bare"])
async def test_a_row_comes_back_as_it_was_created(table: LeaseTable, row: LeaseRow) -> None:
    assert await table.create(row) == Done(row)
    assert await table.get(row.key) == row
    assert (await table.scan()).rows == [row]


async def test_a_row_is_created_once(table: LeaseTable) -> None:
    first = await made(table, LeaseRow(key="a", checkpoint=Checkpoint.LATEST))
    assert await table.create(replace(first, checkpoint=Checkpoint.TRIM_HORIZON)) == Refused(first)
    assert await table.get("a") == first


async def test_what_is_not_there(table: LeaseTable) -> None:
    assert await table.get("a") is None
    assert (await table.scan(consistent=True)).rows == []
    assert await table.write(writes.renew(LeaseRow(key="a"))) == Refused(None)
    assert await table.write(writes.metadata("a", children=frozenset({"b"}))) == Refused(None)
    assert await table.get("a") is None, "a write made a row"


async def test_ensure_may_come_again_and_keeps_what_is_there(
    table: LeaseTable, again: Callable[[], LeaseTable]
) -> None:
    row = await made(table, full_row())
    await table.ensure()
    other = again()
    await other.ensure()
    assert await other.get(row.key) == row


async def test_many_rows_are_all_listed(table: LeaseTable) -> None:
    rows = [LeaseRow(key=f"shardId-{number:012d}") for number in range(40)]
    await asyncio.gather(*(table.create(row) for row in rows))
    assert sorted((await table.scan()).rows, key=lambda row: row.key) == rows


# --- writes ---------------------------------------------------------------------------------------

FREE = LeaseRow(key="a", counter=3, checkpoint=at(0, 2), switches=1)
OWNED = replace(FREE, owner="w1")
ASKED = replace(FREE, owner="w2", checkpoint_owner="w1")
PENDING = replace(OWNED, pending=at(9, 1), pending_state=b"s")

CASES: list[tuple[str, LeaseRow, Write, LeaseRow]] = [
    ("take", FREE, writes.take(FREE, "w1"), replace(FREE, owner="w1", counter=4)),
    ("take over", OWNED, writes.take(OWNED, "w2"), replace(FREE, owner="w2", counter=4, switches=2)),
    ("take again", OWNED, writes.take(OWNED, "w1"), replace(OWNED, counter=4)),
    ("take amid a handoff", ASKED, writes.take(ASKED, "w3"), replace(FREE, owner="w3", counter=4, switches=2)),
    ("renew", PENDING, writes.renew(PENDING), replace(PENDING, counter=4)),
    ("renew, measured", OWNED, writes.renew(OWNED, 1.23456789), replace(OWNED, counter=4, throughput_kib_s=1.234568)),
    ("renew amid a handoff", ASKED, writes.renew(ASKED), replace(ASKED, counter=4)),
    ("checkpoint", PENDING, writes.checkpoint(PENDING, at(9)), replace(OWNED, counter=4, checkpoint=at(9), switches=0)),
    (
        "checkpoint the end",
        OWNED,
        writes.checkpoint(OWNED, Checkpoint.SHARD_END),
        replace(OWNED, counter=4, checkpoint=Checkpoint.SHARD_END, switches=0),
    ),
    (
        "prepare",
        OWNED,
        writes.prepare(OWNED, at(9, 1), b"\x00"),
        replace(OWNED, counter=4, pending=at(9, 1), pending_state=b"\x00"),
    ),
    ("give", OWNED, writes.give(OWNED, "w2"), replace(OWNED, owner="w2", counter=4, switches=2)),
    (
        "give with the last checkpoint",
        OWNED,
        writes.give(OWNED, "w2", at(9)),
        replace(OWNED, owner="w2", counter=4, checkpoint=at(9), switches=1),
    ),
    ("give what is asked for", ASKED, writes.give(ASKED, "w2"), replace(OWNED, owner="w2", counter=4, switches=2)),
    (
        "give with a pending one",
        PENDING,
        writes.give(PENDING, "w2"),
        replace(PENDING, owner="w2", counter=4, switches=2),
    ),
    ("free", OWNED, writes.free(OWNED, at(9)), replace(FREE, counter=4, checkpoint=at(9), switches=0)),
    ("free what is asked for", ASKED, writes.free(ASKED), replace(FREE, owner="w2", counter=4)),
    ("ask for a handoff", OWNED, writes.ask_handoff(OWNED, "w2"), ASKED),
    (
        "metadata",
        ASKED,
        writes.metadata("a", parents=frozenset("p"), children=frozenset({"b", "c"}), hash_range=(0, 2**127)),
        replace(
            ASKED,
            parents=frozenset("p"),
            children=frozenset({"b", "c"}),
            first_hash_key=0,
            last_hash_key=2**127,
        ),
    ),
]


@pytest.mark.parametrize(("before", "write", "after"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
async def test_a_write_changes_what_it_says_and_nothing_else(
    table: LeaseTable, before: LeaseRow, write: Write, after: LeaseRow
) -> None:
    await made(table, before)
    bystander = await made(table, replace(before, key="b"))
    assert await table.write(write) == Done(after)
    assert await table.get("a") == after
    assert await table.get("b") == bystander
    again = await table.write(write)
    if isinstance(again, Refused):
        assert resolve(write, again.row) == Done(after), "a worker that asks again cannot tell that it was done"
    else:
        assert again == Done(after), "only what moves no counter may be done twice"


@pytest.mark.parametrize("kind", ["take", "renew", "checkpoint", "prepare", "give", "free", "delete"])
@pytest.mark.parametrize("moved", ["counter", "owner", "checkpoint_owner"])
async def test_an_owners_write_is_refused_if_anything_of_the_ownership_moved(
    table: LeaseTable, kind: str, moved: str
) -> None:
    seen = LeaseRow(key="a", counter=3, owner="w1", checkpoint=at(0))
    changes: dict[str, dict[str, Any]] = {
        "counter": {"counter": 4},
        "owner": {"owner": "w9"},
        "checkpoint_owner": {"checkpoint_owner": "w9"},
    }
    now = await made(table, replace(seen, **changes[moved]))
    write = {
        "take": writes.take(seen, "w2"),
        "renew": writes.renew(seen),
        "checkpoint": writes.checkpoint(seen, at(1)),
        "prepare": writes.prepare(seen, at(1)),
        "give": writes.give(seen, "w2"),
        "free": writes.free(seen),
        "delete": writes.delete(seen),
    }[kind]
    assert await table.write(write) == Refused(now)
    assert await table.get("a") == now


async def test_a_write_to_a_free_lease_is_refused_once_a_worker_owns_it(table: LeaseTable) -> None:
    seen = LeaseRow(key="a", counter=3)
    now = await made(table, replace(seen, owner="w1"))
    assert await table.write(writes.take(seen, "w2")) == Refused(now)


async def test_delete(table: LeaseTable) -> None:
    row = await made(table, full_row())
    other = await made(table, LeaseRow(key="b"))
    assert await table.write(writes.delete(row)) == Done(None)
    assert (await table.scan()).rows == [other]
    assert await table.write(writes.delete(row)) == Refused(None)
    assert await table.create(row) == Done(row), "the key is free again"


async def test_metadata_disturbs_no_owner(table: LeaseTable) -> None:
    row = await made(table, LeaseRow(key="a", counter=3, owner="w1"))
    with_children = done(await table.write(writes.metadata("a", children=frozenset({"b"}))))
    assert with_children == replace(row, children=frozenset({"b"}))
    assert done(await table.write(writes.renew(row))).children == {"b"}


async def test_a_checkpoint_of_a_padded_sequence_number_stays_as_it_is_written(table: LeaseTable) -> None:
    row = LeaseRow(key="a", checkpoint=Checkpoint.parse("000000017952458505710000068750"))
    await made(table, row)
    found = await table.get("a")
    assert found is not None
    assert found.checkpoint.text == "000000017952458505710000068750"


# --- races ----------------------------------------------------------------------------------------


async def test_of_32_writers_from_one_state_one_wins(table: LeaseTable, again: Callable[[], LeaseTable]) -> None:
    row = await made(table, LeaseRow(key="a"))
    tables = [again() for _ in range(4)]
    outcomes = await asyncio.gather(
        *(tables[number % 4].write(writes.take(row, f"w{number}")) for number in range(WRITERS))
    )
    winners = [outcome for outcome in outcomes if isinstance(outcome, Done)]
    assert len(winners) == 1
    now = await table.get("a")
    assert winners[0].row == now
    assert all(outcome == Refused(now) for outcome in outcomes if outcome is not winners[0])


async def test_of_32_creators_one_wins(table: LeaseTable, again: Callable[[], LeaseTable]) -> None:
    tables = [again() for _ in range(4)]
    outcomes = await asyncio.gather(
        *(tables[number % 4].create(LeaseRow(key="a", counter=number)) for number in range(WRITERS))
    )
    now = await table.get("a")
    assert outcomes.count(Done(now)) == 1
    assert outcomes.count(Refused(now)) == WRITERS - 1


async def test_32_workers_that_take_from_each_other_lose_no_write(
    table: LeaseTable, again: Callable[[], LeaseTable]
) -> None:
    """Each tries until it has had the lease once: so the counter tells how often it was held, and tokens differ."""
    await made(table, LeaseRow(key="a"))
    tables = [again() for _ in range(4)]

    async def work(number: int) -> int:
        mine = tables[number % 4]
        while True:
            row = await mine.get("a")
            assert row is not None
            outcome = await mine.write(writes.take(row, f"w{number}"))
            if isinstance(outcome, Done):
                return done(outcome).counter

    tokens = await asyncio.gather(*(work(number) for number in range(WRITERS)))
    assert sorted(tokens) == list(range(1, WRITERS + 1))
    last = await table.get("a")
    assert last is not None
    assert (last.counter, last.switches) == (WRITERS, WRITERS - 1)


# --- workers --------------------------------------------------------------------------------------

WORKER = WorkerRow(
    worker_id="w1",
    counter=4,
    failover_s=10.0,
    version="0.1.0",
    held=frozenset({"a", "b"}),
    wanted=frozenset({"c"}),
    given={"a": "w2"},
    warm=frozenset({"d"}),
    written_ms=1_763_722_900_123,
    unsettled={"a": 840.0, "ü/b": 12.0},
)


async def test_workers_rows(table: LeaseTable) -> None:
    assert await table.workers() == []
    assert await table.put_worker(WORKER) == Done(None)
    assert await table.put_worker(WorkerRow(worker_id="w2", failover_s=2.5)) == Done(None)
    assert sorted(await table.workers(consistent=True), key=lambda row: row.worker_id) == [
        WORKER,
        WorkerRow(worker_id="w2", failover_s=2.5),
    ]


async def test_a_workers_row_is_written_over_whole(table: LeaseTable) -> None:
    await table.put_worker(WORKER)
    bare = WorkerRow(worker_id="w1", counter=5, failover_s=10.0)
    await table.put_worker(bare)
    assert await table.workers() == [bare]


async def test_a_write_of_a_workers_row_that_comes_late_does_not_undo_a_newer_one(table: LeaseTable) -> None:
    newer = replace(WORKER, counter=7, process="one", leaving=True)
    assert await table.put_worker(newer) == Done(None)
    assert await table.put_worker(replace(WORKER, counter=6, process="one")) == Refused(None)
    assert await table.workers(consistent=True) == [newer]
    assert await table.put_worker(newer) == Done(None), "the same write that is sent twice is done"
    other = replace(WORKER, counter=1, process="two")
    assert await table.put_worker(other) == Done(None), "the next process of this id counts from the start"
    assert await table.workers(consistent=True) == [other]
    nameless = replace(WORKER, counter=0)
    assert await table.put_worker(nameless) == Done(None)
    assert await table.put_worker(WORKER) == Done(None)
    assert await table.put_worker(nameless) == Done(None), "without a process the counters say nothing"
    assert await table.workers(consistent=True) == [nameless]


async def test_a_workers_row_is_removed_by_itself_or_by_its_counter(table: LeaseTable) -> None:
    await table.put_worker(WORKER)
    assert await table.delete_worker("w1", counter=3) == Refused(None)
    assert await table.workers() == [WORKER]
    assert await table.delete_worker("w1", counter=4) == Done(None)
    assert await table.workers() == []
    assert await table.delete_worker("w1", counter=4) == Done(None), "it is gone, as it was asked for"
    await table.put_worker(WORKER)
    assert await table.delete_worker("w1") == Done(None)
    assert await table.workers() == []


async def test_workers_and_leases_do_not_meet(table: LeaseTable) -> None:
    await table.put_worker(WORKER)
    listing = await table.scan()
    assert (listing.rows, listing.foreign, listing.unreadable) == ([], {}, {})


# --- beside the KCL -------------------------------------------------------------------------------


async def test_only_a_table_that_kcl_workers_can_reach_says_so(table: LeaseTable) -> None:
    """Beside any other there are Shardway workers alone."""
    assert isinstance(table, SharedWithKcl) is isinstance(table, DynamoLeaseTable)


async def test_what_the_kcl_wants_besides_of_a_table_that_it_can_reach(table: LeaseTable) -> None:
    if not isinstance(table, SharedWithKcl):
        return
    assert await table.coordination() is None, "tables that are not there"
    shown = metrics_row(Place.LEASE_TABLE, "w1", 1_000_000.5, (12.5, 99.0))
    assert await table.show_metrics(Place.LEASE_TABLE, shown) == Done(None)
    again = metrics_row(Place.LEASE_TABLE, "w1", 1_000_030.5)
    assert await table.show_metrics(Place.LEASE_TABLE, again) == Done(None)
    lease = await made(table, LeaseRow(key="a", owner="w1"))
    listing = await table.scan(consistent=True)
    assert (listing.rows, listing.unreadable) == ([lease], {})
    assert dict(listing.foreign["w1"]) == again
    assert await table.owned_keys("w1") == ["a"], "a metrics row is no lease"
    assert await table.withdraw_metrics(Place.LEASE_TABLE, "w1") == Done(None)
    assert await table.withdraw_metrics(Place.LEASE_TABLE, "w1") == Done(None)
    assert (await table.scan(consistent=True)).foreign == {}
