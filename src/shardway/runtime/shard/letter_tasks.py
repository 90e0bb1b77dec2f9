"""The tasks that write the dead letters of one shard, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.core.shard.events import LetterNotWritten, LetterWritten
from shardway.tasks import spawn

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from shardway.core.shard.commands import WriteLetter
    from shardway.runtime.dead_letters.shard_letters import LetterWriter
    from shardway.tasks import Heard


class LetterTasks:
    """Writes the letters that the shard's machine returns, and reports to it which are written."""

    def __init__(
        self,
        writer: LetterWriter | None,
        tell: Callable[[LetterWritten | LetterNotWritten], None],
        failed: Heard,
    ) -> None:
        """``tell`` takes events of the machine; ``failed`` hears of a task that ends by an error of its own."""
        self._writer = writer
        self._tell = tell
        self._on_failure = failed
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, given: WriteLetter) -> None:
        """Begin to write a letter."""
        task = spawn(self._write(given), self._on_failure)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def drop(self) -> None:
        """Stop the writing of letters: the next owner, or the next ledger, delivers their records again."""
        for task in self._tasks:
            task.cancel()

    async def _write(self, given: WriteLetter) -> None:
        ledger, letter = given.ledger, given.letter
        assert self._writer is not None, "no letter is due where none is written"
        error = await self._writer.write(letter)
        self._tell(LetterWritten(ledger, letter) if error is None else LetterNotWritten(ledger, letter, error))
