"""For users' tests: a local Kinesis as a context manager, a consumer without a server, pytest fixtures
(``pytest_plugin``), and simulations of whole consumers in virtual time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.local import Fault, LocalKinesis, SpawnedKinesis
    from penstock.testing.consumer import TestConsumer, UnsettledError
    from penstock.testing.memory_stream import MemoryStream, records_of_file
    from penstock.testing.sim.loop import DeadlockError, RealInputOutputError, VirtualLoop, VirtualTime
    from penstock.testing.sim.plan import FaultPlan
    from penstock.testing.sim.simulator import Report, Simulator
    from penstock.testing.sync_consumer import SyncTestConsumer

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
    "FaultPlan": "penstock.testing.sim.plan",
    "MemoryStream": "penstock.testing.memory_stream",
    "RealInputOutputError": "penstock.testing.sim.loop",
    "Report": "penstock.testing.sim.simulator",
    "Simulator": "penstock.testing.sim.simulator",
    "SyncTestConsumer": "penstock.testing.sync_consumer",
    "TestConsumer": "penstock.testing.consumer",
    "UnsettledError": "penstock.testing.consumer",
    "VirtualLoop": "penstock.testing.sim.loop",
    "VirtualTime": "penstock.testing.sim.loop",
    "records_of_file": "penstock.testing.memory_stream",
}
"""Of all others it is the local Kinesis's package."""


def __getattr__(name: str) -> object:
    """Import on first use: wherever Penstock is installed, pytest loads this package in every run."""
    if name in __all__:
        return getattr(importlib.import_module(_HOMES.get(name, "penstock.local")), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
