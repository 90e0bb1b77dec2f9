"""The account that `make interop` keeps (interop/fleets): each fault that it is there to find is found."""

from __future__ import annotations

from typing import Any

import pytest
from interop.fleets.account import Account, Move
from interop.fleets.watching import TableWatch
from interop.fleets.writing import KEYS


class Worker:
    """What an account asks of a worker's process."""

    def __init__(self, name: str, kind: str, *lines: dict[str, Any]) -> None:
        self.name = name
        self.kind = kind
        self._lines = list(lines)

    def new_lines(self) -> list[dict[str, Any]]:
        lines, self._lines = self._lines, []
        return lines


def records(at_ms: int, shard: str, *numbers: int, tenure: int = 1) -> dict[str, Any]:
    rows = [[str(1000 + number), 0, at_ms - 40, number] for number in numbers]
    return {"at_ms": at_ms, "event": "records", "shard": shard, "tenure": tenure, "records": rows}


def account_of(*workers: Worker) -> Account:
    account = Account()
    account.steps = [(0, "one starts"), (2500, "another joins")]
    account.read(workers)
    return account


def test_a_move_has_its_gap_what_was_repeated_and_what_came_late() -> None:
    giver = Worker("a", "KCL", records(1000, "s", 0), records(2000, "s", 1), records(3000, "s", 2, 3, 4))
    taker = Worker("b", "ours", records(2800, "s", 1, 2), records(3200, "s", 3, 4, 5))
    account = account_of(giver, taker)
    # From 2000 to 2800, less than the usual 1000. 1 comes from before; 2, 3, 4 are delivered by both from then on.
    assert account.moves() == [Move("another joins", "s", "KCL", "ours", 0, 1, 3, 200)]
    assert account.duplicates() == 4
    assert account.missing(7) == [6]


def test_a_gap_counts_from_the_last_delivery_before_the_first_of_the_taker() -> None:
    giver = Worker("a", "KCL", records(1000, "s", 0), records(1250, "s", 1), records(1500, "s", 2))
    account = account_of(giver, Worker("b", "ours", records(9000, "s", 3)))
    assert [move.gap_ms for move in account.moves()] == [9000 - 1500 - 250]


def test_a_worker_that_loses_a_shard_and_gets_it_again_is_a_move_too() -> None:
    lines = [records(1000, "s", 0), records(4000, "s", 1, tenure=2)]
    assert [(move.giver, move.taker) for move in account_of(Worker("a", "KCL", *lines)).moves()] == [("KCL", "KCL")]


def test_a_child_that_begins_before_its_parent_is_done_is_out_of_order() -> None:
    """Record n and record n + KEYS have one key."""
    in_time = account_of(Worker("a", "KCL", records(1000, "parent", 0)), Worker("b", "ours", records(1500, "c", KEYS)))
    early = account_of(Worker("a", "KCL", records(1500, "parent", 0)), Worker("b", "ours", records(1000, "c", KEYS)))
    assert in_time.out_of_order() == []
    assert early.out_of_order() == [f"record 0 of its key came after {KEYS}"]
    assert [(child.shard, child.delay_ms) for child in in_time.children(["parent"])] == [("c", 40)]


def test_what_is_only_repeated_is_in_order() -> None:
    giver = Worker("a", "KCL", records(1000, "s", 0), records(1200, "s", KEYS))
    account = account_of(giver, Worker("b", "ours", records(1500, "s", 0, KEYS, 2 * KEYS)))
    assert account.out_of_order() == []


def lease(key: str, counter: int, checkpoint: str, **texts: str) -> dict[str, Any]:
    row = {"leaseKey": {"S": key}, "leaseCounter": {"N": str(counter)}, "checkpoint": {"S": checkpoint}}
    return row | {name: {"S": text} for name, text in texts.items()}


@pytest.fixture
def watch() -> TableWatch:
    return TableWatch(None, "table")


def test_a_checkpoint_and_a_counter_that_go_back_are_seen(watch: TableWatch) -> None:
    for row in (lease("s", 1, "TRIM_HORIZON"), lease("s", 2, "900"), lease("s", 3, "1000"), lease("s", 4, "SHARD_END")):
        watch.look([row])
    assert watch.steps_back() == []
    watch.look([lease("s", 5, "1000")])
    watch.look([lease("s", 4, "1000")])
    assert watch.steps_back() == ["s: checkpoint SHARD_END -> 1000", "s: counter 5 -> 4"]


def test_a_lease_that_was_deleted_and_comes_again_is_seen(watch: TableWatch) -> None:
    watch.look([lease("s", 9, "SHARD_END")])
    watch.look([])
    watch.look([lease("s", 0, "TRIM_HORIZON")])
    assert watch.steps_back() == ["s: checkpoint SHARD_END -> TRIM_HORIZON", "s: counter 9 -> 0"]


def test_handoffs_and_rows_without_a_counter_are_seen(watch: TableWatch) -> None:
    watch.look([lease("s", 1, "5", leaseOwner="next", checkpointOwner="now"), lease("t", 1, "5", leaseOwner="now")])
    watch.look([{"leaseKey": {"S": "Leader"}, "entityType": {"S": "LEADER"}}])
    assert watch.handoffs() == {("now", "next")}
    assert watch.without_counter == {"Leader"}
    assert set(watch.others) == {"Leader"}
