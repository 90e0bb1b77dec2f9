"""The data folder: every change of the service's state, appended to one file and made again at the next start.

The file is a line that names its format, then entries: length and CRC-32 of the content and a check of
these two (32 bits each, most significant byte first), and the content, a MessagePack list. ``["clock",
seconds]`` is a move of the service's clock, anything else a change of the service model. An entry is handed
to the operating system before its call is answered, so a process that is killed loses nothing that it
answered; a machine that fails may, unless ``fsync`` is set. An entry that a kill cut off is dropped at the
next start. Records that cannot be read any more (trimmed, or their stream is deleted) are thrown out at a
start once they are a quarter of the file.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.local.model import KinesisModel

FORMAT = b"penstock local journal 1\n"
WASTE_BYTES_MIN = 1024 * 1024
"""A journal with less than this to throw out is left as it is."""
WASTE_SHARE = 0.25

_HEAD = struct.Struct(">III")
_CHECK = 0x5A17C0DE
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class JournalError(PenstockError):
    """The data folder cannot be used: another process has it, or its content is damaged or of another version."""


class Journal:
    """The journal of one service. One process at a time may have a folder."""

    def __init__(self, folder: Path, *, fsync: bool = False) -> None:
        """Take the folder, making it if need be. Raises JournalError when another process has it."""
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "journal"
        self._fsync = fsync
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as fault:
            os.close(self._lock)
            raise JournalError(f"{folder} is in use by another local service") from fault
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._clock_s = 0.0

    def load(self, model: KinesisModel, advance: Callable[[float], object]) -> int:
        """Make all changes again, in a model that is new; returns their number. Raises JournalError."""
        if os.fstat(self._file).st_size < len(FORMAT):  # new, or cut off in its first line
            self._begin()
            return 0
        changes = 0
        puts: list[tuple[int, int, int]] = []
        with self._path.open("rb") as file:
            for content in _entries(file, self._cut_off):
                if content[0] == "clock":
                    self._clock_s += content[1]
                    advance(content[1])
                    continue
                model.apply(tuple(content))
                changes += 1
                if content[0] == "put":
                    puts.append((content[1], content[2], _text_bytes(content)))
        waste = sum(size for uid, arrival_ms, size in puts if _is_unreadable(model, uid, arrival_ms))
        if waste >= max(WASTE_BYTES_MIN, os.fstat(self._file).st_size * WASTE_SHARE):
            self._compact(model)
        return changes

    def record(self, change: tuple[Any, ...]) -> None:
        """Append a change that was made."""
        self._write(_entry(change))

    def record_clock(self, seconds: float) -> None:
        """Append a move of the clock."""
        self._clock_s += seconds
        self.record(("clock", seconds))

    def clear(self) -> None:
        """Forget all changes; the clock stays where it is."""
        self._begin()
        if self._clock_s:
            self.record(("clock", self._clock_s))

    def close(self) -> None:
        """Let go of the folder."""
        os.close(self._file)
        os.close(self._lock)

    def _begin(self) -> None:
        os.ftruncate(self._file, 0)
        self._write(FORMAT)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        if self._fsync:
            os.fdatasync(self._file)

    def _cut_off(self, offset: int) -> None:
        os.ftruncate(self._file, offset)

    # --- throwing out -------------------------------------------------------------------------------------

    def _compact(self, model: KinesisModel) -> None:
        fresh = self._path.with_suffix(".new")
        with self._path.open("rb") as file, fresh.open("wb") as out:
            out.write(FORMAT)
            for content in _entries(file, self._cut_off):
                kept = _kept(content, model)
                if kept is not None:
                    out.write(_entry(kept))
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(self._path)
        os.close(self._file)
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND)


def _entry(change: Sequence[Any]) -> bytes:
    content = _encode(change)
    crc = zlib.crc32(content)
    return _HEAD.pack(len(content), crc, len(content) ^ crc ^ _CHECK) + content


def _entries(file: IO[bytes], cut_off: Callable[[int], None]) -> Iterator[list[Any]]:
    """Read the contents one by one; a last entry that is not whole is cut off. Raises JournalError."""
    size = os.fstat(file.fileno()).st_size
    if file.read(len(FORMAT)) != FORMAT:
        raise JournalError(f"{file.name} is not a journal of this version of Penstock: name another folder")
    offset = len(FORMAT)
    while offset < size:
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            cut_off(offset)
            return
        length, crc, check = _HEAD.unpack(head)
        end = offset + _HEAD.size + length
        damaged = length ^ crc ^ _CHECK != check
        if not damaged and end > size:
            cut_off(offset)
            return
        content = b"" if damaged else file.read(length)
        if damaged or zlib.crc32(content) != crc:
            raise JournalError(f"{file.name} is damaged at byte {offset}: restore it, or name another folder")
        yield _decode(content)
        offset = end


def _is_unreadable(model: KinesisModel, uid: int, arrival_ms: int) -> bool:
    """True when records that arrived then are trimmed, or their stream is deleted."""
    stream = model.state.by_uid.get(uid)
    return stream is None or arrival_ms < stream.horizon_ms(model.now_ms())


def _text_bytes(put: list[Any]) -> int:
    return sum(len(text) for _, _, text, *_ in put[4])


def _kept(content: list[Any], model: KinesisModel) -> list[Any] | None:
    """The change as a compaction keeps it: whole, without the texts of trimmed records, or not at all.

    Of trimmed records their number and counters stay: iterators count records, and a shard's numbers go on from there.
    """
    if content[0] != "put" or not _is_unreadable(model, content[1], content[2]):
        return content
    kind, uid, arrival_ms, counter, parts = content
    if uid not in model.state.by_uid:
        return None
    bare = [[index, first, b"", bytes(len(lengths)), *rest] for index, first, _, lengths, *rest in parts]
    return [kind, uid, arrival_ms, counter, bare]
