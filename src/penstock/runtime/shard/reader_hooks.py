"""What a shard's reader shows of itself, and which functions it calls: all are those of the consumer that has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import ShardStoppedError
from penstock.runtime.home import Here
from penstock.runtime.shard.asking import Asking
from penstock.runtime.shard.origin import Origin

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.core.feeding.pages import ChildShard
    from penstock.core.leases import LeaseRow
    from penstock.core.leases.checkpoint import Checkpoint
    from penstock.core.leases.tenure import Loss
    from penstock.core.ledger.endings import Ending
    from penstock.core.ledger.ledger import Ledger
    from penstock.core.shard.checkpoints import Checkpoints
    from penstock.model import Record
    from penstock.runtime.home import Home
    from penstock.runtime.shard.filling import Filling
    from penstock.runtime.shard.ledgers import Ledgers
    from penstock.runtime.shard.shard_reader import ShardReader
    from penstock.runtime.shard.tenure_keeper import TenureKeeper
    from penstock.runtime.shard.values import Values


class ReaderHooks:
    """The base of `ShardReader`, which sets its parts."""

    _keeper: TenureKeeper
    _ledgers: Ledgers
    _checkpoints: Checkpoints
    _filling: Filling

    def __init__(self) -> None:
        self.home: Home = Here()
        """Where it runs; the callers that read may be on another loop."""
        self._lock = self.home.lock
        self._signal = self.home.signal()  # for the callers that read
        self.origin = Origin.NEW
        """How the shard came to this consumer."""
        self.is_over = False
        """Nothing more is handed out: the shard is done, or the lease is gone."""
        self.over_because = ""
        """Why."""
        self.has_ended = False
        """The shard is done, and stored as ended."""
        self.lost: Loss | None = None
        """Why the tenure ended, if it did against its will."""
        self.failure: BaseException | None = None
        """What ended the reading: raised where records are asked for."""
        self.values: Values[Record] | None = None
        """Makes values of the records' bytes; None: they stay bytes."""
        self.paused = False
        """True: nothing is handed out, and fetching goes on up to its bounds. See `ShardReader.pause`."""
        self.is_iterated = False
        """True while the program iterates it."""
        self.records_delivered = 0
        """Handed out so far; those that came again are counted again."""
        self.batches_delivered = 0
        self.let_go: Callable[[], None] | None = None
        """Frees the shard for any worker. The worker that holds the shard sets it."""
        self.asking = Asking()
        """Callers that take records of this shard."""
        self.is_asked: Callable[[], bool] = lambda: False
        """True while there are callers that take records of any shard."""
        self.on_stir: Callable[[ShardReader], None] | None = None
        """Called when there may be something to take, or the reader is over."""
        self.on_left: Callable[[ShardReader], None] | None = None
        """Called when the program has left the iteration, while the shard is still held."""
        self.on_fence: Callable[[bool], None] | None = None
        """Hears True when nothing is handed out for now, as writes to the lease are not confirmed; False: again."""
        self.on_resume: Callable[[], None] | None = None
        """Called when a shard that was about to go stays."""
        self.before_leaving: Callable[[], Awaitable[object]] | None = None
        """Awaited before the shard is handed over, within the drain's deadline: checkpoints may still be put then."""
        self.calling: Callable[[], tuple[str, float] | None] | None = None
        """The name of the program's function that is being called before that, and for how long it has run, in seconds.
        None: it is not called yet, or has returned, so what is waited for is this process. Without the hook the waiting
        counts as the program's.
        """
        self.before_end: Callable[[], Awaitable[None]] | None = None
        """Awaited when all records of a shard that has ended are settled, before it is stored as ended."""
        self.on_over: Callable[[ShardReader], None] | None = None
        """Called once, when nothing more is handed out."""

    def lives(self, home: Home) -> None:
        """Say where it runs, before the program reads it."""
        self.home, self._lock, self._signal = home, home.lock, home.signal()
        if (let_go := self.let_go) is not None:
            self.let_go = lambda: home.ask(let_go)

    @property
    def ledger(self) -> Ledger[Record]:
        """The ledger of what was handed out and settled. After each `seek` it is another one."""
        return self._ledgers.current

    @property
    def checkpoint_max(self) -> Checkpoint | None:
        """Nothing behind this is checkpointed, settled or not, nor is the shard stored as ended; see `checkpoint_to`.
        None: what is settled is checkpointed.
        """
        return self._checkpoints.bound

    @property
    def stored(self) -> Checkpoint:
        """The checkpoint that the lease is known to hold."""
        return self._keeper.row.checkpoint

    @property
    def settled(self) -> Checkpoint:
        """How far all is settled; once that is stored, a new owner goes on behind it."""
        return self.ledger.safe

    @property
    def row(self) -> LeaseRow:
        """The lease as it was last confirmed."""
        return self._keeper.row

    @property
    def token(self) -> int:
        """Grows with every owner of the shard."""
        return self._keeper.token

    @property
    def read_at_s(self) -> float:
        """When the shard was last read with success (the loop's clock); before that, when reading began."""
        return self._filling.read_at_s

    @property
    def children(self) -> tuple[ChildShard, ...]:
        """The children of a shard that has ended."""
        return self._filling.children

    @property
    def millis_behind_latest(self) -> int | None:
        """How old the shard's newest record was when it was read last; 0 at the tip, None: not told yet."""
        return self._filling.millis_behind_latest


def stopped(stream: str, shard_id: str, ending: Ending) -> ShardStoppedError:
    """The error for a program that asks for records of a shard that the policies have stopped."""
    why = ending.reason if ending.error is None else f"{ending.reason}: {type(ending.error).__name__}"
    error = ShardStoppedError(
        f"{stream}, {shard_id}: nothing more is handed out ({why}): mend the cause, and start the consumer anew; or "
        "choose Skip, DeadLetters or GiveUp in place of Stop"
    )
    error.__cause__ = ending.error
    return error
