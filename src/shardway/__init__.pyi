# Written by scripts/stubs.py from the list in __init__.py.

from shardway.core.ledger.parts import Part as Part
from shardway.core.log.pace import PollingOptions as PollingOptions
from shardway.core.shard.duplicates import Deduplicate as Deduplicate
from shardway.errors import BufferFullError as BufferFullError
from shardway.errors import CheckpointError as CheckpointError
from shardway.errors import DataLossError as DataLossError
from shardway.errors import OptionError as OptionError
from shardway.errors import PutError as PutError
from shardway.errors import ServiceError as ServiceError
from shardway.errors import ShardReadError as ShardReadError
from shardway.errors import ShardwayError as ShardwayError
from shardway.errors import TransportError as TransportError
from shardway.model import OutRecord as OutRecord
from shardway.model import OutsidePolicy as OutsidePolicy
from shardway.model import Position as Position
from shardway.model import PutResult as PutResult
from shardway.model import Record as Record
from shardway.model import StartingPosition as StartingPosition
from shardway.options.consumer import BufferOptions as BufferOptions
from shardway.options.consumer import CheckpointOptions as CheckpointOptions
from shardway.options.consumer import FanOutOptions as FanOutOptions
from shardway.options.consumer import HandoffOptions as HandoffOptions
from shardway.options.leases import LeaseOptions as LeaseOptions
from shardway.options.producer import ProducerOptions as ProducerOptions
from shardway.policies import AnyOrder as AnyOrder
from shardway.policies import ByKey as ByKey
from shardway.policies import DeadLetters as DeadLetters
from shardway.policies import Deliver as Deliver
from shardway.policies import GiveUp as GiveUp
from shardway.policies import InOrder as InOrder
from shardway.policies import Redeliver as Redeliver
from shardway.policies import Retry as Retry
from shardway.policies import SettlingOptions as SettlingOptions
from shardway.policies import Skip as Skip
from shardway.policies import Stop as Stop
from shardway.policies import Warn as Warn
from shardway.runtime.consumer.collection import Collection as Collection
from shardway.runtime.consumer.concurrency import OneByOne as OneByOne
from shardway.runtime.consumer.concurrency import Unordered as Unordered
from shardway.runtime.consumer.concurrency import by_key as by_key
from shardway.runtime.consumer.concurrency import unordered as unordered
from shardway.runtime.consumer.consumer import Consumer as Consumer
from shardway.runtime.consumer.lifecycle import AssignedShard as AssignedShard
from shardway.runtime.consumer.shards import Shard as Shard
from shardway.runtime.consumer.sync_consumer import SyncConsumer as SyncConsumer
from shardway.runtime.consumer.sync_consumer import SyncShard as SyncShard
from shardway.runtime.feeds.deserializing import Unreadable as Unreadable
from shardway.runtime.producer.handles import PutHandle as PutHandle
from shardway.runtime.producer.handles import Puts as Puts
from shardway.runtime.producer.handles import SyncPutHandle as SyncPutHandle
from shardway.runtime.producer.handles import SyncPuts as SyncPuts
from shardway.runtime.producer.handles import Unwritten as Unwritten
from shardway.runtime.producer.producer import Producer as Producer
from shardway.runtime.producer.sync_producer import SyncProducer as SyncProducer
from shardway.runtime.shard.batch import Batch as Batch
from shardway.runtime.shard.batch import Delivered as Delivered
from shardway.telemetry.log import log_events as log_events
from shardway.wiring import ConnectionOptions as ConnectionOptions
from shardway.wiring import Credentials as Credentials

__all__ = [
    "AnyOrder",
    "AssignedShard",
    "Batch",
    "BufferFullError",
    "BufferOptions",
    "ByKey",
    "CheckpointError",
    "CheckpointOptions",
    "Collection",
    "ConnectionOptions",
    "Consumer",
    "Credentials",
    "DataLossError",
    "DeadLetters",
    "Deduplicate",
    "Deliver",
    "Delivered",
    "FanOutOptions",
    "GiveUp",
    "HandoffOptions",
    "InOrder",
    "LeaseOptions",
    "OneByOne",
    "OptionError",
    "OutRecord",
    "OutsidePolicy",
    "Part",
    "PollingOptions",
    "Position",
    "Producer",
    "ProducerOptions",
    "PutError",
    "PutHandle",
    "PutResult",
    "Puts",
    "Record",
    "Redeliver",
    "Retry",
    "ServiceError",
    "SettlingOptions",
    "Shard",
    "ShardReadError",
    "ShardwayError",
    "Skip",
    "StartingPosition",
    "Stop",
    "SyncConsumer",
    "SyncProducer",
    "SyncPutHandle",
    "SyncPuts",
    "SyncShard",
    "TransportError",
    "Unordered",
    "Unreadable",
    "Unwritten",
    "Warn",
    "__version__",
    "by_key",
    "log_events",
    "unordered",
]

__version__: str
