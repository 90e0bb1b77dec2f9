"""A lease that begins at a time says which, in each write that makes or takes it; and which reader may go on there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardway.core.leases import Checkpoint, LeaseRow, writes
from shardway.core.leases.continuation import goes_on
from shardway.core.leases.row import READ_UNTIL, lease_row
from shardway.core.leases.tenure.machine import claim
from shardway.core.leases.tenure.times import LeaseTimes
from shardway.core.sequence import second_of
from shardway.model import Position

TIMED = [Checkpoint.LATEST, Checkpoint.AT_TIMESTAMP]
UNTIMED = [Checkpoint.TRIM_HORIZON, Checkpoint.at(Position(7)), Checkpoint.SHARD_END]
AT = 49680533443748507987284300172557486384087250723443572770
"""A number of a record, as the service makes them."""


def row(checkpoint: Checkpoint, read_until_ms: int | None = None) -> LeaseRow:
    return LeaseRow(key="a", checkpoint=checkpoint, read_until_ms=read_until_ms)


@pytest.mark.parametrize("checkpoint", TIMED)
def test_a_take_stores_the_time_that_a_row_lacks_and_no_other(checkpoint: Checkpoint) -> None:
    assert row(checkpoint).lacks_time
    taken = lease_row(writes.take(row(checkpoint), "w", start_ms=5).onto(row(checkpoint).attributes()))
    assert (taken.read_until_ms, taken.lacks_time) == (5, False)
    assert writes.take(taken, "v", start_ms=9).change_of(READ_UNTIL) is None
    _, (send,) = claim(row(checkpoint), "w", LeaseTimes(), 0.0, start_ms=5)
    assert send.write.change_of(READ_UNTIL) == 5  # type: ignore[union-attr]


@pytest.mark.parametrize("checkpoint", UNTIMED)
def test_a_place_that_needs_no_time_gets_none(checkpoint: Checkpoint) -> None:
    assert not row(checkpoint).lacks_time
    assert writes.take(row(checkpoint), "w", start_ms=5).change_of(READ_UNTIL) is None


def test_the_last_write_of_an_owner_takes_the_time_along() -> None:
    owned = replace(row(Checkpoint.LATEST, 5), owner="w")
    assert writes.free(owned, read_until_ms=9).change_of(READ_UNTIL) == 9
    assert writes.give(owned, "v", read_until_ms=9).change_of(READ_UNTIL) == 9
    assert writes.give(owned, "v", read_until_ms=4).change_of(READ_UNTIL) is None, "it does not go back"


def test_a_checkpoint_before_the_start_says_nothing_of_what_lies_between() -> None:
    second = second_of(AT)
    assert second is not None
    for read_until_ms, after_ms in (((second + 1) * 1000, None), (second * 1000, second * 1000)):
        owned = replace(row(Checkpoint.LATEST, read_until_ms), owner="w")
        write = writes.checkpoint(owned, Checkpoint.at(Position(AT)))
        assert lease_row(write.onto(owned.attributes())).read_until_ms == after_ms


def test_a_row_that_is_restored_has_no_time_of_the_row_in_its_place() -> None:
    known, found = row(Checkpoint.at(Position(7))), row(Checkpoint.LATEST, 5)
    assert lease_row(writes.restore(known, found).onto(found.attributes())).read_until_ms is None


@pytest.mark.parametrize(
    ("begun", "now", "first", "goes"),
    [
        (row(Checkpoint.LATEST), row(Checkpoint.at(Position(7))), None, False),
        (row(Checkpoint.LATEST), row(Checkpoint.at(Position(7))), Position(8), False),
        (row(Checkpoint.LATEST), row(Checkpoint.at(Position(7))), Position(7), True),
        (row(Checkpoint.LATEST, 5), row(Checkpoint.at(Position(7))), Position(8), False),
        (row(Checkpoint.LATEST, 5), row(Checkpoint.at(Position(7))), Position(6), True),
        (row(Checkpoint.AT_TIMESTAMP, 5), row(Checkpoint.at(Position(7))), None, False),
        (row(Checkpoint.LATEST, 5), row(Checkpoint.LATEST, 5), None, True),
        (row(Checkpoint.LATEST, 5), row(Checkpoint.LATEST, 9), None, True),
        (row(Checkpoint.LATEST, 9), row(Checkpoint.LATEST, 5), None, False),
        (row(Checkpoint.LATEST), row(Checkpoint.LATEST, 5), None, False),
        (row(Checkpoint.LATEST, 5), row(Checkpoint.LATEST), None, False),
        (row(Checkpoint.LATEST, 5), row(Checkpoint.AT_TIMESTAMP, 5), None, False),
        (row(Checkpoint.LATEST, 5), row(Checkpoint.TRIM_HORIZON), None, False),
        (row(Checkpoint.TRIM_HORIZON), row(Checkpoint.TRIM_HORIZON), None, True),
        (row(Checkpoint.TRIM_HORIZON), row(Checkpoint.at(Position(7))), None, True),
        (row(Checkpoint.at(Position(5))), row(Checkpoint.at(Position(7))), None, True),
        (row(Checkpoint.at(Position(8))), row(Checkpoint.at(Position(7))), None, False),
    ],
)
def test_what_was_read_ahead_is_kept_only_where_nothing_lies_between(
    begun: LeaseRow, now: LeaseRow, first: Position | None, goes: bool
) -> None:
    assert goes_on(begun, now, first) is goes
