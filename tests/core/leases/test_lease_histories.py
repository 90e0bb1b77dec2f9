"""Any history of inputs: a tenure never raises, never sends two writes, ends once, and is never waited for in vain."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shardway.core.leases import writes
from shardway.core.leases.tenure import commands, events
from shardway.core.leases.tenure.state import State
from tests.core.leases.leasing import FREE, TIMES, Driver, at

F = TIMES.failover_s
LAST = (commands.LeaseLost, commands.TenureEnded, commands.TakeFailed)


class History:
    """One tenure, and all that write to its row."""

    def __init__(self, alive: bool) -> None:
        self.alive = alive
        self.driver = Driver(alive_s=100.0 if alive else None)
        self.settled = 0
        self.checkpoint = self.driver.row.checkpoint

    def do(self, what: str, number: int) -> None:
        driver = self.driver
        match what:
            case "wait":
                driver.handle(
                    events.TimerFired(), after_s=(0.0, 0.25, 1.0, TIMES.renew_interval_s, F, 3 * F)[number % 6]
                )
            case "wake":
                self.wake()
            case "answer" if driver.waiting:
                driver.answer(after_s=number / 4)
            case "lose" if driver.waiting:
                driver.lose_answer(apply=number % 2 == 1, after_s=number / 4)
            case "settle":
                self.settled = max(self.settled, number)
                driver.handle(events.StoreCheckpoint(at(number), at_once=number % 2 == 1, commit=number % 3 == 0))
            case "prepare":
                wish = driver.tenure.wish.checkpoint or driver.tenure.row.checkpoint
                self.settled = max(self.settled, number)
                driver.handle(events.StorePending(max(at(number), wish), b"s"))
            case "measure":
                driver.handle(events.StoreMeasurements(float(number)))
            case "alive" if self.alive:
                driver.handle(events.WorkerRowConfirmed(driver.now_s - number / 10))
            case "end":
                driver.handle(events.EndTenure((None, "w2")[number % 2]))
            case "look" if driver.cell.row is not None:
                driver.handle(events.LeaseSeen(driver.row))
            case "others":
                self.others(number)
        self.check()

    def others(self, number: int) -> None:
        driver = self.driver
        row = driver.cell.row
        if row is None:
            return
        match number % 5:
            case 0 if row.owner is not None and row.checkpoint_owner is None:
                driver.cell.write(writes.ask_handoff(row, "kcl"))
            case 1:
                driver.cell.write(writes.metadata("a", children=frozenset({"b"})))
            case 2:
                driver.cell.write(writes.take(row, "w3"))
            case 3 if row.owner is not None:
                driver.cell.write(writes.give(row, row.actual_owner or "w3"))
            case 4 if number > 20:
                driver.cell.row = None

    def wake(self) -> None:
        """A runtime that waits until it is to be woken, and tells the time, gets on."""
        driver = self.driver
        if driver.waiting:
            return  # an answer comes, that is the table's word
        before = driver.tenure.wake_at_s
        assert (before is None) == (driver.tenure.state is State.OVER)
        if before is None:
            return
        driver.now_s = max(driver.now_s, before)
        told = driver.handle(events.TimerFired())
        after = driver.tenure.wake_at_s
        assert told or driver.waiting or after is None or after > driver.now_s, "woken for nothing, at once again"

    def check(self) -> None:
        driver = self.driver
        said = driver.said
        ends = [number for number, one in enumerate(said) if isinstance(one, LAST)]
        assert ends in ([], [len(said) - 1]), "something was said after the end"
        assert bool(ends) == (driver.tenure.state is State.OVER)
        assert driver.tenure.sent is None or driver.waiting or driver.tenure.sent.doubtful
        fences = [one for one in said if isinstance(one, commands.FenceFell | commands.FenceLifted)]
        assert fences == [(commands.FenceFell(), commands.FenceLifted())[number % 2] for number in range(len(fences))]
        assert sum(isinstance(one, commands.TenureBegan) for one in said) <= 1
        if any(
            isinstance(
                one,
                commands.FenceFell
                | commands.FenceLifted
                | commands.LeaseLost
                | commands.CheckpointStored
                | commands.HandoffAsked,
            )
            for one in said
        ):
            assert isinstance(said[0], commands.TenureBegan), "something was said of a tenure that never began"
        if driver.cell.row is not None:
            assert driver.row.checkpoint >= self.checkpoint, "a checkpoint went back"
            self.checkpoint = driver.row.checkpoint
        stored = [one.checkpoint for one in said if isinstance(one, commands.CheckpointStored)]
        assert stored == sorted(stored)
        assert all(one <= at(self.settled) for one in stored), "more was stored than was settled"
        if driver.tenure.may_deliver(driver.now_s):
            assert any(isinstance(one, commands.TenureBegan) for one in said)


NAMES = [
    "wait",
    "wake",
    "wake",
    "answer",
    "answer",
    "answer",
    "lose",
    "settle",
    "prepare",
    "measure",
    "alive",
    "end",
    "look",
    "others",
]
STEPS = st.tuples(st.sampled_from(NAMES), st.integers(0, 24))


@settings(max_examples=400)
@given(alive=st.booleans(), history=st.lists(STEPS, max_size=40))
def test_any_history(alive: bool, history: list[tuple[str, int]]) -> None:
    one = History(alive)
    for what, number in history:
        one.do(what, number)


@settings(max_examples=150)
@given(alive=st.booleans(), history=st.lists(STEPS, max_size=25))
def test_after_any_history_a_table_that_answers_brings_it_to_rest(alive: bool, history: list[tuple[str, int]]) -> None:
    """From then on it holds, or is over; what was settled is stored unless something pending keeps it."""
    one = History(alive)
    for what, number in history:
        one.do(what, number)
    driver = one.driver
    for _ in range(60):
        if alive and driver.tenure.state is not State.OVER:
            driver.handle(events.WorkerRowConfirmed(driver.now_s))
        if driver.waiting:
            driver.answer()
        elif driver.tenure.state is not State.OVER:
            one.wake()
        one.check()
    assert driver.tenure.state in (State.HELD, State.OVER)
    if driver.tenure.state is State.HELD:
        assert driver.row.actual_owner == "w1"
        assert driver.tenure.row.pending is not None or driver.tenure.wish.checkpoint is None


def test_the_histories_get_everywhere() -> None:
    """What the two tests above would show if they met nothing but ends."""
    told: set[type[commands.Command]] = set()

    @settings(max_examples=300, database=None, derandomize=True)
    @given(alive=st.booleans(), history=st.lists(STEPS, max_size=40))
    def look(alive: bool, history: list[tuple[str, int]]) -> None:
        one = History(alive)
        for what, number in history:
            one.do(what, number)
        told.update(type(command) for command in one.driver.said)

    look()
    missing: set[Any] = {
        commands.TenureBegan,
        commands.TenureEnded,
        commands.LeaseLost,
        commands.TakeFailed,
        commands.CheckpointStored,
    } - told
    assert missing == set()
    assert FREE.owner is None
