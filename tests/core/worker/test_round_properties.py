"""Whatever a worker learns, in whatever order: what holds of all its answers."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shardway.core.assignment.kcl.fleet import Fleet
from shardway.core.assignment.views import WorkerView
from shardway.core.handoff.owner import OwnerEvent
from shardway.core.worker import (
    Began,
    Delivers,
    Discard,
    EndTenure,
    GaveUp,
    Inherited,
    LeaseSeen,
    Leave,
    NotReadable,
    Over,
    OwnerLearnt,
    ReadAhead,
    Resume,
    Stop,
    Take,
    Unconfirmed,
    Warmed,
    WarmUp,
    step,
)
from tests.core.worker.round_kit import F, key, mine_of, row, view_of

if TYPE_CHECKING:
    from shardway.core.leases import LeaseRow
    from shardway.core.worker import Action, Input

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
events = st.tuples(
    st.sampled_from(
        ["seen", "warmed", "unreadable", "taken", "refused", "delivers", "over", "gave up", "inherits", "drained"]
    ),
    st.sampled_from(KEYS),
    st.sampled_from(OWNERS),
)
rare = st.tuples(st.sampled_from(["leave", "unconfirmed", "lost"]), st.sampled_from(KEYS))
steps = st.tuples(st.sampled_from([0.01, 1.0, F]), st.one_of(looks, looks, events, events, rare))


class World:
    """What a worker's actions have led to. It tells the worker only what can follow from them."""

    def __init__(self) -> None:
        self.mine = mine_of()
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

    def tell(self, given: Input) -> None:
        before, polls = copy.deepcopy(self.mine), {one for one, side in self.mine.receiving.items() if side.polls}
        said = step(self.mine, given, self.now_s)
        assert said == step(before, given, self.now_s), "the same state and input have another answer"
        for action in said:
            self.check(action, polls)
        self.check_state()

    def check(self, action: Action, polled: set[str]) -> None:
        match action:
            case Take(one):
                assert one not in self.taking | self.begun | self.held
                assert not self.mine.leaving or one in polled, "a worker that leaves takes only what comes by itself"
                self.taking.add(one)
            case Stop(one):
                assert one in self.held - self.stopped
                self.stopped.add(one)
            case Resume(one):
                assert one in self.held & self.stopped - self.ending, "the write may be applied at any time"
                self.stopped.discard(one)
            case EndTenure(one):
                assert one in self.held & self.stopped - self.ending
                self.ending.add(one)
            case WarmUp(one) | ReadAhead(one):
                self.ahead.add(one)
            case Discard(one):
                self.ahead.discard(one)

    def check_state(self) -> None:
        mine = self.mine
        assert mine.held.keys() == self.held
        assert mine.claims == self.taking | self.begun
        assert mine.claims <= mine.receiving.keys()
        assert mine.stolen <= mine.claims
        shown = mine.shown(self.now_s)
        assert shown.given.keys() <= self.held
        assert shown.wanted | shown.warm <= mine.receiving.keys()
        assert self.ahead <= mine.receiving.keys() | mine.heirs, "what does not come is read ahead for ever"
        assert not mine.is_done or not (self.held or self.taking or self.begun)

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
        named = [one.key for one in listed if one.owner == "me" and one.key not in self.mine]
        self.tell(view_of(listed, others, named=named, fleet=fleet, unmoved_s=unmoved_s, scanned_s=self.now_s))

    def seen(self, one: str, owner: str | None) -> None:
        if one not in self.held:
            now = self.row(one, owner)
            self.tell(LeaseSeen(key=one, row=now, lease=view_of([now]).leases[one], known=None, sent_s=self.now_s))

    def warmed(self, one: str, _: str | None) -> None:
        if one in self.ahead:
            self.tell(Warmed(one))

    def unreadable(self, one: str, _: str | None) -> None:
        if one in self.ahead and one in self.mine.receiving:
            self.tell(NotReadable(one))

    def taken(self, one: str, _: str | None) -> None:
        if one in self.taking:
            self.taking.discard(one)
            self.begun.add(one)
            self.tell(Began(one, True))

    def refused(self, one: str, owner: str | None) -> None:
        if one in self.taking:
            self.tell(Began(one, False))
            self.end(one, owner)

    def delivers(self, one: str, _: str | None) -> None:
        if one in self.begun:
            self.begun.discard(one)
            self.ahead.discard(one)
            self.held.add(one)
            self.tell(Delivers(one))

    def over(self, one: str, owner: str | None) -> None:
        if one in self.begun | self.held:
            if one in self.begun:  # it has ended, or was stolen and is lost
                self.ahead.discard(one)
            elif one in self.ending:
                self.tell(OwnerLearnt(one, OwnerEvent.ENDED))
            self.end(one, owner)

    def end(self, one: str, owner: str | None) -> None:
        for known in (self.taking, self.begun, self.held, self.stopped, self.ending):
            known.discard(one)
        self.counter += 1
        self.tell(Over(one, row(KEYS.index(one), owner, self.counter)))

    def drained(self, one: str, _: str | None) -> None:
        if one in self.stopped:
            self.tell(OwnerLearnt(one, OwnerEvent.DRAINED))

    def gave_up(self, one: str, _: str | None) -> None:
        self.tell(GaveUp(one, F))

    def inherits(self, one: str, owner: str | None) -> None:
        if one not in self.mine:
            self.tell(Inherited(one, owner is None))

    def leave(self, _: str) -> None:
        self.tell(Leave())

    def unconfirmed(self, _: str) -> None:
        self.tell(Unconfirmed())

    def lost(self, one: str) -> None:
        if one in self.held:
            self.tell(OwnerLearnt(one, OwnerEvent.LOST))
            self.end(one, None)


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=40))
def test_a_worker_takes_once_stops_before_it_gives_and_leaves_nothing_behind(happens: list[Any]) -> None:
    world = World()
    for passed_s, (name, *more) in happens:
        world.now_s += passed_s
        getattr(world, name.replace(" ", "_"))(*more)
