# ruff: noqa: D102 - the methods of an event loop are documented where asyncio declares them
"""What asyncio lets a program set on each event loop: what hears of errors, what makes tasks, and the debug mode."""

from __future__ import annotations

import asyncio
from asyncio.log import logger
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class LoopOptions(asyncio.AbstractEventLoop):
    """The options of one loop, and what asyncio asks of a loop about them."""

    def __init__(self) -> None:
        self.on_error: Callable[[dict[str, Any]], None] | None = None
        """What hears of errors that no part has handled; None: asyncio's logger."""
        self._debug = False
        self._task_factory: Any = None

    def set_task_factory(self, factory: Any) -> None:
        self._task_factory = factory

    def get_task_factory(self) -> Any:
        return self._task_factory

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Give an error to ``on_error``, if that is set; else do as asyncio does by default."""
        if self.on_error is not None:
            self.on_error(context)
        else:
            self.default_exception_handler(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Write an error to asyncio's logger."""
        more = ", ".join(f"{name}={value!r}" for name, value in context.items() if name not in ("message", "exception"))
        logger.error("%s (%s)", context.get("message"), more, exc_info=context.get("exception"))

    def set_exception_handler(self, handler: Any) -> None:
        self.on_error = None if handler is None else lambda context: handler(self, context)

    def get_exception_handler(self) -> Any:
        return self.on_error

    def get_debug(self) -> bool:
        return self._debug

    def set_debug(self, enabled: bool) -> None:
        self._debug = enabled
