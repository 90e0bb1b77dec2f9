"""The search finds no world that must not be, and finds one for each rule that is taken away."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.assignment import views
from shardway.core.leases import Kind, LeaseRow, conditional_write, writes
from shardway.core.leases.row import CHECKPOINT, PROCESS
from shardway.core.leases.tenure import commands, events, machine
from shardway.core.leases.tenure.state import State, Tenure
from tests.core.leases.exploring import BrokenRuleError
from tests.core.leases.lease_search import FORMER, Bounds, Search
from tests.core.leases.member_search import MemberSearch

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.search

THREE = Bounds(workers=3, counter=2, position=0, faults=1, ends=0)
TWO = Bounds(workers=2, counter=3, position=1, faults=1, ends=1)
TWINS = Bounds(workers=2, counter=3, position=1, faults=1, ends=1, twins=True)
DELETED = Bounds(workers=2, counter=3, position=0, faults=1, ends=0, deletes=1)
MADE_ANEW = Bounds(workers=2, counter=2, position=1, faults=0, ends=1, deletes=1, births=1)
SETTLED = Bounds(workers=2, counter=3, position=1, faults=0, ends=1, deletes=1)
SERVED = Bounds(workers=2, counter=3, position=0, faults=1, ends=1, serves=1)
ASKED = Bounds(workers=2, counter=3, position=0, faults=0, ends=1, asks=1)


@pytest.mark.parametrize(
    "bounds",
    [
        THREE,
        TWO,
        ASKED,
        Bounds(workers=3, counter=3, position=0, faults=0, ends=0),
        TWINS,
        DELETED,
        MADE_ANEW,
        SERVED,
        pytest.param(replace(SERVED, position=1), marks=pytest.mark.slow),
        pytest.param(SETTLED, marks=pytest.mark.slow),
        pytest.param(replace(DELETED, position=1), marks=pytest.mark.slow),
        pytest.param(replace(DELETED, twins=True), marks=pytest.mark.slow),
        pytest.param(replace(SETTLED, births=1), marks=pytest.mark.slow),
        pytest.param(replace(DELETED, births=1), marks=pytest.mark.slow),
        pytest.param(Bounds(workers=3, counter=2, position=0, faults=1, ends=0, twins=True), marks=pytest.mark.slow),
        pytest.param(Bounds(workers=2, counter=3, position=1, faults=2, ends=1), marks=pytest.mark.slow),
        pytest.param(Bounds(workers=2, counter=3, position=0, faults=1, ends=1, asks=1), marks=pytest.mark.slow),
    ],
    ids=[
        "3-workers",
        "2-workers",
        "2-workers-and-a-leader",
        "3-workers-3-tenures",
        "2-processes-of-one-name",
        "2-workers-and-a-hand",
        "2-workers-and-a-row-that-is-made-anew",
        "2-workers-and-an-end",
        "2-workers-that-settle-and-an-end",
        "2-workers-that-settle-and-a-hand",
        "2-workers-that-settle-a-fault-and-a-hand",
        "2-processes-of-one-name-and-a-hand",
        "2-workers-that-settle-and-a-row-that-is-made-anew",
        "2-workers-a-fault-and-a-row-that-is-made-anew",
        "3-processes-of-one-name",
        "2-workers-2-faults",
        "2-workers-a-leader-and-a-fault",
    ],
)
def test_no_two_tenures_no_checkpoint_back_none_past_the_fence_no_fence_lifted_by_an_older_write(
    bounds: Bounds, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one row, whatever crashes, sleeps, or gets no answer; the other rules are in ``FAULTS``."""
    found = Search(bounds).run()
    with capsys.disabled():
        print(f"\n  {bounds}: {found.states:,} states, {found.moves:,} moves")
    assert found.states > 100_000, "the search does not get anywhere"
    began = set(range(1, bounds.counter + 1))
    if bounds.births:
        began |= {FORMER + token for token in began}
    assert found.tokens == began, "not every tenure began that could"
    expected = {"TenureBegan", "FenceFell", "FenceLifted", "LeaseLost", "TakeFailed", "SendWrite"}
    expected |= {"TenureEnded"} if bounds.ends else set()
    expected |= {"CheckpointStored"} if bounds.position else set()
    expected |= {"HandoffAsked"} if bounds.asks else set()
    assert found.told == expected


# --- each rule, taken away ------------------------------------------------------------------------

confirmed = machine._confirm


def no_self_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tenure, "fence_s", property(lambda tenure: float("inf")))


def conditions_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writes, "_as_seen", lambda row: ())


def renewals_ask_for_nothing(patch: pytest.MonkeyPatch) -> None:
    real = writes.renew
    patch.setattr(writes, "renew", lambda row, *measured: replace(real(row, *measured), expects=()))


def fence_counts_from_the_answer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(machine, "_confirm", lambda t, sent, row, since, lifts, now: confirmed(t, sent, row, now, lifts, now))


def a_repeated_write_counts_from_the_last_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        machine, "_confirm", lambda t, sent, row, since, lifts, now: confirmed(t, sent, row, sent.last_s, lifts, now)
    )


def an_older_write_lifts_the_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(machine, "_without_lifting", lambda sent: sent)


def a_take_that_is_found_made_is_trusted(patch: pytest.MonkeyPatch) -> None:
    def trusting(t: Any, sent: Any, row: Any, since: float, lifts: bool, now: float) -> Any:
        return confirmed(t, sent, row, since, lifts or sent.write.kind is Kind.TAKE, now)

    patch.setattr(machine, "_confirm", trusting)


def no_worker_waits_for_the_failover_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(views, "is_free", lambda lease, workers, failover_s: True)


def a_quarter_of_the_failover_time_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    real = views.is_free
    patch.setattr(views, "is_free", lambda lease, workers, failover_s: real(lease, workers, failover_s / 4))


def the_same_counter_is_ones_own(patch: pytest.MonkeyPatch) -> None:
    def careless(write: Any, row: Any) -> bool:
        return row is not None and all(row.attributes().get(name) == value for name, value in write.changes)

    patch.setattr(conditional_write, "applied", careless)


def a_write_that_was_answered_with_an_error_was_not_made(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(conditional_write, "applied", lambda write, row: False)


def a_lease_that_was_received_counts_from_now(patch: pytest.MonkeyPatch) -> None:
    real = machine.receive
    patch.setattr(
        machine, "receive", lambda row, me, times, now_s, seen_s, *more: real(row, me, times, now_s, now_s, *more)
    )


def a_giver_goes_on_delivering(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tenure, "may_deliver", lambda tenure, now_s: tenure.token > 0 and now_s < tenure.fence_s)


def the_token_does_not_grow(patch: pytest.MonkeyPatch) -> None:
    those_of_token_1 = {"TenureBegan": lambda token, row: commands.TenureBegan(1, row)}
    patch.setattr(machine, "commands", SimpleNamespace(**vars(commands) | those_of_token_1))


def the_second_checkpoint_is_an_older_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writes, "_checkpoint_changes", lambda row, to: {CHECKPOINT: str(to.position.sequence_number % 2)})


def a_handoff_that_is_asked_for_is_a_loss(patch: pytest.MonkeyPatch) -> None:
    real = machine._refuse

    def careless(tenure: Any, sent: Any, row: Any, now_s: float) -> Any:
        return real(tenure, sent, replace(row, counter=row.counter + 1) if row.handoff_to else row, now_s)

    patch.setattr(machine, "_refuse", careless)


DELIVERS = "a worker that does not own the lease delivers"
FAULTS: list[tuple[Callable[[pytest.MonkeyPatch], None], str]] = [
    (no_self_fence, "a worker past its self-fence delivers"),
    (conditions_ignored, DELIVERS),
    (renewals_ask_for_nothing, "the table honours two tenures"),
    (fence_counts_from_the_answer, DELIVERS),
    (a_repeated_write_counts_from_the_last_time, DELIVERS),
    (an_older_write_lifts_the_fence, "lifted by a write that is older"),
    (a_take_that_is_found_made_is_trusted, DELIVERS),
    (no_worker_waits_for_the_failover_time, DELIVERS),
    (a_quarter_of_the_failover_time_is_waited_for, DELIVERS),
    (the_same_counter_is_ones_own, DELIVERS),
    (a_write_that_was_answered_with_an_error_was_not_made, "a healthy owner lost its lease"),
    (a_lease_that_was_received_counts_from_now, DELIVERS),
    (a_giver_goes_on_delivering, DELIVERS),
    (the_token_does_not_grow, "a token does not grow"),
    (the_second_checkpoint_is_an_older_one, "a checkpoint went back"),
    (a_handoff_that_is_asked_for_is_a_loss, "a healthy owner lost its lease"),
]


@pytest.mark.parametrize(("spoil", "message"), FAULTS, ids=[spoil.__name__ for spoil, _ in FAULTS])
def test_a_rule_that_is_taken_away_is_missed(
    monkeypatch: pytest.MonkeyPatch, spoil: Callable[[pytest.MonkeyPatch], None], message: str
) -> None:
    spoil(monkeypatch)
    with pytest.raises(BrokenRuleError, match=message):
        Search(Bounds(workers=2, counter=3, position=2, faults=1, ends=1, asks=int("handoff" in spoil.__name__))).run()


# --- processes of one name ------------------------------------------------------------------------


def another_process_of_the_name_is_oneself(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaseRow, "twin_of", lambda row, worker, process: None)


def the_same_name_shows_the_writer(patch: pytest.MonkeyPatch) -> None:
    def careless(write: Any, row: Any) -> bool:
        changes = {name: value for name, value in write.changes if name != PROCESS}
        return row is not None and all(row.attributes().get(name) == value for name, value in changes.items())

    patch.setattr(conditional_write, "applied", careless)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [(another_process_of_the_name_is_oneself, DELIVERS), (the_same_name_shows_the_writer, DELIVERS)],
    ids=["another_process_of_the_name_is_oneself", "the_same_name_shows_the_writer"],
)
def test_a_rule_of_one_name_that_is_taken_away_is_missed(
    monkeypatch: pytest.MonkeyPatch, spoil: Callable[[pytest.MonkeyPatch], None], message: str
) -> None:
    spoil(monkeypatch)
    with pytest.raises(BrokenRuleError, match=message):
        Search(TWINS).run()


# --- rows that a hand deletes ---------------------------------------------------------------------


def a_lost_write_is_not_thought_of(patch: pytest.MonkeyPatch) -> None:
    real = writes.restore
    patch.setattr(writes, "restore", lambda known, found, lost: real(known, found))


def a_lost_checkpoint_is_not_thought_of(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writes, "_PROGRESS", frozenset())


def a_fence_that_fell_is_not_thought_of(patch: pytest.MonkeyPatch) -> None:
    real = machine._restore

    def careless(tenure: Tenure, refused: Any, row: Any, now_s: float) -> Any:
        return real(tenure, refused, row, min(now_s, tenure.fence_s - 1))

    patch.setattr(machine, "_restore", careless)


def a_gift_without_an_answer_was_not_made(patch: pytest.MonkeyPatch) -> None:
    real = machine._restore

    def careless(tenure: Tenure, refused: Any, row: Any, now_s: float) -> Any:
        return real(tenure, replace(refused, repeated=False), row, now_s)

    patch.setattr(machine, "_restore", careless)


def a_take_of_a_deleted_row_makes_it(patch: pytest.MonkeyPatch) -> None:
    real = machine._refuse

    def careless(tenure: Tenure, sent: Any, row: Any, now_s: float) -> Any:
        if tenure.token == 0 and row is None:
            return machine._restore(tenure, replace(sent, repeated=True), row, now_s)
        return real(tenure, sent, row, now_s)

    patch.setattr(machine, "_refuse", careless)


HANDS: list[tuple[Callable[[pytest.MonkeyPatch], None], str, Bounds]] = [
    (a_lost_write_is_not_thought_of, "a row that is written anew has an old counter", DELETED),
    (a_lost_checkpoint_is_not_thought_of, "a checkpoint went back", replace(DELETED, position=1)),
    (a_fence_that_fell_is_not_thought_of, "two tenures", DELETED),
    (a_fence_that_fell_is_not_thought_of, "has served", SERVED),
    (a_gift_without_an_answer_was_not_made, "has served", SERVED),
    (a_take_of_a_deleted_row_makes_it, "two tenures", DELETED),
]


@pytest.mark.parametrize(
    ("spoil", "message", "bounds"), HANDS, ids=[f"{spoil.__name__}-{message}" for spoil, message, _ in HANDS]
)
def test_a_rule_of_deleted_rows_that_is_taken_away_is_missed(
    monkeypatch: pytest.MonkeyPatch, spoil: Callable[[pytest.MonkeyPatch], None], message: str, bounds: Bounds
) -> None:
    spoil(monkeypatch)
    with pytest.raises(BrokenRuleError, match=message):
        Search(bounds).run()


# --- workers whose own rows stand still -----------------------------------------------------------


def test_a_silent_workers_lease_is_taken_only_when_it_has_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    found = MemberSearch().run()
    with capsys.disabled():
        print(f"\n  silent workers: {found.states:,} states, {found.moves:,} moves")
    assert found.takes > 100


FENCED_AND_ALIVE: tuple[State, type[Any]] = (State.FENCED, events.WorkerRowConfirmed)


def the_own_row_counts_for_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tenure, "base_s", property(lambda tenure: tenure.lease_s))


def a_renewal_from_before_the_own_row_was_confirmed_lifts(patch: pytest.MonkeyPatch) -> None:
    real = machine._confirm_worker_row

    def careless(tenure: Tenure, given: Any, now_s: float) -> Any:
        after, follows = real(tenure, given, now_s)
        return (replace(after, sent=tenure.sent), follows) if tenure.sent is not None else (after, follows)

    patch.setattr(machine, "TABLE", {**machine.TABLE, FENCED_AND_ALIVE: careless})


def the_own_row_lifts_by_itself(patch: pytest.MonkeyPatch) -> None:
    real = machine._confirm_worker_row

    def careless(tenure: Tenure, given: Any, now_s: float) -> Any:
        after, follows = real(tenure, given, now_s)
        return (replace(after, state=State.HELD), follows) if now_s < after.fence_s else (after, follows)

    patch.setattr(machine, "TABLE", {**machine.TABLE, FENCED_AND_ALIVE: careless})


@pytest.mark.parametrize(
    "spoil",
    [
        the_own_row_counts_for_nothing,
        a_renewal_from_before_the_own_row_was_confirmed_lifts,
        the_own_row_lifts_by_itself,
    ],
)
def test_a_rule_of_the_own_row_that_is_taken_away_is_missed(
    monkeypatch: pytest.MonkeyPatch, spoil: Callable[[pytest.MonkeyPatch], None]
) -> None:
    spoil(monkeypatch)
    with pytest.raises(BrokenRuleError, match="the owner delivers what the taker has"):
        MemberSearch().run()


def test_looking_at_the_worker_before_reading_its_leases_is_missed() -> None:
    with pytest.raises(BrokenRuleError, match="the owner delivers what the taker has"):
        MemberSearch(looks_first=True).run()
