"""The events of one shard in one tenure: what may happen to it, and what its machine handles.

Events of the checkpoints (`shardway.core.shard.checkpoints`), the pages that were read
(`shardway.core.shard.duplicates`), and what the lease's machine says are events of the shard, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from shardway.core.leases.tenure import commands as tenure_commands
from shardway.core.shard.checkpoints import events as checkpoint_events
from shardway.core.shard.duplicates import PageRead

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardway.core.ledger.ledger import Ledger
    from shardway.core.ledger.letters import DeadLetter
    from shardway.core.ledger.ticket import Ticket
    from shardway.errors import RegistryError
    from shardway.model import Position
    from shardway.policies import OrderPolicy


@dataclass(frozen=True, slots=True)
class PageCame:
    """Records follow all that came before; what the program's functions made of them is known."""

    records: Sequence[Any]
    ends_at: Position | None = None
    """The position where the page ends, if that is behind its last record."""
    held_bytes: int | None = None
    """The bytes that all the records take together, where that is known."""
    settled: Sequence[int] = ()
    """The numbers of the records that are not to be delivered: duplicates, and what was split into nothing."""
    unreadable: Mapping[int, BaseException] | None = None
    """The numbers of the records that become dead letters at once, with the reason."""

    def into(self, ledger: Ledger[Any], now_s: float) -> None:
        """Have the ledger take the records."""
        ledger.admit(
            self.records,
            now_s,
            ends_at=self.ends_at,
            held_bytes=self.held_bytes,
            settled=self.settled,
            unreadable=self.unreadable,
        )


@dataclass(frozen=True, slots=True)
class WindowKnown:
    """The window of duplicates is known, or will not be: what was kept back may go on."""


@dataclass(frozen=True, slots=True)
class CannotRead:
    """The program's deserializer cannot read some records of a delivery: they are not delivered."""

    ledger: Ledger[Any]
    """The ledger of the delivery, which may be a former ledger by then."""
    ticket: Ticket
    left_out: Sequence[tuple[int, BaseException]]
    """The places of the records, each with the error that was raised."""
    skips: bool
    """True: the records count as settled; False: they become dead letters."""


@dataclass(frozen=True, slots=True)
class MustWait:
    """The program's deserializer needs what it cannot have now, for a delivery whose records are not at fault."""

    ledger: Ledger[Any]
    """The ledger of the delivery, which may be a former ledger by then."""
    ticket: Ticket
    error: RegistryError
    """What it needs, or that this is on its way (``pending``)."""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The time of a `commands.Alarm` has come."""


@dataclass(frozen=True, slots=True)
class Drain:
    """The shard is about to go: deliver what lies before records that were delivered, which would come again. Wait
    until what is in flight is settled, letters are written, and nothing is pending.
    """

    until_s: float
    """The time at which the drain ends, whatever it still waits for."""


@dataclass(frozen=True, slots=True)
class RevokingDone:
    """The listeners have had their last words."""


@dataclass(frozen=True, slots=True)
class RevokingFailed:
    """One of the listeners has raised an error in its last words."""


@dataclass(frozen=True, slots=True)
class CallersSeen:
    """The answer to `commands.AskForCallers`: what goes on around the shard."""

    is_asked: bool
    """True: a caller may take what lies before records that were delivered."""
    calling: tuple[str, float] | None
    """The function of the program that a listener waits for before its last words, and for how many seconds; None: no
    function is called yet, or any more.
    """


@dataclass(frozen=True, slots=True)
class Resume:
    """The shard stays with this worker: the drain is called off."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """The worker lets the lease go right after this."""


@dataclass(frozen=True, slots=True)
class Seek:
    """Go on with another ledger. The machine refuses that (CheckpointError) while a checkpoint is pending."""

    ledger: Ledger[Any]
    """The new ledger; it is empty, for what follows the place from which on the shard is read."""


@dataclass(frozen=True, slots=True)
class Reorder:
    """Deliver in another order: nothing is read again, and what is in flight stays as it is."""

    order: OrderPolicy | None


@dataclass(frozen=True, slots=True)
class Fetched:
    """The shard has no more records than those that came."""


@dataclass(frozen=True, slots=True)
class HoldEnd:
    """The program is to be told before the shard is stored as ended."""


@dataclass(frozen=True, slots=True)
class EndTold:
    """The program was told that all of the shard is settled."""


@dataclass(frozen=True, slots=True)
class LetterWritten:
    """A dead letter is known to be written."""

    ledger: Ledger[Any]
    """The ledger that `commands.WriteLetter` named."""
    letter: DeadLetter[Any]


@dataclass(frozen=True, slots=True)
class LetterNotWritten:
    """A dead letter could not be written, or is not known to be written."""

    ledger: Ledger[Any]
    letter: DeadLetter[Any]
    error: BaseException


@dataclass(frozen=True, slots=True)
class Stop:
    """Deliver nothing more."""

    reason: str


Event: TypeAlias = (
    checkpoint_events.Event | PageRead | WindowKnown | PageCame | CannotRead | MustWait | TimerFired | Drain
    | RevokingDone | RevokingFailed | CallersSeen | Resume | HandOver | Seek | Reorder | Fetched | HoldEnd | EndTold
    | LetterWritten | LetterNotWritten | Stop | tenure_commands.FenceFell | tenure_commands.FenceLifted
    | tenure_commands.LeaseLost
)  # fmt: skip

TENURE_SAYS = (
    tenure_commands.CheckpointStored,
    tenure_commands.PendingStored,
    tenure_commands.FenceFell,
    tenure_commands.FenceLifted,
    tenure_commands.LeaseLost,
)
"""The commands of the lease's machine that are events here."""
