"""The data folder: every change of the service's state is appended to one file and made again at the next start.

The file is a line that names its format, then entries: length and CRC-32 of the content and a check of
these two (32 bits each, most significant byte first), and the content, a MessagePack list. ``["clock",
seconds]`` is a move of the service's clock, ``["region", name, ...]`` a change of the service model in another region
than the service's own, anything else one in its own. An entry is handed
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

from shardway.errors import ShardwayError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shardway.local.model import KinesisModel

FORMAT = b"shardway local journal 1\n"
OWNER_ONLY = 0o600
"""The mode of the journal's file, which holds records."""
WASTE_BYTES_MIN = 1024 * 1024
"""The bytes of waste from which on a journal is compacted; one with less is left as it is."""
WASTE_SHARE = 0.25

REGION = "region"
"""The first word of an entry of another region: ``["region", name, ...]`` and the change."""

_HEAD = struct.Struct(">III")
_CHECK = 0x5A17C0DE
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class JournalError(ShardwayError):
    """The data folder cannot be used: another process has it, or its content is damaged or of another version."""


class Journal:
    """The journal of one service. One process at a time may have a folder."""

    def __init__(self, folder: Path, *, fsync: bool = False) -> None:
        """Take the folder, and make it where there is none. Raises JournalError when another process has it."""
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "journal"
        self._fsync = fsync
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, OWNER_ONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as fault:
            os.close(self._lock)
            raise JournalError(f"{folder} is in use by another local service") from fault
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, OWNER_ONLY)
        os.fchmod(self._file, OWNER_ONLY)  # a copy that was put here may be open to others
        self._clock_s = 0.0

    def load(
        self,
        model: KinesisModel,
        advance: Callable[[float], object],
        elsewhere: Callable[[str], KinesisModel] | None = None,
    ) -> int:
        """Make all changes again in a new model, and return their number. Raises JournalError.

        ``elsewhere`` gives the model of another region, by its name; each is new.
        """
        models = _Models(model, elsewhere)
        if os.fstat(self._file).st_size < len(FORMAT):  # new, or cut off in its first line
            self._begin()
            return 0
        changes = 0
        puts: list[tuple[str | None, int, int, int]] = []
        with self._path.open("rb") as file:
            for content in _entries(file, self._cut_off):
                if content[0] == "clock":
                    self._clock_s += content[1]
                    advance(content[1])
                    continue
                region, change = _of_region(content)
                models.of(region).apply(tuple(change))
                changes += 1
                if change[0] == "put":
                    puts.append((region, change[1], change[2], _text_bytes(change)))
        waste = sum(size for region, uid, at_ms, size in puts if _is_unreadable(models.of(region), uid, at_ms))
        if waste >= max(WASTE_BYTES_MIN, os.fstat(self._file).st_size * WASTE_SHARE):
            self._compact(models)
        return changes

    def record(self, change: tuple[Any, ...]) -> None:
        """Append a change that was made."""
        self._write(_entry(change))

    def recording(self, region: str) -> Callable[[tuple[Any, ...]], None]:
        """Return a function that appends the changes of another region than the service's own."""
        return lambda change: self.record((REGION, region, *change))

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

    def _compact(self, models: _Models) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.unlink(missing_ok=True)  # a start that was killed may have left it
        with self._path.open("rb") as file, open(fresh, "xb", opener=_for_owner_only) as out:
            out.write(FORMAT)
            for content in _entries(file, self._cut_off):
                region, change = _of_region(content)
                kept = _compact_change(change, models.of(region))
                if kept is not None:
                    out.write(_entry(kept if region is None else [REGION, region, *kept]))
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(self._path)
        os.close(self._file)
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND)


class _Models:
    """The models of a service's regions."""

    def __init__(self, home: KinesisModel, elsewhere: Callable[[str], KinesisModel] | None) -> None:
        self._home = home
        self._other_model = elsewhere
        self._other_models: dict[str, KinesisModel] = {}

    def of(self, region: str | None) -> KinesisModel:
        """Return the model of a region; None is the service's own region. Raises JournalError where it is not known."""
        if region is None:
            return self._home
        if region not in self._other_models:
            if self._other_model is None:
                raise JournalError(f"the journal has changes of the region {region}, and there is none here")
            self._other_models[region] = self._other_model(region)
        return self._other_models[region]


def _of_region(content: list[Any]) -> tuple[str | None, list[Any]]:
    """Return the region of an entry (None: the service's own), and the change."""
    return (content[1], content[2:]) if content[0] == REGION else (None, content)


def _for_owner_only(path: str, flags: int) -> int:
    return os.open(path, flags, OWNER_ONLY)


def _entry(change: Sequence[Any]) -> bytes:
    content = _encode(change)
    crc = zlib.crc32(content)
    return _HEAD.pack(len(content), crc, len(content) ^ crc ^ _CHECK) + content


def _entries(file: IO[bytes], cut_off: Callable[[int], None]) -> Iterator[list[Any]]:
    """Yield the contents one by one; a last entry that is not whole is cut off. Raises JournalError."""
    size = os.fstat(file.fileno()).st_size
    if file.read(len(FORMAT)) != FORMAT:
        raise JournalError(f"{file.name} is not a journal of this version of Shardway: name another folder")
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
    """Return True when records that arrived at this time are trimmed, or their stream is deleted."""
    stream = model.state.by_uid.get(uid)
    return stream is None or arrival_ms < stream.horizon_ms(model.now_ms())


def _text_bytes(put: list[Any]) -> int:
    return sum(len(text) for _, _, text, *_ in put[4])


def _compact_change(content: list[Any], model: KinesisModel) -> list[Any] | None:
    """Return the change as a compaction keeps it: whole, without the texts of trimmed records, or not at all (None).

    The number and the counters of trimmed records stay: iterators count records, and a shard's numbers go on from
    there.
    """
    if content[0] != "put" or not _is_unreadable(model, content[1], content[2]):
        return content
    kind, uid, arrival_ms, counter, parts = content
    if uid not in model.state.by_uid:
        return None
    bare = [[index, first, b"", bytes(len(lengths)), *rest] for index, first, _, lengths, *rest in parts]
    return [kind, uid, arrival_ms, counter, bare]
