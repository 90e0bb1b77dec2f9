"""Of which stream a lease is: what a row says of it, what its position tells, and the writes that begin it anew."""

from __future__ import annotations

from typing import Any

import pytest

from shardway.core.leases import Checkpoint, LeaseRow, lease_row, writes
from shardway.core.leases.row import NOTE
from shardway.core.leases.stream_mark import CLOCKS_DIFFER_S, StreamMark, disowned_text
from shardway.core.leases.worker_row import WorkerRow, worker_rows
from shardway.model import Position

CREATED_S = 1_900_000_000
ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
HERE = StreamMark(ARN, CREATED_S)


def at(second: int) -> Checkpoint:
    """A position of a record that arrived in that second."""
    number = (2 << 184) | (second << 36) | 2
    return Checkpoint.at(Position(number, 0))


def row(**fields: Any) -> LeaseRow:
    return LeaseRow(**{"key": "s0", "counter": 7, "checkpoint": Checkpoint.TRIM_HORIZON, **fields})


@pytest.mark.parametrize(
    ("of_stream", "disowned"),
    [
        (HERE.text, False),
        (f"{ARN} 0", False),
        (f"{ARN} {CREATED_S - 5}", True),
        (f"{ARN}s {CREATED_S}", True),
    ],
)
def test_a_row_that_says_its_stream(of_stream: str, disowned: bool) -> None:
    assert HERE.disowns(row(of_stream=of_stream)) == disowned


def test_a_stream_that_does_not_tell_its_creation_disowns_none_of_its_name() -> None:
    assert not StreamMark(ARN, 0).disowns(row(of_stream=f"{ARN} 17"))


def test_where_a_row_does_not_say_it_the_position_tells() -> None:
    assert HERE.disowns(row(checkpoint=at(CREATED_S - int(CLOCKS_DIFFER_S) - 2)))
    assert not HERE.disowns(row(checkpoint=at(CREATED_S)))
    assert not HERE.disowns(row())
    assert not HERE.disowns(row(checkpoint=Checkpoint.at(Position(12, 0))))


def test_a_message_names_a_few_leases_and_their_stream() -> None:
    strangers = [row(key=f"s{n}", of_stream="arn:other 3") for n in range(5)]
    assert disowned_text(strangers, HERE) == (
        f"5 leases (s0, s1, s2, ...) are of arn:other 3, and not of {ARN}, created at {CREATED_S}"
    )
    former = [row(of_stream=f"{ARN} 3")]
    assert "1 leases (s0) are of a former stream of this name" in disowned_text(former, HERE)
    assert "of a former stream of this name" in disowned_text([row()], HERE)


def test_a_lease_that_is_begun_anew_has_nothing_of_the_other_stream_and_a_higher_counter() -> None:
    seen = row(owner="w1", checkpoint=at(CREATED_S), of_stream="arn:other 3", others={"theirs": 1, NOTE: "old"})
    born = row(counter=0, of_stream=HERE.text, checkpoint=Checkpoint.LATEST)
    write = writes.begin_anew(seen, born)
    after = lease_row(write.onto(seen.attributes()))
    assert (after.owner, after.counter, after.checkpoint, after.of_stream) == (None, 8, Checkpoint.LATEST, HERE.text)
    assert dict(after.others) == {"theirs": 1}
    noted = lease_row(writes.begin_anew(seen, born, note="new").onto(seen.attributes()))
    assert noted.others[NOTE] == "new"


def test_what_is_filled_in_moves_no_counter() -> None:
    seen = row(owner="w1")
    marked = lease_row(writes.mark_stream(seen, HERE.text).onto(seen.attributes()))
    assert (marked.of_stream, marked.counter, marked.owner) == (HERE.text, 7, "w1")
    write = writes.metadata("s0", parents=frozenset({"p"}), children=frozenset({"c"}), hash_range=(1, 9))
    filled = lease_row(write.onto(seen.attributes()))
    assert (filled.parents, filled.children, filled.counter) == (frozenset({"p"}), frozenset({"c"}), 7)
    with pytest.raises(ValueError, match="needs parents, children or a hash range"):
        writes.metadata("s0")


def test_a_workers_row_that_cannot_be_read_hides_no_other() -> None:
    (good,) = worker_rows([WorkerRow(worker_id="w1", counter=3, failover_s=10.0).attributes(), {"version": 99}])
    assert (good.worker_id, good.counter) == ("w1", 3)
