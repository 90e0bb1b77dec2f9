"""Shardway carries records between Amazon Kinesis Data Streams and Python.

What most programs need is named here; more is in `shardway.leases`, `shardway.checkpoints`, `shardway.dead_letters`,
`shardway.fences`, `shardway.errors`, `shardway.events`, `shardway.statistics`, `shardway.deserializers`,
`shardway.aggregates`, `shardway.aws_lambda`, `shardway.telemetry`, `shardway.testing`, and, for programs that bring a
stream or a table of their own, `shardway.ports`.
Names are loaded when first used, so that ``import shardway`` stays cheap.
"""

from __future__ import annotations

import sys

from shardway.public import loaded_from

if sys.version_info < (3, 11):  # noqa: UP036 - pip sees to it, but not where a cluster is sent the package as a file
    found = ".".join(map(str, sys.version_info[:2]))
    raise ImportError(f"Shardway needs Python 3.11 or newer, and {sys.executable} is Python {found}: start a newer one")

__version__ = "0.3.0"

_HOMES = {
    "AnyOrder": "shardway.policies",
    "AssignedShard": "shardway.runtime.consumer.lifecycle",
    "Batch": "shardway.runtime.shard.batch",
    "BufferFullError": "shardway.errors",
    "BufferOptions": "shardway.options.consumer",
    "ByKey": "shardway.policies",
    "CheckpointError": "shardway.errors",
    "CheckpointOptions": "shardway.options.consumer",
    "Collection": "shardway.runtime.consumer.collection",
    "ConnectionOptions": "shardway.wiring",
    "Consumer": "shardway.runtime.consumer.consumer",
    "Credentials": "shardway.wiring",
    "DataLossError": "shardway.errors",
    "DeadLetters": "shardway.policies",
    "Deduplicate": "shardway.core.shard.duplicates",
    "Deliver": "shardway.policies",
    "Delivered": "shardway.runtime.shard.batch",
    "FanOutOptions": "shardway.options.consumer",
    "GiveUp": "shardway.policies",
    "HandoffOptions": "shardway.options.consumer",
    "InOrder": "shardway.policies",
    "LeaseOptions": "shardway.options.leases",
    "OneByOne": "shardway.runtime.consumer.concurrency",
    "OptionError": "shardway.errors",
    "OutRecord": "shardway.model",
    "OutsidePolicy": "shardway.model",
    "Part": "shardway.core.ledger.parts",
    "PollingOptions": "shardway.core.log.pace",
    "Position": "shardway.model",
    "Producer": "shardway.runtime.producer.producer",
    "ProducerOptions": "shardway.options.producer",
    "PutError": "shardway.errors",
    "PutHandle": "shardway.runtime.producer.handles",
    "PutResult": "shardway.model",
    "Puts": "shardway.runtime.producer.handles",
    "Record": "shardway.model",
    "Redeliver": "shardway.policies",
    "Retry": "shardway.policies",
    "ServiceError": "shardway.errors",
    "SettlingOptions": "shardway.policies",
    "Shard": "shardway.runtime.consumer.shards",
    "ShardReadError": "shardway.errors",
    "ShardwayError": "shardway.errors",
    "Skip": "shardway.policies",
    "StartingPosition": "shardway.model",
    "Stop": "shardway.policies",
    "SyncConsumer": "shardway.runtime.consumer.sync_consumer",
    "SyncProducer": "shardway.runtime.producer.sync_producer",
    "SyncPutHandle": "shardway.runtime.producer.handles",
    "SyncPuts": "shardway.runtime.producer.handles",
    "SyncShard": "shardway.runtime.consumer.sync_consumer",
    "TransportError": "shardway.errors",
    "Unordered": "shardway.runtime.consumer.concurrency",
    "Unreadable": "shardway.runtime.feeds.deserializing",
    "Unwritten": "shardway.runtime.producer.handles",
    "Warn": "shardway.policies",
    "by_key": "shardway.runtime.consumer.concurrency",
    "log_events": "shardway.telemetry.log",
    "unordered": "shardway.runtime.consumer.concurrency",
}
"""The module of each name: that one is loaded for it, and no other."""

__all__ = ["__version__", *_HOMES]

__getattr__ = loaded_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
