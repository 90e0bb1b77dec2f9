"""A lease moves from one live worker to another by a table of states and inputs for each of the two sides.

The owner goes on delivering while the receiver warms up. Then it stops, settles what is in flight, and gives the lease
away in one conditional write, which the tenure (`shardway.core.leases.tenure`) repeats until its outcome is known. From
the moment at which that write is sent there is no way back to delivering: it may be applied at any time.

The receiver asks, is named, warms up without delivering anything, and delivers when the row names it as owner. If the
owner dies meanwhile, the receiver takes the lease over, as warm as it is. It takes a free lease, too. It watches the
row until it is certain that the lease will not come any more: if the lease came after the receiver had stopped looking,
no worker would read the shard.

What is not in a table changes nothing.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from shardway.core.leases.membership import WRITES_PER_FAILOVER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.core.assignment.strategies import LeaseView, WorkerView


# --- the owner: its table -------------------------------------------------------------------------


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


class OwnerInput(StrEnum):
    """The inputs of the owner's side."""

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


OS, OI, OC = OwnerState, OwnerInput, OwnerCommand

OwnerTable: TypeAlias = "Mapping[tuple[OwnerState, OwnerInput], tuple[OwnerState, tuple[OwnerCommand, ...]]]"

DELIVERS = frozenset({OS.HOLDING, OS.OFFERING})
"""The states in which records may be delivered (while the tenure's fence stands)."""

_DELIVERING = {
    (OS.HOLDING, OI.OFFER): (OS.OFFERING, (OC.NAME,)),
    (OS.HOLDING, OI.OFFER_COLD): (OS.DRAINING, (OC.NAME, OC.STOP)),
    (OS.HOLDING, OI.FREE): (OS.DRAINING_TO_FREE, (OC.STOP,)),
    (OS.HOLDING, OI.LEADER_NAMED): (OS.DRAINING, (OC.STOP,)),
    (OS.HOLDING, OI.FINISHED): (OS.GONE, ()),
    (OS.HOLDING, OI.LOST): (OS.GONE, ()),
    (OS.OFFERING, OI.WARM): (OS.DRAINING, (OC.STOP,)),
    (OS.OFFERING, OI.WARM_DEADLINE): (OS.DRAINING, (OC.STOP,)),
    (OS.OFFERING, OI.RECEIVER_GONE): (OS.HOLDING, (OC.UNNAME,)),
    (OS.OFFERING, OI.FREE): (OS.DRAINING_TO_FREE, (OC.UNNAME, OC.STOP)),
    (OS.OFFERING, OI.LEADER_NAMED): (OS.DRAINING, (OC.UNNAME, OC.STOP)),
    (OS.OFFERING, OI.FINISHED): (OS.GONE, (OC.UNNAME,)),
    (OS.OFFERING, OI.LOST): (OS.GONE, (OC.UNNAME,)),
}
_STOPPED = {
    (OS.DRAINING, OI.DRAINED): (OS.GIVING, (OC.GIVE,)),
    (OS.DRAINING, OI.DRAIN_DEADLINE): (OS.GIVING, (OC.GIVE,)),
    # Nothing was sent yet, so it can simply go on.
    (OS.DRAINING, OI.RECEIVER_GONE): (OS.HOLDING, (OC.UNNAME, OC.RESUME)),
    (OS.DRAINING, OI.FREE): (OS.DRAINING_TO_FREE, (OC.UNNAME,)),
    (OS.DRAINING, OI.LEADER_NAMED): (OS.DRAINING, (OC.UNNAME,)),
    (OS.DRAINING, OI.FINISHED): (OS.GONE, (OC.UNNAME,)),
    (OS.DRAINING, OI.LOST): (OS.GONE, (OC.UNNAME,)),
    (OS.DRAINING_TO_FREE, OI.DRAINED): (OS.FREEING, (OC.FREE,)),
    (OS.DRAINING_TO_FREE, OI.DRAIN_DEADLINE): (OS.FREEING, (OC.FREE,)),
    (OS.DRAINING_TO_FREE, OI.OFFER): (OS.DRAINING, (OC.NAME,)),
    (OS.DRAINING_TO_FREE, OI.OFFER_COLD): (OS.DRAINING, (OC.NAME,)),
    (OS.DRAINING_TO_FREE, OI.LEADER_NAMED): (OS.DRAINING, ()),
    (OS.DRAINING_TO_FREE, OI.FINISHED): (OS.GONE, ()),
    (OS.DRAINING_TO_FREE, OI.LOST): (OS.GONE, ()),
}
_WRITING = {
    # The name stays until the outcome is known: the receiver looks at the row for as long.
    (OS.GIVING, OI.ENDED): (OS.GONE, (OC.UNNAME,)),
    (OS.GIVING, OI.LOST): (OS.GONE, (OC.UNNAME,)),
    (OS.FREEING, OI.ENDED): (OS.GONE, ()),
    (OS.FREEING, OI.LOST): (OS.GONE, ()),
}

OWNER: OwnerTable = MappingProxyType({**_DELIVERING, **_STOPPED, **_WRITING})
"""The owner's table: (state, input) to (next state, commands in order)."""


# --- the owner: its side --------------------------------------------------------------------------

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
        self._answered = False  # True: the receiver was seen to want what it is offered.
        self._moves = False  # True: its row has moved since it was offered, as far as is known.
        self._by_leader = False

    @property
    def delivers(self) -> bool:
        """True while records may be delivered, as far as the handoff goes. The tenure's fence has its own say."""
        return self.state in DELIVERS

    def offer(self, receiver: str, now_s: float, *, cold: bool = False) -> tuple[OwnerCommand, ...]:
        """Hand the lease to this worker. ``cold``: do not wait until it is warm.

        Nothing happens while the lease is being handed to another worker, or once it is too late.
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
        """Note that the worker rows were read: is the receiver there, does it want the lease, is it warm? ``may_stop``:
        False while so many other leases are on their way that this one is delivered for longer in place of waiting
        there.
        """
        if self.receiver is None or self._by_leader:
            return ()
        view = workers.get(self.receiver)
        wanted = view is not None and self.key in view.wants | view.warm
        if view is None or not view.present or (self._answered and not wanted):
            return self.tell(OwnerInput.RECEIVER_GONE, now_s)
        self._answered = self._answered or wanted
        # A receiver that asked and died is not dead by its row for a while. But living ones write their rows often.
        period_s = view.failover_s / WRITES_PER_FAILOVER
        moved = view.unmoved_s < now_s - self._offered_s
        self._moves = self._moves or moved or not 0 < period_s < self._warm_deadline_s
        return self.tell(OwnerInput.WARM, now_s) if self.key in view.warm and may_stop else ()

    def tick(self, now_s: float, *, may_stop: bool = True) -> tuple[OwnerCommand, ...]:
        """Note that time has passed: a deadline may be over. A receiver that showed no sign of life by then gets no
        lease.
        """
        if self.due_s is None or now_s < self.due_s:
            return ()
        if self.state in _DRAINS:
            return self.tell(OwnerInput.DRAIN_DEADLINE, now_s)
        lives = self._answered and self._moves
        if lives and not may_stop:
            return ()
        return self.tell(OwnerInput.WARM_DEADLINE if lives else OwnerInput.RECEIVER_GONE, now_s)

    def tell(self, given: OwnerInput, now_s: float) -> tuple[OwnerCommand, ...]:
        """Take any other input."""
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


# --- the receiver: its table ----------------------------------------------------------------------


class ReceiverState(StrEnum):
    """The states of a worker with a lease that it does not hold."""

    IDLE = "idle"
    ASKING = "asking"
    WARMING = "warming"
    """The owner has named this worker, which reads from the stored checkpoint into a buffer."""
    WARM = "warm"
    """The worker could deliver at once."""
    PARTING = "parting"
    """The owner names the worker no more: because the lease is given, or not to be given. The row shows it."""
    LETTING_GO = "letting go"
    """This worker has changed its mind, but is still named: the lease may come all the same."""
    LAST_LOOK = "last look"
    """The owner names the worker no more, and there is no buffer: see PARTING."""
    TAKING = "taking"
    """The write that takes the lease is under way, or the tenure is about to begin without one."""
    HOLDING = "holding"
    """The lease is this worker's. What follows is the owner's side."""


class ReceiverInput(StrEnum):
    """The inputs of the receiver's side."""

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
    """Claim the lease: send the write by which it is the owner from then on, or stays it where it is named already."""
    RECEIVE = "receive"
    """Begin a tenure with the row that was seen, at once; or claim the lease, if its fence were down already."""
    DELIVER = "deliver"
    """Drop from the buffer what lies at or before the row's checkpoint, and deliver the rest."""


RS, RI, RC = ReceiverState, ReceiverInput, ReceiverCommand

ReceiverTable: TypeAlias = (
    "Mapping[tuple[ReceiverState, ReceiverInput], tuple[ReceiverState, tuple[ReceiverCommand, ...]]]"
)

POLLS = frozenset({RS.WARMING, RS.WARM, RS.PARTING, RS.LETTING_GO, RS.LAST_LOOK})
"""The states in which the lease's row is read every few moments."""

_APART = {
    (RS.IDLE, RI.WANT): (RS.ASKING, (RC.SAY_WANTED,)),
    (RS.IDLE, RI.NAMED): (RS.WARMING, (RC.SAY_WANTED, RC.WARM_UP)),
    (RS.IDLE, RI.TAKEABLE): (RS.TAKING, (RC.TAKE,)),
    (RS.IDLE, RI.MINE): (RS.TAKING, (RC.TAKE,)),
    (RS.IDLE, RI.MINE_UNSEEN): (RS.TAKING, (RC.TAKE,)),
    (RS.ASKING, RI.NAMED): (RS.WARMING, (RC.WARM_UP,)),
    (RS.ASKING, RI.DROP): (RS.IDLE, (RC.UNSAY,)),
    (RS.ASKING, RI.OTHERS): (RS.IDLE, (RC.UNSAY,)),
    (RS.ASKING, RI.TAKEABLE): (RS.TAKING, (RC.TAKE,)),
    (RS.ASKING, RI.MINE): (RS.TAKING, (RC.TAKE,)),
    (RS.ASKING, RI.MINE_UNSEEN): (RS.TAKING, (RC.TAKE,)),
}
_NAMED = {
    (RS.WARMING, RI.WARMED): (RS.WARM, (RC.SAY_WARM,)),
    **{
        pair: outcome
        for state in (RS.WARMING, RS.WARM)
        for pair, outcome in {
            (state, RI.UNNAMED): (RS.PARTING, (RC.READ,)),
            (state, RI.DROP): (RS.LETTING_GO, (RC.UNSAY, RC.DISCARD)),
            (state, RI.MINE): (RS.TAKING, (RC.RECEIVE,)),
            (state, RI.MINE_UNSEEN): (RS.TAKING, (RC.TAKE,)),
            (state, RI.TAKEABLE): (RS.TAKING, (RC.TAKE,)),
            (state, RI.OTHERS): (RS.IDLE, (RC.UNSAY, RC.DISCARD)),
        }.items()
    },
}
_PARTING = {
    (RS.PARTING, RI.NAMED): (RS.WARMING, ()),
    (RS.PARTING, RI.DROP): (RS.LAST_LOOK, (RC.UNSAY, RC.DISCARD)),
    (RS.PARTING, RI.MINE): (RS.TAKING, (RC.RECEIVE,)),
    (RS.PARTING, RI.MINE_UNSEEN): (RS.TAKING, (RC.TAKE,)),
    (RS.PARTING, RI.TAKEABLE): (RS.TAKING, (RC.TAKE,)),
    (RS.PARTING, RI.THEIRS): (RS.IDLE, (RC.UNSAY, RC.DISCARD)),
    (RS.PARTING, RI.OTHERS): (RS.IDLE, (RC.UNSAY, RC.DISCARD)),
    (RS.LETTING_GO, RI.UNNAMED): (RS.LAST_LOOK, (RC.READ,)),
    (RS.LETTING_GO, RI.MINE): (RS.TAKING, (RC.TAKE,)),
    (RS.LETTING_GO, RI.MINE_UNSEEN): (RS.TAKING, (RC.TAKE,)),
    (RS.LETTING_GO, RI.TAKEABLE): (RS.IDLE, ()),
    (RS.LETTING_GO, RI.OTHERS): (RS.IDLE, ()),
    (RS.LAST_LOOK, RI.NAMED): (RS.LETTING_GO, ()),
    (RS.LAST_LOOK, RI.MINE): (RS.TAKING, (RC.TAKE,)),
    (RS.LAST_LOOK, RI.MINE_UNSEEN): (RS.TAKING, (RC.TAKE,)),
    (RS.LAST_LOOK, RI.TAKEABLE): (RS.IDLE, ()),
    (RS.LAST_LOOK, RI.THEIRS): (RS.IDLE, ()),
    (RS.LAST_LOOK, RI.OTHERS): (RS.IDLE, ()),
}
_TAKING = {
    (RS.TAKING, RI.BEGAN): (RS.HOLDING, (RC.UNSAY, RC.DELIVER)),
    (RS.TAKING, RI.NOT_TAKEN): (RS.IDLE, (RC.UNSAY, RC.DISCARD)),
    (RS.TAKING, RI.GIVEN_INSTEAD): (RS.TAKING, (RC.TAKE,)),
}

RECEIVER: ReceiverTable = MappingProxyType({**_APART, **_NAMED, **_PARTING, **_TAKING})
"""The receiver's table: (state, input) to (next state, commands in order)."""


# --- the receiver: its side -----------------------------------------------------------------------


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
        return self.tell(ReceiverInput.WANT)

    def drop(self) -> tuple[ReceiverCommand, ...]:
        """Note that the assignment does not give the lease to this worker any more, or that this worker leaves."""
        return self.tell(ReceiverInput.DROP)

    def look_at_owner(
        self, owner: WorkerView | None, now_s: float, *, leaving: bool = False
    ) -> tuple[ReceiverCommand, ...]:
        """Take the row of the worker that owns the lease; None if there is none. ``leaving``: this worker leaves."""
        named = owner is not None and owner.gives.get(self.key) == self.me
        if not named:
            return () if self._by_leader else self.tell(ReceiverInput.UNNAMED, now_s)
        if leaving and self.state is ReceiverState.IDLE:
            return ()  # Without an answer the owner looks for another receiver.
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
        """Take the lease's row from a consistent read; None: it is gone.

        ``free``: the lease has no owner, or a dead one. ``planned``: the assignment gives it to this worker, which
        takes it unasked; a worker that waits for it takes it in any case. ``leaving``: this worker leaves.
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
        """Take a KCL leader's word, which lies in the lease's own row."""
        if lease.next_owner == self.me and not leaving:
            self._by_leader, self.owner = True, lease.owner
            return self.tell(ReceiverInput.NAMED, now_s)
        if self._by_leader and lease.next_owner != self.me:
            self._by_leader = False
            return self.tell(ReceiverInput.UNNAMED, now_s)
        return ()

    def tell(self, given: ReceiverInput, now_s: float = float("-inf")) -> tuple[ReceiverCommand, ...]:
        """Take any other input."""
        if (self.state, given) not in RECEIVER:
            return ()
        self.state, commands = RECEIVER[self.state, given]
        if ReceiverCommand.READ in commands:
            self._since_s = now_s
        if self.state is ReceiverState.IDLE:
            self.owner, self.unmoved_s, self._by_leader = None, None, False
        return commands
