"""Users' tests find here a local Kinesis as a context manager, a consumer without a server, pytest fixtures
(``pytest_plugin``), and simulations of whole consumers in virtual time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.public import loaded_from

if TYPE_CHECKING:
    from penstock.local import Fault, LocalKinesis, SpawnedKinesis
    from penstock.testing.consumer import SyncTestConsumer, TestConsumer, UnsettledError
    from penstock.testing.memory_stream import MemoryStream, records_of_file
    from penstock.testing.sim.loop import DeadlockError, RealInputOutputError, VirtualLoop, VirtualTime
    from penstock.testing.sim.plan import FaultPlan
    from penstock.testing.sim.simulator import Report, Simulator

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

_HOMES = {
    "DeadlockError": "penstock.testing.sim.loop",
    "Fault": "penstock.local",
    "FaultPlan": "penstock.testing.sim.plan",
    "LocalKinesis": "penstock.local",
    "MemoryStream": "penstock.testing.memory_stream",
    "RealInputOutputError": "penstock.testing.sim.loop",
    "Report": "penstock.testing.sim.simulator",
    "Simulator": "penstock.testing.sim.simulator",
    "SpawnedKinesis": "penstock.local",
    "SyncTestConsumer": "penstock.testing.consumer",
    "TestConsumer": "penstock.testing.consumer",
    "UnsettledError": "penstock.testing.consumer",
    "VirtualLoop": "penstock.testing.sim.loop",
    "VirtualTime": "penstock.testing.sim.loop",
    "records_of_file": "penstock.testing.memory_stream",
}
"""The module of each name: wherever Penstock is installed, pytest loads this package in every run."""

__getattr__ = loaded_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
