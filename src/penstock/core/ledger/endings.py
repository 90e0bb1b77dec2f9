"""How the handing out of a shard's records ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from penstock.core.leases.checkpoint import Checkpoint


class Ending(NamedTuple):
    """Why nothing more is handed out, though the tenure still holds: the shard is to be given up."""

    action: str
    """GiveUp or Stop."""
    reason: str
    cool_down_s: float
    """GiveUp: how long this worker leaves the shard alone."""
    error: BaseException | None
    """What the handler raised, if that was it."""

    @property
    def stops(self) -> bool:
        """True for Stop: the worker keeps the shard, and a program that asks for its records gets an error."""
        return self.action == "Stop"


class Closing(NamedTuple):
    """How a tenure ended."""

    checkpoint: Checkpoint
    """The last that may be written."""
    unsettled: int
    """Records that were handed out and that the next owner delivers again."""
