"""How the owner of a lease hands it to another live worker, or lets it go: a table of states and inputs.

The owner goes on delivering while the receiver warms up. Then it stops, settles what is out, and gives the lease away
in one conditional write, which the tenure (`penstock.core.leases.tenure`) repeats until its outcome is known. From
the moment at which that write is sent there is no way back to delivering: it may be applied at any time.

What is not in the table changes nothing.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping


class OwnerState(StrEnum):
    """Where the owner is with one lease."""

    HOLDING = "holding"
    OFFERING = "offering"
    """A receiver is named and warms up; this worker still delivers."""
    DRAINING = "draining"
    """Nothing more is delivered; what is out is being settled, for the receiver."""
    DRAINING_TO_FREE = "draining to free"
    """The same, but no worker is there to give the lease to: it is freed when all is settled."""
    GIVING = "giving"
    """The write that gives the lease away is under way."""
    FREEING = "freeing"
    """The write that frees the lease is under way."""
    GONE = "gone"
    """The tenure is over."""


class OwnerInput(StrEnum):
    """What the owner learns."""

    OFFER = "offer"
    """The lease goes to a worker that has to warm up: it asked for the lease, or was chosen by an owner that leaves."""
    OFFER_COLD = "offer cold"
    """The lease goes to a worker that needs no warm-up: the shard is idle, or the receiver is no Penstock worker."""
    FREE = "free"
    """This worker has to give the lease up, and no worker is there to give it to."""
    LEADER_NAMED = "leader named"
    """The leader of a KCL 3.x fleet has written the next owner into the row."""
    WARM = "warm"
    """The receiver says that it could deliver at once."""
    WARM_DEADLINE = "warm deadline"
    """The receiver has had its time to warm up."""
    RECEIVER_GONE = "receiver gone"
    """The receiver is dead, leaves, does not answer, or does not want the lease any more."""
    DRAINED = "drained"
    """All that was delivered is settled, and no checkpoint waits to be committed."""
    DRAIN_DEADLINE = "drain deadline"
    """Some records are not settled in time. The next owner delivers them again, and an event says so."""
    FINISHED = "finished"
    """The shard is read to its end and settled: there is nothing left to hand over."""
    ENDED = "ended"
    """The tenure is over as it was asked for."""
    LOST = "lost"
    """The tenure is over against its will: another has the lease, or no write was confirmed in time."""


class OwnerCommand(StrEnum):
    """What the owner is to do."""

    NAME = "name"
    """Write into this worker's own row which worker gets the lease."""
    UNNAME = "unname"
    """Take that name out of this worker's own row again."""
    STOP = "stop"
    """Fetch and deliver nothing more; say when all is settled."""
    RESUME = "resume"
    """Go on delivering where it stopped."""
    GIVE = "give"
    """End the tenure with the write that gives the lease to the receiver, with the last checkpoint."""
    FREE = "free"
    """End the tenure with the write that frees the lease, with the last checkpoint."""


S, I, C = OwnerState, OwnerInput, OwnerCommand  # noqa: E741

OwnerTable: TypeAlias = "Mapping[tuple[OwnerState, OwnerInput], tuple[OwnerState, tuple[OwnerCommand, ...]]]"

DELIVERS = frozenset({S.HOLDING, S.OFFERING})
"""The states in which records may be delivered (while the tenure's fence stands)."""

_DELIVERING = {
    (S.HOLDING, I.OFFER): (S.OFFERING, (C.NAME,)),
    (S.HOLDING, I.OFFER_COLD): (S.DRAINING, (C.NAME, C.STOP)),
    (S.HOLDING, I.FREE): (S.DRAINING_TO_FREE, (C.STOP,)),
    (S.HOLDING, I.LEADER_NAMED): (S.DRAINING, (C.STOP,)),
    (S.HOLDING, I.FINISHED): (S.GONE, ()),
    (S.HOLDING, I.LOST): (S.GONE, ()),
    (S.OFFERING, I.WARM): (S.DRAINING, (C.STOP,)),
    (S.OFFERING, I.WARM_DEADLINE): (S.DRAINING, (C.STOP,)),
    (S.OFFERING, I.RECEIVER_GONE): (S.HOLDING, (C.UNNAME,)),
    (S.OFFERING, I.FREE): (S.DRAINING_TO_FREE, (C.UNNAME, C.STOP)),
    (S.OFFERING, I.LEADER_NAMED): (S.DRAINING, (C.UNNAME, C.STOP)),
    (S.OFFERING, I.FINISHED): (S.GONE, (C.UNNAME,)),
    (S.OFFERING, I.LOST): (S.GONE, (C.UNNAME,)),
}
_STOPPED = {
    (S.DRAINING, I.DRAINED): (S.GIVING, (C.GIVE,)),
    (S.DRAINING, I.DRAIN_DEADLINE): (S.GIVING, (C.GIVE,)),
    # Nothing was sent yet, so it can simply go on.
    (S.DRAINING, I.RECEIVER_GONE): (S.HOLDING, (C.UNNAME, C.RESUME)),
    (S.DRAINING, I.FREE): (S.DRAINING_TO_FREE, (C.UNNAME,)),
    (S.DRAINING, I.LEADER_NAMED): (S.DRAINING, (C.UNNAME,)),
    (S.DRAINING, I.FINISHED): (S.GONE, (C.UNNAME,)),
    (S.DRAINING, I.LOST): (S.GONE, (C.UNNAME,)),
    (S.DRAINING_TO_FREE, I.DRAINED): (S.FREEING, (C.FREE,)),
    (S.DRAINING_TO_FREE, I.DRAIN_DEADLINE): (S.FREEING, (C.FREE,)),
    (S.DRAINING_TO_FREE, I.OFFER): (S.DRAINING, (C.NAME,)),
    (S.DRAINING_TO_FREE, I.OFFER_COLD): (S.DRAINING, (C.NAME,)),
    (S.DRAINING_TO_FREE, I.LEADER_NAMED): (S.DRAINING, ()),
    (S.DRAINING_TO_FREE, I.FINISHED): (S.GONE, ()),
    (S.DRAINING_TO_FREE, I.LOST): (S.GONE, ()),
}
_WRITING = {
    # The name stays until the outcome is known: the receiver looks at the row for as long.
    (S.GIVING, I.ENDED): (S.GONE, (C.UNNAME,)),
    (S.GIVING, I.LOST): (S.GONE, (C.UNNAME,)),
    (S.FREEING, I.ENDED): (S.GONE, ()),
    (S.FREEING, I.LOST): (S.GONE, ()),
}

OWNER: OwnerTable = MappingProxyType({**_DELIVERING, **_STOPPED, **_WRITING})
"""(state, input) to (next state, commands in order)."""
