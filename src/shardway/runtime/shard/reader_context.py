"""The context of a shard's reader: what the consumer gives to each reader that its worker opens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardway.runtime.clocks import TURNS

if TYPE_CHECKING:
    from shardway.model import Record
    from shardway.ports import Tracer
    from shardway.runtime.feeds.deserializing import Deserializer
    from shardway.runtime.threads.host import Host
    from shardway.telemetry.consumer_meter import ShardCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderContext:
    """The context of one reader."""

    host: Host
    """The host in which the reader runs; the callers that read may be on another loop."""
    turns: int = TURNS
    """See `YieldBudget.turns`, of the callers that wait for batches."""
    deserializer: Deserializer[Record] | None = None
    """The part that makes values of the records' bytes; None: they stay bytes."""
    counts: ShardCounts | None = None
    """The part that counts what is fetched, delivered and stored; None: nothing counts it."""
    tracer: Tracer | None = None
    """The tracer that makes spans of the blocks that process the shard's records; None: the program does not trace."""
