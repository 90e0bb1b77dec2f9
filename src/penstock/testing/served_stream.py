"""A stream of a local Kinesis, in the hands of a test."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from penstock.aws.settings import Credentials, WireSettings
from penstock.testing.memory_stream import StreamControls

if TYPE_CHECKING:
    from penstock.local import LocalKinesis

NAME_CHARACTERS_MAX = 128
"""Of a stream (AWS API reference, CreateStream)."""


class ServedStream(StreamControls):
    """A stream that programs reach over HTTP, and that the test itself asks directly."""

    def __init__(self, local: LocalKinesis, name: str) -> None:
        super().__init__(name, lambda operation, request: _ask(local, operation, request))
        self.local = local
        """The service."""

    @classmethod
    def create(cls, local: LocalKinesis, name: str, *, shards: int = 1) -> ServedStream:
        """A new stream."""
        _ask(local, "CreateStream", {"StreamName": name, "ShardCount": shards})
        return cls(local, name)

    @property
    def wire(self) -> WireSettings:
        """How producers and consumers reach it, without the environment."""
        return WireSettings(
            endpoint_url=self.local.endpoint_url,
            region=self.local.region,
            credentials=Credentials("local", "local"),
            ca_bundle=self.local.ca_file,
        )


def name_of_test(test: str) -> str:
    """A stream's name out of a test's."""
    return re.sub(r"[^\w.-]+", "-", test, flags=re.ASCII).strip("-")[:NAME_CHARACTERS_MAX] or "stream"


def _ask(local: LocalKinesis, operation: str, request: dict[str, Any]) -> Any:
    answer = local.ask(operation, json.dumps(request).encode())
    return json.loads(answer) if answer else None
