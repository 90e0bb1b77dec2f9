"""One outcome object stands for many records; a record's own result or error is made of it when it is asked for."""

import pytest
from simulated_stream import Result

from penstock.core.batching import NotWritten, Written, result_of
from penstock.errors import RecordExpiredError
from penstock.model import PutResult


def test_the_answer_itself_stands_for_what_was_taken_at_once():
    assert result_of(Result("shard", "17"), 5) == PutResult("shard", 17, None, 1, False)


def test_records_of_an_aggregate_are_numbered_by_their_place_in_it():
    outcome = Written("shard", 17, 2, True, indices=[3, 5, 8], first_sub=10)
    assert [result_of(outcome, index).sub_sequence_number for index in (3, 5, 8)] == [10, 11, 12]
    assert result_of(outcome, 5) == PutResult("shard", 17, 11, 2, True)
    assert result_of(Written("shard", 17, 2, False), 5).sub_sequence_number is None


def test_an_error_is_made_anew_each_time():
    outcome = NotWritten(RecordExpiredError, "too late", 3, True, "shard", "why")
    with pytest.raises(RecordExpiredError, match=r"too late \(shard shard\); 3 attempts, the last met why; it may"):
        result_of(outcome, 0)
    assert outcome.error() is not outcome.error()
