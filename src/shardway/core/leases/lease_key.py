"""The key of a lease is a shard's id, or, where one table holds several streams, the stream in front of it.

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
    """The time of creation in epoch seconds, above 0. It distinguishes a stream from a former one of the same name."""

    @property
    def text(self) -> str:
        """The text ``account:stream:creation epoch``."""
        return f"{self.account}:{self.name}:{self.created_s}"

    @classmethod
    def parse(cls, text: str) -> StreamKey | None:
        """Read a key; None for a text that is not written so."""
        match = _STREAM.fullmatch(text)
        if match is None or int(match[3]) <= 0:
            return None
        return cls(match[1], match[2], int(match[3]))


class LeaseKey(NamedTuple):
    """The key of a lease, taken apart."""

    shard_id: str
    stream: StreamKey | None = None
    """The stream; None where the table is for one stream."""

    @property
    def text(self) -> str:
        """The text that the attribute ``leaseKey`` holds."""
        return self.shard_id if self.stream is None else f"{self.stream.text}:{self.shard_id}"

    @classmethod
    def parse(cls, text: str) -> LeaseKey:
        """Read a key; a text that names no stream is a shard's id."""
        head, colon, shard_id = text.rpartition(":")
        stream = StreamKey.parse(head) if colon else None
        return cls(text) if stream is None or not shard_id else cls(shard_id, stream)
