"""Chunks, shards and answers for tests that show one rule each."""

from __future__ import annotations

from itertools import count
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any

from shardway.core.hashkeys import even_ranges, hash_key
from shardway.core.producer.batcher import Batcher
from shardway.core.producer.chunk import RECORD_OVERHEAD_BYTES, Chunk
from shardway.core.producer.lane import Lane
from shardway.core.producer.limits import BatchLimits
from shardway.core.producer.outcome import NotWritten
from shardway.core.producer.run import Run
from shardway.core.sequence import shard_id_of
from shardway.errors import PutError
from shardway.model import ListedShard, PutResult
from tests.put_entries import Answer, Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shardway.core.producer.request import Load, Request

THROTTLED = "ProvisionedThroughputExceededException"
INTERNAL = "InternalFailure"


def make_shard(number: int, first: int, last: int, *parents: str) -> ListedShard:
    return ListedShard(
        shard_id=shard_id_of(number),
        parents=parents,
        first_hash_key=first,
        last_hash_key=last,
        first_sequence_number=0,
    )


def make_shards(shard_count: int) -> list[ListedShard]:
    return [make_shard(number, *bounds) for number, bounds in enumerate(even_ranges(shard_count))]


def halves_of(shard: ListedShard, number: int) -> list[ListedShard]:
    """Two shards that a split made of one."""
    middle = (shard.first_hash_key + shard.last_hash_key) // 2
    return [
        make_shard(number, shard.first_hash_key, middle, shard.shard_id),
        make_shard(number + 1, middle + 1, shard.last_hash_key, shard.shard_id),
    ]


def keys_of(shard: ListedShard, key_count: int) -> list[str]:
    """Partition keys whose records go to this shard."""
    found = (key for key in map(str, count()) if shard.holds(hash_key(key)))
    return [next(found) for _ in range(key_count)]


def make_chunk(
    records: Sequence[tuple[str, bytes]],
    *,
    number: int = 0,
    put_at_s: float = 0.0,
    record_ttl_s: float = inf,
    hash_keys: dict[int, int] | None = None,
) -> Chunk:
    chunk = Chunk(number, put_at_s=put_at_s, expires_at_s=put_at_s + record_ttl_s)
    chunk.hash_keys = hash_keys
    held_bytes = sum(len(key.encode()) + len(data) + RECORD_OVERHEAD_BYTES for key, data in records)
    chunk.close(len(records), held_bytes)
    return chunk


def make_run(*records: tuple[str, bytes], **given: Any) -> Run:
    """A run of a whole chunk."""
    chunk = make_chunk(records, **given)
    return Run(chunk, [key for key, _ in records], [data for _, data in records], range(len(records)))


def cut(run: Run, count: int) -> Run:
    """Take the next records off a run, as a run of their own."""
    taken = run.next(count)
    run.at += count
    return taken


def make_lane(shard: ListedShard | None = None) -> Lane:
    return Lane(shard, None, Entry)


def some(load: Load | None) -> Load:
    """A load that a lane gave out: there is one."""
    assert load is not None
    return load


def datas_of(entries: Iterable[Entry] | None) -> list[bytes]:
    return [entry.data for entry in entries or ()]


class Kit:
    """A batcher, with what it was given and what it gave back."""

    def __init__(
        self,
        shards: Sequence[ListedShard] | None,
        **limits: Any,
    ) -> None:
        self.chunks: list[Chunk] = []
        self.batcher = Batcher(BatchLimits(**limits), make_entry=Entry, rng=Random(1))
        self._numbers = count(1)
        self.batcher.set_shards(shards, 0.0)

    def put(self, *records: tuple[str, bytes], **given: Any) -> Chunk:
        chunk = make_chunk(records, number=len(self.chunks), **given)
        self.chunks.append(chunk)
        self.batcher.add(chunk, [key for key, _ in records], [data for _, data in records])
        return chunk

    def send(self, now_s: float = 0.0) -> Request:
        request = self.batcher.next_request(now_s)
        assert request is not None
        return request

    def sends_nothing(self, now_s: float = 0.0) -> bool:
        return self.batcher.next_request(now_s) is None

    def answer(
        self,
        request: Request,
        *,
        errors: dict[int, str] | None = None,
        shard_id: str | None = None,
        now_s: float = 0.0,
    ) -> list[Answer]:
        """Answer with these errors by entry; all others were written where predicted, or to ``shard_id``."""
        results = [
            Answer(error_code=code, error_message="why")
            if (code := (errors or {}).get(place))
            else Answer(shard_id or load.lane.shard_id or "unpredicted", str(next(self._numbers)))
            for place, load in enumerate(load for load in request.loads for _ in load.entries)
        ]
        self.batcher.handle_answer(request, results, now_s)
        return results

    def is_stale(self) -> bool:
        return self.batcher.stale

    @property
    def freed_bytes(self) -> int:
        return self.batcher.settling.freed_bytes


def outcome(chunk: Chunk, index: int = 0) -> PutResult | PutError | None:
    found = chunk.outcomes[index]
    if found is None:
        return None
    return found.error() if isinstance(found, NotWritten) else found


def result_of(chunk: Chunk, index: int = 0) -> PutResult:
    """Of a record that was written."""
    found = outcome(chunk, index)
    assert isinstance(found, PutResult), found
    return found


def error_of(chunk: Chunk, index: int = 0) -> PutError:
    """Of a record that is not known to be written."""
    found = outcome(chunk, index)
    assert isinstance(found, PutError), found
    return found


def written(chunk: Chunk) -> list[int]:
    """The records of a chunk that are reported as written."""
    return [
        index for index, found in enumerate(chunk.outcomes) if found is not None and not isinstance(found, NotWritten)
    ]
