# Written by scripts/stubs.py from the list in checkpoints.py.

from shardway.core.shard.checkpoints.cadence import Every as Every
from shardway.core.shard.checkpoints.cadence import Prompt as Prompt
from shardway.core.shard.checkpoints.cadence import Riding as Riding
from shardway.policies import FoundPending as FoundPending
from shardway.policies import PendingChoice as PendingChoice
from shardway.runtime.shard.pending import PendingCheckpoint as PendingCheckpoint

__all__ = [
    "Every",
    "FoundPending",
    "PendingCheckpoint",
    "PendingChoice",
    "Prompt",
    "Riding",
]
