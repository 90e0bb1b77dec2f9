"""What becomes of records that fail, stay unsettled or are given up: tried again, skipped, buried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from penstock.core.ledger.endings import Ending
from penstock.core.ledger.letters import Letters
from penstock.core.ledger.page import R
from penstock.core.ledger.retrying import Again, Halve, after_failure
from penstock.core.ledger.settings import DeadLetters, GiveUp, LastResort, LedgerSettings, Redeliver, Skip, Warn
from penstock.core.ledger.ticket import DeadLetter, Where

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from penstock.core.ledger.book import Book
    from penstock.core.ledger.page import Page
    from penstock.core.ledger.telling import Teller
    from penstock.core.ledger.ticket import Ticket


class Faults(Generic[R]):
    """Does to the book what the policies say. Of one ledger, which asks only while it is open."""

    __slots__ = ("_book", "_rng", "_settings", "_tell", "ending", "failing_since_s", "letters")

    def __init__(self, book: Book[R], settings: LedgerSettings, tell: Teller, *, rng: Random) -> None:
        self._book = book
        self._settings = settings
        self._tell = tell
        self._rng = rng
        self.letters: Letters[R] = Letters(rng, base_s=settings.letter_backoff_s, cap_s=settings.letter_backoff_max_s)
        """Dead letters on their way."""
        self.ending: Ending | None = None
        """Set once, when the shard is to be given up, or stopped."""
        self.failing_since_s: float | None = None
        """Since when all failures were transient; the ledger sets it to None when a record is settled."""

    def failed(self, ticket: Ticket, error: BaseException, now_s: float, places: Sequence[int] | None) -> None:
        """A handler raised: what it left unsettled meets the retry policy."""
        book, retry, tries = self._book, self._settings.retry, ticket.tries + 1
        mine = book.mine(ticket, places)
        if ticket.where is not Where.OUT or not mine:
            return
        if not isinstance(error, retry.transient):
            self.failing_since_s = None
        elif self.failing_since_s is None:
            self.failing_since_s = now_s
        failing_s = 0.0 if self.failing_since_s is None else now_s - self.failing_since_s
        step = after_failure(
            retry, error, records=len(mine), tries=tries, halved=ticket.halved, failing_s=failing_s, rng=self._rng
        )
        self._tell.failed(ticket, mine, error, step)
        if isinstance(step, Again):
            book.again(ticket, [mine], now_s + step.delay_s, tries=tries)
        elif isinstance(step, Halve):
            middle = (len(mine) + 1) // 2
            book.again(ticket, [mine[:middle], mine[middle:]], now_s + step.delay_s, tries=0, halved=True)
        else:
            self._resort_to(step.resort, ticket, mine, error, "failed", now_s, tries)
            if self.ending is not None:  # no handler works on them now, so the drain must not wait for them
                book.again(ticket, [book.mine(ticket, mine)], now_s, tries=tries)

    def stalled(self, root: Ticket, now_s: float) -> None:
        """Records were not settled in time."""
        policy = self._settings.stalled
        if isinstance(policy, Redeliver) and root.redelivered >= policy.times_max:
            policy = policy.then
        groups = self._book.by_ticket(root)
        places = sorted(place for group in groups.values() for place in group)
        waiting = sum(len(group) for ticket, group in groups.items() if ticket.where is not Where.OUT)
        self._tell.stalled(root, places, waiting, now_s, policy)
        if isinstance(policy, Redeliver):
            root.redelivered += 1
            self.redeliver(root, now_s)
        elif not isinstance(policy, Warn):
            for ticket, group in groups.items():
                if ticket.where is not Where.BURYING:
                    self._resort_to(policy, ticket, group, None, "not settled in time", now_s)

    def redeliver(self, root: Ticket, now_s: float) -> None:
        """What is out of these records is handed out again, though its handler did not say so."""
        for ticket, places in self._book.by_ticket(root).items():
            if ticket.where is Where.OUT:
                self._book.again(ticket, [places], now_s, tries=ticket.tries, put_off=False)

    def skip(self, ticket: Ticket, places: Sequence[int], reason: str) -> None:
        """These count as settled."""
        if places:
            page = ticket.page
            first, last = page.position(places[0]), page.position(places[-1])
            self._book.settle_some(ticket, places)
            self._tell.skipped(first, last, len(places), reason)

    def bury(
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
        failures = ticket.tries if failures is None else failures
        for place in places:
            moved = self._book.move(ticket, [place], Where.BURYING)
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
                self.bury(ticket, places, error, reason, now_s, failures)
            case Skip():
                self.skip(ticket, places, reason)
            case GiveUp(cool_down_s=cool_down_s):
                self._end(Ending("GiveUp", reason, cool_down_s, error))
            case _:
                self._end(Ending("Stop", reason, 0.0, error))

    def _end(self, ending: Ending) -> None:
        if self.ending is None:
            self.ending = ending
            self._tell.given_up(ending.action, ending.reason, ending.error, ending.cool_down_s)
