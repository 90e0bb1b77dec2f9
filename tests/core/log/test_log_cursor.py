"""The cursor over a shard's log: its table, and that a log is read whole and once, whatever becomes of iterators."""

from __future__ import annotations

import ast
import inspect
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardway.core.log import silence, transitions
from shardway.core.log.cursor import LogCursor, Policy, Step
from shardway.core.log.silence import BARREN_PAGES_MAX
from shardway.core.log.transitions import TABLE, UNMET, NextStep, Sign, State, Transition
from shardway.model import IteratorAt
from tests.momentary import now

FEED = Policy()
RANGE = Policy(by_time=True, returns=True, expects=True, doubts_end=False)
POLICIES = [FEED, RANGE]

# --- the table --------------------------------------------------------------------------------------

EXPECTED = """
              | fresh         | seeking            | overtaken          | passing            | reading       | at the tip    | ended
next records  | reading       |                    |                    |                    | reading       | reading       |
older records |               | seeking            | passing            | passing            |               |               |
the record    |               | reading            | reading            | reading            |               |               |
later records |               | reading, loss      | reading, loss      | reading, loss      |               |               |
crossing      | reading       | seeking            | overtaken          | passing            | reading       | reading       |
standing      | fresh         | seeking            | overtaken          | passing            | reading       | at the tip    |
nowhere       | overtaken ask | overtaken ask      | overtaken ask      | overtaken ask      | overtaken ask | overtaken ask |
the tip       | at the tip    | seeking            | at the tip, loss   | passing            | at the tip    | at the tip    |
the end       | ended stop    | ended stop, loss   | ended stop, loss   | ended stop, loss   | ended stop    | ended stop    |
passed        | overtaken ask | overtaken ask      | overtaken ask      | overtaken ask      | overtaken ask | overtaken ask |
no iterator   | fresh ask     | seeking ask        | overtaken ask      | passing ask        | reading ask   | at the tip ask | ended stop
refused       | overtaken ask | overtaken ask      | overtaken ask      | overtaken ask      | overtaken ask | overtaken ask |
gone          | ended stop, loss | ended stop, loss | ended stop, loss  | ended stop, loss   | ended stop, loss | ended stop, loss | ended stop
"""  # noqa: E501 - a table


def entries() -> dict[tuple[State, Sign], Transition | None]:
    head, *rows = [[cell.strip() for cell in line.split("|")] for line in EXPECTED.strip("\n").splitlines()]
    found: dict[tuple[State, Sign], Transition | None] = {}
    for sign, *cells in rows:
        for state, cell in zip(head[1:], cells, strict=True):
            what, _, loss = cell.partition(", ")
            name, does = (
                (what.rsplit(" ", 1) if what.endswith((" ask", " stop")) else (what, "read")) if what else ("", "")
            )
            entry = Transition(State(name), NextStep(does), is_loss=bool(loss)) if name else None
            found[State(state), Sign(sign)] = entry
    return found


@pytest.mark.parametrize(("state", "sign"), [(state, sign) for state in State for sign in Sign])
def test_each_pair_of_state_and_sign(state: State, sign: Sign) -> None:
    assert TABLE[state].get(sign) == entries()[state, sign]


def test_each_state_says_what_it_is() -> None:
    classes = [*ast.parse(inspect.getsource(transitions)).body, *ast.parse(inspect.getsource(silence)).body]
    for name in ("State", "Sign", "NextStep", "Meaning"):
        body = next(one for one in classes if isinstance(one, ast.ClassDef) and one.name == name).body[1:]
        for member, text in zip(body[::2], body[1::2], strict=True):
            assert isinstance(member, ast.Assign)
            assert isinstance(text, ast.Expr), ast.unparse(member)


def test_a_sign_that_cannot_come_is_an_error_that_names_both() -> None:
    cursor = LogCursor(FEED)
    cursor.page((), behind_ms=None, is_last=True)
    with pytest.raises(RuntimeError, match="that is ended cannot be shown the tip"):
        cursor.page((), behind_ms=0, is_last=False)


# --- a model of a log -------------------------------------------------------------------------------

RETENTION_S = 100_000.0


class Raw(NamedTuple):
    sequence_number: str
    approximate_arrival_timestamp: float
    data: bytes = b""
    partition_key: str | None = "k"


class Answer(NamedTuple):
    records: list[Raw]
    behind_ms: int | None
    iterator: int | None


NOWHERE = -1


class Log:
    """Records by number, of which the retention takes the oldest; silence lies between those that are far apart."""

    def __init__(self, gaps_s: list[int], *, closed: bool) -> None:
        self.now_s = 1_000_000.0
        at_s, self.raws = self.now_s - RETENTION_S / 2, list[Raw]()
        for number, gap_s in enumerate(gaps_s):
            at_s = min(at_s + gap_s, self.now_s - 1)
            self.raws.append(Raw(str(1_000 + 10 * number), at_s))
        self.closed = closed

    @property
    def horizon_s(self) -> float:
        return self.now_s - RETENTION_S

    @property
    def trimmed(self) -> int:
        return sum(raw.approximate_arrival_timestamp < self.horizon_s for raw in self.raws)

    def iterator(self, at: IteratorAt) -> int:
        if at.sequence_number is not None:
            place = (at.sequence_number - 1_000) // 10
            return NOWHERE if place < self.trimmed else place + (at.type == "AFTER_SEQUENCE_NUMBER")
        since_s = self.horizon_s if at.timestamp_s is None else at.timestamp_s
        return sum(raw.approximate_arrival_timestamp < since_s for raw in self.raws)

    def read(self, iterator: int, limit: int, *, hesitates: bool) -> Answer:
        if iterator == NOWHERE:
            return Answer([], int(RETENTION_S * 1000), NOWHERE)
        place = max(iterator, self.trimmed)
        some = [] if hesitates else self.raws[place : place + limit]
        following = place + len(some)
        if following == len(self.raws):
            return Answer(some, 0, None if self.closed else following)
        behind_s = self.now_s - self.raws[following].approximate_arrival_timestamp
        return Answer(some, int(behind_s * 1000), following)


class Reader:
    """Reads a log as the policies do: what was read is left out when it comes again."""

    def __init__(self, log: Log, cursor: LogCursor, *, knows_horizon: bool) -> None:
        self.log, self.cursor, self.knows_horizon = log, cursor, knows_horizon
        self.iterator: int | None = None
        self.got: list[int] = []
        self.losses: list[int | None] = []
        self.ended = False
        self.tips = 0

    def turn(self, limit: int, *, hesitates: bool = False) -> None:
        log, cursor = self.log, self.cursor
        if self.iterator is None:
            self.iterator = log.iterator(cursor.ask())
        answer = log.read(self.iterator, limit, hesitates=hesitates)
        done = self.got[-1] if self.got else -1
        step = cursor.page(
            answer.records,
            behind_ms=answer.behind_ms,
            is_last=answer.iterator is None,
            asked_s=log.now_s,
            horizon_s=log.horizon_s if self.knows_horizon else None,
        )
        self.heard(step)
        new = [int(raw.sequence_number) for raw in answer.records[step.start :]]
        self.got += new[1:] if new[:1] == [done] else new
        self.iterator = answer.iterator if step.does is NextStep.READ else None
        self.ended = step.does is NextStep.STOP
        self.tips = self.tips + 1 if step.sign is Sign.TIP and cursor.is_met else 0

    def heard(self, step: Step) -> None:
        if step.is_loss:
            self.losses.append(self.cursor.missing)

    def read_out(self) -> None:
        for _ in range(500):
            if self.ended or self.tips:
                return
            self.turn(7)
        raise AssertionError(f"neither the tip nor the end: {self.cursor.state}")


turns = st.lists(
    st.tuples(
        st.integers(0, 4),  # records a page
        st.booleans(),  # the service hesitates
        st.booleans(),  # the iterator is lost
        st.sampled_from([0, 0, 0, 1_000, 60_000]),  # seconds that pass while there is none
    ),
    max_size=25,
)


@given(
    gaps_s=st.lists(st.sampled_from([0, 1, 500, 9_000]), min_size=1, max_size=20),
    closed=st.booleans(),
    first=st.integers(0, 19),
    policy=st.sampled_from(POLICIES),
    doubted=st.booleans(),
    script=turns,
)
@example([0, 0, 0], False, 1, FEED, False, [(1, False, True, 60_000), (1, False, True, 60_000)])
def test_nothing_is_left_out_nothing_comes_twice_and_what_is_trimmed_is_told(
    gaps_s: list[int],
    closed: bool,
    first: int,
    policy: Policy,
    doubted: bool,
    script: list[tuple[int, bool, bool, int]],
) -> None:
    log = Log(gaps_s, closed=closed)
    raw = log.raws[first % len(log.raws)]
    cursor = LogCursor(
        policy,
        anchor=int(raw.sequence_number),
        anchor_s=raw.approximate_arrival_timestamp,
        is_doubted=doubted,
    )
    reader = Reader(log, cursor, knows_horizon=policy is FEED)
    for limit, hesitates, lost, passes_s in script:
        if reader.ended:
            break
        reader.turn(limit, hesitates=hesitates)
        if lost and not reader.ended:
            reader.iterator = None
            log.now_s += passes_s
    reader.tips = 0
    reader.read_out()
    wanted = [int(one.sequence_number) for one in log.raws if int(one.sequence_number) >= int(raw.sequence_number)]
    left_out = [number for number in wanted if number not in reader.got]
    assert reader.got == sorted(set(reader.got)), "in order, and once"
    assert set(reader.got) <= set(wanted)
    there = {int(one.sequence_number) for one in log.raws[log.trimmed :]}
    assert not there.intersection(left_out), "what is there was read"
    if left_out:
        assert reader.losses, "what is gone was told"
    if not log.trimmed:
        assert not reader.losses


@given(
    gaps_s=st.lists(st.sampled_from([0, 1, 500]), min_size=1, max_size=20),
    begin=st.sampled_from([IteratorAt.trim_horizon(), IteratorAt.at_timestamp(0.0)]),
    lost_every=st.integers(1, 4),
    closed=st.booleans(),
)
def test_a_log_that_is_read_from_its_beginning(
    gaps_s: list[int], begin: IteratorAt, lost_every: int, closed: bool
) -> None:
    log = Log(gaps_s, closed=closed)
    reader = Reader(log, LogCursor(FEED, begin=begin), knows_horizon=True)
    for number in range(100):
        if reader.ended or reader.tips:
            break
        if number % lost_every == 0:
            reader.iterator = None
        reader.turn(1)
    assert reader.got == [int(raw.sequence_number) for raw in log.raws]
    assert not reader.losses
    assert cursor_state(reader) is (State.ENDED if closed else State.TIP)


def cursor_state(reader: Reader) -> State:
    return reader.cursor.state


# --- single rules -----------------------------------------------------------------------------------


def raws(*numbers: int) -> list[Raw]:
    return [Raw(str(number), float(number)) for number in numbers]


def empty(cursor: LogCursor, behind_ms: int | None = 86_400_000, *, tip_counts: bool = True) -> Step:
    return cursor.page((), behind_ms=behind_ms, is_last=False, tip_counts=tip_counts)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_silence_of_any_length_is_crossed_with_the_same_iterator(policy: Policy) -> None:
    cursor = LogCursor(policy, anchor=5)
    cursor.ask()
    cursor.page(raws(5), behind_ms=30 * 86_400_000, is_last=False)
    for hours in range(30 * 24 - 1, 0, -1):
        step = cursor.page((), behind_ms=hours * 3_600_000, is_last=False, asked_s=1e9)
        assert (step.sign, step.does, cursor.state) == (Sign.CROSSING, NextStep.READ, State.READING)
        assert cursor.silence.reached_s == 1e9 - hours * 3_600
    assert cursor.page(raws(9), behind_ms=0, is_last=False).does is NextStep.READ


@pytest.mark.parametrize("policy", POLICIES)
def test_a_record_that_does_not_come_is_looked_for_anew_after_barren_pages(policy: Policy) -> None:
    cursor = LogCursor(policy, anchor=5, anchor_s=5.7)
    assert cursor.ask() == IteratorAt.at_sequence(5)
    assert [empty(cursor).does for _ in range(BARREN_PAGES_MAX)] == [NextStep.READ] * (BARREN_PAGES_MAX - 1) + [
        NextStep.ASK
    ]
    assert cursor.state is State.OVERTAKEN
    assert cursor.ask() == (IteratorAt.at_timestamp(5.0) if policy.by_time else IteratorAt.trim_horizon())
    assert [empty(cursor).does for _ in range(3 * BARREN_PAGES_MAX)] == [NextStep.READ] * 3 * BARREN_PAGES_MAX
    step = cursor.page(raws(7, 8), behind_ms=5, is_last=False)
    assert (step.sign, step.is_loss, cursor.missing, step.start) == (Sign.BEYOND, True, 5, 0)


def test_what_is_older_is_passed_over_and_no_loss() -> None:
    cursor = LogCursor(FEED, anchor=5, is_doubted=True)
    assert cursor.ask() == IteratorAt.trim_horizon()
    step = cursor.page(raws(1, 2), behind_ms=5, is_last=False)
    assert (step.start, cursor.state, cursor.missing) == (2, State.PASSING, None)
    assert cursor.ask() == IteratorAt.after_sequence(2)
    step = cursor.page(raws(3, 5, 6), behind_ms=5, is_last=False)
    assert (step.sign, step.start, step.is_loss, cursor.state) == (Sign.MET, 1, False, State.READING)


def test_what_is_looked_for_again_by_its_time_may_be_gone_with_all_that_was_passed_over() -> None:
    cursor = LogCursor(RANGE, anchor=5, anchor_s=5.7, is_doubted=True)
    cursor.ask()
    cursor.page(raws(1, 2), behind_ms=5, is_last=False)
    assert cursor.ask() == IteratorAt.at_timestamp(5.0)
    step = empty(cursor, 0)
    assert (step.sign, step.is_loss, cursor.missing) == (Sign.TIP, True, 5)


@pytest.mark.parametrize("policy", POLICIES)
def test_pages_of_another_iterator_at_the_same_place(policy: Policy) -> None:
    """A range counts each iterator's pages apart; a consumer's iterators may expire with each page."""
    cursor = LogCursor(policy, anchor=5)
    found = []
    for _ in range(BARREN_PAGES_MAX):
        cursor.ask()
        found.append(empty(cursor).does)
    assert found[-1] is (NextStep.READ if policy.returns else NextStep.ASK)


def test_a_bound_just_before_a_record_is_met_by_that_record() -> None:
    cursor = LogCursor(FEED, anchor=5)
    step = cursor.page(raws(6, 7), behind_ms=5, is_last=False)
    assert (step.sign, step.is_loss, step.start) == (Sign.MET, False, 0)


@pytest.mark.parametrize(
    ("policy", "place"), [(FEED, IteratorAt.after_sequence(7)), (RANGE, IteratorAt.at_sequence(7))]
)
def test_another_iterator_while_the_log_is_read(policy: Policy, place: IteratorAt) -> None:
    cursor = LogCursor(policy, anchor=5)
    cursor.page(raws(5, 7), behind_ms=5, is_last=False)
    assert cursor.ask() == place
    assert cursor.state is (State.SEEKING if policy.returns else State.READING)
    assert cursor.known == 7


def test_a_number_is_refused_once_and_its_place_is_looked_for() -> None:
    cursor = LogCursor(FEED, anchor=5)
    cursor.ask()
    assert now(cursor.by_number)
    assert cursor.refused().does is NextStep.ASK
    assert not cursor.by_number
    assert cursor.ask() == IteratorAt.trim_horizon()


def test_an_empty_page_from_before_the_retention_ends_its_iterator() -> None:
    cursor = LogCursor(FEED)
    cursor.page(raws(5), behind_ms=5, is_last=False)
    cursor.ask()
    for behind_ms, sign in ((98_500, Sign.STANDING), (95_000, Sign.CROSSING), (100_000, Sign.PASSED)):
        step = cursor.page((), behind_ms=behind_ms, is_last=False, asked_s=400.0, horizon_s=299.0)
        assert step.sign is sign
    assert (cursor.state, cursor.missing) == (State.OVERTAKEN, 5)


def test_the_tip_where_nothing_is_left_is_told_when_it_counts() -> None:
    cursor = LogCursor(RANGE, anchor=5, is_doubted=True)
    cursor.ask()
    assert not empty(cursor, 0, tip_counts=False).is_loss
    step = empty(cursor, 0)
    assert (step.is_loss, cursor.missing, cursor.state) == (True, 5, State.TIP)
    assert cursor.page(raws(3), behind_ms=0, is_last=False).sign is Sign.NEXT, "whatever comes now is new"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_shard_that_ends_where_a_record_is_sought(policy: Policy) -> None:
    cursor = LogCursor(policy, anchor=5)
    cursor.ask()
    step = cursor.page((), behind_ms=None, is_last=True)
    if policy.doubts_end:
        assert (step.does, cursor.state) == (NextStep.ASK, State.OVERTAKEN)
        step = cursor.page((), behind_ms=None, is_last=True)
    assert (step.does, step.is_loss, cursor.missing, cursor.state) == (NextStep.STOP, True, 5, State.ENDED)


def test_the_last_page_may_have_records() -> None:
    cursor = LogCursor(FEED, anchor=5)
    step = cursor.page(raws(5, 6), behind_ms=0, is_last=True)
    assert (step.sign, step.does, step.is_loss, cursor.state) == (Sign.MET, NextStep.STOP, False, State.ENDED)
    cursor = LogCursor(FEED, anchor=5, is_doubted=True)
    step = cursor.page(raws(3, 4), behind_ms=0, is_last=True)
    assert (step.sign, step.does, step.is_loss, cursor.missing) == (Sign.OLDER, NextStep.STOP, True, 5)


def test_a_subscription_goes_on_behind_where_it_was_and_not_while_a_record_is_sought() -> None:
    cursor = LogCursor(FEED, anchor=5)
    cursor.continues_at(90)
    assert cursor.ask() == IteratorAt.at_sequence(5)
    cursor.page(raws(5), behind_ms=0, is_last=False)
    assert cursor.ask() == IteratorAt.after_sequence(90)
    fresh = LogCursor(FEED)
    fresh.continues_at(90)
    assert fresh.ask() == IteratorAt.after_sequence(90)
    fresh.passed()
    assert (fresh.ask(), fresh.missing) == (IteratorAt.trim_horizon(), 90)
    assert fresh.page(raws(95), behind_ms=0, is_last=False).is_loss


def test_a_shard_that_is_gone_ends_and_what_was_read_last_is_what_is_missing() -> None:
    cursor = LogCursor(FEED, anchor=5)
    cursor.page(raws(5, 8), behind_ms=0, is_last=False)
    step = cursor.gone()
    assert (step.does, step.is_loss, cursor.missing, cursor.state) == (NextStep.STOP, True, 8, State.ENDED)
    assert not LogCursor(FEED).gone().is_loss, "the oldest there is: none"


def test_only_places_where_a_record_is_sought_are_unmet() -> None:
    assert {state for state, row in TABLE.items() if Sign.MET in row} == UNMET
