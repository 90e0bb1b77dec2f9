"""Keys of leases: a shard's id, or, where one table holds several streams, the stream in front of it.

The KCL writes ``account:stream:creation epoch in seconds:shard`` in its multi-stream mode.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_STREAM = re.compile(r"(\d+):([^:]+):(\d+)", re.ASCII)


class StreamKey(NamedTuple):
    """A stream as lease keys name it."""

    account: str
    name: str
    created_s: int
    """Epoch seconds; more than 0. Tells a stream from a former one of the same name."""

    @property
    def text(self) -> str:
        """``account:stream:creation epoch``."""
        return f"{self.account}:{self.name}:{self.created_s}"

    @classmethod
    def parse(cls, text: str) -> StreamKey | None:
        """None for what is not written so."""
        match = _STREAM.fullmatch(text)
        if match is None or int(match[3]) <= 0:
            return None
        return cls(match[1], match[2], int(match[3]))


class LeaseKey(NamedTuple):
    """What a lease is for."""

    shard_id: str
    stream: StreamKey | None = None
    """None where the table is for one stream."""

    @property
    def text(self) -> str:
        """As the attribute ``leaseKey`` holds it."""
        return self.shard_id if self.stream is None else f"{self.stream.text}:{self.shard_id}"

    @classmethod
    def parse(cls, text: str) -> LeaseKey:
        """A text that names no stream is a shard's id."""
        head, colon, shard_id = text.rpartition(":")
        stream = StreamKey.parse(head) if colon else None
        return cls(text) if stream is None or not shard_id else cls(shard_id, stream)
