"""Rows that follow a reader that owns no lease: they reach what is wanted, whatever becomes of each write."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.core.leases import Checkpoint, Done, LeaseRow, Outcome, Refused, Unknown, Write, lease_row
from shardway.core.leases.mirror import NOTE, Create, Mark, MirroredRows, Read, Step, release
from tests.core.leases.leasing import at

if TYPE_CHECKING:
    from collections.abc import Callable

HALF = 2**127


def mark(key: str, checkpoint: Checkpoint, note: str = "n", **more: Any) -> Mark:
    return Mark(shard_id=key, checkpoint=checkpoint, note=note, hash_range=(0, HALF - 1), **more)


class Table:
    """Rows by key; does what the steps say, one after another."""

    def __init__(self, *rows: LeaseRow) -> None:
        self.rows = {row.key: row for row in rows}
        self.done: list[Step] = []

    def do(self, step: Step) -> Outcome:
        self.done.append(step)
        if isinstance(step, Read):
            return Done(self.rows.get(step.key))
        if isinstance(step, Create):
            if step.row.key in self.rows:
                return Refused(self.rows[step.row.key])
            self.rows[step.row.key] = step.row
            return Done(step.row)
        row = self.rows.get(step.key)
        if row is None or not step.allowed_on(row.attributes()):
            return Refused(row)
        if not step.changes:
            del self.rows[step.key]
            return Done(None)
        after = lease_row(step.onto(row.attributes()))
        done = row.checkpoint.is_position or row.ended
        assert not done or after.checkpoint >= row.checkpoint, "a checkpoint went back"
        self.rows[step.key] = after
        return Done(after)

    def keep_up(self, mirror: MirroredRows) -> None:
        for _ in range(5):
            steps = mirror.steps()
            if not steps:
                return
            for step in steps:
                mirror.learn(step.row.key if isinstance(step, Create) else step.key, self.do(step))
        raise AssertionError("it has no end")


def test_a_shard_gets_a_row_with_all_that_the_kcl_keeps_of_it() -> None:
    table, mirror = Table(), MirroredRows(())
    mirror.want([mark("b", at(7, 3), "seven", parents=frozenset({"a"}))])
    table.keep_up(mirror)
    row = table.rows["b"]
    assert (row.checkpoint, row.owner, row.parents) == (at(7, 3), None, frozenset({"a"}))
    assert (row.first_hash_key, row.last_hash_key) == (0, HALF - 1)
    assert row.others[NOTE] == "seven"
    assert mirror.steps() == []
    assert mirror.behind() == []


def test_a_checkpoint_never_goes_back_and_says_so() -> None:
    table = Table(LeaseRow(key="a", counter=5, checkpoint=at(9)))
    mirror = MirroredRows(table.rows.values())
    mirror.want([mark("a", at(7))])
    assert mirror.steps() == []
    assert mirror.ahead([mark("a", at(7)), mark("b", at(7))]) == ["a"]
    mirror.want([mark("a", at(10))])
    table.keep_up(mirror)
    assert table.rows["a"].checkpoint == at(10)
    assert table.rows["a"].counter == 6, "a worker that reads the row sees that it moved"


def test_a_word_of_the_kcls_is_never_written_over_a_row() -> None:
    table = Table(LeaseRow(key="a", checkpoint=Checkpoint.TRIM_HORIZON))
    mirror = MirroredRows(table.rows.values())
    mirror.want([mark("a", Checkpoint.LATEST, "since then")])
    table.keep_up(mirror)
    assert table.rows["a"].checkpoint == Checkpoint.TRIM_HORIZON
    assert table.rows["a"].others[NOTE] == "since then"
    mirror.want([mark("a", at(4))])
    table.keep_up(mirror)
    mirror.want([mark("a", Checkpoint.LATEST)])
    assert mirror.steps() == []


def test_a_lease_that_has_an_owner_is_not_written_to() -> None:
    table = Table(
        LeaseRow(key="a", owner="w1"), LeaseRow(key="b"), LeaseRow(key="c", owner="w2", checkpoint_owner="w1")
    )
    mirror = MirroredRows(table.rows.values())
    mirror.want([mark("a", at(7)), mark("b", at(7)), mark("c", at(7))])
    assert [step.key for step in mirror.steps() if isinstance(step, Write)] == ["b"]
    assert mirror.owned() == {"a": "w1", "c": "w1"}
    table.rows["b"] = replace(table.rows["b"], owner="w3", counter=1)  # taken meanwhile
    table.keep_up(mirror)
    assert table.rows["b"].checkpoint == Checkpoint.TRIM_HORIZON
    assert mirror.owned()["b"] == "w3"
    table.rows["b"] = replace(table.rows["b"], owner=None, counter=2)  # and left
    mirror.doubt(mirror.owned())
    table.keep_up(mirror)
    assert table.rows["b"].checkpoint == at(7)


def test_a_row_that_is_deleted_comes_back_with_a_counter_that_goes_on() -> None:
    table = Table(LeaseRow(key="a", counter=41, checkpoint=at(3)))
    mirror = MirroredRows(table.rows.values())
    mirror.want([mark("a", at(7))])
    table.keep_up(mirror)
    assert table.rows["a"].counter == 42
    del table.rows["a"]
    mirror.want([mark("a", at(9))])
    table.keep_up(mirror)
    assert (table.rows["a"].checkpoint, table.rows["a"].others[NOTE]) == (at(9), "n")
    assert table.rows["a"].counter > 42


@pytest.mark.parametrize("found", [Checkpoint.LATEST, at(8)])
def test_a_row_that_is_deleted_and_made_anew_by_others_is_put_right(found: Checkpoint) -> None:
    table = Table(LeaseRow(key="a", counter=42, checkpoint=Checkpoint.TRIM_HORIZON))
    mirror = MirroredRows(table.rows.values())
    table.rows["a"] = LeaseRow(key="a", counter=3, checkpoint=found)
    mirror.want([mark("a", Checkpoint.TRIM_HORIZON)])
    table.keep_up(mirror)
    assert table.rows["a"].counter > 42
    assert table.rows["a"].checkpoint == (found if found.is_position else Checkpoint.TRIM_HORIZON)
    assert mirror.steps() == []


def test_a_parent_ends_when_its_children_have_rows() -> None:
    table = Table(LeaseRow(key="a", checkpoint=at(3)))
    mirror = MirroredRows(table.rows.values())
    children = frozenset({"b", "c"})
    mirror.want(
        [mark("a", Checkpoint.SHARD_END, children=children), mark("b", at(4)), mark("c", Checkpoint.TRIM_HORIZON)]
    )
    assert {type(step) for step in mirror.steps()} == {Create}
    table.keep_up(mirror)
    assert table.rows["a"].ended
    assert table.rows["a"].children == children


def test_the_row_of_a_trimmed_shard_goes_unless_a_worker_has_it() -> None:
    table = Table(LeaseRow(key="a", checkpoint=Checkpoint.SHARD_END), LeaseRow(key="b", owner="w1"), LeaseRow(key="x"))
    mirror = MirroredRows(table.rows.values())
    mirror.want([], gone=["a", "b"])
    table.keep_up(mirror)
    assert set(table.rows) == {"b", "x"}


def test_a_note_alone_is_written_where_it_is_asked_for() -> None:
    table, mirror = Table(), MirroredRows(())
    mirror.want([mark("a", at(7), "old")])
    table.keep_up(mirror)
    mirror.want([mark("a", at(7), "new")])
    assert mirror.steps() == []
    mirror.want([mark("a", at(7), "new")], notes=True)
    table.keep_up(mirror)
    assert table.rows["a"].others[NOTE] == "new"


def test_an_owner_that_is_dead_is_taken_off_its_lease() -> None:
    row = LeaseRow(key="a", counter=5, owner="w2", checkpoint_owner="w1", checkpoint=at(9))
    table = Table(row)
    table.do(release(row))
    assert table.rows["a"] == LeaseRow(key="a", counter=6, checkpoint=at(9))
    assert isinstance(table.do(release(row)), Refused)


@given(st.data())
def test_whatever_becomes_of_each_write_the_rows_reach_what_is_wanted(data: st.DataObject) -> None:
    """Strangers move rows on and own them; writes are lost, or applied without an answer."""
    table, mirror = Table(), MirroredRows(())
    shards = ["a", "b", "c"]
    read = dict.fromkeys(shards, 1)

    def stranger() -> None:
        key = data.draw(st.sampled_from(shards))
        row = table.rows.get(key)
        if row is not None and data.draw(st.booleans()):
            del table.rows[key]
        elif row is not None:
            forward = max(row.checkpoint, at(data.draw(st.integers(1, 30))))
            owner = data.draw(st.sampled_from([None, "w1"]))
            table.rows[key] = replace(row, counter=row.counter + 1, checkpoint=forward, owner=owner)

    def unheard(step: Step) -> Outcome:
        if data.draw(st.booleans()):
            table.do(step)
        return Unknown("no answer")

    seen = dict.fromkeys(shards, 0)
    for _ in range(data.draw(st.integers(1, 6))):
        read = {key: number + data.draw(st.integers(0, 5)) for key, number in read.items()}
        mirror.want([mark(key, at(number), str(number)) for key, number in read.items()])
        for step in mirror.steps():
            do: Callable[[Step], Outcome] = data.draw(st.sampled_from([table.do, unheard]))
            held = {key: row for key, row in table.rows.items() if row.owner is not None}
            key, outcome = step.row.key if isinstance(step, Create) else step.key, do(step)
            mirror.learn(key, outcome)
            if isinstance(outcome, Done) and not isinstance(step, Read):
                assert outcome.row is not None
                assert outcome.row.counter >= seen[key], "a counter went back"
            if not isinstance(outcome, Unknown) and outcome.row is not None:
                seen[key] = max(seen[key], outcome.row.counter)
            assert held == {key: table.rows[key] for key in held}, "an owner's lease was written to"
            if data.draw(st.booleans()):
                stranger()
    for key, row in table.rows.items():
        table.rows[key] = replace(row, owner=None, counter=row.counter + 1)
    mirror.doubt(shards)
    table.keep_up(mirror)
    assert mirror.behind() == []
    assert all(table.rows[key].checkpoint >= at(number) for key, number in read.items())
