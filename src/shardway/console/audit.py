"""The audit log has a line of JSON for each write, each view of payloads and each sign-in, which is on the disk before
either begins.

`written` is the one way in which the console writes: the log has the write before it is begun, and its outcome after.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import secrets
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from shardway.errors import ShardwayError

if TYPE_CHECKING:
    from shardway.console.security.visitors import Visitor


SHOWN_MAX = 200
"""The newest lines of the log, which its page shows."""
TAIL_BYTES_MAX = 512 * 1024
"""The bytes at the end of the file that are read for that page."""


class AuditError(ShardwayError):
    """The audit log cannot be written. What would have been done was not done."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the log."""

    at: dt.datetime
    id: str
    """The id of the line. Both lines of a write, before it is begun and after, have the same id."""
    action: str
    """``records.viewed``, ``app.sought``, ``local.clock``, ``session.signed_in`` and so on."""
    outcome: str
    """``viewed``; or ``begun``, and then ``done``, ``partly``, ``refused`` or ``unknown``. A sign-in or a link is
    ``done``, or ``refused``.
    """
    user: str
    role: str
    peer: str
    target: dict[str, Any] = {}
    """What the line is about: stream, shards, application, positions. It has no payload and no key."""
    before: Any = None
    after: Any = None
    error: str | None = None


class AuditLog:
    """Appends to one file, which its owner alone may read and write: the mode of a file that is there is set to that. A
    link is not followed. Any thread may use it.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()

    async def viewed(self, visitor: Visitor, action: str, target: dict[str, Any]) -> None:
        """Note that payloads are about to be shown. Raises AuditError: then they must not be."""
        await asyncio.to_thread(self._append, _entry(visitor, action, "viewed", target), secrets.token_hex(8))

    async def session(self, action: str, outcome: str, user: str, role: str, peer: str) -> None:
        """Note a sign-in, one that failed, or a link for another browser. Raises AuditError."""
        values = {"action": f"session.{action}", "outcome": outcome, "user": user, "role": role, "peer": peer}
        await asyncio.to_thread(self._append, values, secrets.token_hex(8))

    async def begun(self, visitor: Visitor, action: str, target: dict[str, Any], before: Any, after: Any) -> str:
        """Note a write before it is begun, and return the id for `ended`. Raises AuditError: then the write must not be
        begun.
        """
        number = secrets.token_hex(8)
        values = {**_entry(visitor, action, "begun", target), "before": before, "after": after}
        await asyncio.to_thread(self._append, values, number)
        return number

    async def ended(
        self, visitor: Visitor, action: str, number: str, outcome: str, *, after: Any = None, error: str | None = None
    ) -> None:
        """Note how a write ended. Raises AuditError."""
        values = {**_entry(visitor, action, outcome, {}), "after": after, "error": error}
        await asyncio.to_thread(self._append, values, number)

    def _append(self, values: dict[str, Any], number: str) -> None:
        line = msgspec.json.encode(Entry(id=number, at=dt.datetime.now(dt.UTC), **values)) + b"\n"
        try:
            with self._lock:
                self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                # A link could lead to any file of the console's user, and a pipe would wait for its reader.
                flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
                descriptor = os.open(self.path, flags, 0o600)
                try:
                    _write_line(descriptor, line)
                finally:
                    os.close(descriptor)
        except OSError as fault:
            raise AuditError(f"the audit log {self.path} cannot be written: {fault.strerror or fault}") from fault

    def newest(self) -> list[Entry]:
        """Return the entries, the newest first, without lines that are no entries. Raises AuditError."""
        try:
            if not self.path.exists():
                return []
            with self.path.open("rb") as file:
                file.seek(max(0, self.path.stat().st_size - TAIL_BYTES_MAX))
                lines = file.read(TAIL_BYTES_MAX).splitlines()[-SHOWN_MAX:]
        except OSError as fault:
            raise AuditError(f"the audit log {self.path} cannot be read: {fault.strerror or fault}") from fault
        found = []
        for line in reversed(lines):
            try:
                found.append(msgspec.json.decode(line, type=Entry))
            except msgspec.DecodeError:
                continue
        return found


def _write_line(descriptor: int, line: bytes) -> None:
    """Append a line to the file, and wait until it is on the disk. Raises OSError."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(0, "it is no file")
    if found.st_mode & 0o077:  # as a file that another program has made
        os.fchmod(descriptor, 0o600)
    # The disk may have been full, or the power gone, in the middle of the line before.
    if found.st_size > 0 and os.pread(descriptor, 1, found.st_size - 1) != b"\n":
        line = b"\n" + line
    if os.write(descriptor, line) != len(line):
        raise OSError(0, "the disk took only a part of the line")
    os.fsync(descriptor)


def _entry(visitor: Visitor, action: str, outcome: str, target: dict[str, Any]) -> dict[str, Any]:
    return {
        "action": action,
        "outcome": outcome,
        "user": visitor.name,
        "role": visitor.role.value,
        "peer": visitor.peer,
        "target": target,
    }
