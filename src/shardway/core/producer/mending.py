"""The mending of a batcher: after a step that was broken off in the middle, it puts every record in one place again.

A signal handler may raise between any two instructions of a producer on the main thread's loop, and code of a sink
may raise what it likes. So the steps note what they take before they take it off elsewhere: a record may then be
found twice, and hardly ever nowhere. `mend` takes all records that are found, leaves out what is settled or on its
way, and queues the others again in the order of their puts. A record that is found nowhere gets its outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from shardway.core.producer.outcome import NotWritten
from shardway.core.producer.run import Run
from shardway.errors import RecordWithdrawnError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from shardway.core.producer.batcher import Batcher
    from shardway.core.producer.chunk import Chunk
    from shardway.core.producer.request import Request

INTERRUPTED = "a record was lost sight of when the producer was interrupted"


class _FoundRecord(NamedTuple):
    key: str
    data: bytes
    attempts: int
    doubtful: bool
    reason: str
    strays: int


def mend(batcher: Batcher, on_their_way: Collection[Request]) -> None:
    """Give each record without an outcome one place in the batcher, or its outcome.

    ``on_their_way`` are the requests whose answers will come. A call that was broken off can be repeated. What is
    settled has to be counted again afterwards (`Batcher.recount`).
    """
    chunks = list(batcher.settling.live.values())
    found = dict.fromkeys(chunks, _NO_RECORDS) if batcher.salvage is None else batcher.salvage
    found = {chunk: dict(found.get(chunk, _NO_RECORDS)) for chunk in chunks}
    sent: dict[Chunk, set[int]] = {chunk: set() for chunk in chunks}
    for request in batcher.in_flight:
        if request in on_their_way:
            for load in request.loads:
                for run in load.runs:
                    sent.setdefault(run.chunk, set()).update(run.indices)
    for run in _all_runs(batcher, chunks, on_their_way):
        there = found.get(run.chunk)
        if there is None:
            continue
        for place in range(run.at, len(run.keys)):
            index = run.indices[place]
            known = there.get(index)
            if known is None or known.attempts < run.attempts:
                there[index] = _FoundRecord(
                    run.keys[place], run.datas[place], run.attempts, run.doubtful, run.reason, run.strays
                )
    batcher.salvage = found
    batcher.start_over(on_their_way)
    for chunk in chunks:
        missing = [
            index
            for index, outcome in enumerate(chunk.outcomes)
            if outcome is None and index not in sent[chunk] and index not in found[chunk]
        ]
        if missing:
            chunk.settle(missing, NotWritten(RecordWithdrawnError, INTERRUPTED, 0, True, None, ""))
        open_ones = [index for index in sorted(found[chunk]) if chunk.outcomes[index] is None]
        for run in _runs(chunk, [index for index in open_ones if index not in sent[chunk]], found[chunk]):
            batcher.lanes.requeue([run], first=False)
    batcher.salvage = None


_NO_RECORDS: dict[int, _FoundRecord] = {}


def _all_runs(batcher: Batcher, chunks: Iterable[Chunk], on_their_way: Collection[Request]) -> Iterator[Run]:
    for chunk in chunks:
        if chunk.keys:
            yield Run(chunk, chunk.keys, chunk.datas, range(chunk.records))
    yield from batcher.lanes.runs_in_doubt()
    if batcher.builder.unfinished is not None:
        for load in batcher.builder.unfinished.loads:
            yield from load.runs
    lost = [request for request in batcher.in_flight if request not in on_their_way]
    for load in [*(load for request in lost for load in request.loads), *batcher.answers.undecided_loads()]:
        for run in load.as_runs():
            run.doubtful = True
            yield run


def _runs(chunk: Chunk, indices: Sequence[int], found: dict[int, _FoundRecord]) -> Iterator[Run]:
    """Return these records of a chunk as runs, each of records that went through the same."""
    start = 0
    for stop in range(1, len(indices) + 1):
        first = found[indices[start]]
        if stop < len(indices) and found[indices[stop]][2:] == first[2:]:
            continue
        some = [found[index] for index in indices[start:stop]]
        run = Run(chunk, [one.key for one in some], [one.data for one in some], indices[start:stop])
        run.attempts, run.doubtful, run.reason, run.strays = first[2:]
        yield run
        start = stop
