# Written by scripts/stubs.py from the list in __init__.py.

from shardway.local import Fault as Fault
from shardway.local import LocalKinesis as LocalKinesis
from shardway.local import SpawnedKinesis as SpawnedKinesis
from shardway.testing.consumer import SyncTestConsumer as SyncTestConsumer
from shardway.testing.consumer import TestConsumer as TestConsumer
from shardway.testing.consumer import UnsettledError as UnsettledError
from shardway.testing.memory_stream import MemoryStream as MemoryStream
from shardway.testing.memory_stream import records_of_file as records_of_file
from shardway.testing.sim.loop import DeadlockError as DeadlockError
from shardway.testing.sim.loop import RealInputOutputError as RealInputOutputError
from shardway.testing.sim.loop import VirtualLoop as VirtualLoop
from shardway.testing.sim.loop import VirtualTime as VirtualTime
from shardway.testing.sim.plan import FaultPlan as FaultPlan
from shardway.testing.sim.simulator import Report as Report
from shardway.testing.sim.simulator import Simulator as Simulator

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
