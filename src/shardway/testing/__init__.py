"""Users' tests find here a local Kinesis as a context manager, a consumer without a server, pytest fixtures, and
simulations of whole consumers in virtual time.

`consumer` is `TestConsumer`: the real consumer over memory, beside another consumer, in time that the test lets pass.
`streams` has streams in a test's hands, `pytest_plugin` the fixtures, and `sim` the simulations.
"""

from __future__ import annotations

from shardway.public import loaded_from

_HOMES = {
    "DeadlockError": "shardway.testing.sim.loop",
    "Fault": "shardway.local",
    "FaultPlan": "shardway.testing.sim.plan",
    "LocalKinesis": "shardway.local",
    "MemoryStream": "shardway.testing.streams.memory_stream",
    "RealInputOutputError": "shardway.testing.sim.outside",
    "Report": "shardway.testing.sim.simulator",
    "Simulator": "shardway.testing.sim.simulator",
    "SpawnedKinesis": "shardway.local",
    "SyncTestConsumer": "shardway.testing.consumer.sync_consumer",
    "TestConsumer": "shardway.testing.consumer.consumer",
    "UnsettledError": "shardway.testing.consumer.progress",
    "VirtualLoop": "shardway.testing.sim.loop",
    "VirtualTime": "shardway.testing.sim.virtual_time",
    "records_of_file": "shardway.testing.streams.given",
}
"""The module of each name: wherever Shardway is installed, pytest loads this package in every run."""

__all__ = [*_HOMES]

__getattr__ = loaded_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
