"""Moving a lease between two live workers, both sides, without any I/O."""

from penstock.core.handoff.owner import DELIVERS, OWNER, OwnerCommand, OwnerInput, OwnerSide, OwnerState
from penstock.core.handoff.receiver import POLLS, RECEIVER, ReceiverCommand, ReceiverInput, ReceiverSide, ReceiverState

__all__ = [
    "DELIVERS",
    "OWNER",
    "POLLS",
    "RECEIVER",
    "OwnerCommand",
    "OwnerInput",
    "OwnerSide",
    "OwnerState",
    "ReceiverCommand",
    "ReceiverInput",
    "ReceiverSide",
    "ReceiverState",
]
