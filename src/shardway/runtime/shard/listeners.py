"""The listeners of one shard: what hears of it, all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.core.shard import commands
from shardway.runtime.shard.listener import ShardListener

if TYPE_CHECKING:
    from typing import TypeAlias

    from shardway.core.leases.tenure import commands as tenure_commands
    from shardway.core.log.pages import ChildShard
    from shardway.runtime.shard.shard_reader import ShardReader

    Change: TypeAlias = commands.GaveUp | commands.FenceMoved | commands.Resumed


class Listeners:
    """The parts that hear of one shard, in the order in which they were added."""

    def __init__(self, reader: ShardReader) -> None:
        """``reader``: what the listeners know the shard by."""
        self._reader = reader
        self._listeners: tuple[ShardListener, ...] = ()
        self._stir_listeners: tuple[ShardListener, ...] = ()
        self._revoking_listener: ShardListener | None = (
            None  # The listener that is telling the program that the shard goes.
        )

    def add(self, listener: ShardListener) -> None:
        """Add a listener: it hears of the shard."""
        self._set((*self._listeners, listener))

    def remove(self, listener: ShardListener) -> None:
        """Remove a listener: it hears nothing more."""
        self._set(tuple(one for one in self._listeners if one is not listener))

    def _set(self, listeners: tuple[ShardListener, ...]) -> None:
        # A shard stirs with each record that is settled alone: those that do not want to hear of it are left out.
        self._stir_listeners = tuple(one for one in listeners if type(one).stir is not ShardListener.stir)
        self._listeners = listeners

    @property
    def are_asked(self) -> bool:
        """True while a caller takes records of any shard, and will ask again."""
        return any(one.is_asked for one in self._listeners)

    def stir(self) -> None:
        """See `ShardListener.stir`."""
        for listener in self._stir_listeners:
            listener.stir(self._reader)

    def left(self) -> None:
        """See `ShardListener.left`."""
        for listener in self._listeners:
            listener.left(self._reader)

    def let_go(self) -> None:
        """See `ShardListener.let_go`."""
        for listener in self._listeners:
            listener.let_go(self._reader)

    def lease_goes(self, command: tenure_commands.Departure) -> None:
        """See `ShardListener.lease_goes`."""
        for listener in self._listeners:
            listener.lease_goes(self._reader, command)

    def changed(self, change: Change) -> None:
        """See `ShardListener.gave_up`, `ShardListener.fence_moved` and `ShardListener.resumed`."""
        for listener in self._listeners:
            match change:
                case commands.GaveUp(ending=ending):
                    listener.gave_up(self._reader, ending)
                case commands.FenceMoved(fallen=fallen):
                    listener.fence_moved(self._reader, fallen)
                case commands.Resumed():
                    listener.resumed(self._reader)

    def over(self) -> None:
        """See `ShardListener.over`."""
        for listener in self._listeners:
            listener.over(self._reader)

    async def fetched(self, children: tuple[ChildShard, ...]) -> None:
        """See `ShardListener.fetched`."""
        for listener in self._listeners:
            await listener.fetched(self._reader, children)

    async def ending(self) -> None:
        """See `ShardListener.ending`."""
        for listener in self._listeners:
            if listener.holds_end:
                await listener.ending(self._reader)

    async def leaving(self) -> None:
        """See `ShardListener.leaving`."""
        try:
            for listener in self._listeners:
                self._revoking_listener = listener
                await listener.leaving(self._reader)
        finally:
            self._revoking_listener = None

    def calling(self) -> tuple[str, float] | None:
        """See `ShardListener.calling`, of the listener for which `leaving` is waiting now."""
        return None if self._revoking_listener is None else self._revoking_listener.calling()
