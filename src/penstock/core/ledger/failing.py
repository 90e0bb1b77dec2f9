"""What becomes of records that fail, stay unsettled or are given up: tried again, skipped, or made dead letters.

What a failure leads to is a table in the form of one function, `after_failure`. A record that becomes a dead letter
counts as settled only when its letter is known to be written.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Generic, NamedTuple

from penstock.core.ledger.book import DeadLetter, R, Where
from penstock.core.ledger.policies import (
    DeadLetters,
    GiveUp,
    LastResort,
    LedgerPolicy,
    Redeliver,
    Retry,
    Skip,
    Warn,
    payload_bytes_of_all,
)
from penstock.core.pacing import full_jitter_s

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from penstock.core.ledger.book import Book, Page, Ticket
    from penstock.core.ledger.ledger import LedgerEvents


class Ending(NamedTuple):
    """Why nothing more is delivered, though the tenure still holds: the shard is to be given up."""

    action: str
    """GiveUp or Stop."""
    reason: str
    cool_down_s: float
    """GiveUp: how long this worker leaves the shard alone."""
    error: BaseException | None
    """What the handler raised, if that was it."""

    @property
    def stops(self) -> bool:
        """True for Stop: the worker keeps the shard, and a program that asks for its records gets an error."""
        return self.action == "Stop"


class Again(NamedTuple):
    """Hand the same records out again."""

    delay_s: float

    @property
    def shown(self) -> tuple[str, float]:
        """Its name, and the seconds before it is done."""
        return "Again", self.delay_s


class Halve(NamedTuple):
    """Hand the first half out again, then the second."""

    delay_s: float

    @property
    def shown(self) -> tuple[str, float]:
        """Its name, and the seconds before it is done."""
        return "Halve", self.delay_s


class Last(NamedTuple):
    """No further attempt."""

    resort: LastResort

    @property
    def shown(self) -> tuple[str, float]:
        """Its name; it is done at once."""
        return type(self.resort).__name__, 0.0


Step = Again | Halve | Last


def after_failure(
    retry: Retry, error: BaseException, *, records: int, failures: int, halved: bool, failing_s: float, rng: Random
) -> Step:
    """The next step of ``records`` that failed together.

    ``failures``: how often they failed as they are, this time included. ``halved``: they are a part of a batch that
    failed. ``failing_s``: for how long nothing of the shard was settled while everything failed for transient reasons.
    """
    delay_s = full_jitter_s(failures, base_s=retry.base_s, cap_s=retry.cap_s, rng=rng)
    if isinstance(error, retry.transient):
        if retry.give_up_after_s is not None and failing_s >= retry.give_up_after_s:
            return Last(GiveUp(cool_down_s=retry.cool_down_s))
        return Again(delay_s)
    if records > 1 and retry.halve:
        # A half is not tried twice: what was in the way the first time had its chance with the whole batch.
        return Halve(delay_s) if halved or failures >= retry.batch_failures_max else Again(delay_s)
    if retry.failures_max is not None and failures >= retry.failures_max:
        return Last(retry.then)
    return Again(delay_s)


class Letters(Generic[R]):
    """Those that are to be written, by when."""

    __slots__ = ("_base_s", "_cap_s", "_due", "_numbers", "_rng")

    def __init__(self, rng: Random, *, base_s: float, cap_s: float) -> None:
        """``base_s``, ``cap_s``: of the pauses between attempts to write one."""
        self._base_s, self._cap_s = base_s, cap_s
        self._due: list[tuple[float, int, DeadLetter[R]]] = []
        self._numbers = count()
        self._rng = rng

    def add(self, letter: DeadLetter[R], now_s: float) -> None:
        """It is to be written now."""
        heappush(self._due, (now_s, next(self._numbers), letter))

    def failed(self, letter: DeadLetter[R], now_s: float) -> float:
        """It could not be written, and is to be later; returns in how many seconds."""
        letter.write_failures += 1
        delay_s = full_jitter_s(letter.write_failures, base_s=self._base_s, cap_s=self._cap_s, rng=self._rng)
        heappush(self._due, (now_s + delay_s, next(self._numbers), letter))
        return delay_s

    def take(self, now_s: float, letters_max: int | None = None) -> list[DeadLetter[R]]:
        """Those that are to be written by now, but for those whose record was settled meanwhile; at most so many."""
        letters: list[DeadLetter[R]] = []
        most = math.inf if letters_max is None else letters_max
        while self._due and self._due[0][0] <= now_s and len(letters) < most:
            letter = heappop(self._due)[2]
            if letter.ticket.left:
                letters.append(letter)
        return letters

    def next_at_s(self) -> float:
        """When the next is to be written."""
        return self._due[0][0] if self._due else math.inf


class Faults(Generic[R]):
    """Does to the book what the policies say. Of one ledger, which asks only while it is open."""

    __slots__ = ("_book", "_events", "_rng", "_settings", "ending", "failing_since_s", "letters")

    def __init__(self, book: Book[R], settings: LedgerPolicy, events: LedgerEvents, *, rng: Random) -> None:
        self._book = book
        self._settings = settings
        self._events = events
        self._rng = rng
        self.letters: Letters[R] = Letters(rng, base_s=settings.letter_backoff_s, cap_s=settings.letter_backoff_max_s)
        """Dead letters on their way."""
        self.ending: Ending | None = None
        """Set once, when the shard is to be given up, or stopped."""
        self.failing_since_s: float | None = None
        """Since when all failures were transient; the ledger sets it to None when a record is settled."""

    def failed(self, ticket: Ticket, error: BaseException, now_s: float, places: Sequence[int] | None) -> None:
        """A handler raised: what it left unsettled meets the retry policy."""
        book, retry, failures = self._book, self._settings.retry, ticket.failures + 1
        mine = book.mine(ticket, places)
        if ticket.where is not Where.OUT or not mine:
            return
        if not isinstance(error, retry.transient):
            self.failing_since_s = None
        elif self.failing_since_s is None:
            self.failing_since_s = now_s
        failing_s = 0.0 if self.failing_since_s is None else now_s - self.failing_since_s
        step = after_failure(
            retry, error, records=len(mine), failures=failures, halved=ticket.halved, failing_s=failing_s, rng=self._rng
        )
        self._events.failed(ticket, mine, error, step)
        if isinstance(step, Again):
            book.again(ticket, [mine], now_s + step.delay_s, failures=failures)
        elif isinstance(step, Halve):
            middle = (len(mine) + 1) // 2
            book.again(ticket, [mine[:middle], mine[middle:]], now_s + step.delay_s, failures=0, halved=True)
        else:
            self._resort_to(step.resort, ticket, mine, error, "failed", now_s, failures)
            if self.ending is not None:  # no handler works on them now, so the drain must not wait for them
                book.again(ticket, [book.mine(ticket, mine)], now_s, failures=failures)

    def stalled(self, root: Ticket, now_s: float) -> None:
        """Records were not settled in time."""
        policy = self._settings.stalled
        if isinstance(policy, Redeliver) and root.redelivered >= policy.times_max:
            policy = policy.then
        groups = self._book.by_ticket(root)
        places = sorted(place for group in groups.values() for place in group)
        waiting = sum(len(group) for ticket, group in groups.items() if ticket.where is not Where.OUT)
        self._events.stalled(root, places, waiting, now_s, policy)
        if isinstance(policy, Redeliver):
            root.redelivered += 1
            self.redeliver(root, now_s)
        elif not isinstance(policy, Warn):
            for ticket, group in groups.items():
                if ticket.where is not Where.LETTER:
                    self._resort_to(policy, ticket, group, None, "not settled in time", now_s)

    def redeliver(self, root: Ticket, now_s: float) -> None:
        """What is in flight of these records is delivered again, though its handler did not say so."""
        for ticket, places in self._book.by_ticket(root).items():
            if ticket.where is Where.OUT:
                self._book.again(ticket, [places], now_s, failures=ticket.failures, put_off=False)

    def skip(self, ticket: Ticket, places: Sequence[int], reason: str) -> None:
        """These count as settled."""
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
        """Each becomes a dead letter."""
        page: Page[R] = ticket.page
        failures = ticket.failures if failures is None else failures
        for place in places:
            moved = self._book.move(ticket, [place], Where.LETTER)
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
                self._end(Ending("GiveUp", reason, cool_down_s, error))
            case _:
                self._end(Ending("Stop", reason, 0.0, error))

    def _end(self, ending: Ending) -> None:
        if self.ending is None:
            self.ending = ending
            self._events.given_up(ending.action, ending.reason, ending.error, ending.cool_down_s)
