"""The owner's side of a handoff: its states, events and commands, the table of them, and the lease that it is about.

The owner goes on delivering while the receiver warms up. Then it stops, settles what is in flight, and gives the lease
away in one conditional write, which the tenure (`shardway.core.leases.tenure`) repeats until its outcome is known. From
the moment at which that write is sent there is no way back to delivering: it may be applied at any time.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from shardway.core.leases.worker_row import WRITES_PER_FAILOVER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.core.assignment.views import WorkerView


class OwnerState(StrEnum):
    """The states of the owner of one lease."""

    HOLDING = "holding"
    OFFERING = "offering"
    """A receiver is named and warms up; this worker still delivers."""
    DRAINING = "draining"
    """Nothing more is delivered; what is in flight is being settled, for the receiver."""
    DRAINING_TO_FREE = "draining to free"
    """Nothing more is delivered; but no worker is there to give the lease to: it is freed when all is settled."""
    GIVING = "giving"
    """The write that gives the lease away is under way."""
    FREEING = "freeing"
    """The write that frees the lease is under way."""
    GONE = "gone"
    """The tenure is over."""


class OwnerEvent(StrEnum):
    """The events of the owner's side."""

    OFFER = "offer"
    """The lease goes to a worker that has to warm up: it asked for the lease, or was chosen by an owner that leaves."""
    OFFER_COLD = "offer cold"
    """The lease goes to a worker that needs no warm-up: the shard is idle, or the receiver is no Shardway worker."""
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
    """The tenure has ended as the worker asked."""
    LOST = "lost"
    """The lease is lost: another worker has it, or no write was confirmed in time."""


class OwnerCommand(StrEnum):
    """The commands of the owner's side."""

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


OS, OE, OC = OwnerState, OwnerEvent, OwnerCommand

OwnerTable: TypeAlias = "Mapping[tuple[OwnerState, OwnerEvent], tuple[OwnerState, tuple[OwnerCommand, ...]]]"


_DELIVERING_RULES = {
    (OS.HOLDING, OE.OFFER): (OS.OFFERING, (OC.NAME,)),
    (OS.HOLDING, OE.OFFER_COLD): (OS.DRAINING, (OC.NAME, OC.STOP)),
    (OS.HOLDING, OE.FREE): (OS.DRAINING_TO_FREE, (OC.STOP,)),
    (OS.HOLDING, OE.LEADER_NAMED): (OS.DRAINING, (OC.STOP,)),
    (OS.HOLDING, OE.FINISHED): (OS.GONE, ()),
    (OS.HOLDING, OE.LOST): (OS.GONE, ()),
    (OS.OFFERING, OE.WARM): (OS.DRAINING, (OC.STOP,)),
    (OS.OFFERING, OE.WARM_DEADLINE): (OS.DRAINING, (OC.STOP,)),
    (OS.OFFERING, OE.RECEIVER_GONE): (OS.HOLDING, (OC.UNNAME,)),
    (OS.OFFERING, OE.FREE): (OS.DRAINING_TO_FREE, (OC.UNNAME, OC.STOP)),
    (OS.OFFERING, OE.LEADER_NAMED): (OS.DRAINING, (OC.UNNAME, OC.STOP)),
    (OS.OFFERING, OE.FINISHED): (OS.GONE, (OC.UNNAME,)),
    (OS.OFFERING, OE.LOST): (OS.GONE, (OC.UNNAME,)),
}
_STOPPED_RULES = {
    (OS.DRAINING, OE.DRAINED): (OS.GIVING, (OC.GIVE,)),
    (OS.DRAINING, OE.DRAIN_DEADLINE): (OS.GIVING, (OC.GIVE,)),
    # Nothing was sent yet, so it can simply go on.
    (OS.DRAINING, OE.RECEIVER_GONE): (OS.HOLDING, (OC.UNNAME, OC.RESUME)),
    (OS.DRAINING, OE.FREE): (OS.DRAINING_TO_FREE, (OC.UNNAME,)),
    (OS.DRAINING, OE.LEADER_NAMED): (OS.DRAINING, (OC.UNNAME,)),
    (OS.DRAINING, OE.FINISHED): (OS.GONE, (OC.UNNAME,)),
    (OS.DRAINING, OE.LOST): (OS.GONE, (OC.UNNAME,)),
    (OS.DRAINING_TO_FREE, OE.DRAINED): (OS.FREEING, (OC.FREE,)),
    (OS.DRAINING_TO_FREE, OE.DRAIN_DEADLINE): (OS.FREEING, (OC.FREE,)),
    (OS.DRAINING_TO_FREE, OE.OFFER): (OS.DRAINING, (OC.NAME,)),
    (OS.DRAINING_TO_FREE, OE.OFFER_COLD): (OS.DRAINING, (OC.NAME,)),
    (OS.DRAINING_TO_FREE, OE.LEADER_NAMED): (OS.DRAINING, ()),
    (OS.DRAINING_TO_FREE, OE.FINISHED): (OS.GONE, ()),
    (OS.DRAINING_TO_FREE, OE.LOST): (OS.GONE, ()),
}
_WRITING_RULES = {
    # The name stays until the outcome is known: the receiver looks at the row for as long.
    (OS.GIVING, OE.ENDED): (OS.GONE, (OC.UNNAME,)),
    (OS.GIVING, OE.LOST): (OS.GONE, (OC.UNNAME,)),
    (OS.FREEING, OE.ENDED): (OS.GONE, ()),
    (OS.FREEING, OE.LOST): (OS.GONE, ()),
}

OWNER: OwnerTable = MappingProxyType({**_DELIVERING_RULES, **_STOPPED_RULES, **_WRITING_RULES})
"""The owner's table: (state, event) to (next state, commands in order)."""


_DRAINS = (OwnerState.DRAINING, OwnerState.DRAINING_TO_FREE)


class OwnerSide:
    """A lease that this worker holds, from the start of its tenure to the end. Times are monotonic seconds."""

    def __init__(self, key: str, *, warm_deadline_s: float = 3.0, drain_deadline_s: float = 10.0) -> None:
        self.key = key
        self.state = OwnerState.HOLDING
        self.receiver: str | None = None
        """The worker that gets the lease; None while that is not decided."""
        self.tried: set[str] = set()
        """The receivers that vanished, or did not answer: they are not chosen again."""
        self.due_s: float | None = None
        """The time at which `tick` has something to say; None: nothing is waited for."""
        self._warm_deadline_s = warm_deadline_s
        self._drain_deadline_s = drain_deadline_s
        self._offered_s = 0.0
        self._is_answered = False  # True: the receiver was seen to want what it is offered.
        self._moves = False  # True: its row has moved since it was offered, as far as is known.
        self._by_leader = False

    def offer(self, receiver: str, now_s: float, *, cold: bool = False) -> tuple[OwnerCommand, ...]:
        """Hand the lease to this worker. ``cold``: do not wait until it is warm.

        Nothing happens while the lease is being handed to another worker, or once it is too late.
        """
        event = OwnerEvent.OFFER_COLD if cold else OwnerEvent.OFFER
        if (self.state, event) not in OWNER:
            return ()
        self.receiver, self._offered_s = receiver, now_s
        self._is_answered = self._moves = self._by_leader = False
        return self.handle(event, now_s)

    def leader_named(self, receiver: str, now_s: float) -> tuple[OwnerCommand, ...]:
        """Hand the lease to the worker that a KCL leader has named in the lease's row, without waiting for it."""
        if (self.state, OwnerEvent.LEADER_NAMED) not in OWNER:
            return ()
        self.receiver, self._by_leader = receiver, True
        return self.handle(OwnerEvent.LEADER_NAMED, now_s)

    def look(
        self, workers: Mapping[str, WorkerView], now_s: float, *, may_stop: bool = True
    ) -> tuple[OwnerCommand, ...]:
        """Note that the worker rows were read: is the receiver there, does it want the lease, is it warm? ``may_stop``:
        False while so many other leases are on their way that this one is delivered for longer in place of waiting
        there.
        """
        if self.receiver is None or self._by_leader:
            return ()
        view = workers.get(self.receiver)
        wanted = view is not None and self.key in view.wants | view.warm
        if view is None or not view.present or (self._is_answered and not wanted):
            return self.handle(OwnerEvent.RECEIVER_GONE, now_s)
        self._is_answered = self._is_answered or wanted
        # A receiver that asked and died is not dead by its row for a while. But living ones write their rows often.
        period_s = view.failover_s / WRITES_PER_FAILOVER
        moved = view.unmoved_s < now_s - self._offered_s
        self._moves = self._moves or moved or not 0 < period_s < self._warm_deadline_s
        return self.handle(OwnerEvent.WARM, now_s) if self.key in view.warm and may_stop else ()

    def tick(self, now_s: float, *, may_stop: bool = True) -> tuple[OwnerCommand, ...]:
        """Note that time has passed: a deadline may be over. A receiver that showed no sign of life by then gets no
        lease.
        """
        if self.due_s is None or now_s < self.due_s:
            return ()
        if self.state in _DRAINS:
            return self.handle(OwnerEvent.DRAIN_DEADLINE, now_s)
        lives = self._is_answered and self._moves
        if lives and not may_stop:
            return ()
        return self.handle(OwnerEvent.WARM_DEADLINE if lives else OwnerEvent.RECEIVER_GONE, now_s)

    def handle(self, event: OwnerEvent, now_s: float) -> tuple[OwnerCommand, ...]:
        """Take any other event."""
        before = self.state
        if (before, event) not in OWNER:
            return ()
        self.state, commands = OWNER[before, event]
        if event is OwnerEvent.RECEIVER_GONE and self.receiver is not None:
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
