"""The buffer of one consumer: how much memory its fetched records may take.

Each shard has a `Share` of it. One half of the bound is divided evenly: a shard that holds less than its part may
always fetch, so a shard whose handler hangs keeps no other shard waiting. The other half is for the shards that are
behind, in the order in which they ask.

GetRecords takes a number of records, not of bytes. So a share learns from each page what a Kinesis record takes, asks
for as many as fit, and reserves their room until the page is there. A page whose records are larger than those before
it can pass the bound by what it is larger. So can shards that come while others hold more than their new, smaller part,
until those others have settled.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from shardway.core.log.pace import RECORDS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any


_MIB = 1024 * 1024
BUFFER_BYTES_MAX = 256 * _MIB
PAGE_BYTES_MAX = 16 * _MIB
"""The most memory that one page takes, by estimate: 10 MiB of data (AWS API reference, GetRecords), and what Python
adds.
"""
FIRST_RECORD_BYTES = 64 * 1024
"""The size that a Kinesis record counts with until a page has shown better: an aggregate of tiny records takes that."""
WORTH_BYTES = 256 * 1024
"""A shard that holds records does not fetch for less room than this: tiny pages would use up the shard's five calls."""
FALL = 0.7
"""How far the learned size of a record falls at most with each page, as a part; it rises at once."""


class Buffer:
    """The buffer of one consumer: the bound that its shards share."""

    def __init__(
        self,
        bytes_max: int = BUFFER_BYTES_MAX,
        *,
        shard_bytes_max: int | None = None,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        """``shard_bytes_max``: the most bytes that one shard may hold; None: as much as the bound. ``lock``: it is held
        during each change, where several threads make them; the same thread may take it again.
        """
        self.lock = nullcontext() if lock is None else lock
        self.bytes_max = bytes_max
        self.shard_bytes_max = bytes_max if shard_bytes_max is None else shard_bytes_max
        self._shares: set[Share] = set()
        self._used_shares: dict[Share, None] = {}  # The shares that hold or have reserved something.
        self._waiting_shares: dict[Share, None] = {}  # The share that asked first stands first.
        self._common_bytes: int | None = 0  # The bytes that all shares have of the common half; None: to be counted.

    def share(self, wake: Callable[[], None]) -> Share:
        """Return room for one shard. ``wake`` is called when a share that got no room may ask again."""
        with self.lock:
            share = Share(self, wake)
            self._shares.add(share)
            self._divide()
            return share

    @property
    def bytes_held(self) -> int:
        """The bytes that all shards hold and have reserved."""
        return sum(share.held + share.reserved for share in self._shares)

    @property
    def part_bytes(self) -> int:
        """The bytes of a shard's part of the half that is divided."""
        return self.bytes_max // 2 // max(1, len(self._shares))

    @property
    def common_left(self) -> int:
        """The bytes that are left of the half that is for shards that are behind."""
        if self._common_bytes is None:
            part_bytes = self.part_bytes
            self._common_bytes = sum(max(0, share.held + share.reserved - part_bytes) for share in self._used_shares)
        return max(0, self.bytes_max // 2 - self._common_bytes)

    def leave(self, share: Share) -> None:
        """Let a share go: what it had is free."""
        with self.lock:
            if share in self._shares:
                self._shares.remove(share)
                self._used_shares.pop(share, None)
                self._waiting_shares.pop(share, None)
                self._divide()
                self.wake_next()

    def wait(self, share: Share) -> None:
        """Put a share at the end of the line of shares that are to be woken, unless it stands there."""
        self._waiting_shares.setdefault(share)

    def wake_next(self) -> None:
        """Wake the first share in the line, where there is room worth asking for; it wakes the next one."""
        while self._waiting_shares and self.common_left >= min(WORTH_BYTES, self.bytes_max // 4):
            share = next(iter(self._waiting_shares))
            del self._waiting_shares[share]
            if share.woken():
                return

    def changed(self, share: Share, beyond: int) -> None:
        """Note that a share takes another amount now: ``beyond`` bytes more of the common half (less: below 0)."""
        if share.held + share.reserved:
            self._used_shares[share] = None
        else:
            self._used_shares.pop(share, None)
        if self._common_bytes is not None:
            self._common_bytes += beyond
        if beyond < 0 and self._waiting_shares:
            self.wake_next()

    def _divide(self) -> None:
        """Divide anew: the parts are other ones when a share comes or goes. What they make of the common half is
        counted when it is asked for: a thousand shards that come at once would otherwise cost a million looks.
        """
        self._common_bytes = None


class Share:
    """The bytes that one shard holds, and what it may fetch."""

    __slots__ = ("_buffer", "_has_left", "_record_bytes", "_wake", "held", "reserved", "waits")

    def __init__(self, buffer: Buffer, wake: Callable[[], None]) -> None:
        self.held = 0
        """The memory of the shard's records that were fetched and are not settled."""
        self.reserved = 0
        """The memory that is reserved for the page that is asked for."""
        self.waits = False
        """True from the moment in which there is no room until the share is woken."""
        self._buffer = buffer
        self._wake = wake
        self._record_bytes: int | None = None
        self._has_left = False

    def ask(self, *, behind: bool) -> int | None:
        """Return how many Kinesis records may be fetched now: their room is reserved until `came`. None: there is no
        room, and the share will be woken. ``behind``: the last page did not reach the tip.
        """
        with self._buffer.lock:
            return self._ask(behind)

    def _ask(self, behind: bool) -> int | None:
        self._reserve(0)
        self.waits = False
        if self._has_left:
            return RECORDS_MAX
        buffer, each = self._buffer, self._record_bytes or FIRST_RECORD_BYTES
        part_bytes = buffer.part_bytes
        least = max(each, min(WORTH_BYTES, part_bytes // 4, buffer.shard_bytes_max // 4))
        room = max(0, part_bytes - self.held)
        if behind or room < least:
            room += buffer.common_left
        room = min(room, buffer.shard_bytes_max - self.held, PAGE_BYTES_MAX)
        # A shard that holds nothing fetches all the same: a record that is larger than any room must come one day.
        if self.held and room < least:
            self.waits = True
            buffer.wait(self)
            return None
        records = max(1, min(RECORDS_MAX, room // each))
        self._reserve(records * each)
        buffer.wake_next()
        return records

    def came(self, records: int, held_bytes: int) -> None:
        """Note that a page of ``records`` Kinesis records came, or none did (0). `change` says what of it is kept."""
        if records:
            mean = max(1, held_bytes // records)
            self._record_bytes = max(mean, int((self._record_bytes or 0) * FALL))
        with self._buffer.lock:
            self._reserve(0)

    def change(self, held_bytes: int) -> None:
        """Add ``held_bytes`` to what the shard holds; a number below 0 subtracts."""
        with self._buffer.lock:
            before = self.beyond
            self.held += held_bytes
            if not self._has_left:
                self._buffer.changed(self, self.beyond - before)
                if held_bytes < 0 and self.waits and self.held < self._buffer.part_bytes:
                    self.woken()

    def leave(self) -> None:
        """Leave the buffer: nothing more is fetched, and what is held counts no more."""
        with self._buffer.lock:
            self._has_left = True
            self._buffer.leave(self)
            self.woken()

    def woken(self) -> bool:
        """Let the share ask again. False: it does not wait."""
        waited, self.waits = self.waits, False
        if waited:
            self._wake()
        return waited

    @property
    def beyond(self) -> int:
        """The bytes that the share has of the common half."""
        return max(0, self.held + self.reserved - self._buffer.part_bytes)

    def _reserve(self, reserved: int) -> None:
        before = self.beyond
        self.reserved = reserved
        if not self._has_left:
            self._buffer.changed(self, self.beyond - before)
