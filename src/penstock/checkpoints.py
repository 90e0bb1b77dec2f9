"""The choices of when checkpoints are stored, and checkpoints in two phases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.public import loaded_from

if TYPE_CHECKING:
    from penstock.core.shard.checkpoints import Every, PendingChoice, Prompt, Riding
    from penstock.runtime.shard.batch import FoundPending, PendingCheckpoint

__all__ = [
    "Every",
    "FoundPending",
    "PendingCheckpoint",
    "PendingChoice",
    "Prompt",
    "Riding",
]

_HOMES = {
    "Every": "penstock.core.shard.checkpoints",
    "FoundPending": "penstock.runtime.shard.batch",
    "PendingCheckpoint": "penstock.runtime.shard.batch",
    "PendingChoice": "penstock.core.shard.checkpoints",
    "Prompt": "penstock.core.shard.checkpoints",
    "Riding": "penstock.core.shard.checkpoints",
}
"""The module of each name: that one is loaded for it, and no other."""

__getattr__ = loaded_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
