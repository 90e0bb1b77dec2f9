"""The receiver's side of a handoff: its states, events and commands, the table of them, and the lease that it is about.

The receiver asks, is named, warms up without delivering anything, and delivers when the row names it as owner. If the
owner dies meanwhile, the receiver takes the lease over, as warm as it is. It takes a free lease, too. It watches the
row until it is certain that the lease will not come any more: if the lease came after the receiver had stopped looking,
no worker would read the shard.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.core.assignment.views import LeaseView, WorkerView


class ReceiverState(StrEnum):
    """The states of a worker with a lease that it does not hold."""

    IDLE = "idle"
    ASKING = "asking"
    WARMING = "warming"
    """The owner has named this worker, which reads from the stored checkpoint into a buffer."""
    WARM = "warm"
    """The worker could deliver at once."""
    PARTING = "parting"
    """The owner no longer names this worker: it has given the lease to it, or it has changed its mind. The lease's row
    shows which.
    """
    LETTING_GO = "letting go"
    """This worker has changed its mind, but is still named: the lease may still come."""
    LAST_LOOK = "last look"
    """The owner no longer names this worker, and there is no buffer: see PARTING."""
    TAKING = "taking"
    """The write that takes the lease is under way, or the tenure is about to begin without one."""
    HOLDING = "holding"
    """The lease is this worker's. What follows is the owner's side."""


class ReceiverEvent(StrEnum):
    """The events of the receiver's side."""

    WANT = "want"
    """The assignment gives this worker the lease, which another worker holds."""
    DROP = "drop"
    """The assignment does not give it the lease any more, or this worker leaves."""
    NAMED = "named"
    """The owner's worker row, or a KCL leader in the lease's row, names this worker as the next owner."""
    UNNAMED = "unnamed"
    """Neither of the two names this worker any more."""
    WARMED = "warmed"
    """The buffer holds what follows the owner's position, or is full."""
    MINE = "mine"
    """The lease's row names this worker as owner, and did not at a look that is younger than half the failover time.

    So the worker knows for how long no other one takes the lease.
    """
    MINE_UNSEEN = "mine unseen"
    """The lease's row names this worker as owner, and it is not known since when."""
    THEIRS = "theirs"
    """The lease's row names the owner that this worker waits for."""
    OTHERS = "others"
    """The lease's row names another worker, which lives."""
    TAKEABLE = "takeable"
    """The lease is free, or its owner dead."""
    BEGAN = "began"
    """A tenure has begun."""
    NOT_TAKEN = "not taken"
    """The take was not applied, and another worker has the lease."""
    GIVEN_INSTEAD = "given instead"
    """The take was not applied, because another write had made the lease this worker's first."""


class ReceiverCommand(StrEnum):
    """The commands of the receiver's side."""

    SAY_WANTED = "say wanted"
    """Write into the own worker row that this worker wants, or agrees to receive, the lease."""
    SAY_WARM = "say warm"
    UNSAY = "unsay"
    """Take both out of the own worker row."""
    WARM_UP = "warm up"
    """Read from the stored checkpoint into a bounded buffer, by polling; say when warm."""
    DISCARD = "discard"
    """Stop the warm-up, and drop the buffer."""
    READ = "read"
    """Read the lease's row, consistently, and say what it shows."""
    TAKE = "take"
    """Claim the lease: send the write that makes it the owner, or that keeps it the owner where it is named already."""
    RECEIVE = "receive"
    """Begin a tenure with the row that was seen, at once; or claim the lease, if its fence were down already."""
    DELIVER = "deliver"
    """Drop from the buffer what lies at or before the row's checkpoint, and deliver the rest."""


RS, RE, RC = ReceiverState, ReceiverEvent, ReceiverCommand

ReceiverTable: TypeAlias = (
    "Mapping[tuple[ReceiverState, ReceiverEvent], tuple[ReceiverState, tuple[ReceiverCommand, ...]]]"
)

POLLS = frozenset({RS.WARMING, RS.WARM, RS.PARTING, RS.LETTING_GO, RS.LAST_LOOK})
"""The states in which the lease's row is read every few moments."""

_APART_RULES = {
    (RS.IDLE, RE.WANT): (RS.ASKING, (RC.SAY_WANTED,)),
    (RS.IDLE, RE.NAMED): (RS.WARMING, (RC.SAY_WANTED, RC.WARM_UP)),
    (RS.IDLE, RE.TAKEABLE): (RS.TAKING, (RC.TAKE,)),
    (RS.IDLE, RE.MINE): (RS.TAKING, (RC.TAKE,)),
    (RS.IDLE, RE.MINE_UNSEEN): (RS.TAKING, (RC.TAKE,)),
    (RS.ASKING, RE.NAMED): (RS.WARMING, (RC.WARM_UP,)),
    (RS.ASKING, RE.DROP): (RS.IDLE, (RC.UNSAY,)),
    (RS.ASKING, RE.OTHERS): (RS.IDLE, (RC.UNSAY,)),
    (RS.ASKING, RE.TAKEABLE): (RS.TAKING, (RC.TAKE,)),
    (RS.ASKING, RE.MINE): (RS.TAKING, (RC.TAKE,)),
    (RS.ASKING, RE.MINE_UNSEEN): (RS.TAKING, (RC.TAKE,)),
}
_NAMED_RULES = {
    (RS.WARMING, RE.WARMED): (RS.WARM, (RC.SAY_WARM,)),
    **{
        pair: outcome
        for state in (RS.WARMING, RS.WARM)
        for pair, outcome in {
            (state, RE.UNNAMED): (RS.PARTING, (RC.READ,)),
            (state, RE.DROP): (RS.LETTING_GO, (RC.UNSAY, RC.DISCARD)),
            (state, RE.MINE): (RS.TAKING, (RC.RECEIVE,)),
            (state, RE.MINE_UNSEEN): (RS.TAKING, (RC.TAKE,)),
            (state, RE.TAKEABLE): (RS.TAKING, (RC.TAKE,)),
            (state, RE.OTHERS): (RS.IDLE, (RC.UNSAY, RC.DISCARD)),
        }.items()
    },
}
_PARTING_RULES = {
    (RS.PARTING, RE.NAMED): (RS.WARMING, ()),
    (RS.PARTING, RE.DROP): (RS.LAST_LOOK, (RC.UNSAY, RC.DISCARD)),
    (RS.PARTING, RE.MINE): (RS.TAKING, (RC.RECEIVE,)),
    (RS.PARTING, RE.MINE_UNSEEN): (RS.TAKING, (RC.TAKE,)),
    (RS.PARTING, RE.TAKEABLE): (RS.TAKING, (RC.TAKE,)),
    (RS.PARTING, RE.THEIRS): (RS.IDLE, (RC.UNSAY, RC.DISCARD)),
    (RS.PARTING, RE.OTHERS): (RS.IDLE, (RC.UNSAY, RC.DISCARD)),
    (RS.LETTING_GO, RE.UNNAMED): (RS.LAST_LOOK, (RC.READ,)),
    (RS.LETTING_GO, RE.MINE): (RS.TAKING, (RC.TAKE,)),
    (RS.LETTING_GO, RE.MINE_UNSEEN): (RS.TAKING, (RC.TAKE,)),
    (RS.LETTING_GO, RE.TAKEABLE): (RS.IDLE, ()),
    (RS.LETTING_GO, RE.OTHERS): (RS.IDLE, ()),
    (RS.LAST_LOOK, RE.NAMED): (RS.LETTING_GO, ()),
    (RS.LAST_LOOK, RE.MINE): (RS.TAKING, (RC.TAKE,)),
    (RS.LAST_LOOK, RE.MINE_UNSEEN): (RS.TAKING, (RC.TAKE,)),
    (RS.LAST_LOOK, RE.TAKEABLE): (RS.IDLE, ()),
    (RS.LAST_LOOK, RE.THEIRS): (RS.IDLE, ()),
    (RS.LAST_LOOK, RE.OTHERS): (RS.IDLE, ()),
}
_TAKING_RULES = {
    (RS.TAKING, RE.BEGAN): (RS.HOLDING, (RC.UNSAY, RC.DELIVER)),
    (RS.TAKING, RE.NOT_TAKEN): (RS.IDLE, (RC.UNSAY, RC.DISCARD)),
    (RS.TAKING, RE.GIVEN_INSTEAD): (RS.TAKING, (RC.TAKE,)),
}

RECEIVER: ReceiverTable = MappingProxyType({**_APART_RULES, **_NAMED_RULES, **_PARTING_RULES, **_TAKING_RULES})
"""The receiver's table: (state, event) to (next state, commands in order)."""


class ReceiverSide:
    """A lease that this worker does not hold, and may come to hold."""

    def __init__(self, key: str, me: str, *, failover_s: float) -> None:
        self.key = key
        self.me = me
        self.state = ReceiverState.IDLE
        self.owner: str | None = None
        """The worker that the lease is to come from."""
        self.unmoved_s: float | None = None
        """The send time of the last consistent look that still showed the former owner: a tenure that begins without a
        write counts its fence from it.
        """
        self._failover_s = failover_s
        self._since_s = float("-inf")  # Looks that were sent before count no more.
        self._by_leader = False

    @property
    def polls(self) -> bool:
        """True while the lease's row is to be read, consistently, every few moments."""
        return self.state in POLLS

    def want(self, owner: str) -> tuple[ReceiverCommand, ...]:
        """Note that the assignment gives this worker a lease that ``owner`` holds."""
        if self.state is ReceiverState.IDLE:
            self.owner = owner
        return self.handle(ReceiverEvent.WANT)

    def drop(self) -> tuple[ReceiverCommand, ...]:
        """Note that the assignment does not give the lease to this worker any more, or that this worker leaves."""
        return self.handle(ReceiverEvent.DROP)

    def look_at_owner(
        self, owner: WorkerView | None, now_s: float, *, leaving: bool = False
    ) -> tuple[ReceiverCommand, ...]:
        """Take the row of the worker that owns the lease; None if there is none. ``leaving``: this worker leaves."""
        named = owner is not None and owner.gives.get(self.key) == self.me
        if not named:
            return () if self._by_leader else self.handle(ReceiverEvent.UNNAMED, now_s)
        if leaving and self.state is ReceiverState.IDLE:
            return ()  # Without an answer the owner looks for another receiver.
        assert owner is not None
        self.owner, self._by_leader = owner.id, False
        return self.handle(ReceiverEvent.NAMED, now_s)

    def look_at_lease(
        self,
        lease: LeaseView | None,
        *,
        sent_s: float,
        now_s: float,
        free: bool,
        planned: bool = False,
        leaving: bool = False,
    ) -> tuple[ReceiverCommand, ...]:
        """Take the lease's row from a consistent read; None: it is gone.

        ``free``: the lease has no owner, or a dead one. ``planned``: the assignment gives it to this worker, which
        takes it unasked; a worker that waits for it takes it in any case. ``leaving``: this worker leaves.
        """
        if sent_s < self._since_s or self.state in (ReceiverState.TAKING, ReceiverState.HOLDING):
            return ()
        if lease is None or lease.ended:
            return self.handle(ReceiverEvent.OTHERS, now_s)
        if lease.owner == self.me:
            fresh = self.unmoved_s is not None and now_s - self.unmoved_s <= self._failover_s / 2
            return self.handle(ReceiverEvent.MINE if fresh else ReceiverEvent.MINE_UNSEEN, now_s)
        if lease.owner is not None and lease.owner == self.owner and self.polls:
            self.unmoved_s = sent_s
        if free:
            unasked = self.state in (ReceiverState.IDLE, ReceiverState.ASKING)
            return () if unasked and not planned else self.handle(ReceiverEvent.TAKEABLE, now_s)
        return self._look_at_leader(lease, leaving, now_s) or self.handle(
            ReceiverEvent.THEIRS if lease.owner == self.owner else ReceiverEvent.OTHERS, now_s
        )

    def _look_at_leader(self, lease: LeaseView, leaving: bool, now_s: float) -> tuple[ReceiverCommand, ...]:
        """Take a KCL leader's word, which lies in the lease's own row."""
        if lease.next_owner == self.me and not leaving:
            self._by_leader, self.owner = True, lease.owner
            return self.handle(ReceiverEvent.NAMED, now_s)
        if self._by_leader and lease.next_owner != self.me:
            self._by_leader = False
            return self.handle(ReceiverEvent.UNNAMED, now_s)
        return ()

    def handle(self, event: ReceiverEvent, now_s: float = float("-inf")) -> tuple[ReceiverCommand, ...]:
        """Take any other event."""
        if (self.state, event) not in RECEIVER:
            return ()
        self.state, commands = RECEIVER[self.state, event]
        if ReceiverCommand.READ in commands:
            self._since_s = now_s
        if self.state is ReceiverState.IDLE:
            self.owner, self.unmoved_s, self._by_leader = None, None, False
        return commands
