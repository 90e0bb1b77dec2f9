"""The options of services: frozen values, each option declared once with its type, its bounds and its meaning.

Read the modules in this order:

- `producer`: `ProducerOptions`.
- `leases`: `LeaseOptions`, of consumers, and of other programs that reach their tables.
- `consumer`: `ConsumerOptions`, which has all that a consumer does as options, and its smaller groups.
- `metrics`: `MetricsOptions`, of both.
- `times`: the times of a worker that no option sets.

`shardway.core.options` says how options are declared and checked.
"""

from __future__ import annotations

from shardway.public import loaded_from

_HOMES = {
    "BufferOptions": "shardway.options.consumer",
    "CheckpointOptions": "shardway.options.consumer",
    "ConsumerOptions": "shardway.options.consumer",
    "FanOutOptions": "shardway.options.consumer",
    "HandoffOptions": "shardway.options.consumer",
    "LeaseOptions": "shardway.options.leases",
    "MetricsOptions": "shardway.options.metrics",
    "ProducerOptions": "shardway.options.producer",
}
"""The module of each name: that one is loaded for it, and no other."""

__all__ = [*_HOMES]

__getattr__ = loaded_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
