"""When checkpoints are written, and the two-phase ones."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from penstock.core.leases.checkpoint import Checkpoint
from penstock.core.ledger.checkpoints import Cadence, Checkpoints, Every, Phase, Prompt, Riding
from penstock.errors import CheckpointError, OptionError, PenstockError
from tests.core.ledger.ledger_kit import at

BEGIN = Checkpoint.TRIM_HORIZON


def fresh(cadence: Cadence) -> Checkpoints:
    return Checkpoints(cadence, BEGIN, 100.0)


def write(checkpoints: Checkpoints, checkpoint: Checkpoint, records: int, now_s: float) -> None:
    checkpoints.writing(checkpoint, records)
    checkpoints.wrote(now_s)


def test_by_default_they_ride() -> None:
    checkpoints = fresh(Riding())
    assert checkpoints.riding(BEGIN) is None
    assert checkpoints.riding(at(5)) == at(5)
    assert not checkpoints.due(at(5), 1_000_000, 1e9)
    assert checkpoints.next_at_s(at(5)) == math.inf
    write(checkpoints, at(5), 3, 105.0)
    assert checkpoints.written == at(5)
    assert checkpoints.riding(at(5)) is None
    assert checkpoints.riding(Checkpoint.SHARD_END) == Checkpoint.SHARD_END


def test_promptly_means_one_write_at_a_time() -> None:
    checkpoints = fresh(Prompt())
    assert not checkpoints.due(BEGIN, 0, 100.0)
    assert checkpoints.due(at(5), 1, 100.0)
    checkpoints.writing(at(5), 1)
    assert not checkpoints.due(at(9), 5, 100.0)
    checkpoints.wrote(100.1)
    assert checkpoints.due(at(9), 5, 100.1)
    assert not checkpoints.due(at(5), 1, 100.1)


def test_every_so_many_records_or_seconds() -> None:
    checkpoints = fresh(Every(records=100, seconds=5.0))
    assert not checkpoints.due(at(5), 99, 104.9)
    assert checkpoints.next_at_s(at(5)) == 105.0
    assert checkpoints.due(at(5), 99, 105.0)
    assert checkpoints.due(at(5), 100, 100.0)
    assert not checkpoints.due(BEGIN, 0, 200.0)
    assert checkpoints.next_at_s(BEGIN) == math.inf
    write(checkpoints, at(5), 100, 110.0)
    assert not checkpoints.due(at(6), 199, 111.0)
    assert checkpoints.due(at(6), 200, 111.0)
    assert checkpoints.due(at(6), 101, 115.0)
    assert fresh(Every(records=1)).next_at_s(at(5)) == math.inf
    assert not fresh(Every(seconds=9)).due(at(5), 10**6, 108.9)


@pytest.mark.parametrize("given", [{}, {"records": 0}, {"seconds": 0.0}, {"records": 5, "seconds": -1}])
def test_a_cadence_of_nothing_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="Every"):
        Every(**given)


# --- two-phase ------------------------------------------------------------------------------------


def test_others_hold_still_until_it_is_committed() -> None:
    checkpoints = fresh(Prompt())
    write(checkpoints, at(5), 5, 101.0)
    pending = checkpoints.prepare(at(9), b"file 7", came_to=at(20))
    assert pending == (at(9), b"file 7")
    for _ in range(2):
        assert checkpoints.riding(at(15)) is None
        assert not checkpoints.due(at(15), 15, 200.0)
        assert checkpoints.next_at_s(at(15)) == math.inf
        checkpoints.prepared()
    assert checkpoints.commit(at(15)) == at(9)
    assert checkpoints.riding(at(15)) is None
    checkpoints.committed(102.0)
    assert (checkpoints.written, checkpoints.pending, checkpoints.phase) == (at(9), None, Phase.NONE)
    assert checkpoints.riding(at(15)) == at(15)


def test_a_commit_never_lies() -> None:
    checkpoints = fresh(Riding())
    checkpoints.prepare(at(9, 3), None, came_to=at(20))
    with pytest.raises(CheckpointError, match="no prepared checkpoint to commit"):
        checkpoints.commit(at(20))
    checkpoints.prepared()
    with pytest.raises(CheckpointError, match="records up to 9/3 were prepared, but only those up to 9/2 are settled"):
        checkpoints.commit(at(9, 2))
    assert checkpoints.commit(at(9, 3)) == at(9, 3)
    with pytest.raises(CheckpointError, match=r"is on its way \(committing\)"):
        checkpoints.prepare(at(10), None, came_to=at(20))


def test_one_that_goes_back_or_ahead_is_refused() -> None:
    checkpoints = fresh(Riding())
    write(checkpoints, at(5), 5, 101.0)
    with pytest.raises(CheckpointError, match="would go back: 5/0 is stored"):
        checkpoints.prepare(at(4), None, came_to=at(20))
    checkpoints.writing(at(8), 8)
    with pytest.raises(CheckpointError, match="would go back: 8/0 is stored"):
        checkpoints.prepare(at(7), None, came_to=at(20))
    with pytest.raises(CheckpointError, match="lies behind the last record, 20/0"):
        checkpoints.prepare(at(21), None, came_to=at(20))
    with pytest.raises(PenstockError, match="SHARD_END lies behind"):
        checkpoints.prepare(Checkpoint.SHARD_END, None, came_to=at(20))
    assert checkpoints.phase is Phase.NONE
    checkpoints.prepare(Checkpoint.SHARD_END, None, came_to=Checkpoint.SHARD_END)


def test_one_that_is_abandoned_lets_the_others_go_on() -> None:
    checkpoints = fresh(Riding())
    write(checkpoints, at(5), 5, 101.0)
    checkpoints.prepare(at(9), None, came_to=at(20))
    checkpoints.prepared()
    checkpoints.prepare(at(10), b"second", came_to=at(20))
    with pytest.raises(CheckpointError, match=r"is on its way \(preparing\)"):
        checkpoints.prepare(at(11), None, came_to=at(20))
    checkpoints.prepared()
    assert (checkpoints.pending, checkpoints.phase) == ((at(10), b"second"), Phase.PREPARED)
    checkpoints.abandon()
    assert checkpoints.riding(at(5)) == at(5), "the columns are to be cleared"
    write(checkpoints, at(5), 5, 102.0)
    assert checkpoints.riding(at(5)) is None


def test_answers_that_no_caller_waits_for_change_nothing() -> None:
    checkpoints = fresh(Riding())
    for answer in (checkpoints.prepared, checkpoints.abandon):
        answer()
    checkpoints.committed(101.0)
    checkpoints.wrote(101.0)
    assert (checkpoints.phase, checkpoints.written, checkpoints.riding(BEGIN)) == (Phase.NONE, BEGIN, None)


class Writes(RuleBasedStateMachine):
    """What is stored never goes back, never lies, and is never touched while something is pending."""

    def __init__(self) -> None:
        super().__init__()
        self.checkpoints = fresh(Prompt())
        self.now_s = 100.0
        self.came, self.safe = 0, 0
        self.stored = BEGIN
        self.pending: Checkpoint | None = None
        self.on_their_way: list[tuple[str, Checkpoint]] = []
        """Writes, in the order of their answers."""

    def at(self, number: int) -> Checkpoint:
        return at(number) if number else BEGIN

    @rule(came=st.integers(0, 5), settled=st.integers(0, 5), seconds=st.sampled_from([0.1, 5.0]))
    def work(self, came: int, settled: int, seconds: float) -> None:
        self.came += came
        self.safe = min(self.came, self.safe + settled)
        self.now_s += seconds

    @precondition(lambda self: not self.on_their_way)
    @rule()
    def ride(self) -> None:
        checkpoint = self.checkpoints.riding(self.at(self.safe))
        if checkpoint is not None:
            self.checkpoints.writing(checkpoint, self.safe)
            self.on_their_way.append(("write", checkpoint))

    @rule(back=st.integers(0, 6))
    def prepare(self, back: int) -> None:
        checkpoint = self.at(max(0, self.came - back))
        try:
            self.checkpoints.prepare(checkpoint, None, came_to=self.at(self.came))
        except CheckpointError:
            busy = self.checkpoints.phase in (Phase.PREPARING, Phase.COMMITTING)
            ahead = any(sent > checkpoint for _, sent in self.on_their_way)
            assert busy or ahead or checkpoint < self.stored
            return
        self.on_their_way.append(("prepare", checkpoint))

    @precondition(lambda self: not self.on_their_way)
    @rule()
    def commit(self) -> None:
        try:
            checkpoint = self.checkpoints.commit(self.at(self.safe))
        except CheckpointError:
            assert self.pending is None or self.pending > self.at(self.safe)
            return
        assert checkpoint == self.pending
        self.on_their_way.append(("commit", checkpoint))

    @precondition(lambda self: not self.on_their_way)
    @rule()
    def abandon(self) -> None:
        self.checkpoints.abandon()
        self.pending = None

    @precondition(lambda self: self.on_their_way)
    @rule()
    def answer(self) -> None:
        kind, checkpoint = self.on_their_way.pop(0)
        if kind == "prepare":
            self.pending = checkpoint
            self.checkpoints.prepared()
            return
        assert self.stored <= checkpoint <= self.at(self.safe)
        assert self.pending is None or kind == "commit"
        self.stored, self.pending = checkpoint, None
        self.checkpoints.wrote(self.now_s) if kind == "write" else self.checkpoints.committed(self.now_s)

    @invariant()
    def it_knows_what_is_stored(self) -> None:
        assert self.checkpoints.written == self.stored
        if self.pending is not None:
            assert self.checkpoints.riding(self.at(self.safe)) is None
        if self.checkpoints.due(self.at(self.safe), self.safe, self.now_s):
            assert self.checkpoints.next_at_s(self.at(self.safe)) <= self.now_s


def test_what_is_stored_never_goes_back_and_never_lies() -> None:
    run_state_machine_as_test(
        Writes,
        settings=settings(
            max_examples=150, stateful_step_count=30, derandomize=True, database=None, deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
