"""How a shard came to the consumer that reads it."""

from __future__ import annotations

from enum import Enum


class Origin(Enum):
    """How a shard came to this consumer."""

    NEW = "new"
    """No consumer has settled any record of it yet."""
    CONTINUED = "continued"
    """It was free: the consumer that had it before has given it up."""
    HANDED_OVER = "handed over"
    """A consumer that lives has handed it over, and delivered its records until now."""
    TAKEN = "taken"
    """It was taken from a consumer that fell silent, or from a KCL worker that had too many. Records whose settlement
    that one had not stored come again.
    """
    KEPT = "kept"
    """The shard was about to go, or its lease was in doubt, and it stays."""
