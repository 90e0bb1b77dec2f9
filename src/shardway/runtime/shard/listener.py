"""The surroundings of a shard that is read: how it came to its consumer, which callers ask for it, what hears of it.

The worker that holds it and the parts of the consumer that deliver it derive from `ShardListener`. `Callers` knows
which callers will ask again: a handoff waits for what only such a caller can take. Between two of its calls a program
is busy with what it was given. It comes back for the rest of a record's parts, or for the keys that are behind, and
until then nothing asks: so what counts is not which callers wait at this moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from enum import Enum
from typing import TYPE_CHECKING
from weakref import WeakSet

from shardway.runtime.threads.loop_thread import CALLER

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator
    from typing import Any, TypeAlias

    from shardway.core.leases.tenure import commands as tenure_commands
    from shardway.core.ledger.failures import GiveUpReason
    from shardway.core.log.pages import ChildShard
    from shardway.runtime.shard.shard_reader import ShardReader

    Caller: TypeAlias = asyncio.Task[Any] | threading.Thread


class Origin(Enum):
    """The ways in which a shard comes to this consumer."""

    NEW = "new"
    """No consumer has settled any record of the shard yet."""
    CONTINUED = "continued"
    """The shard was free: the consumer that had it before has given it up."""
    HANDED_OVER = "handed over"
    """A consumer that lives has handed the shard over, and delivered its records until now."""
    TAKEN = "taken"
    """The shard was taken from a consumer that fell silent, or from a KCL worker that had too many. Records whose
    settlement that one had not stored come again.
    """
    KEPT = "kept"
    """The shard was about to go, or its lease was in doubt, and it stays."""


class Callers:
    """The callers of one shard, or of all. It is true while one of them may be expected to ask again."""

    def __init__(self) -> None:
        self._lasting_callers: dict[object, Caller | None] = {}
        self._callers: WeakSet[Caller] = WeakSet()

    def __bool__(self) -> bool:
        return bool(self._lasting_callers) or any(_is_here(caller) for caller in self._callers)

    @contextlib.contextmanager
    def lasts(self) -> Iterator[Callable[[], None]]:
        """Count the caller of an iteration until it is left. The iteration calls the given function each time that it
        is asked for more.
        """
        iteration = object()

        def note_caller() -> None:
            self._lasting_callers[iteration] = _caller()

        note_caller()
        try:
            yield note_caller
        finally:
            self._lasting_callers.pop(iteration, None)

    def once(self) -> None:
        """Count the caller of a single call: as long as the task or thread lives that has made it, it may make another
        one.
        """
        if (caller := _caller()) is not None:
            self._callers.add(caller)

    def closes(self) -> None:
        """Forget the current task or thread: it has closed the consumer, and takes nothing more meanwhile."""
        caller = _caller()
        if caller is not None:
            self._callers.discard(caller)
            for iteration in [one for one, by in self._lasting_callers.items() if by is caller]:
                del self._lasting_callers[iteration]


def _caller() -> Caller | None:
    return CALLER.get() or asyncio.current_task()


def _is_here(caller: Caller) -> bool:
    return not caller.done() if isinstance(caller, asyncio.Task) else caller.is_alive()


class ShardListener:
    """The base of a part that hears of a shard (`ShardReader.listen`). It is called on the loop that reads the
    shard.
    """

    holds_end = False
    """True: `ending` is awaited before the shard is stored as ended."""

    @property
    def is_asked(self) -> bool:
        """True while a caller takes records of any shard, and will ask again."""
        return False

    # --- what the program hears, and does -------------------------------------------------------

    def stir(self, reader: ShardReader) -> None:
        """Hear that there may be something to take, or that the reader is over."""

    def left(self, reader: ShardReader) -> None:
        """Hear that the program has left the iteration, while the shard is still held."""

    def let_go(self, reader: ShardReader) -> None:
        """Hear that the program does not want the shard any more."""

    async def leaving(self, reader: ShardReader) -> None:
        """Hear that the shard is about to be handed over: awaited within the drain's deadline. Checkpoints may still be
        put.
        """

    def calling(self) -> tuple[str, float] | None:
        """Return the name of the program's function that is being called while `leaving` is awaited, and for how long
        it has run, in seconds. None: it is not called yet, or has returned, so what is waited for is this process.
        """
        return "on_shards_revoked", math.inf

    def resumed(self, reader: ShardReader) -> None:
        """Hear that a shard that was about to go stays."""

    async def ending(self, reader: ShardReader) -> None:
        """Hear that all records of a shard that has ended are settled; see ``holds_end``."""

    # --- what the worker hears -------------------------------------------------------------------

    def fence_moved(self, reader: ShardReader, fallen: bool) -> None:
        """Hear that nothing is delivered for now, as writes to the lease are not confirmed; False: that it is again."""

    def lease_goes(self, reader: ShardReader, command: tenure_commands.Departure) -> None:
        """Hear that the lease is to be handed over, was handed over, or is lost; the reader knows it already."""

    async def fetched(self, reader: ShardReader, children: tuple[ChildShard, ...]) -> None:
        """Hear that the last record was fetched: awaited before the shard may be checkpointed as ended."""

    def gave_up(self, reader: ShardReader, ending: GiveUpReason) -> None:
        """Hear that the ledger's policies want the shard given up, or stopped."""

    def over(self, reader: ShardReader) -> None:
        """Hear that nothing more is delivered. It is called once."""
