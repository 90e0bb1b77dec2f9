"""Whatever a worker learns, in whatever order: what holds of all its answers."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shardway.core.assignment.kcl.fleet import Fleet
from shardway.core.assignment.views import WorkerView
from shardway.core.handoff.owner import OwnerEvent
from shardway.core.worker import actions, events
from shardway.core.worker.machine import step
from tests.core.worker.round_kit import F, key, row, view_of, worker_of

if TYPE_CHECKING:
    from shardway.core.leases import LeaseRow

KEYS = [key(number) for number in range(3)]
OTHERS = ("a", "z")
OWNERS = (None, "me", *OTHERS, "kcl")
some_keys = st.frozensets(st.sampled_from(KEYS))
workers = st.tuples(some_keys, some_keys, some_keys, st.booleans(), st.booleans())
rows = st.lists(st.sampled_from(OWNERS), min_size=len(KEYS), max_size=len(KEYS))
looks = st.tuples(
    st.just("look"),
    rows,
    st.lists(workers, max_size=len(OTHERS)),
    st.sampled_from([Fleet.ALONE, Fleet.ALONE, Fleet.KCL2, Fleet.KCL3]),
    st.sampled_from([0.0, 2 * F]),
)
happenings = st.tuples(
    st.sampled_from(
        ["seen", "warmed", "unreadable", "taken", "refused", "delivers", "over", "gave up", "inherits", "drained"]
    ),
    st.sampled_from(KEYS),
    st.sampled_from(OWNERS),
)
rare = st.tuples(st.sampled_from(["leave", "unconfirmed", "lost"]), st.sampled_from(KEYS))
steps = st.tuples(st.sampled_from([0.01, 1.0, F]), st.one_of(looks, looks, happenings, happenings, rare))


class World:
    """What a worker's actions have led to. It tells the worker only what can follow from them."""

    def __init__(self) -> None:
        self.worker = worker_of()
        self.now_s = 0.0
        self.counter = 1
        self.taking: set[str] = set()
        self.begun: set[str] = set()
        self.held: set[str] = set()
        self.stopped: set[str] = set()
        self.ending: set[str] = set()
        self.ahead: set[str] = set()

    def row(self, one: str, owner: str | None) -> LeaseRow:
        self.counter += 1
        return row(KEYS.index(one), "me" if one in self.held else owner, self.counter)

    def handle(self, event: events.Event) -> None:
        before, polls = copy.deepcopy(self.worker), {one for one, side in self.worker.receiving.items() if side.polls}
        said = step(self.worker, event, self.now_s)
        assert said == step(before, event, self.now_s), "the same state and input have another answer"
        for action in said:
            self.check(action, polls)
        self.check_state()

    def check(self, action: actions.Action, polled: set[str]) -> None:
        match action:
            case actions.Take(one):
                assert one not in self.taking | self.begun | self.held
                assert not self.worker.leaving or one in polled, "a worker that leaves takes only what comes by itself"
                self.taking.add(one)
            case actions.StopDelivering(one):
                assert one in self.held - self.stopped
                self.stopped.add(one)
            case actions.ResumeDelivering(one):
                assert one in self.held & self.stopped - self.ending, "the write may be applied at any time"
                self.stopped.discard(one)
            case actions.EndTenure(one):
                assert one in self.held & self.stopped - self.ending
                self.ending.add(one)
            case actions.WarmUp(one) | actions.ReadAhead(one):
                self.ahead.add(one)
            case actions.Discard(one):
                self.ahead.discard(one)

    def check_state(self) -> None:
        worker = self.worker
        assert worker.held.keys() == self.held
        assert worker.claims == self.taking | self.begun
        assert worker.claims <= worker.receiving.keys()
        assert worker.stolen <= worker.claims
        shown = worker.row(self.now_s)
        assert shown.given.keys() <= self.held
        assert shown.wanted | shown.warm <= worker.receiving.keys()
        assert self.ahead <= worker.receiving.keys() | worker.heirs, "what does not come is read ahead for ever"
        assert not worker.is_done or not (self.held or self.taking or self.begun)

    # --- what may happen --------------------------------------------------------------------------

    def look(self, owners: list[str | None], shown: list[tuple[Any, ...]], fleet: Fleet, unmoved_s: float) -> None:
        listed = [self.row(one, owner) for one, owner in zip(KEYS, owners, strict=True)]
        others = [
            WorkerView(
                id=name,
                failover_s=F,
                wants=wants,
                warm=warm,
                gives=dict.fromkeys(gives, "me"),
                alive=alive,
                leaving=leaving,
            )
            for name, (wants, warm, gives, alive, leaving) in zip(OTHERS, shown, strict=False)
        ]
        named = [one.key for one in listed if one.owner == "me" and one.key not in self.worker]
        self.handle(view_of(listed, others, named=named, fleet=fleet, unmoved_s=unmoved_s, scanned_s=self.now_s))

    def seen(self, one: str, owner: str | None) -> None:
        if one not in self.held:
            now = self.row(one, owner)
            self.handle(
                events.LeaseSeen(key=one, row=now, lease=view_of([now]).leases[one], known=None, sent_s=self.now_s)
            )

    def warmed(self, one: str, _: str | None) -> None:
        if one in self.ahead:
            self.handle(events.WarmUpDone(one))

    def unreadable(self, one: str, _: str | None) -> None:
        if one in self.ahead and one in self.worker.receiving:
            self.handle(events.WarmUpFailed(one))

    def taken(self, one: str, _: str | None) -> None:
        if one in self.taking:
            self.taking.discard(one)
            self.begun.add(one)
            self.handle(events.TakeAnswered(one, True))

    def refused(self, one: str, owner: str | None) -> None:
        if one in self.taking:
            self.handle(events.TakeAnswered(one, False))
            self.end(one, owner)

    def delivers(self, one: str, _: str | None) -> None:
        if one in self.begun:
            self.begun.discard(one)
            self.ahead.discard(one)
            self.held.add(one)
            self.handle(events.ReadingBegan(one))

    def over(self, one: str, owner: str | None) -> None:
        if one in self.begun | self.held:
            if one in self.begun:  # it has ended, or was stolen and is lost
                self.ahead.discard(one)
            elif one in self.ending:
                self.handle(events.OwnerSideLearned(one, OwnerEvent.ENDED))
            self.end(one, owner)

    def end(self, one: str, owner: str | None) -> None:
        for known in (self.taking, self.begun, self.held, self.stopped, self.ending):
            known.discard(one)
        self.counter += 1
        self.handle(events.TenureOver(one, row(KEYS.index(one), owner, self.counter)))

    def drained(self, one: str, _: str | None) -> None:
        if one in self.stopped:
            self.handle(events.OwnerSideLearned(one, OwnerEvent.DRAINED))

    def gave_up(self, one: str, _: str | None) -> None:
        self.handle(events.LeaseGivenUp(one, F))

    def inherits(self, one: str, owner: str | None) -> None:
        if one not in self.worker:
            self.handle(events.ChildFound(one, owner is None))

    def leave(self, _: str) -> None:
        self.handle(events.LeaveAsked())

    def unconfirmed(self, _: str) -> None:
        self.handle(events.LeaseUnconfirmed())

    def lost(self, one: str) -> None:
        if one in self.held:
            self.handle(events.OwnerSideLearned(one, OwnerEvent.LOST))
            self.end(one, None)


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=40))
def test_a_worker_takes_once_stops_before_it_gives_and_leaves_nothing_behind(happens: list[Any]) -> None:
    world = World()
    for passed_s, (name, *more) in happens:
        world.now_s += passed_s
        getattr(world, name.replace(" ", "_"))(*more)
