"""The loads of a lane: how many of its records leave it together, as one aggregate or as entries of their own.

Each function takes what it gives out off the lane. ``Lane.taken`` has it meanwhile, so that `mending` finds it where a
signal handler raises in the middle. A record that the sink makes no entry of goes to ``Lane.rejected``.
"""

from __future__ import annotations

from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING, Any

from shardway.core.producer.request import Load
from shardway.core.producer.run import fitting, note_taken

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shardway.core.aggregation.writer import Aggregator
    from shardway.core.producer.lane import Lane
    from shardway.core.producer.run import Run


def aggregate_load(lane: Lane, aggregator: Aggregator) -> Load | None:
    """Return as many records as one aggregate holds, as a load."""
    taken = lane.begin_load()
    while lane.runs:
        run = lane.runs[0]
        lane.skip_withdrawn(run)
        count, is_full = run.add_to(aggregator)
        if count:
            lane.uncount(run, count)
            taken.append(run.next(count))
            run.at += count
        if is_full:
            break
        if not len(run):
            lane.runs.popleft()
    data_bytes = aggregator.data_bytes
    container = aggregator.finish()
    if container is None:
        return None
    note_taken(taken)
    columns = container.data, container.partition_key, str(container.explicit_hash_key)
    try:
        entry = lane.make_entry(*columns)
    except Exception:
        try:
            lane.make_entry(*columns)
        except Exception as again:
            lane.rejected += [(run, again) for run in taken]
            return None
        raise  # A signal handler raised: it was no record's fault.
    payload_bytes = len(container.data) + len(container.partition_key.encode())
    return Load(lane, taken, [entry], payload_bytes, is_aggregate=True, data_bytes=data_bytes)


def plain_load(lane: Lane, records_max: int, bytes_max: int, *, first_any: bool) -> Load | None:
    """Return records that each become an entry, within both bounds; with ``first_any`` the first may be of any
    size.
    """
    taken = lane.begin_load()
    total_bytes = 0
    while lane.runs and records_max:
        run = lane.runs[0]
        lane.skip_withdrawn(run)
        count, payload_bytes = fitting(run, records_max, bytes_max - total_bytes)
        if first_any and not (count or taken) and len(run):
            count, payload_bytes = 1, run.record_bytes(run.at)
        if count:
            lane.uncount(run, count)
            taken.append(run.next(count))
            run.at += count
            records_max -= count
            total_bytes += payload_bytes
        if len(run):
            break
        lane.runs.popleft()
    note_taken(taken)
    return _load_of_entries(lane, taken, total_bytes)


def plain_load_by_key(
    lane: Lane, records_max: int, bytes_max: int, *, first_any: bool, records_examined_max: int
) -> Load | None:
    """Return what ``plain_load`` would, but no record whose key is on its way, and each key once.

    At most ``records_examined_max`` records of ``Lane.runs`` are examined, and set aside where their key is on its way:
    ``Lane.records_examined`` says how many.
    """
    lane.records_examined = 0
    taken, total_bytes = _take_ready(lane, records_max, bytes_max, first_any=first_any)
    records_max -= len(taken)
    while lane.runs and records_max and not lane.ready and lane.records_examined < records_examined_max:
        run = lane.runs[0]
        lane.skip_withdrawn(run)
        places: list[int] = []
        stop = min(len(run.keys), run.at + records_examined_max - lane.records_examined)
        for place in range(run.at, stop):
            key = run.keys[place]
            if key in lane.busy:
                queue = lane.held.setdefault(key, deque())
                if queue and queue[-1].chunk.expires_at_s > run.chunk.expires_at_s:
                    lane.expiry_mixed = True
                queue.append(run.pick((place,)))
                continue
            payload_bytes = run.record_bytes(place)
            fits = total_bytes + payload_bytes <= bytes_max or (first_any and not total_bytes)
            if not records_max or not fits:
                break
            places.append(place)
            lane.busy.add(key)
            records_max -= 1
            total_bytes += payload_bytes
        else:
            place = stop
        lane.records_examined += place - run.at
        lane.uncount(run, place - run.at)
        if places:
            taken.append(run.pick(places))
        if place < len(run.keys):
            run.at = place
            break
        lane.runs.popleft()
    note_taken(taken)
    return _load_of_entries(lane, taken, total_bytes)


def _take_ready(lane: Lane, records_max: int, bytes_max: int, *, first_any: bool) -> tuple[list[Run], int]:
    """Return the first record of each key that may go, within both bounds; and their bytes."""
    taken = lane.begin_load()
    total_bytes = 0
    while lane.ready and len(taken) < records_max:
        key = next(iter(lane.ready))
        queue = lane.held[key]
        run = queue[0]
        lane.skip_withdrawn(run)
        if len(run):
            payload_bytes = run.record_bytes(0)
            if total_bytes + payload_bytes > bytes_max and not (first_any and not taken):
                break
            lane.uncount(run, 1)
            taken.append(run)
            total_bytes += payload_bytes
            lane.busy.add(key)
        queue.popleft()
        if len(run) or not queue:
            del lane.ready[key]
        else:
            lane.count(queue[0])  # The record before it was withdrawn.
        if not queue:
            del lane.held[key]
    return taken, total_bytes


def _load_of_entries(lane: Lane, runs: list[Run], payload_bytes: int) -> Load | None:
    """Return a load of records that each are an entry."""
    entries: list[Any] = []
    try:
        for run in runs:
            entries += _entries(lane, run)
    except Exception as error:
        runs, entries = _entries_one_by_one(lane, runs)
        if not lane.rejected:  # It was no record's fault then.
            raise error from None
        payload_bytes = sum(run.payload_bytes() for run in runs)
    return Load(lane, runs, entries, payload_bytes, is_aggregate=False) if entries else None


def _entries(lane: Lane, run: Run) -> Iterator[Any]:
    if run.chunk.hash_keys is None:
        return map(lane.make_entry, run.datas, run.keys, repeat(None))
    hash_keys = (None if hash_key is None else str(hash_key) for hash_key in run.hash_keys())
    return map(lane.make_entry, run.datas, run.keys, hash_keys)


def _entries_one_by_one(lane: Lane, runs: Iterable[Run]) -> tuple[list[Run], list[Any]]:
    """Return the runs without the records that the sink makes no entry of, and the entries."""
    left: list[Run] = []
    entries: list[Any] = []
    for run in runs:
        good: list[int] = []
        for place in range(len(run.keys)):
            one = run.pick((place,))
            try:
                made = list(_entries(lane, one))
            except Exception:
                try:
                    made = list(_entries(lane, one))  # A signal handler may have raised: it does so once.
                except Exception as again:
                    lane.rejected.append((one, again))
                    continue
            entries += made
            good.append(place)
        if good:
            left.append(run.pick(good))
    return left, entries
