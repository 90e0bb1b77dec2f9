"""The two sides of a handoff, with what each knows besides its state: the other worker, since when, until when.

They turn what a worker sees (worker rows, looks at the lease's row, the time) into inputs of the two tables, and
return commands. The worker does the commands in their order, and tells the side what came of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.handoff.owner import DELIVERS, OWNER, OwnerCommand, OwnerInput, OwnerState
from penstock.core.handoff.receiver import POLLS, RECEIVER, ReceiverCommand, ReceiverInput, ReceiverState
from penstock.core.leases.membership import WRITES_PER_FAILOVER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.core.assignment.views import LeaseView, WorkerView

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
        self.cut_short = False
        """True once the drain's deadline is over: what is out by then will be delivered again by the next owner."""
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
        if given is OwnerInput.DRAIN_DEADLINE:
            self.cut_short = True
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
