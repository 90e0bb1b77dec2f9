"""What must hold after any history."""

from __future__ import annotations

import gc
from collections import Counter, defaultdict
from random import Random
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING

from shardway.core.aggregation.reader import open_aggregate
from shardway.core.producer.outcome import NotWritten
from shardway.errors import PutError, RecordExpiredError, RecordRefusedError, RecordWithdrawnError
from tests.core.producer.simulated_producing import EXPIRY_CHECK_S, Producing, Tally

if TYPE_CHECKING:
    from shardway.model import PutResult
    from tests.core.producer.simulated_producing import Record


def check(ran: Producing) -> None:
    """Everything."""
    results = results_of(ran)
    check_accounts(ran, results)
    check_memory(ran)
    check_places(ran, results)
    check_honesty(ran, results)
    check_reasons(ran, results)
    check_readers(ran, results)
    if ran.history.ordered:
        check_order(ran, results)


def results_of(ran: Producing) -> dict[bytes, PutResult | PutError]:
    """Every record's outcome: there is one."""
    results: dict[bytes, PutResult | PutError] = {}
    for data, record in ran.records.items():
        outcome = record.chunk.outcomes[record.place]
        assert outcome is not None
        results[data] = outcome.error() if isinstance(outcome, NotWritten) else outcome
    return results


def check_accounts(ran: Producing, results: dict[bytes, PutResult | PutError]) -> None:
    """What was held is free again, nothing waits any more, and each record was told once."""
    assert ran.freed_bytes == sum(chunk.held_bytes for chunk in ran.chunks)
    assert all(chunk.unsettled == 0 for chunk in ran.chunks)
    assert set(ran.settled_at_s) == set(ran.chunks)
    assert ran.tally.settled_records + ran.tally.other == len(ran.records)
    written = [data for data, result in results.items() if not isinstance(result, PutError)]
    assert ran.tally.written_records == ran.tally.settled_records == len(written)
    assert ran.tally.written_bytes == sum(map(len, written))
    batcher = ran.batcher
    assert not batcher.in_flight
    assert list(batcher.unsettled_runs()) == []
    for lane in batcher.lanes:
        assert (lane.waiting, lane.waiting_bytes) == (0, 0.0)
        assert not lane.retry
        if ran.history.close_at_s is None:
            assert (lane.in_flight, lane.held, lane.busy, lane.predecessors) == (0, {}, set(), set())


def check_memory(ran: Producing) -> None:
    """The batcher holds no record's data any more."""
    outside = (Producing, Tally, Random, FunctionType, MethodType, ModuleType, type)
    seen: set[int] = set()
    found: list[object] = [ran.batcher]
    while found:
        held = found.pop()
        if id(held) not in seen and not isinstance(held, outside):
            seen.add(id(held))
            found += gc.get_referents(held)
    assert not seen & {id(data) for data in ran.records}
    assert not seen & {id(chunk) for chunk in ran.chunks}


def check_places(ran: Producing, results: dict[bytes, PutResult | PutError]) -> None:
    """What is reported as written is there: shard, sequence number, and place in its aggregate."""
    for data, result in results.items():
        if isinstance(result, PutError):
            continue
        record = ran.records[data]
        entry = ran.stream.logs[result.shard_id][result.sequence_number]
        if result.sub_sequence_number is None:
            assert (entry.data, entry.partition_key) == (data, record.key)
            assert entry.explicit_hash_key in (None, str(entry.hash_key))
        else:
            aggregate = open_aggregate(entry.data)
            assert aggregate is not None
            found = list(aggregate)[result.sub_sequence_number]
            assert (found.data, found.partition_key, found.explicit_hash_key) == (data, record.key, record.hash_key)
        assert result.attempts == ran.carried[data]


def check_honesty(ran: Producing, results: dict[bytes, PutResult | PutError]) -> None:
    """Doubt is told where there is any, and only what is told to be doubtful is not certain."""
    times = Counter(found.data for found in ran.stream.everything())
    for data, result in results.items():
        if isinstance(result, PutError):
            assert times[data] == 0 or result.may_be_written
            assert result.attempts == ran.carried[data]
        else:
            assert times[data] == 1 or (times[data] > 1 and result.duplicates_possible)
            assert result.attempts > 1 or not result.duplicates_possible


def check_reasons(ran: Producing, results: dict[bytes, PutResult | PutError]) -> None:
    """A record fails only for a reason, and in time."""
    for data, result in results.items():
        record = ran.records[data]
        if isinstance(result, RecordWithdrawnError):
            assert data in ran.withdrawn or ran.history.close_at_s is not None
        elif isinstance(result, RecordRefusedError):
            denied = any(fate.kind == "denied" for fate in ran.history.fates) or ran.history.refused_at_s is not None
            assert denied or is_unacceptable(ran, record)
        elif isinstance(result, RecordExpiredError):
            assert record.expires_at_s <= ran.now_s
            assert result.attempts == 0 or result.reason
        if data in ran.withdrawn:
            assert isinstance(result, RecordWithdrawnError)
            assert not ran.carried[data]
    longest_s = max((fate.way_s + fate.back_s for fate in ran.history.fates), default=0.02)
    for chunk, settled_at_s in ran.settled_at_s.items():
        in_time_s = chunk.expires_at_s + EXPIRY_CHECK_S + max(0.02, longest_s) + 1e-6
        assert settled_at_s <= in_time_s or chunk in ran.astray


def is_unacceptable(ran: Producing, record: Record) -> bool:
    if record.poisonous or len(record.data) + len(record.key.encode()) > ran.history.service_bytes_max:
        return True
    # An aggregate is given up as one.
    return ran.history.aggregate and any(other.poisonous for other in ran.records.values())


def check_readers(ran: Producing, results: dict[bytes, PutResult | PutError]) -> None:
    """No reader misses a record that is reported as written, also not one that keeps to the KCL's range rule."""
    seen = {found.data for found in ran.stream.everything(range_rule=True)}
    assert {data for data, result in results.items() if not isinstance(result, PutError)} <= seen
    assert {found.data for found in ran.stream.everything()} <= set(ran.records)


def check_order(ran: Producing, results: dict[bytes, PutResult | PutError]) -> None:
    """A key's records are first seen in the order in which they were put, in whatever order shards are read.

    A reader without the range rule may see strays in a shard that is not their key's, at any time.
    """
    order = {data: place for place, data in enumerate(ran.records)}
    late = any(fate.kind == "late" for fate in ran.history.fates)
    closed = ran.history.close_at_s is not None
    for range_rule in (False, True):
        for newest_first in (False, True):
            seen: dict[str, dict[bytes, int]] = defaultdict(dict)
            for found in ran.stream.everything(range_rule=range_rule, newest_first=newest_first):
                # What a service does after it was given up can't be ordered; what is reported as written is.
                if not found.stray and not ((late or closed) and isinstance(results[found.data], PutError)):
                    seen[ran.records[found.data].key].setdefault(found.data, order[found.data])
            for places in seen.values():
                assert list(places.values()) == sorted(places.values())
