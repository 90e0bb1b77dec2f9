"""Which callers ask for records, and will ask again: a handover waits for what only such a caller can take.

Between two of its calls a program is busy with what it was given. It comes back for the rest of a record's parts, or
for the keys that are behind, and until then nothing asks: so what counts is not which callers wait at this moment.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING
from weakref import WeakSet

from penstock.runtime.loop_thread import CALLER

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator
    from typing import Any, TypeAlias

    Caller: TypeAlias = asyncio.Task[Any] | threading.Thread


class Asking:
    """Callers of one shard, or of all. It is true while one of them may be expected to ask again."""

    def __init__(self) -> None:
        self._lasting: dict[object, Caller | None] = {}
        self._callers: WeakSet[Caller] = WeakSet()

    def __bool__(self) -> bool:
        return bool(self._lasting) or any(_is_here(caller) for caller in self._callers)

    @contextlib.contextmanager
    def lasts(self) -> Iterator[Callable[[], None]]:
        """An iteration: until it is left. It calls what it is given each time that it is asked for more."""
        iteration = object()

        def asked() -> None:
            self._lasting[iteration] = _caller()

        asked()
        try:
            yield asked
        finally:
            self._lasting.pop(iteration, None)

    def once(self) -> None:
        """A single call: as long as the task or thread lives that has made it, it may make another one."""
        if (caller := _caller()) is not None:
            self._callers.add(caller)

    def closes(self) -> None:
        """The current task or thread has closed the consumer: it takes nothing more meanwhile."""
        caller = _caller()
        if caller is not None:
            self._callers.discard(caller)
            for iteration in [one for one, by in self._lasting.items() if by is caller]:
                del self._lasting[iteration]


def _caller() -> Caller | None:
    return CALLER.get() or asyncio.current_task()


def _is_here(caller: Caller) -> bool:
    return not caller.done() if isinstance(caller, asyncio.Task) else caller.is_alive()
