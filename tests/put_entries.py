"""What a producer sends and what comes back, as streams in memory take and give it."""

from __future__ import annotations

from typing import NamedTuple

from shardway.core.hashkeys import hash_key


class Entry(NamedTuple):
    """A record as it is sent."""

    data: bytes
    partition_key: str
    explicit_hash_key: str | None

    @property
    def hash_key(self) -> int:
        return hash_key(self.partition_key) if self.explicit_hash_key is None else int(self.explicit_hash_key)

    @property
    def payload_bytes(self) -> int:
        return len(self.data) + len(self.partition_key.encode())


class Answer(NamedTuple):
    """An entry's part of an answer."""

    shard_id: str | None = None
    sequence_number: str | None = None
    error_code: str | None = None
    error_message: str | None = None
