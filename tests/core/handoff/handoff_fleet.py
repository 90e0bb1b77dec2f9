"""A whole fleet in virtual time: assignment, both sides of handoffs, tenures and rows. Only the wire is made up.

A request takes effect a little later than it is sent, and is answered a little later than that; some are lost, some
take effect long after their sender has given up. Workers tick, pause for longer than they may, crash, come and leave.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from penstock.core.assignment import EqualCounts, is_free, plan, receiver_for
from penstock.core.assignment.rows import lease_view, worker_view
from penstock.core.handoff import (
    OwnerCommand,
    OwnerInput,
    OwnerSide,
    OwnerState,
    ReceiverCommand,
    ReceiverInput,
    ReceiverState,
)
from penstock.core.handoff import ReceiverSide as Receiver
from penstock.core.leases import LeaseRow, lease_row, writes
from penstock.core.leases.membership import Members, WorkerRow
from penstock.core.leases.observed import Observed
from penstock.core.leases.steps import claim, receive, step
from penstock.core.leases.tenure import (
    Alive,
    Answered,
    Began,
    End,
    Ended,
    Loss,
    Lost,
    NotTaken,
    Saw,
    Send,
    State,
    Tenure,
    Tick,
)
from penstock.core.leases.times import LeaseTimes
from penstock.core.leases.writes import Done, Refused, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from penstock.core.assignment import WorkerView
    from penstock.core.leases.tenure import Command

F = 4.0
TIMES = LeaseTimes.of(F)
TIMEOUT_S = 1.0
TICK_S = 0.05


class Fleet:
    """The table, the wire, the clock."""

    def __init__(self, rng: Random, lease_count: int) -> None:
        self.rng = rng
        self.now_s = 100.0
        self.leases = {f"s{number}": LeaseRow(key=f"s{number}") for number in range(lease_count)}
        self.rows: dict[str, tuple[WorkerRow, bool]] = {}
        self.workers: list[Node] = []
        self.loss = 0.0
        self.delivered_s: dict[str, tuple[float, str]] = {}
        self.gaps: list[tuple[float, str, str, str]] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def at(self, time_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time_s, next(self._numbers), act))

    def join(self) -> Node:
        node = Node(self, f"w{len(self.workers):02d}")
        self.workers.append(node)
        self.at(self.now_s, node.run)
        return node

    def run(self, seconds: float) -> None:
        """Let time pass; after every event a look is taken at which workers deliver."""
        end_s = self.now_s + seconds
        while self._events and self._events[0][0] <= end_s:
            self.now_s, _, act = heapq.heappop(self._events)
            act()
            self.check()
        self.now_s = end_s

    def check(self) -> None:
        by_lease: dict[str, str] = {}
        for node in self.workers:
            for key in node.delivers(self.now_s):
                assert key not in by_lease, f"{self.now_s:.3f}: {by_lease[key]} and {node.id} deliver {key}"
                by_lease[key] = node.id
        for key, node_id in by_lease.items():
            last_s, last = self.delivered_s.get(key, (self.now_s, node_id))
            if last != node_id:
                self.gaps.append((self.now_s - last_s, key, last, node_id))
            self.delivered_s[key] = (self.now_s, node_id)

    def steal(self, key: str, seconds: float) -> None:
        """A KCL worker takes a lease by its counter, renews it for so long, and dies."""
        end_s = self.now_s + seconds

        def renew() -> None:
            row = self.leases[key]
            if self.now_s < end_s and row.owner == "kcl":
                self.write(writes.renew(row))
                self.at(self.now_s + F / 3, renew)

        self.write(writes.take(self.leases[key], "kcl"))
        self.at(self.now_s + F / 3, renew)

    # --- the wire -------------------------------------------------------------------------------------

    def request(self, effect: Callable[[], Any], answer: Callable[[Any], None]) -> None:
        """Something is done to the table; ``answer`` gets what it returned, or None when nothing is known of it."""
        reply: list[Any] = []
        effect_s = self.now_s + self.rng.uniform(0.001, 0.02)
        if self.rng.random() < self.loss:
            fate = self.rng.choice(["request", "reply", "late"])
            if fate != "request":
                late_s = self.rng.uniform(0.0, 3 * F) if fate == "late" else 0.0
                self.at(effect_s + late_s, lambda: (effect(), None)[1])
            self.at(self.now_s + TIMEOUT_S, lambda: answer(None))
            return
        self.at(effect_s, lambda: reply.append(effect()))
        self.at(effect_s + self.rng.uniform(0.001, 0.02), lambda: answer(reply[0]))

    def write(self, write: Any) -> Done | Refused:
        attributes = self.leases[write.key].attributes()
        if not write.allowed_on(attributes):
            return Refused(self.leases[write.key])
        self.leases[write.key] = row = lease_row(write.onto(attributes))
        return Done(row)


class Node:
    """One worker."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.fleet = fleet
        self.id = name
        self.row = WorkerRow(worker_id=name, failover_s=F)
        self.members = Members(name, F)
        self.observed = Observed()
        self.observed_rows = Observed()
        self.tenures: dict[str, Tenure] = {}
        self.owning: dict[str, OwnerSide] = {}
        self.receiving: dict[str, Receiver] = {}
        self.timers: dict[tuple[str, str], float] = {}
        self.inbox: list[Callable[[float], None]] = []
        self.leaving = self.gone = False
        self.paused_until_s = 0.0
        self.cut_until_s = self.unable_until_s = 0.0
        self.cut: tuple[str, ...] = ()  # what it cannot write to: "leases", "workers"
        self.alive_s: float | None = None
        self.row_at_s = self.look_at_s = 0.0
        self.writing = self.looking = False
        self.changed = True
        self.moves = 0

    def delivers(self, now_s: float) -> list[str]:
        if self.gone or now_s < self.paused_until_s:
            return []
        return [key for key, side in self.owning.items() if side.delivers and self.tenures[key].may_deliver(now_s)]

    def run(self) -> None:
        if self.gone:
            return
        now_s = self.fleet.now_s
        if now_s >= self.paused_until_s:
            self.turn(now_s)
        self.fleet.at(max(now_s, self.paused_until_s) + self.fleet.rng.uniform(0.5, 1.0) * TICK_S, self.run)

    def turn(self, now_s: float) -> None:
        inbox, self.inbox = self.inbox, []
        for act in inbox:
            act(now_s)
        for key in list(self.tenures):
            wake_s = self.tenures[key].wake_at_s
            if wake_s is not None and now_s >= wake_s:
                self.tenure(key, Tick(), now_s)
        for key, side in list(self.owning.items()):
            self.own(key, side.tick(now_s), now_s)
        for (key, what), at_s in list(self.timers.items()):
            if now_s >= at_s:
                del self.timers[key, what]
                if what == "drained" and key in self.owning:
                    self.own(key, self.owning[key].tell(OwnerInput.DRAINED, now_s), now_s)
                if what == "warm":
                    self.receive(key, self.side(key).tell(ReceiverInput.WARMED, now_s), None, now_s)
        self.show(now_s)
        self.look(now_s)

    # --- its own row, and looks -----------------------------------------------------------------------

    def show(self, now_s: float) -> None:
        if self.writing or not (self.changed or now_s >= self.row_at_s + F / 5):
            return
        self.row = row = replace(self.row, held=frozenset(self.owning)).next()
        self.row_at_s, self.changed, self.writing = now_s, False, True
        leaving = self.leaving or now_s < self.unable_until_s

        def answered(done: Any) -> None:
            def act(later_s: float) -> None:
                self.writing = False
                self.changed = self.changed or not done
                if done:
                    self.alive_s = now_s
                    for key in list(self.tenures):
                        self.tenure(key, Alive(now_s), later_s)

            self.inbox.append(act)

        def put() -> bool:
            if row.counter > self.fleet.rows.get(self.id, (replace(row, counter=-1), False))[0].counter:
                self.fleet.rows[self.id] = (row, leaving)
            return True

        self.put("workers", put, answered)

    def look(self, now_s: float) -> None:
        if self.looking or now_s < self.look_at_s:
            return
        self.looking = True

        def leases_read(leases: Any) -> None:
            def act(then_s: float) -> None:
                if leases is None:
                    self.looking = False
                    return
                self.fleet.request(lambda: dict(self.fleet.rows), lambda rows: self.inbox.append(seen(then_s, rows)))

            def seen(sent_s: float, rows: Any) -> Callable[[float], None]:
                def act(later_s: float) -> None:
                    self.looking = False
                    if rows is not None:
                        self.decide(leases, rows, now_s, sent_s, later_s)

                return act

            self.inbox.append(act)

        self.fleet.request(lambda: dict(self.fleet.leases), leases_read)

    def decide(
        self,
        leases: dict[str, LeaseRow],
        rows: dict[str, tuple[WorkerRow, bool]],
        sent_s: float,
        asked_s: float,
        now_s: float,
    ) -> None:
        self.observed.look_at_leases(leases.values(), now_s)
        self.members.look([row for row, _ in rows.values()], now_s)
        silent = self.members.silent(leases_answered_s=sent_s, look_sent_s=asked_s, now_s=now_s)
        for one, (row, _) in rows.items():
            self.observed_rows.look(one, row.counter, now_s)
        workers = {
            one: worker_view(
                replace(row, leaving=leaves),
                alive=one not in silent,
                unmoved_s=self.observed_rows.unmoved_s(one, now_s),
            )
            for one, (row, leaves) in rows.items()
        }
        workers[self.id] = worker_view(replace(self.row, leaving=self.leaving or now_s < self.unable_until_s))
        views = {key: lease_view(row, self.observed.unmoved_s(key, now_s)) for key, row in leases.items()}
        mine = plan(views.values(), workers.values(), self.id, EqualCounts(), failover_s=F)
        load = {one: sum(view.owner == one for view in views.values()) for one in workers}
        for key, view in views.items():
            if key in self.owning:
                side = self.owning[key]
                self.tenure(key, Saw(leases[key]), now_s)
                self.own(key, side.look(workers, now_s), now_s)
                self.hand_over(key, side, mine.give.get(key), load, workers, now_s)
            elif key not in self.tenures:
                self.come_to(key, view, leases[key], mine, workers, sent_s, now_s)
        busy = self.row.wanted or self.row.given or any(side.polls for side in self.receiving.values())
        self.look_at_s = now_s + (TICK_S if busy or self.leaving else 0.5)
        if (
            self.leaving
            and not self.tenures
            and all(one.state is ReceiverState.IDLE for one in self.receiving.values())
        ):
            self.gone = True
            self.fleet.at(now_s, lambda: self.fleet.rows.pop(self.id, None) and None)

    def hand_over(
        self,
        key: str,
        side: OwnerSide,
        planned: str | None,
        load: dict[str, int],
        workers: dict[str, WorkerView],
        now_s: float,
    ) -> None:
        if self.leaving:
            to = planned if planned not in side.tried else None
            to = to or receiver_for(key, load, workers.values(), self.id, side.tried)
            if side.receiver is None:
                self.own(key, side.offer(to, now_s) if to else side.tell(OwnerInput.FREE, now_s), now_s)
        elif planned is not None and key in workers[planned].wants:
            self.own(key, side.offer(planned, now_s), now_s)

    def come_to(
        self, key: str, view: Any, row: LeaseRow, mine: Any, workers: dict[str, WorkerView], sent_s: float, now_s: float
    ) -> None:
        side = self.side(key)
        if self.leaving or (side.state is ReceiverState.ASKING and key not in mine.ask and key not in mine.take):
            self.receive(key, side.drop(), row, now_s)
        if key in mine.ask and view.owner is not None:
            self.receive(key, side.want(view.owner), row, now_s)
        if view.owner != self.id:
            owner = workers.get(view.owner or "")
            self.receive(key, side.look_at_owner(owner, now_s, leaving=self.leaving), row, now_s)
        commands = side.look_at_lease(
            view,
            sent_s=sent_s,
            now_s=now_s,
            free=is_free(view, workers, F),
            planned=key in mine.take,
            leaving=self.leaving,
        )
        self.receive(key, commands, row, now_s)

    # --- commands ---------------------------------------------------------------------------------------

    def side(self, key: str) -> Receiver:
        return self.receiving.setdefault(key, Receiver(key, self.id, failover_s=F))

    def own(self, key: str, commands: tuple[OwnerCommand, ...], now_s: float) -> None:
        side = self.owning.get(key)
        for command in commands:
            if command is OwnerCommand.NAME:
                assert side is not None
                assert side.receiver is not None
                self.change(given={**self.row.given, key: side.receiver})
            elif command is OwnerCommand.UNNAME:
                self.change(given={one: to for one, to in self.row.given.items() if one != key})
            elif command is OwnerCommand.STOP:
                self.timers[key, "drained"] = now_s + self.fleet.rng.uniform(0.0, 0.2)
            elif command is OwnerCommand.RESUME:
                self.timers.pop((key, "drained"), None)
            else:
                assert side is not None
                self.tenure(key, End(side.receiver if command is OwnerCommand.GIVE else None), now_s)

    def receive(self, key: str, commands: tuple[ReceiverCommand, ...], row: LeaseRow | None, now_s: float) -> None:
        for command in commands:
            if command is ReceiverCommand.SAY_WANTED:
                self.change(wanted=self.row.wanted | {key})
            elif command is ReceiverCommand.SAY_WARM:
                self.change(warm=self.row.warm | {key})
            elif command is ReceiverCommand.UNSAY:
                self.change(wanted=self.row.wanted - {key}, warm=self.row.warm - {key})
            elif command is ReceiverCommand.WARM_UP:
                self.timers[key, "warm"] = now_s + self.fleet.rng.uniform(0.1, 0.5)
            elif command is ReceiverCommand.DISCARD:
                self.timers.pop((key, "warm"), None)
            elif command is ReceiverCommand.READ:
                self.look_at_s = now_s
            elif command is ReceiverCommand.TAKE:
                assert row is not None
                self.begin(key, claim(row, self.id, TIMES, now_s, self.alive_s), now_s)
            elif command is ReceiverCommand.RECEIVE:
                assert row is not None
                # The table of states sees to it that it is known; a test takes that away, and must find another fault.
                unmoved_s: float = self.receiving[key].unmoved_s  # type: ignore[assignment]
                self.begin(key, receive(row, self.id, TIMES, now_s, unmoved_s, self.alive_s), now_s)

    def begin(self, key: str, result: tuple[Tenure, tuple[Command, ...]], now_s: float) -> None:
        self.tenures[key], commands = result
        self.do(key, commands, now_s)

    def change(self, **more: Any) -> None:
        self.row = replace(self.row, **more)
        self.changed = True

    def tenure(self, key: str, given: Any, now_s: float) -> None:
        if key in self.tenures:
            self.begin(key, step(self.tenures[key], given, now_s), now_s)

    def do(self, key: str, commands: tuple[Command, ...], now_s: float) -> None:
        for command in commands:
            match command:
                case Send(write=write):
                    self.send(key, write)
                case Began():
                    self.moves += 1
                    more = self.receiving[key].tell(ReceiverInput.BEGAN, now_s)
                    self.owning[key] = OwnerSide(key, warm_deadline_s=3.0, drain_deadline_s=5.0)
                    self.receive(key, more, None, now_s)
                case NotTaken(row=row):
                    del self.tenures[key]
                    again = row is not None and row.owner == self.id
                    given = ReceiverInput.GIVEN_INSTEAD if again else ReceiverInput.NOT_TAKEN
                    self.receive(key, self.receiving[key].tell(given, now_s), row, now_s)
                case Lost() | Ended():
                    if isinstance(command, Lost) and command.why is Loss.UNCONFIRMED:
                        self.unable_until_s, self.changed = now_s + 10 * F, True
                    over = OwnerInput.LOST if isinstance(command, Lost) else OwnerInput.ENDED
                    self.own(key, self.owning[key].tell(over, now_s), now_s)
                    assert self.owning[key].state is OwnerState.GONE
                    self.timers.pop((key, "drained"), None)
                    del self.owning[key], self.tenures[key], self.receiving[key]

    def send(self, key: str, write: Any) -> None:
        tenure = self.tenures[key]

        def answered(outcome: Any) -> None:
            def act(now_s: float) -> None:
                now = self.tenures.get(key)
                if now is not None and now.sent is not None and now.sent.write is write and now.worker == tenure.worker:
                    self.tenure(key, Answered(outcome or Unknown("no answer")), now_s)

            self.inbox.append(act)

        self.put("leases", lambda: self.fleet.write(write), answered)

    def put(self, table: str, effect: Callable[[], Any], answered: Callable[[Any], None]) -> None:
        if table in self.cut and self.fleet.now_s < self.cut_until_s:
            self.fleet.at(self.fleet.now_s + TIMEOUT_S, lambda: answered(None))
        else:
            self.fleet.request(effect, answered)


def states(fleet: Fleet) -> dict[str, State]:
    """For a message when something does not come to rest."""
    return {f"{node.id} {key}": tenure.state for node in fleet.workers for key, tenure in node.tenures.items()}
