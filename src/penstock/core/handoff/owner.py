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

from penstock.core.leases.membership import WRITES_PER_FAILOVER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.core.assignment.views import WorkerView

# --- the table ------------------------------------------------------------------------------------


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


# --- the side -------------------------------------------------------------------------------------

_DRAINS = (OwnerState.DRAINING, OwnerState.DRAINING_TO_FREE)


class OwnerSide:
    """A lease that this worker holds, from the start of its tenure to the end. Times are monotonic seconds."""

    def __init__(self, key: str, *, warm_deadline_s: float = 3.0, drain_deadline_s: float = 10.0) -> None:
        self.key = key
        self.state = OwnerState.HOLDING
        self.receiver: str | None = None
        """The worker that gets the lease; None while that is not decided."""
        self.tried: set[str] = set()
        """Receivers that vanished, or did not answer: they are not chosen again."""
        self.due_s: float | None = None
        """When `tick` has something to say; None: nothing is waited for."""
        self._warm_deadline_s = warm_deadline_s
        self._drain_deadline_s = drain_deadline_s
        self._offered_s = 0.0
        self._answered = False  # the receiver was seen to want what it is offered
        self._moves = False  # and its row has moved since it was offered, as far as that can be told
        self._by_leader = False

    @property
    def delivers(self) -> bool:
        """True while records may be delivered, as far as the handoff goes. The tenure's fence has its own say."""
        return self.state in DELIVERS

    def offer(self, receiver: str, now_s: float, *, cold: bool = False) -> tuple[OwnerCommand, ...]:
        """Hand the lease to this worker. ``cold``: without waiting until it is warm.

        Nothing happens while another is being handed to, or once it is too late.
        """
        given = OwnerInput.OFFER_COLD if cold else OwnerInput.OFFER
        if (self.state, given) not in OWNER:
            return ()
        self.receiver, self._offered_s = receiver, now_s
        self._answered = self._moves = self._by_leader = False
        return self.tell(given, now_s)

    def leader_named(self, receiver: str, now_s: float) -> tuple[OwnerCommand, ...]:
        """Hand the lease to the worker that a KCL leader has named in the lease's row, without waiting for it."""
        if (self.state, OwnerInput.LEADER_NAMED) not in OWNER:
            return ()
        self.receiver, self._by_leader = receiver, True
        return self.tell(OwnerInput.LEADER_NAMED, now_s)

    def look(
        self, workers: Mapping[str, WorkerView], now_s: float, *, may_stop: bool = True
    ) -> tuple[OwnerCommand, ...]:
        """The worker rows were read: is the receiver there, does it want the lease, is it warm? ``may_stop``: False
        while so many other leases are on their way that this one is delivered for longer in place of waiting there.
        """
        if self.receiver is None or self._by_leader:
            return ()
        view = workers.get(self.receiver)
        wanted = view is not None and self.key in view.wants | view.warm
        if view is None or not view.present or (self._answered and not wanted):
            return self.tell(OwnerInput.RECEIVER_GONE, now_s)
        self._answered = self._answered or wanted
        # One that asked and died is not dead by its row for a while. But living ones write theirs often.
        period_s = view.failover_s / WRITES_PER_FAILOVER
        moved = view.unmoved_s < now_s - self._offered_s
        self._moves = self._moves or moved or not 0 < period_s < self._warm_deadline_s
        return self.tell(OwnerInput.WARM, now_s) if self.key in view.warm and may_stop else ()

    def tick(self, now_s: float, *, may_stop: bool = True) -> tuple[OwnerCommand, ...]:
        """Time has passed: a deadline may be over. A receiver that showed no sign of life by then gets no lease."""
        if self.due_s is None or now_s < self.due_s:
            return ()
        if self.state in _DRAINS:
            return self.tell(OwnerInput.DRAIN_DEADLINE, now_s)
        lives = self._answered and self._moves
        if lives and not may_stop:
            return ()
        return self.tell(OwnerInput.WARM_DEADLINE if lives else OwnerInput.RECEIVER_GONE, now_s)

    def tell(self, given: OwnerInput, now_s: float) -> tuple[OwnerCommand, ...]:
        """Anything else that was learnt."""
        before = self.state
        if (before, given) not in OWNER:
            return ()
        self.state, commands = OWNER[before, given]
        if given is OwnerInput.RECEIVER_GONE and self.receiver is not None:
            self.tried.add(self.receiver)
        if self.state in (OwnerState.HOLDING, OwnerState.DRAINING_TO_FREE, OwnerState.GONE):
            self.receiver = None
        if self.state is OwnerState.OFFERING:
            self.due_s = now_s + self._warm_deadline_s
        elif self.state in _DRAINS:
            # One drain has one deadline, also when the receiver changes meanwhile.
            self.due_s = self.due_s if before in _DRAINS else now_s + self._drain_deadline_s
        else:
            self.due_s = None
        return commands
