"""Ask the controls of a local Kinesis: its clock and its faults."""

from __future__ import annotations

import asyncio
import ssl
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import msgspec

from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.wire import Wire
from shardway.errors import OptionError, TransportError

if TYPE_CHECKING:
    from shardway.wiring import ConnectionOptions


TIMEOUT_S = 10.0


class LocalControl:
    """Calls one local service. Its methods raise OptionError for what the service refuses, and TransportError where it
    does not answer.
    """

    def __init__(self, url: str, connection: ConnectionOptions, ca_file: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._connection = connection
        self._context = ssl.create_default_context(cafile=ca_file) if self.url.startswith("https:") else None

    async def state(self) -> dict[str, Any]:
        """Return the service's clock, faults, limits and counts."""
        names = ("health", "clock", "faults", "limits", "stats")
        found = [await self._ask("GET", name) for name in names]
        return dict(zip(names, found, strict=True))

    async def advance(self, seconds: float) -> Any:
        """Move the service's clock forward."""
        return await self._ask("POST", "clock", {"advance_s": seconds})

    async def add_fault(self, values: dict[str, Any]) -> Any:
        """Order a fault, which makes calls fail or have late answers."""
        return await self._ask("POST", "faults", values)

    async def clear_faults(self) -> Any:
        """End all faults."""
        return await self._ask("DELETE", "faults")

    async def reshard(self, operation: str, values: dict[str, Any]) -> Any:
        """Call SplitShard, MergeShards or UpdateShardCount."""
        async with Wire(self._connection) as wire:
            return await KinesisClient(wire).call(operation, values)

    async def _ask(self, method: str, name: str, values: dict[str, Any] | None = None) -> Any:
        return await asyncio.to_thread(self._request, method, name, values)

    def _request(self, method: str, name: str, values: dict[str, Any] | None) -> Any:
        body = None if values is None else msgspec.json.encode(values)
        request = urllib.request.Request(  # noqa: S310 - the address is the operator's own
            f"{self.url}/_shardway/{name}", data=body, method=method, headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._context) as answer:  # noqa: S310
                return msgspec.json.decode(answer.read())
        except urllib.error.HTTPError as fault:
            try:
                told = msgspec.json.decode(fault.read()).get("error", "")
            except (msgspec.DecodeError, AttributeError):
                told = f"status {fault.code}"
            raise OptionError(f"the local service refused: {told}") from None
        except (OSError, msgspec.DecodeError) as fault:
            raise TransportError(f"the local service at {self.url} does not answer: {fault}") from None
