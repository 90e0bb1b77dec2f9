"""One object stands for many records; a record's own result or error is made of it when it is asked for."""

from __future__ import annotations

from penstock.core.batching import NotWritten
from penstock.core.batching.chunk import outcomes_of
from penstock.errors import RecordExpiredError
from penstock.model import PutResult
from tests.core.batching.batching_kit import make_chunk, result_of
from tests.put_entries import Answer

LATE = NotWritten(RecordExpiredError, "too late", 3, True, "shard", "why")


def test_the_answer_itself_stands_for_what_was_taken_at_once() -> None:
    assert list(outcomes_of([Answer("shard", "17"), Answer("other", "18")], 2)) == [
        PutResult("shard", 17, None, 1, False),
        PutResult("other", 18, None, 1, False),
    ]


def test_records_of_an_aggregate_are_numbered_by_their_place_in_it() -> None:
    chunk = make_chunk([("k", b"")] * 9)
    chunk.settle((3, 5, 8), PutResult("shard", 17, 10, 2, True))
    assert [result_of(chunk, index).sub_sequence_number for index in (3, 5, 8)] == [10, 11, 12]
    assert chunk.outcomes[5] == PutResult("shard", 17, 11, 2, True)
    assert chunk.outcomes[4] is None


def test_records_on_their_own_have_no_number() -> None:
    assert list(outcomes_of(PutResult("shard", 17, None, 2, False), 2)) == [PutResult("shard", 17, None, 2, False)] * 2


def test_outcomes_of_a_stretch_and_of_scattered_records_stand_where_they_belong() -> None:
    chunk = make_chunk([("k", b"")] * 5)
    chunk.settle(range(1, 3), PutResult("shard", 1, 0, 1, False))
    chunk.settle((0,), LATE)
    chunk.settle(range(3, 5), [Answer("shard", "2"), Answer("shard", "3")])
    assert chunk.outcomes == [
        LATE,
        PutResult("shard", 1, 0, 1, False),
        PutResult("shard", 1, 1, 1, False),
        PutResult("shard", 2, None, 1, False),
        PutResult("shard", 3, None, 1, False),
    ]


def test_an_error_is_made_anew_each_time() -> None:
    error = LATE.error()
    assert isinstance(error, RecordExpiredError)
    assert str(error).startswith("too late (shard shard); 3 attempts, the last met why; it may")
    assert LATE.error() is not error
