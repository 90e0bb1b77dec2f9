"""The events of a ledger. An event that is emitted once is made once."""

from __future__ import annotations

import traceback
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from shardway import events
from shardway.core.ledger.page import payload_bytes_of, payload_bytes_of_all
from shardway.core.unicode import message_of, writable
from shardway.errors import PutError, ServiceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway.core.ledger.failures import Step
    from shardway.core.ledger.letters import DeadLetter
    from shardway.core.ledger.page import BookTotals
    from shardway.core.ledger.ticket import Ticket
    from shardway.model import Position


POSITIONS_SHOWN_MAX = 20
"""The most positions that an event names."""
MESSAGE_CHARS_MAX = 2_000
"""The most of a handler's error message that an event holds, where the message is asked for."""
TRACE_CHARS_MAX = 20_000
"""The most of the error's traceback that an event holds, in characters: the end of it is kept."""
ADVICE = (
    "They come again. Where a program has forgotten them: settle every record, or call settle_through(record), which "
    "settles it and all before it"
)

CALLERS = ("shardway", "concurrent", "asyncio")
"""The packages that call handlers: the handler begins behind their frames."""


class LedgerEvents:
    """Makes events; an event that is emitted once is made once."""

    __slots__ = ("_late_made", "_shard_id", "_stream", "_with_message", "made")

    def __init__(self, stream: str, shard_id: str, *, with_message: bool = False) -> None:
        """``with_message``: the events also hold the message of a handler's error, and the traceback."""
        self.made: list[events.LedgerEvent] = []
        """The events that were made and not taken yet. It is always the same list."""
        self._stream = stream
        self._shard_id = shard_id
        self._late_made = False
        self._with_message = with_message

    def stalled(self, root: Ticket, places: Sequence[int], waiting: int, now_s: float, action: object) -> None:
        """Make the event that records are not settled in time."""
        first = tuple(root.page.position(place) for place in places[:POSITIONS_SHOWN_MAX])
        age_s, name = now_s - root.first_at_s, type(action).__name__
        self.made.append(
            events.RecordsStalled(self._stream, self._shard_id, first, len(places), waiting, age_s, name),
        )

    def failed(self, ticket: Ticket, places: Sequence[int], error: BaseException, step: Step) -> None:
        """Make the event that a handler raised."""
        position, kind = ticket.page.position(places[0]), type(error).__name__
        name, delay_s = step.shown
        what = position, len(places), ticket.attempt, kind, name, delay_s, raised_at(error)
        message, trace = _in_full(error) if self._with_message else (None, None)
        size = payload_bytes_of_all(ticket.page.chosen(places))
        self.made.append(events.BatchFailed(self._stream, self._shard_id, *what, message, trace, size))

    def letter_written(self, letter: DeadLetter[Any]) -> None:
        """Make the event that a dead letter is written."""
        what = letter.position, letter.part, letter.attempts, letter.error_type, letter.failures
        size = payload_bytes_of(letter.record)
        self.made.append(events.RecordDeadLettered(self._stream, self._shard_id, *what, payload_bytes=size))

    def letter_not_written(self, letter: DeadLetter[Any], error: BaseException, delay_s: float) -> None:
        """Make the event that a dead letter could not be written."""
        what = letter.position, named(error), letter.write_failures, delay_s
        self.made.append(events.DeadLetterFailed(self._stream, self._shard_id, *what))

    def skipped(self, first: Position, last: Position, records: int, reason: str, payload_bytes: int) -> None:
        """Make the event that records count as settled without having been processed."""
        what = first, last, records, reason, payload_bytes
        self.made.append(events.RecordsSkipped(self._stream, self._shard_id, *what))

    def unsettled(self, positions: Sequence[Position], reason: str) -> None:
        """Make the event that records were delivered, and that the program did not settle them."""
        first = tuple(positions[:POSITIONS_SHOWN_MAX])
        self.made.append(events.RecordsUnsettled(self._stream, self._shard_id, first, len(positions), reason, ADVICE))

    def late(self, records: int, reason: str) -> None:
        """Make the event that a tenure that has ended is settled: a thousand tasks that end late are one fact."""
        if not self._late_made:
            self._late_made = True
            self.made.append(events.LateSettlement(self._stream, self._shard_id, records, reason))

    def held(self, held: BookTotals, oldest: Position, held_s: float) -> None:
        """Make the event that nothing more is fetched, and the program waits for records."""
        what = held.records, held.held_bytes, oldest, held_s
        self.made.append(events.FetchingHeld(self._stream, self._shard_id, *what))

    def given_up(self, action: str, reason: str, error: BaseException | None, cool_down_s: float) -> None:
        """Make the event that nothing more is delivered: the worker gives the shard up, or keeps it (Stop)."""
        why = reason if error is None else f"{reason}: {type(error).__name__}"
        self.made.append(events.ShardGivenUp(self._stream, self._shard_id, action, why, cool_down_s))


def named(error: BaseException) -> str:
    """Return an error's class, with what may be shown of its message: a service's code, what the system says of
    a file.
    """
    name = type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        return f"{name}: {error.strerror}"
    if isinstance(error, ServiceError):
        return f"{name}: {error.code}"
    return f"{name}: {error.reason}" if isinstance(error, PutError) and error.reason else name


def _in_full(error: BaseException) -> tuple[str, str]:
    """Return the message and the traceback, each cut to its bound."""
    trace = writable("".join(traceback.format_exception(error)))
    return message_of(error)[:MESSAGE_CHARS_MAX], trace[-TRACE_CHARS_MAX:]


def raised_at(error: BaseException) -> str:
    """Return ``billing.py:41, client.py:905``: the handler's own line, and the deepest line below it, where a user's
    error may have its data in the message, which is not shown.
    """
    # The error's message is left out: it may be the record.
    frames = list(traceback.walk_tb(error.__traceback__))
    while frames and frames[0][0].f_globals.get("__name__", "").partition(".")[0] in CALLERS:
        del frames[0]
    places = [f"{PurePath(frame.f_code.co_filename).name}:{line}" for frame, line in frames]
    return ", ".join(dict.fromkeys(places[:1] + places[-1:])) or "not raised"
