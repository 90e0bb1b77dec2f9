"""Take the whole terminal, and the keys that are pressed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


ENTER = "\x1b[?1049h\x1b[?25l"
LEAVE = "\x1b[?25h\x1b[?1049l"


def write_text(text: str) -> None:
    """Write the whole text, in as few writes as the terminal takes."""
    sys.stdout.flush()
    left = text.encode(errors="replace")
    while left:
        left = left[os.write(sys.stdout.fileno(), left) :]


@contextlib.contextmanager
def whole_screen() -> Iterator[None]:
    """Switch to a screen of the command's own until the block ends; then what was on the terminal comes back."""
    write_text(ENTER)
    try:
        yield
    finally:
        write_text(LEAVE)


@contextlib.contextmanager
def pressed_keys(on_key: Any) -> Iterator[None]:
    """Call ``on_key`` with keys as they are pressed, without showing them, until the block ends. Where standard input
    is no terminal there are none.
    """
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    descriptor, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(descriptor)

    def read() -> None:
        pressed = os.read(descriptor, 64).decode(errors="replace")
        if not pressed:  # the terminal is gone
            on_key("q")
        for key in [pressed] if pressed.startswith("\x1b") else pressed:
            on_key(key)

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
