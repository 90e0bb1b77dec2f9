"""How a worker does what its round answers: in which order, and what becomes of the rest where something fails."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.leases import LeaseRow
from shardway.core.worker import actions, events
from shardway.errors import UnavailableError
from shardway.leases import MemoryLeaseTable
from shardway.runtime.worker import worker as workers
from shardway.runtime.worker.holding import Readers
from shardway.runtime.worker.worker import Worker
from tests.options_kit import options_of
from tests.runtime.consumer.reading_kit import plain_context

if TYPE_CHECKING:
    from shardway.core.leases import Outcome, Write

K = "s0"


class FailingTable(MemoryLeaseTable):
    """It takes no write."""

    async def write(self, write: Write) -> Outcome:
        raise UnavailableError("ThrottlingException", "slow down", operation="UpdateItem")


def worker_of(table: MemoryLeaseTable) -> Worker:
    options, rng = options_of(), random.Random(0)
    return Worker(
        "ours",
        table,
        options,
        readers=Readers([], options, None, context_of=plain_context, rng=rng, on_event=lambda event: None),
        rng=rng,
        on_event=lambda event: None,
        on_reader=lambda reader: None,
    )


async def test_what_an_action_leads_to_comes_behind_the_other_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, done = worker_of(MemoryLeaseTable()), list[str]()
    answers = {
        events.LeaseSeen: [actions.Discard("a"), actions.Discard("b")],
        events.LeaveAsked: [actions.Discard("c")],
    }
    monkeypatch.setattr(workers, "step", lambda state, event, now_s: answers[type(event)])

    def discard(key: str) -> None:
        done.append(key)
        if key == "a":
            worker._handle_between_rounds(events.LeaveAsked())

    monkeypatch.setattr(worker._reading_ahead, "discard", discard)
    assert worker._handle(events.LeaseSeen(key=K, row=None, lease=None, known=None, sent_s=0.0)) == []
    assert done == ["a", "b", "c"]


async def test_an_action_that_fails_keeps_none_of_the_others_from_being_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are done with the next input: what the machine has counted on must come to pass."""
    worker, done = worker_of(MemoryLeaseTable()), list[str]()
    answers: dict[type[Any], list[Any]] = {
        events.LeaseSeen: [actions.Discard("a"), actions.Discard("b")],
        events.LeaveAsked: [actions.PublishRow()],
    }
    monkeypatch.setattr(workers, "step", lambda state, event, now_s: answers[type(event)])

    def discard(key: str) -> None:
        if key == "a":
            raise ZeroDivisionError("a bug")
        done.append(key)

    monkeypatch.setattr(worker._reading_ahead, "discard", discard)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        worker._handle(events.LeaseSeen(key=K, row=None, lease=None, known=None, sent_s=0.0))
    worker._handle(events.LeaveAsked())
    assert done == ["b"]


async def test_a_lease_that_cannot_be_freed_keeps_no_other_from_being_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, looked = FailingTable(), list[str]()
    await table.ensure()
    worker = worker_of(table)

    async def look_at(key: str) -> list[Any]:
        looked.append(key)
        return []

    monkeypatch.setattr(worker, "_look_at", look_at)
    with pytest.raises(UnavailableError):
        await worker._do([actions.FreeRows([LeaseRow(key="given")]), actions.LookAt(K)])
    assert looked == [K]


async def test_a_shard_that_does_not_come_any_more_is_not_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read ahead of a shard that no side waits for would be read for ever."""
    table, begun = MemoryLeaseTable(), list[LeaseRow]()
    await table.ensure()
    await table.create(LeaseRow(key=K))
    worker = worker_of(table)
    monkeypatch.setattr(worker._reading_ahead, "come", begun.append)
    await worker._do([actions.WarmUp(K)])
    assert begun == []
