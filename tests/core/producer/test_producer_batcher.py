"""The batcher: what goes into a request, when it goes, which record comes first, and what a failed request leads to."""

from __future__ import annotations

from itertools import cycle
from math import inf
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardway.core.aggregation.reader import open_aggregate
from shardway.core.aggregation.writer import encode_aggregate
from shardway.core.hashkeys import HASH_KEY_MAX
from shardway.core.producer.batcher import REQUEST_BYTES_FORMER
from shardway.core.producer.limits import PaceLimits
from shardway.core.producer.request import Failure
from shardway.core.producer.request_builder import EXAMINED_RECORDS_MAX
from shardway.errors import RecordRefusedError
from shardway.model import PutResult
from tests.core.producer.producer_kit import (
    THROTTLED,
    Kit,
    datas_of,
    error_of,
    halves_of,
    keys_of,
    make_shard,
    make_shards,
    outcome,
    result_of,
    written,
)
from tests.put_entries import Answer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from shardway.core.producer.request import Request
    from shardway.model import ListedShard

PARENT = make_shard(0, 0, HASH_KEY_MAX)
MIB = 1024 * 1024


def plain(shards: Iterable[ListedShard] = (PARENT,), **limits: Any) -> Kit:
    return Kit(list(shards), **{"linger_s": 0.0, **limits})


def sent(request: Request) -> list[bytes]:
    return datas_of(request.entries)


def records(count: int, key: str = "k", size: int = 1) -> list[tuple[str, bytes]]:
    return [(key, b"x" * size) for _ in range(count)]


SLOW = PaceLimits(records_per_s=10, bytes_per_s=1_000, start_share=1.0)


# --- what goes into a request ---------------------------------------------------------------------


def test_nothing_goes_before_the_shards_are_known() -> None:
    kit = plain()
    kit.batcher.lanes.known = False
    kit.put(("a", b"1"))
    assert kit.sends_nothing()
    assert kit.batcher.wake_at_s == inf
    kit.batcher.set_shards([PARENT], 0.0)
    assert sent(kit.send()) == [b"1"]


def test_a_request_has_at_most_so_many_records() -> None:
    kit = plain(request_records_max=3)
    kit.put(*records(8))
    assert [len(kit.send().entries) for _ in range(3)] == [3, 3, 2]
    assert kit.sends_nothing()


@pytest.mark.parametrize("ordered", [False, True])
def test_a_request_has_at_most_so_many_bytes_but_for_a_record_that_is_larger(ordered: bool) -> None:
    kit = plain(request_bytes_max=10, ordered_by_key=ordered)
    kit.put(*[(key, b"x" * size) for key, size in zip("abcdef", (4, 4, 20, 1, 9, 8), strict=True)])
    assert [[len(data) for data in sent(kit.send())] for _ in range(5)] == [[4, 4], [20], [1], [9], [8]]


def test_the_place_of_a_large_record_that_was_withdrawn_is_not_filled_over_the_bound() -> None:
    for ordered in (False, True):
        kit = plain(request_bytes_max=10, ordered_by_key=ordered)
        chunk = kit.put(("a", b"x" * 40), *[(key, b"x" * 4) for key in "bcd"])
        kit.batcher.withdraw(chunk, 0)
        assert [len(kit.send().entries) for _ in range(2)] == [2, 1]


def test_aggregates_share_a_request_and_each_is_for_one_shard() -> None:
    shards = make_shards(3)
    kit = plain(shards, aggregate=True)
    for shard in shards:
        kit.put(*[(key, b"x") for key in keys_of(shard, 2)])
    request = kit.send()
    assert [load.lane.shard for load in request.loads] == shards
    assert all(shard.holds(entry.hash_key) for shard, entry in zip(shards, request.entries, strict=True))
    assert [len(open_aggregate(entry.data) or ()) for entry in request.entries] == [2, 2, 2]


def test_aggregates_have_at_most_so_many_bytes_but_for_a_record_that_is_larger() -> None:
    kit = plain(aggregate=True, aggregate_bytes_max=100)
    kit.put(*records(10, size=30), ("k", b"y" * 500))
    entries = kit.send().entries
    assert all(len(entry.data) <= 100 for entry in entries[:-1])
    assert entries[-1].data == b"y" * 500


def test_aggregates_stay_within_a_requests_bytes() -> None:
    kit = plain(aggregate=True, aggregate_bytes_max=10_000, request_bytes_max=500)
    kit.put(*[(str(number), b"x") for number in range(200)])
    requests = [kit.send()]
    while not kit.sends_nothing():
        requests = [*kit.batcher.in_flight]
    assert sum(request.user_records for request in requests) == 200
    assert all(request.payload_bytes <= 500 for request in requests)


def test_a_record_that_is_an_aggregate_itself_is_framed_and_counts_with_its_frame() -> None:
    inner = encode_aggregate([("a", b"1", None)])
    kit = plain(aggregate=True, request_bytes_max=200)
    chunk = kit.put(("k", inner))
    request = kit.send()
    assert [record.data for record in open_aggregate(request.entries[0].data) or ()] == [inner]
    assert request.payload_bytes == request.entries[0].payload_bytes
    kit.answer(request)
    assert outcome(chunk) == PutResult(PARENT.shard_id, 1, 0, 1, False)


def test_where_no_shard_can_be_predicted_records_go_without_aggregates() -> None:
    for kit in (plain(aggregate=True), Kit(None, aggregate=True, linger_s=0.0)):
        kit.batcher.set_shards(None, 0.0)
        kit.put(("a", b"1"), ("b", b"2"))
        assert sent(kit.send()) == [b"1", b"2"]


def test_explicit_hash_keys_are_sent_and_choose_the_shard() -> None:
    shards = make_shards(2)
    kit = plain(shards)
    kit.put(("a", b"1"), ("a", b"2"), hash_keys={0: 0, 1: HASH_KEY_MAX})
    request = kit.send()
    assert [(load.lane.shard, load.entries[0].explicit_hash_key) for load in request.loads] == [
        (shards[0], "0"),
        (shards[1], str(HASH_KEY_MAX)),
    ]


# --- when it goes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("aggregate", [False, True])
@pytest.mark.parametrize("shards", [[PARENT], None])
def test_the_first_goes_at_once_and_then_company_is_waited_for(
    aggregate: bool, shards: list[ListedShard] | None
) -> None:
    kit = Kit(shards, linger_s=0.5, aggregate=aggregate)
    kit.put(("a", b"1"))
    kit.send(1.0)
    kit.put(("a", b"2"))
    assert kit.sends_nothing(1.2)
    assert kit.batcher.wake_at_s == 1.5
    kit.put(("a", b"3"))
    assert kit.send(1.5).user_records == 2
    kit.put(("a", b"4"))
    assert kit.send(2.5).user_records == 1  # after a pause


@pytest.mark.parametrize("limits", [{"request_records_max": 4}, {"request_bytes_max": 40}])
def test_what_fills_a_request_waits_for_nothing(limits: dict[str, Any]) -> None:
    kit = plain(linger_s=0.5, **limits)
    kit.put(("a", b"1"))
    kit.send(0.0)
    kit.put(*records(3, size=9))
    assert kit.sends_nothing(0.1)
    kit.put(*records(2, size=9))
    assert len(kit.send(0.1).entries) == 4
    assert kit.sends_nothing(0.1)


def test_what_fills_an_aggregate_waits_for_nothing() -> None:
    shards = make_shards(2)
    (a,), (b,) = (keys_of(shard, 1) for shard in shards)
    kit = plain(shards, aggregate=True, linger_s=0.5, aggregate_bytes_max=100)
    kit.put((a, b"1"))
    kit.send(0.0)
    kit.put((a, b"x" * 40), (b, b"y" * 40), (a, b"z" * 80))
    request = kit.send(0.1)
    assert [load.lane.shard for load in request.loads] == [shards[0]]
    assert kit.batcher.next_request(0.1) is None
    assert kit.send(0.5).user_records == 2


def test_what_a_full_request_had_no_room_for_does_not_wait_again() -> None:
    kit = plain(linger_s=0.5, request_records_max=3)
    kit.put(("a", b"1"))
    kit.send(0.0)
    kit.put(*records(2))
    assert kit.sends_nothing(0.1)
    kit.put(*records(2))
    kit.send(0.5)
    assert len(kit.send(0.5).entries) == 1


def test_what_was_too_large_for_the_rest_of_a_request_does_not_wait_again() -> None:
    kit = plain(linger_s=0.5, request_bytes_max=100)
    kit.put(("a", b"1"))
    kit.send(0.0)
    kit.put(("a", b"2"), ("b", b"x" * 90))
    assert kit.sends_nothing(0.1)
    kit.put(("c", b"y" * 90))
    assert [len(kit.send(0.5).entries) for _ in range(2)] == [2, 1]


def test_nothing_waits_for_company_while_a_flush_does() -> None:
    kit = plain(linger_s=0.5)
    kit.put(("a", b"1"))
    kit.send(0.0)
    kit.put(("a", b"2"))
    kit.batcher.urgent = True
    assert sent(kit.send(0.1)) == [b"2"]


def test_a_shards_pace_holds_back_its_records_and_no_others() -> None:
    shards = make_shards(2)
    (a,), (b,) = (keys_of(shard, 1) for shard in shards)
    kit = plain(shards, pace=SLOW)
    list(kit.batcher.lanes)[2].pace = None  # the first is the one for keys of no shard
    kit.put(*records(20, key=a), *records(20, key=b))
    loads = kit.send(0.0).loads
    assert [(load.lane.shard, load.user_records) for load in loads] == [(shards[0], 2), (shards[1], 20)]
    assert kit.sends_nothing(0.0)
    assert 0.0 < kit.batcher.wake_at_s < 1.0
    assert kit.send(kit.batcher.wake_at_s).user_records == 1


def test_what_is_held_back_by_its_pace_makes_nothing_else_hurry() -> None:
    shards = make_shards(2)
    (a,), (b,) = (keys_of(shard, 1) for shard in shards)
    kit = plain(shards, linger_s=0.01, request_records_max=10, pace=SLOW)
    kit.put(*records(30, key=a))
    kit.send(0.0)
    kit.put((b, b"1"))
    assert kit.sends_nothing(0.001)
    assert kit.batcher.wake_at_s == 0.01
    assert sent(kit.send(0.01)) == [b"1"]


def test_in_order_a_step_looks_at_so_many_records_of_all_shards_and_the_next_one_goes_on() -> None:
    """200,000 records of keys that are on their way would hold the event loop for a second."""
    shards = make_shards(2)
    keys = [keys_of(shard, 1)[0] for shard in shards]
    kit = plain(shards, ordered_by_key=True)
    for _ in range(3):
        kit.put(*[(key, b"x") for key in keys for _ in range(2_000)])

    def unseen() -> list[int]:
        return [sum(len(run) for run in lane.runs) for lane in kit.batcher.lanes][1:]

    left, sent_records = unseen(), 0
    while sum(left):
        request = kit.batcher.next_request(0.0)
        sent_records += 0 if request is None else len(request.entries)
        before, left = left, unseen()
        assert 0 < sum(before) - sum(left) <= EXAMINED_RECORDS_MAX
        assert request is not None or kit.batcher.wake_at_s == (0.0 if sum(left) else inf)
    assert sent_records == 2
    assert kit.sends_nothing()


def test_in_order_no_shard_waits_until_all_of_another_ones_were_looked_at() -> None:
    shards = make_shards(2)
    (a,), (b,) = (keys_of(shard, 1) for shard in shards)
    kit = plain(shards, ordered_by_key=True)
    kit.put((a, b"first"))
    kit.send()
    kit.put(*records(3 * EXAMINED_RECORDS_MAX, key=a))
    kit.put((b, b"1"))
    assert kit.sends_nothing()
    assert sent(kit.send()) == [b"1"]


def test_requests_go_side_by_side_within_two_bounds() -> None:
    kit = plain(request_records_max=1, requests_in_flight_max=3, in_flight_bytes_max=4_000)
    kit.put(*[("k", b"x" * size) for size in (1, 1, 1, 1, 4_000, 1)])
    first = [kit.send() for _ in range(3)]
    assert kit.sends_nothing()
    assert kit.batcher.wake_at_s == inf
    kit.answer(first.pop())
    kit.send()
    for request in first:
        kit.answer(request)
    large = kit.send()
    assert large.payload_bytes > 4_000
    assert kit.sends_nothing()
    kit.answer(large)
    kit.send()


# --- what comes first -----------------------------------------------------------------------------


def test_every_lane_gets_its_turn_whatever_the_others_have() -> None:
    shards = make_shards(3)
    (a,), (b,), (c,) = (keys_of(shard, 1) for shard in shards)
    kit = plain(shards, request_records_max=5)
    for key in (a, b, c):
        kit.put(*records(5, key=key))
    gone = []
    # The first and the last have five more whenever they had their turn, and nothing is left of theirs meanwhile.
    for _ in range(6):
        request = kit.send()
        gone += [load.lane.shard for load in request.loads]
        for load in request.loads:
            if load.lane.shard != shards[1]:
                kit.put(*records(5, key=a if load.lane.shard == shards[0] else c))
    assert shards[1] in gone[:3]


@settings(max_examples=40)
@given(st.integers(2, 5), st.integers(1, 4), st.booleans(), st.randoms(use_true_random=False))
def test_a_lane_that_has_something_is_served_in_as_many_requests_as_there_are_lanes(
    lanes: int, room: int, aggregate: bool, rng: Random
) -> None:
    shards = make_shards(lanes)
    keys = [keys_of(shard, 1)[0] for shard in shards]
    kit = plain(shards, request_records_max=room, aggregate=aggregate)
    waits = dict.fromkeys(shards, 0)
    for _ in range(40):
        for key in rng.sample(keys, rng.randint(0, lanes)):
            kit.put(*records(rng.randint(1, 2 * room), key=key, size=rng.choice([1, 60_000])))
        has_some = [lane.shard for lane in kit.batcher.lanes if lane.waiting]
        served = {load.lane.shard for load in kit.send().loads} if has_some else set()
        for shard in shards:
            waits[shard] = waits[shard] + 1 if shard in has_some and shard not in served else 0
        assert max(waits.values()) < lanes


@pytest.mark.parametrize("aggregate", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
def test_what_is_new_does_not_take_the_pace_that_a_repetition_waits_for(aggregate: bool, ordered: bool) -> None:
    kit = plain(
        aggregate=aggregate,
        ordered_by_key=ordered,
        aggregate_bytes_max=2_000,
        pace=SLOW._replace(records_per_s=1_000),
    )
    chunk = kit.put(*[(f"old{number}", b"x" * 20) for number in range(8)])
    request = kit.send(0.0)
    kit.answer(request, errors=dict.fromkeys(range(len(request.entries)), THROTTLED))
    for step in range(400):
        now_s = step / 100
        kit.put((f"new{step}", b"x" * 20), put_at_s=now_s)
        if again := kit.batcher.next_request(now_s):
            kit.answer(again, now_s=now_s)
    assert written(chunk) == list(range(8))


def test_repetitions_go_before_what_is_new() -> None:
    kit = plain(request_records_max=2)
    kit.put(("a", b"1"), ("b", b"2"))
    kit.answer(kit.send(), errors={0: THROTTLED, 1: THROTTLED})
    kit.put(("c", b"3"), ("d", b"4"))
    assert sent(kit.send(9.0)) == [b"1", b"2"]
    assert sent(kit.send(9.0)) == [b"3", b"4"]


@pytest.mark.parametrize("aggregate", [False, True])
def test_in_order_a_key_waits_for_the_outcome_of_its_former_record(aggregate: bool) -> None:
    kit = plain(ordered_by_key=True, aggregate=aggregate)
    kit.put(("a", b"1"))
    request = kit.send()
    kit.put(("a", b"2"))
    assert kit.sends_nothing()
    kit.answer(request, errors={0: THROTTLED})
    kit.put(("a", b"3"))
    again = kit.send(9.0)
    assert sent(again) == [b"1"]
    assert kit.sends_nothing(9.0)
    kit.answer(again, now_s=9.0)
    chunk = kit.chunks[1]
    while outcome(chunk) is None:
        kit.answer(kit.send(9.0), now_s=9.0)
    if not aggregate:
        assert outcome(kit.chunks[2]) is None


def test_in_order_nothing_overtakes_across_a_reshard() -> None:
    for aggregate in (False, True):
        left, right = halves_of(PARENT, 1)
        (a,) = keys_of(left, 1)
        kit = plain(ordered_by_key=True, aggregate=aggregate)
        kit.put((a, b"1"))
        request = kit.send()
        kit.put((a, b"2"))
        kit.batcher.set_shards([left, right], 0.0)
        assert kit.sends_nothing()
        kit.batcher.handle_failure(request, Failure.UNKNOWN, "lost", 0.0)
        again = kit.send(9.0)
        assert again.loads[0].lane.shard == left
        first = sent(again)[0]
        found = open_aggregate(first)
        assert [record.data for record in found] == [b"1", b"2"] if found else first == b"1"


# --- what failed ----------------------------------------------------------------------------------


def test_after_a_failure_nothing_goes_for_a_while_and_longer_each_time() -> None:
    kit = plain(retry_base_s=0.1, retry_cap_s=5.0)
    waits = []
    for now_s in range(0, 300, 10):
        kit.put(("a", b"1"))
        kit.batcher.handle_failure(kit.send(now_s), Failure.UNKNOWN, "lost", now_s)
        kit.put(("a", b"2"))
        assert kit.sends_nothing(now_s)
        waits.append(kit.batcher.wake_at_s - now_s)
    assert waits[0] <= 0.1
    assert max(waits[:3]) <= 0.4
    assert 1.0 < max(waits) <= 5.0


def test_a_success_ends_that() -> None:
    kit = plain()
    kit.put(("a", b"1"))
    failing, succeeding = kit.send(), None
    kit.put(("b", b"2"))
    succeeding = kit.send()
    kit.batcher.handle_failure(failing, Failure.UNKNOWN, "lost", 0.0)
    kit.answer(succeeding)
    kit.put(("c", b"3"))
    assert sent(kit.send(0.0)) == [b"3"]


def test_what_spoils_a_request_is_found_and_given_up_alone() -> None:
    shards = make_shards(3)
    kit = plain(shards)
    keys = [key for shard in shards for key in keys_of(shard, 5)]
    chunk = kit.put(*[(key, b"bad" if number in (3, 11) else b"good") for number, key in enumerate(keys)])
    requests = 0
    while None in chunk.outcomes:
        request = kit.send(0.0)
        requests += 1
        kit.put((keys[requests % 15], b"more"))
        assert len(request.loads) == 1 or not any(load.alone for load in request.loads)
        if b"bad" in sent(request):
            kit.batcher.handle_failure(request, Failure.INVALID, "ValidationException", 0.0)
        else:
            kit.answer(request)
    refused = [index for index in range(15) if isinstance(outcome(chunk, index), RecordRefusedError)]
    assert refused == [3, 11]
    assert not error_of(chunk, 3).may_be_written
    assert error_of(chunk, 3).reason == "ValidationException"
    assert all(not result_of(chunk, index).duplicates_possible for index in written(chunk))
    assert requests <= 25


@pytest.mark.parametrize("aggregate", [False, True])
def test_an_endpoint_with_the_former_limit_on_requests_is_learnt(aggregate: bool) -> None:
    kit = plain(aggregate=aggregate, aggregate_bytes_max=MIB)
    chunk = kit.put(*records(12, size=MIB - 100))
    while None in chunk.outcomes:
        request = kit.send(0.0)
        if request.payload_bytes > REQUEST_BYTES_FORMER:
            kit.batcher.handle_failure(request, Failure.INVALID, "InvalidArgumentException", 0.0)
            assert kit.batcher.builder.request_bytes_max == REQUEST_BYTES_FORMER
        else:
            kit.answer(request)
    assert written(chunk) == list(range(12))


def test_what_is_denied_from_the_start_is_told_at_once_and_later_it_is_tried_again() -> None:
    kit = plain()
    chunk = kit.put(("a", b"1"))
    kit.batcher.handle_failure(kit.send(), Failure.DENIED, "AccessDeniedException", 0.0)
    error = outcome(chunk)
    assert isinstance(error, RecordRefusedError)
    assert (error.reason, error.may_be_written) == ("AccessDeniedException", False)
    kit.put(("a", b"2"))
    kit.answer(kit.send(9.0))
    chunk = kit.put(("a", b"3"))
    kit.batcher.handle_failure(kit.send(9.0), Failure.DENIED, "ExpiredTokenException", 9.0)
    kit.answer(kit.send(99.0))
    assert isinstance(outcome(chunk), PutResult)


def test_an_answer_to_what_was_closed_changes_nothing() -> None:
    kit = plain()
    chunk = kit.put(("a", b"1"))
    request = kit.send()
    kit.batcher.close(0.0)
    before = outcome(chunk)
    kit.batcher.handle_answer(request, [Answer(PARENT.shard_id, "1")], 0.0)
    kit.batcher.handle_failure(request, Failure.INVALID, "why", 0.0)
    assert str(outcome(chunk)) == str(before)


def test_the_same_history_is_lived_the_same_way() -> None:
    """Chance comes from the generator alone, not from where things lie in memory."""
    lives = []
    for _ in range(2):
        shards = make_shards(8)
        kit = plain(shards, request_records_max=7)
        keys = cycle(key for shard in shards for key in keys_of(shard, 3))
        kit.put(*[(next(keys), b"%d" % number) for number in range(100)])
        life = []
        for step in range(40):
            if request := kit.batcher.next_request(step / 10):
                life.append(sent(request))
                kit.answer(request, errors={step % 7: THROTTLED}, now_s=step / 10)
        lives.append(life)
    assert lives[0] == lives[1]
