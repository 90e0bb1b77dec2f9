"""The choices of when checkpoints are stored, and checkpoints in two phases."""

from __future__ import annotations

from shardway.public import loaded_from

_HOMES = {
    "Every": "shardway.core.shard.checkpoints.cadence",
    "FoundPending": "shardway.policies",
    "PendingCheckpoint": "shardway.runtime.shard.pending",
    "PendingChoice": "shardway.policies",
    "Prompt": "shardway.core.shard.checkpoints.cadence",
    "Riding": "shardway.core.shard.checkpoints.cadence",
}
"""The module of each name: that one is loaded for it, and no other."""

__all__ = [*_HOMES]

__getattr__ = loaded_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
