"""Values and a small driver for tests of leases."""

from __future__ import annotations

from dataclasses import replace

from shardway.core.leases import Checkpoint, Done, LeaseRow, Outcome, Refused, Unknown, Write, writes
from shardway.core.leases.tenure import commands, events
from shardway.core.leases.tenure.machine import claim, step
from shardway.core.leases.tenure.state import Tenure
from shardway.core.leases.tenure.times import LeaseTimes
from shardway.model import Position

TIMES = LeaseTimes()
FREE = LeaseRow(key="a", counter=3)


def at(sequence_number: int, sub: int = 0) -> Checkpoint:
    return Checkpoint.at(Position(sequence_number, sub))


class Cell:
    """A table of one row, as the writes see it."""

    def __init__(self, row: LeaseRow | None = FREE) -> None:
        self.row = row

    def write(self, write: Write) -> Outcome:
        from shardway.core.leases import lease_row

        if self.row is None and (born := writes.creates(write)) is not None:
            self.row = born
            return Done(born)
        if self.row is None or not write.allowed_on(self.row.attributes()):
            return Refused(self.row)
        self.row = lease_row(write.onto(self.row.attributes()))
        return Done(self.row)


class Driver:
    """One tenure, its table, and a clock: tells inputs, does what is sent when it is told to."""

    def __init__(self, row: LeaseRow = FREE, worker: str = "w1", *, alive_s: float | None = None) -> None:
        self.cell = Cell(row)
        self.now_s = 100.0
        self.said: list[commands.Command] = []
        self.waiting: list[Write] = []
        self.tenure: Tenure
        self._take(claim(row, worker, TIMES, self.now_s, alive_s))

    def handle(self, given: events.Event, *, after_s: float = 0.0) -> list[commands.Command]:
        """What the machine says to an input; the time goes on before it."""
        self.now_s += after_s
        return self._take(step(self.tenure, given, self.now_s))

    def answer(self, *, after_s: float = 0.0) -> list[commands.Command]:
        """The table does the write that waits, and answers."""
        outcome = self.cell.write(self.waiting.pop(0))
        return self.handle(events.WriteAnswered(outcome), after_s=after_s)

    def lose_answer(self, *, apply: bool, after_s: float = 0.0) -> list[commands.Command]:
        """The write that waits is applied or not; the answer is an error."""
        write = self.waiting.pop(0)
        if apply:
            self.cell.write(write)
        return self.handle(events.WriteAnswered(Unknown("UnavailableError")), after_s=after_s)

    def others(self, **changes: object) -> None:
        """Another worker writes."""
        assert self.cell.row is not None
        self.cell.row = replace(self.cell.row, **changes)  # type: ignore[arg-type]

    @property
    def row(self) -> LeaseRow:
        assert self.cell.row is not None
        return self.cell.row

    def _take(self, result: tuple[Tenure, tuple[commands.Command, ...]]) -> list[commands.Command]:
        self.tenure, follows = result
        self.waiting += [command.write for command in follows if isinstance(command, commands.SendWrite)]
        assert len(self.waiting) <= 1, "two writes are under way"
        told: list[commands.Command] = [command for command in follows if not isinstance(command, commands.SendWrite)]
        self.said += told
        return told


def held(worker: str = "w1", row: LeaseRow = FREE, *, alive_s: float | None = None) -> Driver:
    """A tenure that has begun, at its send time."""
    driver = Driver(row, worker, alive_s=alive_s)
    driver.answer()
    driver.said.clear()
    return driver
