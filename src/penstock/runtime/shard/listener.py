"""What hears of a shard that is read: the worker that holds it, and the parts of the consumer that hand it out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.core.feeding.pages import ChildShard
    from penstock.core.ledger.failing import Ending
    from penstock.runtime.shard.shard_reader import ShardReader


class ShardListener:
    """A part that derives from this says what it wants to hear (`ShardReader.listen`). It is called on the loop that
    reads the shard.
    """

    holds_end = False
    """True: `ending` is awaited before the shard is stored as ended."""

    @property
    def is_asked(self) -> bool:
        """True while a caller takes records of any shard, and will ask again."""
        return False

    # --- what the program hears, and does -------------------------------------------------------

    def stir(self, reader: ShardReader) -> None:
        """There may be something to take, or the reader is over."""

    def left(self, reader: ShardReader) -> None:
        """The program has left the iteration, while the shard is still held."""

    def let_go(self, reader: ShardReader) -> None:
        """The program does not want the shard any more."""

    async def leaving(self, reader: ShardReader) -> None:
        """The shard is about to be handed over: awaited within the drain's deadline. Checkpoints may still be put."""

    def calling(self) -> tuple[str, float] | None:
        """While `leaving` is awaited: the name of the program's function that is being called, and for how long it has
        run, in seconds. None: it is not called yet, or has returned, so what is waited for is this process.
        """
        return "on_shards_revoked", math.inf

    def resumed(self, reader: ShardReader) -> None:
        """A shard that was about to go stays."""

    async def ending(self, reader: ShardReader) -> None:
        """All records of a shard that has ended are settled; see ``holds_end``."""

    # --- what the worker hears -------------------------------------------------------------------

    def fence_moved(self, reader: ShardReader, fallen: bool) -> None:
        """Nothing is handed out for now, as writes to the lease are not confirmed; False: it is again."""

    async def fetched(self, reader: ShardReader, children: tuple[ChildShard, ...]) -> None:
        """The last record was fetched: awaited before the shard may be checkpointed as ended."""

    def gave_up(self, reader: ShardReader, ending: Ending) -> None:
        """The ledger's policies want the shard given up, or stopped."""

    def over(self, reader: ShardReader) -> None:
        """Nothing more is handed out. Comes once."""
