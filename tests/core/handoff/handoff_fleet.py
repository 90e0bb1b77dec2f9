"""A whole fleet in virtual time: assignment, both sides of handoffs, tenures and rows. Only the wire is made up.

The shipped function (`shardway.core.worker.machine.step`) decides what a worker does; here its actions are carried out.
A request takes effect a little later than it is sent, and is answered a little later than that; some are lost,
some take effect long after their sender has given up. Workers tick, pause for longer than they may, crash, come and
leave.
"""

from __future__ import annotations

import heapq
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any

from shardway.core.assignment.kcl.fleet import Fleet as Kind
from shardway.core.assignment.strategies import EqualCounts
from shardway.core.assignment.views import lease_view, worker_view
from shardway.core.handoff.owner import OwnerEvent
from shardway.core.leases import LeaseRow, lease_row, writes
from shardway.core.leases.conditional_write import Done, Refused, Unknown
from shardway.core.leases.counters import ObservedCounters
from shardway.core.leases.membership import WorkerRows
from shardway.core.leases.tenure import commands as tenure_commands
from shardway.core.leases.tenure import events as tenure_events
from shardway.core.leases.tenure.machine import claim, receive, step
from shardway.core.leases.tenure.state import Loss, State, Tenure
from shardway.core.leases.tenure.times import LeaseTimes
from shardway.core.leases.worker_row import WorkerRow
from shardway.core.worker import actions, events, machine
from shardway.core.worker.state import Terms, WorkerState
from tests.core.handoff.handoff_world import DELIVERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random


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
        self.rows: dict[str, WorkerRow] = {}
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
    """One worker: what it decides is shipped, what takes time is made up."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.fleet = fleet
        self.id = name
        terms = Terms(
            worker_id=name,
            failover_s=F,
            warm_deadline_s=3.0,
            drain_deadline_s=5.0,
            upkeep_interval_s=1e9,
        )
        self.state = WorkerState(terms, EqualCounts(), fleet.rng)
        self.members = WorkerRows(name, F)
        self.observed = ObservedCounters()
        self.leases: dict[str, LeaseRow] = {}
        """As they were read last."""
        self.tenures: dict[str, Tenure] = {}
        self.timers: dict[tuple[str, str], float] = {}
        self.inbox: list[Callable[[float], None]] = []
        self.todo: deque[actions.Action] = deque()
        self.is_doing = self.gone = False
        self.paused_until_s = self.cut_until_s = 0.0
        self.cut: tuple[str, ...] = ()  # what it cannot write to: "leases", "workers"
        self.alive_s: float | None = None
        self.row_at_s = self.look_at_s = 0.0
        self.counter = self.moves = 0
        self.writing = False
        self.looks = 0  # under way
        self.changed = True

    @property
    def leaving(self) -> bool:
        return self.state.leaving

    def leave(self) -> None:
        self.handle(events.LeaveAsked(), self.fleet.now_s)

    def delivers(self, now_s: float) -> list[str]:
        if self.gone or now_s < self.paused_until_s:
            return []
        held = self.state.held.items()
        return [key for key, owned in held if owned.side.state in DELIVERS and self.tenures[key].may_deliver(now_s)]

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
                self.tenure(key, tenure_events.TimerFired(), now_s)
        for (key, what), at_s in list(self.timers.items()):
            if now_s >= at_s and (key, what) in self.timers:
                del self.timers[key, what]
                drained = events.OwnerSideLearned(key, OwnerEvent.DRAINED)
                self.handle(events.WarmUpDone(key) if what == "warm" else drained, now_s)
        self.show(now_s)
        self.look(now_s)

    # --- its own row, and looks -----------------------------------------------------------------------

    def show(self, now_s: float) -> None:
        if self.writing or not (self.changed or now_s >= self.row_at_s + F / 5):
            return
        self.counter += 1
        row = self.state.row(now_s, self.counter)
        self.row_at_s, self.changed, self.writing = now_s, False, True

        def answered(done: Any) -> None:
            def act(later_s: float) -> None:
                self.writing = False
                self.changed = self.changed or not done
                if done:
                    self.alive_s = now_s
                    for key in list(self.tenures):
                        self.tenure(key, tenure_events.WorkerRowConfirmed(now_s), later_s)

            self.inbox.append(act)

        def put() -> bool:
            known = self.fleet.rows.get(self.id)
            if known is None or row.counter > known.counter:
                self.fleet.rows[self.id] = row
            return True

        self.put("workers", put, answered)

    def look(self, now_s: float) -> None:
        """Read the leases, and then the workers' rows; a round follows."""
        if self.looks or now_s < self.look_at_s:
            return
        self.looks, given = 1, {*self.state.given}

        def leases_read(leases: Any) -> None:
            def act(then_s: float) -> None:
                if leases is None:
                    self.looks = 0
                    return
                self.fleet.request(lambda: dict(self.fleet.rows), lambda rows: self.inbox.append(seen(then_s, rows)))

            def seen(answered_s: float, rows: Any) -> Callable[[float], None]:
                def act(later_s: float) -> None:
                    if rows is not None:
                        self.handle(events.WorkersSeen(given, rows, leases), later_s)
                        self.round(leases, rows, now_s, answered_s, later_s)
                    self.looked(later_s)

                return act

            self.inbox.append(act)

        self.fleet.request(lambda: dict(self.fleet.leases), leases_read)

    def round(
        self,
        leases: dict[str, LeaseRow],
        rows: dict[str, WorkerRow],
        sent_s: float,
        answered_s: float,
        now_s: float,
    ) -> None:
        before, self.leases = self.leases, dict(leases)
        self.observed.look_at_leases(leases.values(), now_s)
        self.members.look(rows.values(), now_s)
        silent = self.members.silent(leases_answered_s=answered_s, look_sent_s=answered_s, now_s=now_s)
        for key in list(self.state.held):
            self.tenure(key, tenure_events.LeaseSeen(leases[key]), now_s)
        view = events.View(
            fleet=Kind.ALONE,
            leases={key: lease_view(row, self.observed.unmoved_s(key, now_s)) for key, row in leases.items()},
            rows=leases,
            workers={
                one: worker_view(row, alive=one not in silent, unmoved_s=self.members.unmoved_s(one, now_s))
                for one, row in self.members.rows.items()
            },
            named={key for key, row in leases.items() if row.owner == self.id and key not in self.state},
            scanned_s=answered_s,
            scan_sent_s=sent_s,
            before=before,
        )
        self.handle(view, now_s)

    def looked(self, now_s: float) -> None:
        """One look of a round is over; the next round waits for all of them."""
        self.looks -= 1
        if self.looks:
            return
        self.look_at_s = now_s + (TICK_S if self.state.looks_often else 0.5)
        if self.state.is_done and not self.gone:
            self.gone = True
            self.fleet.request(lambda: self.fleet.rows.pop(self.id, None), self.row_is_gone)

    def row_is_gone(self, _: Any) -> None:
        """Free what was given to this worker while it left, and what it gave to others that have gone."""

        def free() -> None:
            for row in [row for row in self.fleet.leases.values() if row.owner == self.id]:
                self.fleet.write(writes.free(row))
            for row in self.state.given.values():
                if row.owner not in self.fleet.rows:
                    self.fleet.write(writes.free(row))

        self.fleet.request(free, lambda _: None)

    def look_at(self, key: str, now_s: float) -> None:
        self.looks += 1

        def answered(row: LeaseRow | None) -> None:
            def act(later_s: float) -> None:
                if row is not None:
                    known = self.leases.get(key)
                    self.saw(row, later_s)
                    lease = lease_view(row, self.observed.unmoved_s(key, later_s))
                    self.handle(events.LeaseSeen(key=key, row=row, lease=lease, known=known, sent_s=now_s), later_s)
                self.looked(later_s)

            self.inbox.append(act)

        self.fleet.request(lambda: self.fleet.leases[key], answered)

    def saw(self, row: LeaseRow, now_s: float) -> None:
        self.leases[row.key] = row
        self.observed.look(row.key, row.counter, now_s, owner=row.owner)

    def free(self, row: LeaseRow) -> None:
        self.looks += 1

        def answered(outcome: Any) -> None:
            def act(now_s: float) -> None:
                if outcome is not None:
                    self.handle(events.RowsFreed([row.key]), now_s)
                self.looked(now_s)

            self.inbox.append(act)

        self.put("leases", lambda: self.fleet.write(writes.free(row)), answered)

    # --- what follows -----------------------------------------------------------------------------------

    def handle(self, event: events.Event, now_s: float) -> None:
        todo = machine.step(self.state, event, now_s)
        self.todo += sorted(todo, key=lambda action: isinstance(action, actions.TABLE_CALLS))
        if self.is_doing:
            return
        self.is_doing = True
        while self.todo:
            self.act(self.todo.popleft(), now_s)
        self.is_doing = False

    def act(self, action: actions.Action, now_s: float) -> None:
        match action:
            case actions.PublishRow():
                self.changed = True
            case actions.Wake():
                self.look_at_s = now_s
            case actions.Take(key, receives, unmoved_s):
                row = self.leases[key]
                if receives:
                    # The table of states sees to it that it is known; a test takes that away, and must find another
                    # fault.
                    known_s: float = unmoved_s  # type: ignore[assignment]
                    self.begin(key, receive(row, self.id, TIMES, now_s, known_s, self.alive_s), now_s)
                else:
                    self.begin(key, claim(row, self.id, TIMES, now_s, self.alive_s), now_s)
            case actions.WarmUp(key):
                self.timers[key, "warm"] = now_s + self.fleet.rng.uniform(0.1, 0.5)
            case actions.Discard(key):
                self.timers.pop((key, "warm"), None)
            case actions.StopDelivering(key):
                self.timers[key, "drained"] = now_s + self.fleet.rng.uniform(0.0, 0.2)
            case actions.ResumeDelivering(key):
                self.timers.pop((key, "drained"), None)
            case actions.EndTenure(key, to, process):
                self.tenure(key, tenure_events.EndTenure(to, process), now_s)
            case actions.LookAt(key):
                self.look_at(key, now_s)
            case actions.FreeRows(rows):
                for row in rows:
                    self.free(row)

    # --- tenures ----------------------------------------------------------------------------------------

    def begin(self, key: str, result: tuple[Tenure, tuple[tenure_commands.Command, ...]], now_s: float) -> None:
        self.tenures[key], commands = result
        self.do(key, commands, now_s)

    def tenure(self, key: str, given: Any, now_s: float) -> None:
        if key in self.tenures:
            self.begin(key, step(self.tenures[key], given, now_s), now_s)

    def do(self, key: str, commands: tuple[tenure_commands.Command, ...], now_s: float) -> None:
        for command in commands:
            match command:
                case tenure_commands.SendWrite(write=write):
                    self.send(key, write)
                case tenure_commands.TenureBegan():
                    self.moves += 1
                    self.saw(self.tenures[key].row, now_s)
                    self.handle(events.TakeAnswered(key, True), now_s)
                    self.handle(events.ReadingBegan(key), now_s)
                case tenure_commands.TakeFailed():
                    self.handle(events.TakeAnswered(key, False), now_s)
                    self.over(key, now_s)
                case tenure_commands.LeaseLost(why=why):
                    if why is Loss.UNCONFIRMED:
                        self.handle(events.LeaseUnconfirmed(), now_s)
                    self.handle(events.OwnerSideLearned(key, OwnerEvent.LOST), now_s)
                    self.over(key, now_s)
                case tenure_commands.TenureEnded():
                    self.handle(events.OwnerSideLearned(key, OwnerEvent.ENDED), now_s)
                    self.over(key, now_s)

    def over(self, key: str, now_s: float) -> None:
        self.timers.pop((key, "drained"), None)
        row = self.tenures.pop(key).row
        self.saw(row, now_s)
        self.handle(events.TenureOver(key, row), now_s)

    def send(self, key: str, write: Any) -> None:
        tenure = self.tenures[key]

        def answered(outcome: Any) -> None:
            def act(now_s: float) -> None:
                now = self.tenures.get(key)
                if now is not None and now.sent is not None and now.sent.write is write and now.worker == tenure.worker:
                    self.tenure(key, tenure_events.WriteAnswered(outcome or Unknown("no answer")), now_s)

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
