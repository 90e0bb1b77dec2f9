"""How a shard came to whom reads it."""

from __future__ import annotations

from enum import Enum


class Origin(Enum):
    """How a shard came to this consumer."""

    NEW = "new"
    """Nobody has settled anything of it."""
    CONTINUED = "continued"
    """It was free: whoever had it has let it go."""
    HANDED_OVER = "handed over"
    """From a consumer that lives: it delivered until now."""
    TAKEN = "taken"
    """From one that fell silent, or a KCL worker that had too many: what that one had not stored comes again."""
    KEPT = "kept"
    """It was about to go, or its lease was in doubt, and it stays."""
