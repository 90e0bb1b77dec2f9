# Written by scripts/stubs.py from the list in dead_letters.py.

from shardway.core.ledger.letter import Letter as Letter
from shardway.policies import DeadLettersTo as DeadLettersTo
from shardway.policies import DeadLettersToFile as DeadLettersToFile
from shardway.policies import DeadLettersToStream as DeadLettersToStream

__all__ = [
    "DeadLettersTo",
    "DeadLettersToFile",
    "DeadLettersToStream",
    "Letter",
]
