"""Write to a terminal of any encoding, and take all of it, with the keys that are pressed."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import errno
import io
import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


ENTER = "\x1b[?1049h\x1b[?25l"
LEAVE = "\x1b[?25h\x1b[?1049l"


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The errors of a write to a disk that is full, or to a file that may not grow."""
_ESCAPES = "shardway-escapes"


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def prepare_output() -> None:
    """Let standard output and standard error take every text. A file or a pipe gets UTF-8, whatever the locale says, as
    JSON wants it. A terminal keeps its encoding, and gets a character that this lacks as JSON escapes it.
    """
    codecs.register_error(_ESCAPES, _escape)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a program that runs the command may have put another one there
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors=_ESCAPES)


def drop_output() -> None:
    """Let what standard output still holds go nowhere: at its end, Python would try to write it again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def write_text(text: str) -> None:
    """Write the whole text, in as few writes as the terminal takes."""
    sys.stdout.flush()
    left = text.encode(sys.stdout.encoding, _ESCAPES)
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
