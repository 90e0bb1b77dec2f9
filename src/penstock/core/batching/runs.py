"""A stretch of user records of one chunk, in the order in which they were put."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.core.aggregation import Aggregator
    from penstock.core.batching.chunk import Chunk

Pair = tuple[str, bytes]
"""(partition key, data)."""


class Run:
    """Records of one chunk that go to one shard. ``at`` is where what is still there begins."""

    __slots__ = ("at", "attempts", "chunk", "doubtful", "indices", "pairs")

    def __init__(
        self,
        chunk: Chunk,
        pairs: Sequence[Pair],
        indices: Sequence[int],
        *,
        attempts: int = 0,
        doubtful: bool = False,
    ) -> None:
        self.chunk = chunk
        self.pairs = pairs
        self.indices = indices
        """Which records of the chunk they are, rising."""
        self.at = 0
        self.attempts = attempts
        """Requests that carried them in an earlier load, which was taken apart."""
        self.doubtful = doubtful
        """True if one of those may have written them."""

    def __len__(self) -> int:
        return len(self.pairs) - self.at

    def cut(self, count: int) -> Run:
        """Take the next ``count`` records off, as a run of their own."""
        start = self.at
        self.at = stop = start + count
        whole = start == 0 and stop == len(self.pairs)
        pairs = self.pairs if whole else self.pairs[start:stop]
        indices = self.indices if whole else self.indices[start:stop]
        return Run(self.chunk, pairs, indices, attempts=self.attempts, doubtful=self.doubtful)

    def only(self, places: Sequence[int]) -> Run:
        """The records at these places of a run that nothing was taken off."""
        pairs = [self.pairs[place] for place in places]
        indices = [self.indices[place] for place in places]
        return Run(self.chunk, pairs, indices, attempts=self.attempts, doubtful=self.doubtful)

    def without_withdrawn(self) -> int:
        """Leave out what was withdrawn meanwhile; returns how many were."""
        gone = self.chunk.withdrawn
        if not gone:
            return 0
        before = len(self)
        places = [place for place in range(self.at, len(self.pairs)) if self.indices[place] not in gone]
        if len(places) < before:
            self.pairs = [self.pairs[place] for place in places]
            self.indices = [self.indices[place] for place in places]
            self.at = 0
        return before - len(self)

    def hash_keys(self) -> Iterator[int | None]:
        """The explicit hash key of each record that is left, or None."""
        explicit = self.chunk.hash_keys
        if explicit is None:
            return repeat(None, len(self))
        return (explicit.get(self.indices[place]) for place in range(self.at, len(self.pairs)))

    def add_to(self, aggregator: Aggregator) -> tuple[int, bool]:
        """Add the next records to an aggregate: how many were added, and whether one did not fit any more."""
        if self.chunk.hash_keys is not None:
            for added, (pair, hash_key) in enumerate(zip(self.pairs[self.at :], self.hash_keys(), strict=True)):
                if not aggregator.add(*pair, hash_key):
                    return added, True
            return len(self), False
        stop = min(len(self.pairs), self.at + self._about(aggregator.bytes_max))
        pairs = self.pairs if self.at == 0 and stop == len(self.pairs) else self.pairs[self.at : stop]
        added = aggregator.add_many([pair[0] for pair in pairs], [pair[1] for pair in pairs])
        return added, added < len(pairs)

    def _about(self, payload_bytes: int) -> int:
        """More records than that many bytes are likely to hold: what is looked at in one go."""
        return int(2 * payload_bytes / max(1.0, self.chunk.mean_payload_bytes)) + 16
