"""The commands of one shard in one tenure: what its machine wants done, in this order.

Answers of the checkpoints (`shardway.core.shard.checkpoints`), the records to admit (`shardway.core.shard.duplicates`),
and what the lease's machine is told are commands of the shard, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from shardway.core.shard.checkpoints import commands as checkpoint_commands
from shardway.core.shard.duplicates import Admit

if TYPE_CHECKING:
    from shardway.core.ledger.failures import GiveUpReason
    from shardway.core.ledger.ledger import Ledger
    from shardway.core.ledger.letters import DeadLetter
    from shardway.events import LedgerEvent


@dataclass(frozen=True, slots=True)
class Alarm:
    """Tell `events.TimerFired` at this time."""

    at_s: float


@dataclass(frozen=True, slots=True)
class Emit:
    """Emit this event to the program."""

    event: LedgerEvent


@dataclass(frozen=True, slots=True)
class Wake:
    """There may be something to deliver, or to fetch; or what a drain waits for has come."""


@dataclass(frozen=True, slots=True)
class WriteLetter:
    """Write this dead letter, and tell `events.LetterWritten` or
    `events.LetterNotWritten`.
    """

    ledger: Ledger[Any]
    """The ledger of the letter, which may be closed by then: it has to hear of the letter all the same."""
    letter: DeadLetter[Any]


@dataclass(frozen=True, slots=True)
class DropLetters:
    """Write no more of the letters that are on their way: their records are delivered again. It also follows from
    `Over`.
    """


@dataclass(frozen=True, slots=True)
class Revoking:
    """Let the listeners have their last words, until the drain is over."""


@dataclass(frozen=True, slots=True)
class AskForCallers:
    """Tell `events.CallersSeen`, at once."""


@dataclass(frozen=True, slots=True)
class Drained:
    """The drain is over. It comes once for each drain, unless `events.Resume` came before."""

    in_time: bool
    """True: nothing is waited for any more. False: the deadline came first, and what is in flight comes again."""


@dataclass(frozen=True, slots=True)
class TellEnd:
    """Tell the program that all is settled, and then tell `events.EndTold`."""


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The policies have had enough of the shard. It comes once for each ledger."""

    ending: GiveUpReason


@dataclass(frozen=True, slots=True)
class FenceMoved:
    """The lease's writes are not confirmed, and nothing is delivered for now; or they are, and it goes on."""

    fallen: bool


@dataclass(frozen=True, slots=True)
class Resumed:
    """A shard that was about to go stays with this worker."""


@dataclass(frozen=True, slots=True)
class Over:
    """Nothing more is delivered. It comes once."""


Command: TypeAlias = (
    checkpoint_commands.Command | Emit | Admit | Alarm | Wake | WriteLetter | DropLetters | Revoking | AskForCallers
    | Drained | TellEnd | GaveUp | FenceMoved | Resumed | Over
)  # fmt: skip

ASK_FOR_CALLERS = AskForCallers()
WAKE = Wake()
OVER = Over()
