"""A stream of a local Kinesis, which programs reach over HTTP."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from shardway.aws.options import ConnectionOptions, Credentials
from shardway.testing.streams.controls import StreamControls

if TYPE_CHECKING:
    from shardway.local import LocalKinesis

NAME_CHARACTERS_MAX = 128
"""The most characters of a stream's name (AWS API reference, CreateStream)."""


class ServedStream(StreamControls):
    """A stream that programs reach over HTTP, and that the test itself asks directly."""

    def __init__(self, local: LocalKinesis, name: str) -> None:
        super().__init__(name, lambda operation, request: _ask(local, operation, request))
        self.local = local
        """The local Kinesis that serves the stream."""

    @classmethod
    def create(cls, local: LocalKinesis, name: str, *, shards: int = 1) -> ServedStream:
        """Make a new stream."""
        _ask(local, "CreateStream", {"StreamName": name, "ShardCount": shards})
        return cls(local, name)

    @property
    def connection(self) -> ConnectionOptions:
        """The connection that leads producers and consumers to the stream, without the environment."""
        return ConnectionOptions(
            endpoint_url=self.local.endpoint_url,
            region=self.local.region,
            credentials=Credentials("local", "local"),
            ca_bundle=self.local.ca_file,
        )


def name_of_test(test: str) -> str:
    """Return a stream's name that is made of a test's name."""
    return re.sub(r"[^\w.-]+", "-", test, flags=re.ASCII).strip("-")[:NAME_CHARACTERS_MAX] or "stream"


def _ask(local: LocalKinesis, operation: str, request: dict[str, Any]) -> Any:
    answer = local.ask(operation, json.dumps(request).encode())
    return json.loads(answer) if answer else None
