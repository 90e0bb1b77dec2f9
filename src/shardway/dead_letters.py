"""The places where records go that are given up, and the letter that is written of each."""

from __future__ import annotations

from shardway.public import loaded_from

_HOMES = {
    "DeadLettersTo": "shardway.policies",
    "DeadLettersToFile": "shardway.policies",
    "DeadLettersToStream": "shardway.policies",
    "Letter": "shardway.core.ledger.letter",
}
"""The module of each name: that one is loaded for it, and no other."""

__all__ = [*_HOMES]

__getattr__ = loaded_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
