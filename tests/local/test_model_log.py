"""The log of a shard, beside a list."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shardway.local.model.shard_log import TRIMMED_RUNS_MAX, Segment, ShardLog


class Row(NamedTuple):
    text: bytes
    payload: int
    counter: int
    arrival_ms: int


def segment(rows: list[Row]) -> Segment:
    return Segment(
        rows[0].counter,
        b"".join(row.text for row in rows),
        array("I", [len(row.text) for row in rows]).tobytes(),
        array("I", [row.payload for row in rows]).tobytes(),
    )


class LogMachine(RuleBasedStateMachine):
    """Appends, trims and reads on a log and on a plain list of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.log = ShardLog()
        self.rows: list[Row] = []
        self.trimmed = 0
        self.now_ms = 1_000
        self.counter = 0

    @rule(payloads=st.lists(st.integers(0, 50), min_size=1, max_size=5), wait=st.integers(0, 20), gap=st.integers(1, 4))
    def append(self, payloads: list[int], wait: int, gap: int) -> None:
        self.now_ms += wait
        self.counter += gap
        new = []
        for payload in payloads:
            new.append(Row(b"<%d:%d>," % (self.counter, payload), payload, self.counter, self.now_ms))
            self.counter += 1
        self.log.append(segment(new), self.now_ms)
        self.rows += new

    @rule(back=st.integers(0, 100))
    def trim(self, back: int) -> None:
        horizon = self.now_ms - back
        self.log.trim(horizon)
        self.trimmed = max(self.trimmed, sum(1 for row in self.rows if row.arrival_ms < horizon))

    @precondition(lambda self: self.trimmed < len(self.rows))
    @rule(data=st.data(), records_max=st.integers(1, 12), payload_max=st.integers(1, 120))
    def read(self, data: st.DataObject, records_max: int, payload_max: int) -> None:
        start = data.draw(st.integers(self.trimmed, len(self.rows)))
        page = self.log.read(start, records_max, payload_max)
        expected: list[Row] = []
        for row in self.rows[start : start + records_max]:
            if expected and sum(r.payload for r in expected) + row.payload > payload_max:
                break
            expected.append(row)
        assert b"".join(page.texts) == b"".join(row.text for row in expected)
        assert page.records == len(expected)
        assert page.next_ordinal == start + len(expected)
        assert page.payload_bytes == sum(row.payload for row in expected)
        assert page.last_arrival_ms == (expected[-1].arrival_ms if expected else 0)

    @rule(counter=st.integers(0, 400))
    def find_counter(self, counter: int) -> None:
        later = [i for i, row in enumerate(self.rows) if i >= self.trimmed and row.counter >= counter]
        assert self.log.ordinal_at_counter(counter) == (later[0] if later else len(self.rows))

    @rule(moment=st.integers(900, 1_600))
    def find_time(self, moment: int) -> None:
        later = [i for i, row in enumerate(self.rows) if i >= self.trimmed and row.arrival_ms >= moment]
        assert self.log.ordinal_at_time(moment) == (later[0] if later else len(self.rows))

    @invariant()
    def knows_its_ends(self) -> None:
        assert self.log.end == len(self.rows)
        assert self.log.first == self.trimmed
        if self.trimmed < len(self.rows):
            for ordinal in {self.trimmed, len(self.rows) - 1}:
                row = self.rows[ordinal]
                assert self.log.stamp_of(ordinal) == (row.counter, row.arrival_ms)


LogMachine.TestCase.settings = settings(deadline=None)
TestLog = LogMachine.TestCase


@settings(max_examples=10, deadline=None)
@given(runs=st.integers(2 * TRIMMED_RUNS_MAX, 3 * TRIMMED_RUNS_MAX), kept=st.integers(0, 5))
def test_trimmed_runs_are_let_go_of(runs: int, kept: int) -> None:
    log = ShardLog()
    for i in range(runs):
        log.append(segment([Row(b"%d," % i, 1, i + 1, i)]), i)
    log.trim(runs - kept)
    assert (log.first, log.end) == (runs - kept, runs)
    assert b"".join(log.read(log.first, 10, 10).texts) == b"".join(b"%d," % i for i in range(runs - kept, runs))
    assert log.ordinal_at_counter(1) == log.first
    assert sum(map(len, log._texts)) == sum(len(b"%d," % i) for i in range(runs - kept, runs))
    assert len(log._texts) <= TRIMMED_RUNS_MAX + kept


def test_a_clock_that_goes_back_does_not_disturb_the_order() -> None:
    log = ShardLog()
    log.append(segment([Row(b"a,", 1, 1, 500)]), 500)
    log.append(segment([Row(b"b,", 1, 2, 400)]), 400)
    assert log.stamp_of(1) == (2, 500)
    assert log.ordinal_at_time(450) == 0
