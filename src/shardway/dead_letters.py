"""The places where records go that are given up, and the letter that is written of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.public import loaded_from

if TYPE_CHECKING:
    from shardway.core.ledger.letter import Letter
    from shardway.policies import DeadLettersTo, DeadLettersToFile, DeadLettersToStream

__all__ = [
    "DeadLettersTo",
    "DeadLettersToFile",
    "DeadLettersToStream",
    "Letter",
]

_HOMES = {
    "DeadLettersTo": "shardway.policies",
    "DeadLettersToFile": "shardway.policies",
    "DeadLettersToStream": "shardway.policies",
    "Letter": "shardway.core.ledger.letter",
}
"""The module of each name: that one is loaded for it, and no other."""

__getattr__ = loaded_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
