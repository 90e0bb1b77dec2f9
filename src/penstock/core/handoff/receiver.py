"""How a worker comes to a lease that another has, or that is free: a table of states and inputs.

The worker asks, is named, warms up without delivering anything, and delivers when the row names it as owner. If the
owner dies meanwhile, the worker takes the lease over, as warm as it is. It watches the row until it is certain that the
lease will not come any more: if the lease came after the worker had stopped looking, no worker would read the shard.

What is not in the table changes nothing.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.core.assignment.views import LeaseView, WorkerView

# --- the table ------------------------------------------------------------------------------------


class ReceiverState(StrEnum):
    """Where a worker is with a lease that it does not hold."""

    IDLE = "idle"
    ASKING = "asking"
    WARMING = "warming"
    """The owner has named this worker, which reads from the stored checkpoint into a buffer."""
    WARM = "warm"
    """It could deliver at once."""
    PARTING = "parting"
    """The owner names it no more: because the lease is given, or not to be given. The row tells."""
    LETTING_GO = "letting go"
    """This worker has changed its mind, but is still named: the lease may come all the same."""
    LAST_LOOK = "last look"
    """As PARTING, without a buffer."""
    TAKING = "taking"
    """The write that takes the lease is under way, or the tenure is about to begin without one."""
    HOLDING = "holding"
    """The lease is this worker's. What follows is the owner's side."""


class ReceiverInput(StrEnum):
    """What it learns."""

    WANT = "want"
    """The assignment gives it the lease, which another worker holds."""
    DROP = "drop"
    """The assignment does not any more, or this worker leaves."""
    NAMED = "named"
    """The owner's worker row, or a KCL leader in the lease's row, names it as the next owner."""
    UNNAMED = "unnamed"
    """Neither of the two names it any more."""
    WARMED = "warmed"
    """The buffer holds what follows the owner's position, or is full."""
    MINE = "mine"
    """The lease's row names it as owner, and did not at a look that is younger than half the failover time.

    So the worker knows for how long no other one takes the lease.
    """
    MINE_UNSEEN = "mine unseen"
    """The lease's row names it as owner, and it is not known since when."""
    THEIRS = "theirs"
    """The lease's row names the owner that it waits for."""
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
    """What it is to do."""

    SAY_WANTED = "say wanted"
    """Write into the own worker row that it wants, or agrees to receive, the lease."""
    SAY_WARM = "say warm"
    UNSAY = "unsay"
    """Take both out of the own worker row."""
    WARM_UP = "warm up"
    """Read from the stored checkpoint into a bounded buffer, by polling; say when warm."""
    DISCARD = "discard"
    """Stop that, drop the buffer."""
    READ = "read"
    """Read the lease's row, consistently, and say what it shows."""
    TAKE = "take"
    """Claim the lease: send the write by which it is the owner from then on, or stays it where it is named already."""
    RECEIVE = "receive"
    """Begin a tenure with the row that was seen, at once; or claim the lease, if its fence were down already."""
    DELIVER = "deliver"
    """Drop from the buffer what lies at or before the row's checkpoint, and deliver the rest."""


S, I, C = ReceiverState, ReceiverInput, ReceiverCommand  # noqa: E741

ReceiverTable: TypeAlias = (
    "Mapping[tuple[ReceiverState, ReceiverInput], tuple[ReceiverState, tuple[ReceiverCommand, ...]]]"
)

POLLS = frozenset({S.WARMING, S.WARM, S.PARTING, S.LETTING_GO, S.LAST_LOOK})
"""The states in which the lease's row is read every few moments."""

_APART = {
    (S.IDLE, I.WANT): (S.ASKING, (C.SAY_WANTED,)),
    (S.IDLE, I.NAMED): (S.WARMING, (C.SAY_WANTED, C.WARM_UP)),
    (S.IDLE, I.TAKEABLE): (S.TAKING, (C.TAKE,)),
    (S.IDLE, I.MINE): (S.TAKING, (C.TAKE,)),
    (S.IDLE, I.MINE_UNSEEN): (S.TAKING, (C.TAKE,)),
    (S.ASKING, I.NAMED): (S.WARMING, (C.WARM_UP,)),
    (S.ASKING, I.DROP): (S.IDLE, (C.UNSAY,)),
    (S.ASKING, I.OTHERS): (S.IDLE, (C.UNSAY,)),
    (S.ASKING, I.TAKEABLE): (S.TAKING, (C.TAKE,)),
    (S.ASKING, I.MINE): (S.TAKING, (C.TAKE,)),
    (S.ASKING, I.MINE_UNSEEN): (S.TAKING, (C.TAKE,)),
}
_NAMED = {
    (S.WARMING, I.WARMED): (S.WARM, (C.SAY_WARM,)),
    **{
        pair: outcome
        for state in (S.WARMING, S.WARM)
        for pair, outcome in {
            (state, I.UNNAMED): (S.PARTING, (C.READ,)),
            (state, I.DROP): (S.LETTING_GO, (C.UNSAY, C.DISCARD)),
            (state, I.MINE): (S.TAKING, (C.RECEIVE,)),
            (state, I.MINE_UNSEEN): (S.TAKING, (C.TAKE,)),
            (state, I.TAKEABLE): (S.TAKING, (C.TAKE,)),
            (state, I.OTHERS): (S.IDLE, (C.UNSAY, C.DISCARD)),
        }.items()
    },
}
_PARTING = {
    (S.PARTING, I.NAMED): (S.WARMING, ()),
    (S.PARTING, I.DROP): (S.LAST_LOOK, (C.UNSAY, C.DISCARD)),
    (S.PARTING, I.MINE): (S.TAKING, (C.RECEIVE,)),
    (S.PARTING, I.MINE_UNSEEN): (S.TAKING, (C.TAKE,)),
    (S.PARTING, I.TAKEABLE): (S.TAKING, (C.TAKE,)),
    (S.PARTING, I.THEIRS): (S.IDLE, (C.UNSAY, C.DISCARD)),
    (S.PARTING, I.OTHERS): (S.IDLE, (C.UNSAY, C.DISCARD)),
    (S.LETTING_GO, I.UNNAMED): (S.LAST_LOOK, (C.READ,)),
    (S.LETTING_GO, I.MINE): (S.TAKING, (C.TAKE,)),
    (S.LETTING_GO, I.MINE_UNSEEN): (S.TAKING, (C.TAKE,)),
    (S.LETTING_GO, I.TAKEABLE): (S.IDLE, ()),
    (S.LETTING_GO, I.OTHERS): (S.IDLE, ()),
    (S.LAST_LOOK, I.NAMED): (S.LETTING_GO, ()),
    (S.LAST_LOOK, I.MINE): (S.TAKING, (C.TAKE,)),
    (S.LAST_LOOK, I.MINE_UNSEEN): (S.TAKING, (C.TAKE,)),
    (S.LAST_LOOK, I.TAKEABLE): (S.IDLE, ()),
    (S.LAST_LOOK, I.THEIRS): (S.IDLE, ()),
    (S.LAST_LOOK, I.OTHERS): (S.IDLE, ()),
}
_TAKING = {
    (S.TAKING, I.BEGAN): (S.HOLDING, (C.UNSAY, C.DELIVER)),
    (S.TAKING, I.NOT_TAKEN): (S.IDLE, (C.UNSAY, C.DISCARD)),
    (S.TAKING, I.GIVEN_INSTEAD): (S.TAKING, (C.TAKE,)),
}

RECEIVER: ReceiverTable = MappingProxyType({**_APART, **_NAMED, **_PARTING, **_TAKING})
"""(state, input) to (next state, commands in order)."""


# --- the side -------------------------------------------------------------------------------------


class ReceiverSide:
    """A lease that this worker does not hold, and may come to hold."""

    def __init__(self, key: str, me: str, *, failover_s: float) -> None:
        self.key = key
        self.me = me
        self.state = ReceiverState.IDLE
        self.owner: str | None = None
        """The worker that the lease is to come from."""
        self.unmoved_s: float | None = None
        """Send time of the last consistent look that still showed the former owner: what a tenure that begins
        without a write counts its fence from.
        """
        self._failover_s = failover_s
        self._since_s = float("-inf")  # looks that were sent before count no more
        self._by_leader = False

    @property
    def polls(self) -> bool:
        """True while the lease's row is to be read, consistently, every few moments."""
        return self.state in POLLS

    def want(self, owner: str) -> tuple[ReceiverCommand, ...]:
        """The assignment gives this worker a lease that ``owner`` holds."""
        if self.state is ReceiverState.IDLE:
            self.owner = owner
        return self.tell(ReceiverInput.WANT)

    def drop(self) -> tuple[ReceiverCommand, ...]:
        """The assignment does not give the lease to this worker any more, or this worker leaves."""
        return self.tell(ReceiverInput.DROP)

    def look_at_owner(
        self, owner: WorkerView | None, now_s: float, *, leaving: bool = False
    ) -> tuple[ReceiverCommand, ...]:
        """The row of the worker that owns the lease was read; None if there is none. ``leaving``: this worker does."""
        named = owner is not None and owner.gives.get(self.key) == self.me
        if not named:
            return () if self._by_leader else self.tell(ReceiverInput.UNNAMED, now_s)
        if leaving and self.state is ReceiverState.IDLE:
            return ()  # without an answer the owner looks for another receiver
        assert owner is not None
        self.owner, self._by_leader = owner.id, False
        return self.tell(ReceiverInput.NAMED, now_s)

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
        """The lease's row was read, consistently; None: it is gone.

        ``free``: it has no owner, or a dead one. ``planned``: the assignment gives it to this worker, which takes it
        unasked; one that waits for it takes it in any case. ``leaving``: this worker does.
        """
        if sent_s < self._since_s or self.state in (ReceiverState.TAKING, ReceiverState.HOLDING):
            return ()
        if lease is None or lease.ended:
            return self.tell(ReceiverInput.OTHERS, now_s)
        if lease.owner == self.me:
            fresh = self.unmoved_s is not None and now_s - self.unmoved_s <= self._failover_s / 2
            return self.tell(ReceiverInput.MINE if fresh else ReceiverInput.MINE_UNSEEN, now_s)
        if lease.owner is not None and lease.owner == self.owner and self.polls:
            self.unmoved_s = sent_s
        if free:
            unasked = self.state in (ReceiverState.IDLE, ReceiverState.ASKING)
            return () if unasked and not planned else self.tell(ReceiverInput.TAKEABLE, now_s)
        return self._look_at_leader(lease, leaving, now_s) or self.tell(
            ReceiverInput.THEIRS if lease.owner == self.owner else ReceiverInput.OTHERS, now_s
        )

    def _look_at_leader(self, lease: LeaseView, leaving: bool, now_s: float) -> tuple[ReceiverCommand, ...]:
        """A KCL leader's word lies in the lease's own row."""
        if lease.next_owner == self.me and not leaving:
            self._by_leader, self.owner = True, lease.owner
            return self.tell(ReceiverInput.NAMED, now_s)
        if self._by_leader and lease.next_owner != self.me:
            self._by_leader = False
            return self.tell(ReceiverInput.UNNAMED, now_s)
        return ()

    def tell(self, given: ReceiverInput, now_s: float = float("-inf")) -> tuple[ReceiverCommand, ...]:
        """Anything else that was learnt."""
        if (self.state, given) not in RECEIVER:
            return ()
        self.state, commands = RECEIVER[self.state, given]
        if ReceiverCommand.READ in commands:
            self._since_s = now_s
        if self.state is ReceiverState.IDLE:
            self.owner, self.unmoved_s, self._by_leader = None, None, False
        return commands
