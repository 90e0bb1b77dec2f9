"""What an answer, or the passing of time, means for records: one outcome each, and an honest one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.hashkeys import HASH_KEY_MAX
from shardway.core.producer.request import Failure
from shardway.core.producer.withdrawal import WITHDRAWN_BYTES_MAX
from shardway.errors import RecordExpiredError, RecordRefusedError, RecordWithdrawnError
from shardway.model import PutResult
from tests.core.producer.producer_kit import (
    INTERNAL,
    THROTTLED,
    Kit,
    error_of,
    halves_of,
    keys_of,
    make_shard,
    outcome,
    result_of,
    written,
)
from tests.put_entries import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shardway.model import ListedShard

PARENT = make_shard(0, 0, HASH_KEY_MAX)
LEFT, RIGHT = halves_of(PARENT, 1)
(A,), (B,) = keys_of(LEFT, 1), keys_of(RIGHT, 1)


def aggregating(shards: Iterable[ListedShard] = (PARENT,), **limits: Any) -> Kit:
    return Kit(list(shards), aggregate=True, linger_s=0.0, **limits)


def plain(shards: Iterable[ListedShard] = (PARENT,), **limits: Any) -> Kit:
    return Kit(list(shards), linger_s=0.0, **limits)


# --- answers --------------------------------------------------------------------------------------


def test_what_is_taken_at_once_is_certain() -> None:
    kit = plain()
    chunk = kit.put(("a", b"1"), ("b", b"2"))
    kit.answer(kit.send())
    assert [outcome(chunk, index) for index in range(2)] == [
        PutResult(PARENT.shard_id, number, None, 1, False) for number in (1, 2)
    ]
    assert kit.freed_bytes == chunk.held_bytes


def test_records_of_an_aggregate_share_a_sequence_number() -> None:
    kit = aggregating()
    first, second = kit.put(("a", b"1"), ("b", b"2")), kit.put(("a", b"3"))
    kit.answer(kit.send())
    found = [result_of(first, 0), result_of(first, 1), result_of(second)]
    assert [(result.sequence_number, result.sub_sequence_number) for result in found] == [(1, 0), (1, 1), (1, 2)]


def test_only_what_was_refused_is_sent_again() -> None:
    kit = plain(retry_base_s=0.1)
    chunk = kit.put(("a", b"1"), ("b", b"2"), ("c", b"3"))
    kit.answer(kit.send(), errors={1: THROTTLED})
    assert written(chunk) == [0, 2]
    assert kit.sends_nothing(0.0)
    assert 0.0 < kit.batcher.wake_at_s <= 0.1
    again = kit.send(0.1)
    assert [entry.data for entry in again.entries] == [b"2"]
    kit.answer(again)
    assert outcome(chunk, 1) == PutResult(PARENT.shard_id, 3, None, 2, False)


@pytest.mark.parametrize(
    ("code", "doubtful"), [(THROTTLED, False), ("KMSThrottlingException", False), (INTERNAL, True)]
)
@pytest.mark.parametrize("make", [plain, aggregating])
def test_after_an_internal_failure_a_record_may_be_there_twice(
    make: Callable[..., Kit], code: str, doubtful: bool
) -> None:
    kit = make()
    chunk = kit.put(("a", b"1"), ("b", b"2"))
    kit.answer(kit.send(), errors={0: code})
    kit.answer(kit.send(9.0))
    assert result_of(chunk, 0).duplicates_possible is doubtful
    assert result_of(chunk, 1).duplicates_possible is (doubtful and make is aggregating)


def test_refusals_for_throughput_and_failures_can_come_together() -> None:
    kit = plain()
    chunk = kit.put(*[(str(number), b"%d" % number) for number in range(4)])
    kit.answer(kit.send(), errors={0: INTERNAL, 2: THROTTLED, 3: INTERNAL})
    again = kit.send(9.0)
    kit.answer(again)
    assert sorted(entry.data for entry in again.entries) == [b"0", b"2", b"3"]
    found = [result_of(chunk, index) for index in range(4)]
    assert [result.duplicates_possible for result in found] == [True, False, False, True]
    assert [result.attempts for result in found] == [2, 1, 2, 2]


@pytest.mark.parametrize(
    ("failure", "doubtful"), [(Failure.UNKNOWN, True), (Failure.THROTTLED, False), (Failure.NOT_SENT, False)]
)
@pytest.mark.parametrize("make", [plain, aggregating])
def test_a_request_that_failed_goes_again_and_is_doubtful_if_it_may_have_been_done(
    make: Callable[..., Kit], failure: Failure, doubtful: bool
) -> None:
    kit = make()
    chunk = kit.put(("a", b"1"), ("b", b"2"))
    kit.batcher.handle_failure(kit.send(), failure, "why", 0.0)
    kit.answer(kit.send(9.0))
    assert [result_of(chunk, index).duplicates_possible for index in range(2)] == [doubtful] * 2
    assert [result_of(chunk, index).attempts for index in range(2)] == [2] * 2


# --- across a reshard -----------------------------------------------------------------------------


def test_an_aggregate_that_lands_elsewhere_is_as_good_if_the_shard_holds_all_of_it() -> None:
    kit = aggregating()
    chunk = kit.put((A, b"1"), (A, b"2"))
    request = kit.send()
    kit.batcher.set_shards([LEFT, RIGHT], 0.0)
    kit.answer(request, shard_id=LEFT.shard_id)
    assert outcome(chunk, 1) == PutResult(LEFT.shard_id, 1, 1, 1, False)
    assert kit.is_stale()


def test_an_aggregate_that_leaves_its_shards_range_is_put_again_by_shard() -> None:
    kit = aggregating()
    chunk = kit.put((A, b"1"), (B, b"2"), (A, b"3"))
    request = kit.send()
    kit.batcher.set_shards([LEFT, RIGHT], 0.0)
    kit.answer(request, shard_id=LEFT.shard_id)
    assert written(chunk) == []
    again = kit.send(9.0)
    assert [(load.lane.shard, load.user_records) for load in again.loads] == [(LEFT, 2), (RIGHT, 1)]
    kit.answer(again)
    assert [outcome(chunk, index) for index in range(3)] == [
        PutResult(LEFT.shard_id, 2, 0, 2, True),
        PutResult(RIGHT.shard_id, 3, None, 2, True),
        PutResult(LEFT.shard_id, 2, 1, 2, True),
    ]


def test_where_no_listing_shows_the_shard_yet_the_outcome_waits_for_one() -> None:
    kit = aggregating()
    chunk = kit.put((A, b"1"), (A, b"2"))
    kit.answer(kit.send(), shard_id=LEFT.shard_id)
    assert kit.is_stale()
    assert written(chunk) == []
    kit.batcher.set_shards([PARENT], 0.0)  # an old one
    assert kit.is_stale()
    assert [sent for _, sent in kit.batcher.unsettled_runs()] == [True]
    kit.batcher.set_shards([LEFT, RIGHT], 0.0)
    assert not kit.is_stale()
    assert written(chunk) == [0, 1]


def test_where_the_shard_was_closed_before_any_listing_showed_it_the_records_are_requeue() -> None:
    kit = aggregating()
    chunk = kit.put((A, b"1"), (A, b"2"))
    kit.answer(kit.send(), shard_id=LEFT.shard_id)
    kit.batcher.set_shards([*halves_of(LEFT, 3), RIGHT], 0.0)
    assert not kit.is_stale()
    kit.answer(kit.send(9.0))
    assert result_of(chunk, 0).duplicates_possible


def test_a_record_on_its_own_is_good_wherever_it_landed() -> None:
    for kit in (plain(), aggregating()):
        chunk = kit.put((A, b"1"))
        kit.answer(kit.send(), shard_id=LEFT.shard_id)
        assert outcome(chunk) == PutResult(LEFT.shard_id, 1, None, 1, False)
        assert kit.is_stale()


def test_a_shard_that_is_newer_than_a_hole_in_the_listing_tells_that_it_is_old() -> None:
    for shard_id, is_new in ((RIGHT.shard_id, True), (PARENT.shard_id, False)):
        kit = plain([LEFT])
        kit.put((B, b"1"))
        kit.answer(kit.send(), shard_id=shard_id)
        assert kit.is_stale() is is_new
    kit = Kit(None)
    kit.put((B, b"1"))
    kit.answer(kit.send(), shard_id=RIGHT.shard_id)
    assert not kit.is_stale()


def test_what_comes_back_from_a_shard_that_is_gone_goes_to_those_that_took_its_place() -> None:
    kit = aggregating()
    chunk = kit.put((A, b"1"), (B, b"2"))
    request = kit.send()
    kit.batcher.set_shards([LEFT, RIGHT], 0.0)
    kit.answer(request, errors={0: THROTTLED})
    again = kit.send(0.0)
    assert [load.lane.shard for load in again.loads] == [LEFT, RIGHT]
    kit.answer(again)
    assert outcome(chunk, 0) == PutResult(LEFT.shard_id, 1, None, 2, False)


# --- times to live --------------------------------------------------------------------------------


def test_a_record_that_never_went_expires_when_its_time_has_passed_and_is_certainly_not_there() -> None:
    kit = Kit([PARENT])
    chunk = kit.put((A, b"1"), record_ttl_s=1.0)
    kit.batcher.expire(0.9)
    assert outcome(chunk) is None
    kit.batcher.expire(1.0)
    error = outcome(chunk)
    assert isinstance(error, RecordExpiredError)
    assert (error.attempts, error.may_be_written, error.shard_id) == (0, False, PARENT.shard_id)
    assert kit.freed_bytes == chunk.held_bytes


@pytest.mark.parametrize(
    ("failure", "doubtful"), [(Failure.UNKNOWN, True), (Failure.THROTTLED, False), (Failure.NOT_SENT, False)]
)
@pytest.mark.parametrize("make", [plain, aggregating])
def test_what_waits_for_its_repetition_expires_and_tells_what_it_met(
    make: Callable[..., Kit], failure: Failure, doubtful: bool
) -> None:
    kit = make()
    chunk = kit.put((A, b"1"), (B, b"2"), record_ttl_s=1.0)
    kit.batcher.handle_failure(kit.send(), failure, "why", 0.5)
    kit.batcher.expire(1.0)
    for index in range(2):
        error = outcome(chunk, index)
        assert isinstance(error, RecordExpiredError)
        assert (error.attempts, error.may_be_written, error.reason) == (1, doubtful, "why")
    assert kit.sends_nothing(9.0)


def test_what_is_on_its_way_does_not_expire_before_its_answer() -> None:
    kit = plain()
    early, late = kit.put((A, b"1"), record_ttl_s=1.0), kit.put((B, b"2"), record_ttl_s=1.0)
    request = kit.send()
    kit.batcher.expire(5.0)
    assert outcome(early) is None
    kit.answer(request, errors={1: THROTTLED}, now_s=5.0)
    assert isinstance(outcome(early), PutResult)
    assert (type(outcome(late)), error_of(late).reason) == (RecordExpiredError, THROTTLED)


def test_what_landed_in_a_shard_that_no_listing_shows_expires_as_perhaps_written() -> None:
    kit = aggregating()
    chunk = kit.put((A, b"1"), (A, b"2"), record_ttl_s=1.0)
    kit.answer(kit.send(), shard_id=LEFT.shard_id)
    kit.batcher.expire(1.0)
    assert isinstance(outcome(chunk, 1), RecordExpiredError)
    assert error_of(chunk, 1).may_be_written
    assert list(kit.batcher.unsettled_runs()) == []


# --- given up -------------------------------------------------------------------------------------


def test_a_record_can_be_withdrawn_until_it_is_sent() -> None:
    kit = plain()
    chunk = kit.put((A, b"1"), (B, b"2"))
    assert kit.batcher.withdraw(chunk, 1)
    assert isinstance(outcome(chunk, 1), RecordWithdrawnError)
    assert not kit.batcher.withdraw(chunk, 1)
    request = kit.send()
    assert [entry.data for entry in request.entries] == [b"1"]
    assert not kit.batcher.withdraw(chunk, 0)
    kit.answer(request)
    assert not kit.batcher.withdraw(chunk, 0)
    assert kit.freed_bytes == chunk.held_bytes


@pytest.mark.parametrize("ordered", [False, True])
def test_a_record_can_be_withdrawn_while_others_of_its_chunk_are_on_their_way(ordered: bool) -> None:
    kit = plain(request_records_max=1, ordered_by_key=ordered)
    chunk = kit.put((A, b"1"), (A, b"2"), (A, b"3"))
    kit.answer(kit.send(), errors={0: THROTTLED})
    assert not kit.batcher.withdraw(chunk, 0)  # it was sent, though not taken
    assert kit.batcher.withdraw(chunk, 1)
    assert isinstance(outcome(chunk, 1), RecordWithdrawnError)
    sent = []
    for _ in range(2):
        request = kit.send(9.0)
        sent += [entry.data for entry in request.entries]
        kit.answer(request)
    assert sent == [b"1", b"3"]


def test_a_record_that_was_sent_is_not_withdrawn_while_it_waits_for_another_shard() -> None:
    kit = plain(request_records_max=1)
    chunk = kit.put((A, b"1"), (A, b"2"))
    request = kit.send()
    kit.batcher.set_shards([LEFT, RIGHT], 0.0)
    kit.batcher.handle_failure(request, Failure.UNKNOWN, "lost", 0.0)
    assert not kit.batcher.withdraw(chunk, 0)
    assert kit.batcher.withdraw(chunk, 1)


def test_what_was_withdrawn_takes_no_memory_while_the_shards_are_not_known() -> None:
    kit = plain()
    kit.batcher.lanes.known = False
    record = b"x" * 1_000
    for _ in range(2 * WITHDRAWN_BYTES_MAX // len(record)):
        kit.batcher.withdraw(kit.put((A, record)), 0)
    left = sum(len(run) for lane in kit.batcher.lanes for run in lane.runs)
    assert left * len(record) < WITHDRAWN_BYTES_MAX
    assert sum(lane.waiting for lane in kit.batcher.lanes) == left


@pytest.mark.parametrize("step_records", [1, 10_000])
@pytest.mark.parametrize("make", [plain, aggregating])
@pytest.mark.parametrize("ordered", [False, True])
def test_all_that_was_never_sent_of_some_chunks_is_withdrawn(
    make: Callable[..., Kit], ordered: bool, step_records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on its way goes on, what was refused goes again, and what is another caller's too."""
    monkeypatch.setattr("shardway.core.producer.withdrawal.WITHDRAWN_STEP_RECORDS", step_records)
    kit = make((LEFT, RIGHT), ordered_by_key=ordered, request_records_max=2, aggregate_bytes_max=20)
    first = kit.put(*[(key, b"%d" % number) for number in range(10) for key in (A, B)])
    other = kit.put((A, b"other"), (B, b"other"))
    last = kit.put(*[(A, b"last") for _ in range(10)])
    refused, on_its_way = kit.send(), kit.batcher.next_request(0.0)  # in order, a key has one on its way
    kit.answer(refused, errors=dict.fromkeys(range(len(refused.entries)), THROTTLED))
    assert kit.batcher.withdraw(first, 19)
    sent = refused.user_records + (on_its_way.user_records if on_its_way is not None else 0)
    assert sum(kit.batcher.withdraw_in_steps([first, last])) == 29 - sent
    assert sum(kit.batcher.withdraw_in_steps([first, last])) == 0
    assert (first.unsettled, last.unsettled, other.unsettled) == (sent, 0, 2)
    assert isinstance(outcome(last, 9), RecordWithdrawnError)
    assert (
        sum(lane.waiting for lane in kit.batcher.lanes)
        + sum(len(queue) for lane in kit.batcher.lanes for key, queue in lane.held.items() if key not in lane.ready)
        == 2
    )
    if on_its_way is not None:
        kit.answer(on_its_way)
    now_s = 0.0
    while first.unsettled or other.unsettled:
        now_s += 10.0
        kit.answer(kit.send(now_s))
    assert len(written(first)) == sent
    assert written(other) == [0, 1]
    assert kit.sends_nothing(99.0)
    assert kit.freed_bytes == sum(chunk.held_bytes for chunk in kit.chunks)
    assert all(lane.idle and not lane.waiting for lane in kit.batcher.lanes)


def test_a_withdrawal_of_many_records_is_done_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run is a record here, as where many of a key wait behind one that is on its way."""
    monkeypatch.setattr("shardway.core.producer.withdrawal.WITHDRAWN_STEP_RECORDS", 90)
    kit = plain(ordered_by_key=True)
    kit.put((A, b"0"))
    kit.send()
    chunk, other = kit.put(*[(A, b"1")] * 100), kit.put(*[(A, b"2")] * 100)
    assert kit.sends_nothing()
    assert len(next(iter(kit.batcher.lanes)).held) == 0
    steps = list(kit.batcher.withdraw_in_steps([chunk]))
    assert sum(steps) == 100
    assert max(steps) == 10
    assert sum(kit.batcher.withdraw_in_steps([other])) == 100


def test_records_that_a_reshard_moves_between_two_steps_are_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardway.core.producer.withdrawal.WITHDRAWN_STEP_RECORDS", 1)
    kit = plain()
    chunks = [kit.put((A, b"1"), (B, b"2")) for _ in range(4)]
    steps = kit.batcher.withdraw_in_steps(chunks)
    assert next(steps) + next(steps) > 0
    kit.batcher.set_shards([LEFT, RIGHT], 0.0)
    list(steps)
    assert [chunk.unsettled for chunk in chunks] == [0] * 4
    assert kit.sends_nothing()


@pytest.mark.parametrize(("met", "doubtful"), [("nothing", False), ("refused", False), ("sent", True), ("lost", True)])
@pytest.mark.parametrize("make", [plain, aggregating])
def test_what_a_close_gives_up_may_be_written_if_it_may_have_been_sent(
    make: Callable[..., Kit], met: str, doubtful: bool
) -> None:
    kit = make()
    chunk = kit.put((A, b"1"), (B, b"2"))
    request = None if met == "nothing" else kit.send()
    if met == "refused":
        assert request is not None
        kit.answer(request, errors=dict.fromkeys(range(len(request.entries)), THROTTLED))
    elif met == "lost":
        assert request is not None
        kit.batcher.handle_failure(request, Failure.UNKNOWN, "lost", 0.0)
    kit.batcher.close(0.0)
    for index in range(2):
        error = outcome(chunk, index)
        assert isinstance(error, RecordWithdrawnError)
        assert (error.may_be_written, error.attempts) == (doubtful, int(met != "nothing"))
    if met == "sent":
        assert request is not None
        kit.batcher.handle_answer(request, [Answer(PARENT.shard_id, "1")] * len(request.entries), 1.0)
        kit.batcher.handle_failure(request, Failure.UNKNOWN, "lost", 1.0)
        assert isinstance(outcome(chunk), RecordWithdrawnError)
    assert kit.freed_bytes == chunk.held_bytes


def test_all_records_without_an_outcome_are_found() -> None:
    kit = plain(request_records_max=1, ordered_by_key=True)
    chunk = kit.put((A, b"1"), (A, b"2"), (B, b"3"), (B, b"4"))
    kit.answer(kit.send(), errors={0: THROTTLED})
    kit.send(0.0)
    found = {index: sent for run, sent in kit.batcher.unsettled_runs() for index in list(run.indices)[run.at :]}
    assert found == {0: True, 1: False, 2: True, 3: False}
    assert all(run.chunk is chunk for run, _ in kit.batcher.unsettled_runs())


def test_what_waits_is_given_up_when_nothing_can_be_put() -> None:
    kit = plain(request_records_max=1)
    chunk = kit.put((A, b"1"), (B, b"2"), (A, b"3"))
    request = kit.send()
    kit.batcher.handle_failure(kit.send(), Failure.NOT_SENT, "why", 0.0)
    kit.batcher.give_up_waiting("AccessDenied", 0.0)
    assert [type(outcome(chunk, index)) for index in range(3)] == [type(None), RecordRefusedError, RecordRefusedError]
    assert error_of(chunk, 2).reason == "AccessDenied"
    kit.answer(request)
    assert isinstance(outcome(chunk, 0), PutResult)
