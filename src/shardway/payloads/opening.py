"""Open compressed data within a budget: gzip, zlib and zstd, whatever the bytes are."""

from __future__ import annotations

import math
import sys
import time
import zlib
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from shardway.errors import PayloadError
from shardway.extras import missing

if TYPE_CHECKING:
    from collections.abc import Callable


OPENED_BYTES_MAX = 16 * 1024 * 1024
"""The bytes that all layers of a record together may open to. A record has at most 10 MiB."""
MEMBERS_MAX = 1_000
"""The members of gzip and frames of zstd that a record may have in all its layers. A member may be empty: it takes 20
bytes and no less work than another.
"""
OPENING_MAX_S = 2.0
"""The seconds that the layers of a record may take together. No bound of bytes says how slow the machine is."""
SLICE_BYTES = 64 * 1024
"""The bytes that a decompressor is given at a time."""
PART_BYTES = 1024 * 1024
"""The bytes that a decompressor may return at a time."""
ZSTD_WINDOW_LOG_MAX = 27
"""The largest window of a frame, as a power of two: a decompressor holds so much (128 MiB), whatever the frame has."""


class BoundError(Exception):
    """A layer goes beyond what the record's budget has left. The message says which bound that is."""


class OpeningBudget:
    """What the opening of one record may take, for all its layers together."""

    def __init__(
        self,
        *,
        bytes_max: int = OPENED_BYTES_MAX,
        members_max: int = MEMBERS_MAX,
        time_max_s: float = OPENING_MAX_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.bytes_left = bytes_max
        """The bytes that the layers may still open to."""
        self._bounds = (bytes_max, members_max, time_max_s)
        self._members_left = members_max
        self._clock = clock
        self._end_s = clock() + time_max_s

    def work(self) -> None:
        """Look at the time, before one call of a decompressor. Raises an error where it is over."""
        if self._clock() > self._end_s:
            raise BoundError(f"it takes more than {self._bounds[2]:g} s to open")

    def member(self, count: int = 1) -> None:
        """Count members of gzip, or frames of zstd. Raises an error for too many."""
        self._members_left -= count
        if self._members_left < 0:
            raise BoundError(f"it has more than {self._bounds[1]} members")

    def spend(self, opened_bytes: int) -> None:
        """Count bytes that a layer opened to. Raises an error for too many."""
        self.bytes_left -= opened_bytes
        if self.bytes_left < 0:
            raise BoundError(f"it opens to more than {self._bounds[0]} bytes")


def inflated(data: bytes, window_bits: int, budget: OpeningBudget) -> bytes:
    """Return what is in the members of gzip, or in one stream of zlib. The data is fed in slices: a decompressor copies
    all that it was given and has not used, so whole data for each member would take quadratic time.
    """
    parts, at, view = [], 0, memoryview(data)
    while at < len(data):
        budget.member()
        machine = zlib.decompressobj(window_bits)
        given: bytes | memoryview = b""
        while not machine.eof:
            budget.work()
            if not given:
                given = view[at : at + SLICE_BYTES]
                at += len(given)
            part = machine.decompress(given, min(PART_BYTES, budget.bytes_left + 1))
            if not part and not given:
                raise EOFError
            budget.spend(len(part))
            parts.append(part)
            given = machine.unconsumed_tail
        at -= len(machine.unused_data)  # gzip may have several members
    return b"".join(parts)


def zstd_library() -> Any:
    """Return the standard library's module, or its backport before Python 3.14. Raises ImportError without it."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def decompressed(data: bytes, zstd: Any, budget: OpeningBudget) -> bytes:
    """Return what is in the frames of zstd. The data is fed in slices, as that of gzip is."""
    parts, at, view = [], 0, memoryview(data)
    while at < len(data):
        budget.member()
        machine = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG_MAX})
        while not machine.eof:
            budget.work()
            given: bytes | memoryview = b""
            if machine.needs_input:
                given = view[at : at + SLICE_BYTES]
                at += len(given)
            part = machine.decompress(given, min(PART_BYTES, budget.bytes_left + 1))
            if not part and not given:
                raise EOFError
            budget.spend(len(part))
            parts.append(part)
        at -= len(machine.unused_data)
    return b"".join(parts)


def check_zstd(what: str) -> None:
    """Raise ModuleNotFoundError where no library for zstd is there; ``what`` is what needs it."""
    try:
        zstd_library()
    except ImportError:
        raise missing("inspect", what, "backports.zstd") from None


Compression: TypeAlias = Literal["gzip", "zstd", "auto"]
"""The compressions that data is opened from; ``auto`` takes gzip and zstd by their first bytes, and other data as it
is.
"""
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
"""The first bytes of either kind."""


def unpacked(data: bytes, compression: Compression, *, opened_bytes_max: int = OPENED_BYTES_MAX) -> bytes:
    """Return what is in compressed data. Raises PayloadError for what is not whole, or opens to more than the bound.

    No bound of time holds here, so that the same data always has the same outcome. Raises ImportError for zstd where
    no library for it is there.
    """
    if compression == "auto":
        if not data.startswith((GZIP, ZSTD)):
            return data
        compression = "gzip" if data.startswith(GZIP) else "zstd"
    if not data:
        raise PayloadError(f"it is no {compression}: it is empty")
    budget = OpeningBudget(bytes_max=opened_bytes_max, time_max_s=math.inf)
    zstd: Any = zstd_library() if compression == "zstd" else None
    broken: tuple[type[Exception], ...] = (zlib.error,) if zstd is None else (zstd.ZstdError,)
    try:
        return inflated(data, 31, budget) if zstd is None else decompressed(data, zstd, budget)
    except BoundError as fault:
        raise PayloadError(f"it is {compression}, and {fault}") from None
    except EOFError:
        raise PayloadError(f"it is {compression} that is cut off") from None
    except broken:
        raise PayloadError(f"it is no {compression}, or broken") from None
