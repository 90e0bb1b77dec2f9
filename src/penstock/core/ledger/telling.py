"""The ledger's facts about one shard, as events: they are collected here until the caller of the ledger takes them."""

from __future__ import annotations

import traceback
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from penstock import events
from penstock.errors import PutError, ServiceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.ledger.page import Held
    from penstock.core.ledger.retrying import Step
    from penstock.core.ledger.ticket import DeadLetter, Ticket
    from penstock.model import Position

POSITIONS_TOLD_MAX = 20
"""An event names so many records."""
ADVICE = (
    "They come again. Where a program has forgotten them: settle every record, or call settle_through(record), which "
    "settles it and all before it"
)

CALLERS = ("penstock", "concurrent", "asyncio")
"""Packages that call handlers: where the handler begins is behind them."""


class Teller:
    """Makes events, and tells what is only told once."""

    __slots__ = ("_late_told", "_shard_id", "_stream", "told")

    def __init__(self, stream: str, shard_id: str) -> None:
        self.told: list[events.LedgerEvent] = []
        """What was told and was not taken yet. It is always the same list."""
        self._stream = stream
        self._shard_id = shard_id
        self._late_told = False

    def stalled(self, root: Ticket, places: Sequence[int], waiting: int, now_s: float, action: object) -> None:
        """Records are not settled in time."""
        told = tuple(root.page.position(place) for place in places[:POSITIONS_TOLD_MAX])
        age_s, name = now_s - root.first_at_s, type(action).__name__
        self.told.append(
            events.RecordsStalled(self._stream, self._shard_id, told, len(places), waiting, age_s, name),
        )

    def failed(self, ticket: Ticket, places: Sequence[int], error: BaseException, step: Step) -> None:
        """A handler raised."""
        position, kind = ticket.page.position(places[0]), type(error).__name__
        name, delay_s = step.told
        what = position, len(places), ticket.attempt, kind, name, delay_s, raised_at(error)
        self.told.append(events.BatchFailed(self._stream, self._shard_id, *what))

    def buried(self, letter: DeadLetter[Any]) -> None:
        """A dead letter is written."""
        what = letter.position, letter.part, letter.attempts, letter.error_type, letter.failures
        self.told.append(events.RecordDeadLettered(self._stream, self._shard_id, *what))

    def not_buried(self, letter: DeadLetter[Any], error: BaseException, delay_s: float) -> None:
        """A dead letter could not be written."""
        what = letter.position, named(error), letter.tries, delay_s
        self.told.append(events.DeadLetterFailed(self._stream, self._shard_id, *what))

    def skipped(self, first: Position, last: Position, records: int, reason: str) -> None:
        """Records count as settled without having been processed."""
        self.told.append(events.RecordsSkipped(self._stream, self._shard_id, first, last, records, reason))

    def unsettled(self, positions: Sequence[Position], reason: str) -> None:
        """Records were handed out, and the program did not settle them."""
        told = tuple(positions[:POSITIONS_TOLD_MAX])
        self.told.append(events.RecordsUnsettled(self._stream, self._shard_id, told, len(positions), reason, ADVICE))

    def late(self, records: int, reason: str) -> None:
        """A tenure that has ended is settled: a thousand tasks that end late are one fact."""
        if not self._late_told:
            self._late_told = True
            self.told.append(events.LateSettlement(self._stream, self._shard_id, records, reason))

    def held(self, held: Held, oldest: Position, held_s: float) -> None:
        """Nothing more is fetched, and the program waits for records."""
        what = held.records, held.held_bytes, oldest, held_s
        self.told.append(events.FetchingHeld(self._stream, self._shard_id, *what))

    def given_up(self, action: str, reason: str, error: BaseException | None, cool_down_s: float) -> None:
        """Nothing more is handed out."""
        why = reason if error is None else f"{reason}: {type(error).__name__}"
        self.told.append(events.ShardGivenUp(self._stream, self._shard_id, action, why, cool_down_s))


def named(error: BaseException) -> str:
    """An error's class, with what may be told of its message: a service's code, what the system says of a file."""
    name = type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        return f"{name}: {error.strerror}"
    if isinstance(error, ServiceError):
        return f"{name}: {error.code}"
    return f"{name}: {error.reason}" if isinstance(error, PutError) and error.reason else name


def raised_at(error: BaseException) -> str:
    """``billing.py:41, client.py:905``: the handler's own line, and the deepest one below it, where a user's error may
    have its data in the message, and is not told.
    """
    frames = list(traceback.walk_tb(error.__traceback__))
    while frames and frames[0][0].f_globals.get("__name__", "").partition(".")[0] in CALLERS:
        del frames[0]
    places = [f"{PurePath(frame.f_code.co_filename).name}:{line}" for frame, line in frames]
    return ", ".join(dict.fromkeys(places[:1] + places[-1:])) or "not raised"
