# Written by scripts/stubs.py from the list in __init__.py.

from shardway.local import Fault as Fault
from shardway.local import LocalKinesis as LocalKinesis
from shardway.local import SpawnedKinesis as SpawnedKinesis
from shardway.testing.consumer.consumer import TestConsumer as TestConsumer
from shardway.testing.consumer.progress import UnsettledError as UnsettledError
from shardway.testing.consumer.sync_consumer import SyncTestConsumer as SyncTestConsumer
from shardway.testing.sim.loop import DeadlockError as DeadlockError
from shardway.testing.sim.loop import VirtualLoop as VirtualLoop
from shardway.testing.sim.outside import RealInputOutputError as RealInputOutputError
from shardway.testing.sim.plan import FaultPlan as FaultPlan
from shardway.testing.sim.simulator import Report as Report
from shardway.testing.sim.simulator import Simulator as Simulator
from shardway.testing.sim.virtual_time import VirtualTime as VirtualTime
from shardway.testing.streams.given import records_of_file as records_of_file
from shardway.testing.streams.memory_stream import MemoryStream as MemoryStream

__all__ = [
    "DeadlockError",
    "Fault",
    "FaultPlan",
    "LocalKinesis",
    "MemoryStream",
    "RealInputOutputError",
    "Report",
    "Simulator",
    "SpawnedKinesis",
    "SyncTestConsumer",
    "TestConsumer",
    "UnsettledError",
    "VirtualLoop",
    "VirtualTime",
    "records_of_file",
]
