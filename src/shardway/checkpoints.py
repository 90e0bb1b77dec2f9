"""The choices of when checkpoints are stored, and checkpoints in two phases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.public import loaded_from

if TYPE_CHECKING:
    from shardway.core.shard.checkpoints.cadence import Every, Prompt, Riding
    from shardway.policies import FoundPending, PendingChoice
    from shardway.runtime.shard.pending import PendingCheckpoint

__all__ = [
    "Every",
    "FoundPending",
    "PendingCheckpoint",
    "PendingChoice",
    "Prompt",
    "Riding",
]

_HOMES = {
    "Every": "shardway.core.shard.checkpoints.cadence",
    "FoundPending": "shardway.policies",
    "PendingCheckpoint": "shardway.runtime.shard.pending",
    "PendingChoice": "shardway.policies",
    "Prompt": "shardway.core.shard.checkpoints.cadence",
    "Riding": "shardway.core.shard.checkpoints.cadence",
}
"""The module of each name: that one is loaded for it, and no other."""

__getattr__ = loaded_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
