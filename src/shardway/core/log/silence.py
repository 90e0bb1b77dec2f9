"""Silence: what a page without records means. This is the only place that says it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")


BARREN_PAGES_MAX = 4
"""After this many pages in a row that brought nothing, a record that should have come is not there."""
FALL_MIN_MS = 1_000
"""A MillisBehindLatest that falls by less than this says nothing far from the tip: it is measured at different
moments.
"""
NEAR_TIP_MS = 60_000
"""An iterator that is no further behind than this is not at a trimmed number: a retention is a day or more."""


class Meaning(StrEnum):
    """The meanings of a page without records."""

    END = "end"
    """The iterator is gone: the shard has no more records."""
    TIP = "tip"
    """Nothing is behind (``MillisBehindLatest`` 0): nothing more has arrived yet."""
    CROSSING = "crossing"
    """The iterator has come nearer to the tip over a stretch of the log without records: it is to be followed. A page
    crosses only a limited span of the log, so a night's silence may be hundreds of pages.
    """
    STANDING = "standing"
    """The iterator has come no further. So it is at a trimmed sequence number, where AWS gives empty pages for ever, as
    far behind as the retention is long, and no error.
    """


class Silence:
    """The pages of one iterator (and of those that follow it) since the last record: the only place that says what an
    empty page means.

    Silence is progress: how far behind the tip the iterator is says up to which time there is nothing, and reading may
    go on there. What is counted is only what brings nothing: pages at which the iterator stands, or that repeat the tip
    where a record should come. So a shard may be silent for as long as it likes, and a number that is trimmed is found
    out after `BARREN_PAGES_MAX` pages.
    """

    __slots__ = ("_mark_ms", "barren", "reached_s")

    def __init__(self) -> None:
        self.barren = 0
        """The number of pages in a row that brought nothing: no record, and no stretch of the log."""
        self.reached_s: float | None = None
        """The service's time (epoch seconds) up to which the log is crossed: no record before it is unread. None: no
        page said so since the last record.
        """
        self._mark_ms: int | None = None

    @property
    def leads_nowhere(self) -> bool:
        """True when a record that should have come by now is not there."""
        return self.barren >= BARREN_PAGES_MAX

    def empty(self, behind_ms: int | None, *, is_last: bool, asked_s: float | None) -> Meaning:
        """Return the meaning of a page without records. ``behind_ms``: its MillisBehindLatest, if it is known.
        ``asked_s``: the service's time when the page was asked for, or before.

        A single page, far from the tip, may be that of a trimmed number: the next one shows whether the iterator moves.
        """
        if is_last:
            return Meaning.END
        if behind_ms is None:
            self.barren += 1
            return Meaning.STANDING
        is_near, fell = behind_ms <= NEAR_TIP_MS, self._has_fallen(behind_ms)
        if asked_s is not None and (is_near or fell):
            self.reached_s = max(self.reached_s or 0.0, asked_s - behind_ms / 1000)
        if self._mark_ms is None or fell:
            self._mark_ms = behind_ms
        if behind_ms == 0 or not fell:
            self.barren += 1
            return Meaning.STANDING if behind_ms else Meaning.TIP
        self.barren = 0
        return Meaning.CROSSING

    def records(self, behind_ms: int | None) -> None:
        """Note that a page with records came; ``behind_ms`` is its MillisBehindLatest, if it is known."""
        self.barren = 0
        self.reached_s, self._mark_ms = None, behind_ms

    def begin(self) -> None:
        """Begin anew: another iterator begins elsewhere."""
        self.records(None)

    def moved(self) -> None:
        """Go on: another iterator begins within the silence, or before it. Its pages are compared with its own first
        one.
        """
        self.barren, self._mark_ms = 0, None

    def _has_fallen(self, behind_ms: int) -> bool:
        mark_ms = self._mark_ms
        return mark_ms is not None and behind_ms <= mark_ms - (1 if behind_ms <= NEAR_TIP_MS else FALL_MIN_MS)
