"""Note in which threads a function is called, for tests of what must not hold an event loop up."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

    import pytest


class Threads:
    """The threads in which a module's function was called with data of at least some size."""

    def __init__(self, patch: pytest.MonkeyPatch, module: ModuleType, function: str, bytes_min: int = 0) -> None:
        self.calls = 0
        self.on_loop = 0
        """The calls in the thread that made this."""
        real, here = getattr(module, function), threading.get_ident()

        def noted(data: bytes, *more: Any) -> Any:
            if len(data) >= bytes_min:
                self.calls += 1
                self.on_loop += threading.get_ident() == here
            return real(data, *more)

        patch.setattr(module, function, noted)
