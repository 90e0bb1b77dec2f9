"""What becomes of records that fail, stay unsettled or are given up, by the policies.

They are tried again, skipped, or made dead letters. What a failure leads to is a table in the form of one function,
`after_failure`. A record that becomes a dead letter counts as settled only when its letter is known to be written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple

from shardway.core.ledger.letters import DeadLetter, Letters
from shardway.core.ledger.page import R, payload_bytes_of_all
from shardway.core.ledger.ticket import TicketState
from shardway.core.pacing import full_jitter_s
from shardway.errors import RegistryError
from shardway.policies import DeadLetters, GiveUp, LastResort, Redeliver, Retry, Skip, Warn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from shardway.core.ledger.book import Book
    from shardway.core.ledger.ledger_events import LedgerEvents
    from shardway.core.ledger.page import Page
    from shardway.core.ledger.policy import LedgerPolicy
    from shardway.core.ledger.ticket import Ticket


class GiveUpReason(NamedTuple):
    """The reason why nothing more is delivered, though the tenure still holds. After GiveUp the worker leaves the shard
    to another one; after Stop it keeps the shard (`stops`).
    """

    action: str
    """The name of the policy: GiveUp or Stop."""
    reason: str
    cool_down_s: float
    """How many seconds this worker leaves the shard alone, after GiveUp."""
    error: BaseException | None
    """The handler's error, where that was the reason."""

    @property
    def stops(self) -> bool:
        """True for Stop: the worker keeps the shard, and a program that asks for its records gets an error."""
        return self.action == "Stop"


class Redelivery(NamedTuple):
    """The step that delivers the same records again."""

    delay_s: float

    @property
    def shown(self) -> tuple[str, float]:
        """The step's name, and the seconds before it is done."""
        return "Redelivery", self.delay_s


class Halve(NamedTuple):
    """The step that delivers the first half again, then the second."""

    delay_s: float

    @property
    def shown(self) -> tuple[str, float]:
        """The step's name, and the seconds before it is done."""
        return "Halve", self.delay_s


class LastAttempt(NamedTuple):
    """The step after the last attempt."""

    resort: LastResort

    @property
    def shown(self) -> tuple[str, float]:
        """The resort's name; it is done at once."""
        return type(self.resort).__name__, 0.0


Step = Redelivery | Halve | LastAttempt


def is_transient(error: BaseException, retry: Retry) -> bool:
    """True for an error that no record causes: one that the program names, or that a schema registry is away."""
    return isinstance(error, (RegistryError, *retry.transient))


def after_failure(
    retry: Retry, error: BaseException, *, records: int, failures: int, halved: bool, failing_s: float, rng: Random
) -> Step:
    """Return the next step for ``records`` that failed together.

    ``failures``: how often they failed as they are, this time included. ``halved``: they are a part of a batch that
    failed. ``failing_s``: for how long nothing of the shard was settled while everything failed for transient reasons.
    """
    delay_s = full_jitter_s(failures, base_s=retry.base_s, cap_s=retry.cap_s, rng=rng)
    if is_transient(error, retry):
        if retry.give_up_after_s is not None and failing_s >= retry.give_up_after_s:
            return LastAttempt(GiveUp(cool_down_s=retry.cool_down_s))
        return Redelivery(delay_s)
    if records > 1 and retry.halve:
        # A half is not tried twice: what was in the way the first time had its chance with the whole batch.
        return Halve(delay_s) if halved or failures >= retry.batch_failures_max else Redelivery(delay_s)
    if retry.failures_max is not None and failures >= retry.failures_max:
        return LastAttempt(retry.then)
    return Redelivery(delay_s)


class Faults(Generic[R]):
    """Does to one ledger's book what the policies say. The ledger asks only while it is open."""

    __slots__ = ("_book", "_events", "_rng", "ending", "failing_since_s", "letters", "policy")

    def __init__(self, book: Book[R], policy: LedgerPolicy, events: LedgerEvents, *, rng: Random) -> None:
        self._book = book
        self.policy = policy
        self._events = events
        self._rng = rng
        self.letters: Letters[R] = Letters(
            book, events, rng, base_s=policy.letter_backoff_s, cap_s=policy.letter_backoff_max_s
        )
        """The dead letters that are to be written."""
        self.ending: GiveUpReason | None = None
        """The end of the shard's reading; set once, when the shard is to be given up, or stopped."""
        self.failing_since_s: float | None = None
        """The time since which all failures were transient; the ledger sets it to None when a record is settled."""

    def failed(self, ticket: Ticket, error: BaseException, now_s: float, places: Sequence[int] | None) -> None:
        """Apply the retry policy to what a handler that raised left unsettled."""
        book, retry, failures = self._book, self.policy.retry, ticket.failures + 1
        mine = book.places_left(ticket, places)
        if ticket.where is not TicketState.OUT or not mine:
            return
        if not is_transient(error, retry):
            self.failing_since_s = None
        elif self.failing_since_s is None:
            self.failing_since_s = now_s
        failing_s = 0.0 if self.failing_since_s is None else now_s - self.failing_since_s
        step = after_failure(
            retry, error, records=len(mine), failures=failures, halved=ticket.halved, failing_s=failing_s, rng=self._rng
        )
        self._events.failed(ticket, mine, error, step)
        if isinstance(step, Redelivery):
            book.requeue(ticket, [mine], now_s + step.delay_s, failures=failures)
        elif isinstance(step, Halve):
            middle = (len(mine) + 1) // 2
            book.requeue(ticket, [mine[:middle], mine[middle:]], now_s + step.delay_s, failures=0, halved=True)
        else:
            self._resort_to(step.resort, ticket, mine, error, "failed", now_s, failures)
            if self.ending is not None:  # No handler works on them now, so the drain must not wait for them.
                book.requeue(ticket, [book.places_left(ticket, mine)], now_s, failures=failures)

    def stalled(self, root: Ticket, now_s: float) -> None:
        """Act on records that were not settled in time, as the policy says."""
        policy = self.policy.stalled
        if isinstance(policy, Redeliver) and root.redelivered >= policy.times_max:
            policy = policy.then
        groups = self._book.by_ticket(root)
        places = sorted(place for group in groups.values() for place in group)
        waiting = sum(len(group) for ticket, group in groups.items() if ticket.where is not TicketState.OUT)
        self._events.stalled(root, places, waiting, now_s, policy)
        if isinstance(policy, Redeliver):
            root.redelivered += 1
            self.redeliver(root, now_s)
        elif not isinstance(policy, Warn):
            for ticket, group in groups.items():
                if ticket.where is not TicketState.LETTER:
                    self._resort_to(policy, ticket, group, None, "not settled in time", now_s)

    def redeliver(self, root: Ticket, now_s: float) -> None:
        """Deliver again what is in flight of these records, though its handler did not say so."""
        for ticket, places in self._book.by_ticket(root).items():
            if ticket.where is TicketState.OUT:
                self._book.requeue(ticket, [places], now_s, failures=ticket.failures, put_off=False)

    def skip(self, ticket: Ticket, places: Sequence[int], reason: str) -> None:
        """Settle these records without having been processed."""
        if places:
            page = ticket.page
            first, last = page.position(places[0]), page.position(places[-1])
            size = payload_bytes_of_all(page.chosen(places))
            self._book.settle_some(ticket, places)
            self._events.skipped(first, last, len(places), reason, size)

    def dead_letter(
        self,
        ticket: Ticket,
        places: Sequence[int],
        error: BaseException | None,
        reason: str,
        now_s: float,
        failures: int | None = None,
    ) -> None:
        """Make each of these records a dead letter."""
        page: Page[R] = ticket.page
        failures = ticket.failures if failures is None else failures
        for place in places:
            moved = self._book.move(ticket, [place], TicketState.LETTER)
            letter = DeadLetter(page.record(place), page.position(place), moved, place, error, reason, failures)
            self.letters.add(letter, now_s)
        if not ticket.left:
            self._book.queue.closed(ticket)

    def _resort_to(
        self,
        resort: LastResort,
        ticket: Ticket,
        places: Sequence[int],
        error: BaseException | None,
        reason: str,
        now_s: float,
        failures: int | None = None,
    ) -> None:
        match resort:
            case DeadLetters():
                self.dead_letter(ticket, places, error, reason, now_s, failures)
            case Skip():
                self.skip(ticket, places, reason)
            case GiveUp(cool_down_s=cool_down_s):
                self._end(GiveUpReason("GiveUp", reason, cool_down_s, error))
            case _:
                self._end(GiveUpReason("Stop", reason, 0.0, error))

    def _end(self, ending: GiveUpReason) -> None:
        if self.ending is None:
            self.ending = ending
            self._events.given_up(ending.action, ending.reason, ending.error, ending.cool_down_s)
