"""The states of a log's cursor, the signs that it may be given, and the table of what follows from each.

What the service does not say is the reason for the states:

- A record is asked for *at* its number, and has to come again (`SEEKING`). An iterator at a number that is trimmed
  gives no error: it gives empty pages for ever, as far behind as the retention is long. So does one that the retention
  has overtaken. What has to come and does not is looked for anew (`OVERTAKEN`): from the oldest record on, or from the
  time at which it arrived.
- If the log begins behind that record, it is trimmed, and so may be what followed it: that is reported, once. If older
  ones come, they are passed over (`PASSING`).
- A shard that is silent answers with empty pages, too; see `shardway.core.log.silence`.

Numbers grow along the log. Arrival times need not, so no decision about a record follows from its time.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class State(StrEnum):
    """The states of a cursor: what is known of the place at which the log is read."""

    FRESH = "fresh"
    """Nothing has come yet, and no record is known that has to come: the log is read from its oldest record, from a
    time or from its tip on.
    """
    SEEKING = "seeking"
    """A record that was in the log is asked for at its number, and has not come again yet. Until it does, nothing is
    known of what is behind it.
    """
    OVERTAKEN = "overtaken"
    """The record that is sought did not come, or its number was refused, or the retention may have passed it. The log
    is read from its oldest record on (or from the record's time), and nothing has come yet.
    """
    PASSING = "passing"
    """Older records than the one that is sought have come: so it is not lost by trimming, and they are passed over
    until it comes.
    """
    READING = "reading"
    """All that comes is new."""
    TIP = "at the tip"
    """All that comes is new, and the last answer said that nothing more has arrived yet."""
    ENDED = "ended"
    """The shard has no more records, or is gone."""


class Sign(StrEnum):
    """The inputs of a cursor: what an answer of the service is for it, or what became of the iterator."""

    NEXT = "next records"
    """Records came, and nothing is sought."""
    OLDER = "older records"
    """Records came, and all lie before the one that is sought."""
    MET = "the record"
    """Records came, and the one that is sought is among them; or they begin behind a bound that lies just before the
    first of them.
    """
    BEYOND = "later records"
    """Records came; those before the one that is sought may be among them, and it is not: it is trimmed."""
    CROSSING = "crossing"
    """An empty page that came nearer to the tip."""
    STANDING = "standing"
    """An empty page that brought nothing."""
    NOWHERE = "nowhere"
    """Empty pages brought nothing so often that a record that has to come is not there; or the shard ended where it has
    to come.
    """
    TIP = "the tip"
    """An empty page, and nothing is behind."""
    END = "the end"
    """The shard has no more records."""
    PASSED = "passed"
    """The retention has passed the number at which the iterator was asked for, or is about to."""
    LOST = "no iterator"
    """There is no iterator: none was asked for yet, it has expired, or it was thrown away."""
    REFUSED = "refused"
    """The service takes no iterator at a number: some do so when it is trimmed, or of another stream."""
    GONE = "gone"
    """The service does not know the shard any more: its last record is older than the retention."""


class NextStep(StrEnum):
    """The things that a reader may have to do next."""

    READ = "read"
    """Go on with the iterator that the page has brought."""
    ASK = "ask"
    """The iterator is worth nothing: ask for another one (`LogCursor.ask`)."""
    STOP = "stop"
    """Stop: nothing more comes."""


class Transition(NamedTuple):
    """An entry of the table."""

    state: State
    does: NextStep = NextStep.READ
    is_loss: bool = False
    """True when what was sought is gone, and so may be what followed it: the reader reports that."""


ANEW = Transition(State.OVERTAKEN, NextStep.ASK)
_TO_READING = Transition(State.READING)
_TIP = Transition(State.TIP)
_TO_END = Transition(State.ENDED, NextStep.STOP)
_ENDED_LOSS = Transition(State.ENDED, NextStep.STOP, is_loss=True)


def _search_entries(state: State, **others: Transition) -> dict[Sign, Transition]:
    """Return the entries of a state in which a record is sought: an empty page changes nothing."""
    stays = Transition(state)
    return {
        Sign.OLDER: stays,
        Sign.MET: _TO_READING,
        Sign.BEYOND: Transition(State.READING, is_loss=True),
        Sign.CROSSING: stays,
        Sign.STANDING: stays,
        Sign.TIP: stays,
        Sign.NOWHERE: ANEW,
        Sign.END: _ENDED_LOSS,
        Sign.PASSED: ANEW,
        Sign.LOST: Transition(state, NextStep.ASK),
        Sign.REFUSED: ANEW,
        Sign.GONE: _ENDED_LOSS,
    } | {Sign[name]: entry for name, entry in others.items()}


def _read_entries(state: State, **others: Transition) -> dict[Sign, Transition]:
    """Return the entries of a state in which all that comes is new."""
    return {
        Sign.NEXT: _TO_READING,
        Sign.CROSSING: _TO_READING,
        Sign.STANDING: Transition(state),
        Sign.TIP: _TIP,
        Sign.NOWHERE: ANEW,
        Sign.END: _TO_END,
        Sign.PASSED: ANEW,
        Sign.LOST: Transition(state, NextStep.ASK),
        Sign.REFUSED: ANEW,
        Sign.GONE: _ENDED_LOSS,
    } | {Sign[name]: entry for name, entry in others.items()}


TABLE: Mapping[State, Mapping[Sign, Transition]] = {
    State.FRESH: _read_entries(State.FRESH),
    State.SEEKING: _search_entries(State.SEEKING),
    State.OVERTAKEN: _search_entries(
        State.OVERTAKEN,
        OLDER=Transition(State.PASSING),
        # Nothing is left at all: whatever comes after this is new.
        TIP=Transition(State.TIP, is_loss=True),
    ),
    State.PASSING: _search_entries(State.PASSING),
    State.READING: _read_entries(State.READING),
    State.TIP: _read_entries(State.TIP),
    State.ENDED: {Sign.LOST: _TO_END, Sign.GONE: _TO_END},
}
"""The table of what follows in each state. A sign that is not there cannot come in that state."""

UNMET = frozenset({State.SEEKING, State.OVERTAKEN, State.PASSING})
"""The states in which a record is sought."""
