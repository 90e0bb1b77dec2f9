"""The pages of a shard, and what functions of the program make of their records.

The pages come one after another, from the place on that was sought last (`Pages`). The keys of their records and their
parts are made when a page comes (`Admission`): what goes into the ledger, and when, is decided by the shard's machine,
which is told what they made. The value of a record is made when it is delivered (`Values`), which also says what
becomes of a record that cannot be read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias

from penstock.core.feeding.pages import UserRecords
from penstock.core.leases.row import Checkpoint
from penstock.core.ledger.book import Delivery, R, behind
from penstock.core.ledger.parts import PARTS_MAX, Part, split
from penstock.core.ledger.policies import DeadLetters, Skip, Stop
from penstock.core.shard.duplicates import PageRead
from penstock.core.shard.machine import PageCame
from penstock.errors import UnreadableRecordError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

    from penstock.core.feeding.pages import Taken
    from penstock.core.shard.duplicates import Admit, Duplicates
    from penstock.model import Position, Record
    from penstock.runtime.feeds import FanOutFeed, PollingFeed
    from penstock.runtime.shard.window_reading import WindowRead


class Pages:
    """Of one tenure. One task asks for them (`fetched_by_this_task`); `seek` wakes it, whatever it waits for."""

    def __init__(
        self, feed: PollingFeed | FanOutFeed, read_ahead: Iterable[Taken] = (), admission: Admission | None = None
    ) -> None:
        """``read_ahead``: pages that the feed has given before; some may lie before where the tenure begins.
        ``admission``: what of a page is delivered.
        """
        self.admission = admission or Admission()
        """What the program's functions make of the records."""
        self.stream, self.shard_id = feed.stream, feed.shard_id
        self.room = feed.room
        """The shard's part of the consumer's buffer."""
        self.after = Checkpoint.TRIM_HORIZON
        """Records up to here are not new."""
        self.is_done = False
        """There are no more, unless the program seeks."""
        self._feed = feed
        self._read_ahead = deque(read_ahead)
        self._running: asyncio.Task[Any] | None = None
        self._sought: PollingFeed | FanOutFeed | None = None

    @property
    def window(self) -> WindowRead | None:
        """The window of duplicates; None: they are not left out."""
        return self.admission.window

    def begin(self, after: Checkpoint) -> None:
        """Records up to here are not new."""
        self.after = after

    @property
    def is_sought(self) -> bool:
        """True from `seek` until `go_on`."""
        return self._sought is not None

    def seek(self, feed: PollingFeed | FanOutFeed, after: Checkpoint) -> None:
        """Go on with another feed, which reads what follows ``after``."""
        while self._read_ahead:
            self._ahead()
        feed.use_room(self.room)
        self.after = after
        self.is_done = False
        is_told = self.is_sought
        self._sought = feed
        if self._running is not None and not is_told:
            self._running.cancel()

    @contextlib.asynccontextmanager
    async def fetched_by_this_task(self) -> AsyncIterator[Pages]:
        """While it lasts the current task asks for pages. At its end the feed is closed."""
        self._running = asyncio.current_task()
        try:
            yield self
        finally:
            self._running = None
            await self._feed.close()

    @contextlib.contextmanager
    def until_sought(self) -> Iterator[None]:
        """What is waited for in the block ends when the program seeks; the block is left then."""
        try:
            yield
        except asyncio.CancelledError:
            # A seek cancels the task to wake it. If the task's owner cancels it too, at the same time, that one counts
            # (`uncancel` leaves a request).
            if self._running is None or not self.is_sought or self._running.uncancel():
                raise

    async def go_on(self) -> None:
        """Go on from the place that was sought, if one was."""
        if self._sought is not None:
            former, self._feed, self._sought = self._feed, self._sought, None
            await former.close()

    async def next(self) -> Taken:
        """The next page, waited for."""
        return self._ahead() if self._read_ahead else await self._feed.next()

    def new_of(self, taken: Taken) -> tuple[Sequence[Record], Position | None]:
        """What of a page is new, and where that ends."""
        records, ends_at, after = behind(taken.records, self.after), taken.ends_at, self.after
        if ends_at is not None and after.is_position and ends_at <= after.position:
            ends_at = None  # read ahead, and settled by the former owner
        return records, ends_at

    async def done(self) -> None:
        """The last page came."""
        self.is_done = True
        await self._feed.close()

    def _ahead(self) -> Taken:
        """The next page that was read ahead. Its room is free: the ledger takes what it keeps of the page."""
        taken = self._read_ahead.popleft()
        if self.room is not None:
            self.room.share.change(-taken.records.held_bytes)
        return taken


class Admission:
    """Of the pages of one tenure."""

    def __init__(
        self,
        *,
        window: WindowRead | None = None,
        split_by: Callable[[Record], Iterable[Any]] | None = None,
        parts_max: int = PARTS_MAX,
    ) -> None:
        """``window``: duplicates are left out. ``split_by(record)``: the parts of a record, which follow from the
        record alone.
        """
        self.window = window
        self._split_by = split_by
        self._parts_max = parts_max

    @property
    def duplicates(self) -> Duplicates | None:
        """What is known of duplicates; None: they are not left out."""
        return None if self.window is None else self.window.duplicates

    def read(self, taken: Taken, records: Sequence[Record], ends_at: Position | None) -> PageRead:
        """A page, with what of it is new, and the keys of that."""
        held_bytes = records.held_bytes if isinstance(records, UserRecords) else None
        window = self.window
        if window is None:
            return PageRead(records, ends_at, held_bytes)
        window.saw(taken)
        if len(records) < len(taken.records):
            window.follow(taken.records[: len(taken.records) - len(records)])
        return PageRead(records, ends_at, held_bytes, window.keys_of(records))

    def made_of(self, given: Admit) -> PageCame:
        """What is delivered of these records: themselves, or their parts."""
        if self._split_by is None:
            return PageCame(given.records, given.ends_at, given.held_bytes, given.twins)
        found = split(given.records, self._split_by, without=set(given.twins), parts_max=self._parts_max)
        return PageCame(found.records, given.ends_at, None, found.settled, found.unreadable)


@dataclass(frozen=True, slots=True)
class Deliver:
    """The record is delivered with an `Unreadable` in place of its value."""


UnreadablePolicy: TypeAlias = DeadLetters | Skip | Stop | Deliver


class Unreadable(NamedTuple):
    """Stands where the value of a record would, which cannot be read."""

    data: bytes
    """As it came."""
    error: Exception
    """What the deserializer raised. Its message may hold a part of the data."""


class Read(NamedTuple, Generic[R]):
    """What a deserializer made of a delivery."""

    delivery: Delivery[R]
    """What is left of it by the policy: maybe nothing."""
    values: Sequence[Any]
    """Of each record that is left."""
    left_out: Sequence[tuple[int, Exception]] = ()
    """The places of records that are not delivered, with what the deserializer raised."""
    stops: UnreadableRecordError | None = None
    """A record that cannot be read ends the reading of its shard."""


class Values(Generic[R]):
    """Makes the values of each delivery. What was delivered before, and failed, is read anew."""

    def __init__(
        self, deserializer: Callable[[bytes], Any], policy: UnreadablePolicy, *, stream: str, shard_id: str
    ) -> None:
        self.policy = policy
        """What becomes of a record that cannot be read."""
        self._deserializer = deserializer
        self._where = f"{stream}, {shard_id}"

    def of(self, delivery: Delivery[R]) -> Read[R]:
        """Read a delivery."""
        deserializer, datas = self._deserializer, datas_of(delivery.records)
        if delivery.records and isinstance(delivery.records[0], Part):
            return Read(delivery, datas)  # the function that split the record has read its bytes
        try:
            return Read(delivery, [deserializer(data) for data in datas])
        except Exception:
            return self._one_by_one(delivery, datas)

    def _one_by_one(self, delivery: Delivery[R], datas: Sequence[bytes]) -> Read[R]:
        kept: list[int] = []
        values: list[Any] = []
        left_out: list[tuple[int, Exception]] = []
        for index, data in enumerate(datas):
            try:
                value = self._deserializer(data)
            except Exception as error:
                if isinstance(self.policy, Stop):
                    return Read(delivery, (), stops=self._unreadable(delivery, index, error))
                if not isinstance(self.policy, Deliver):
                    left_out.append((delivery.places[index], error))
                    continue
                value = Unreadable(data, error)
            kept.append(index)
            values.append(value)
        if len(kept) == len(datas):
            return Read(delivery, values)
        left = Delivery(
            delivery.ticket,
            [delivery.records[index] for index in kept],
            [delivery.places[index] for index in kept],
            delivery.attempt,
        )
        return Read(left, values, left_out)

    def _unreadable(self, delivery: Delivery[R], index: int, error: Exception) -> UnreadableRecordError:
        record = delivery.records[index]
        return UnreadableRecordError(
            f"{self._where}: the record at {record.sequence_number}/{record.sub_sequence_number} "
            f"cannot be read ({type(error).__name__}, see `error`). Mend the deserializer, or say with "
            "`unreadable` what becomes of such records: DeadLetters(), Skip() or Deliver()",
            error=error,
        )


def datas_of(records: Sequence[Any]) -> Sequence[Any]:
    """The data of each record; of a page's records, without making any. Of parts, what the splitting function made."""
    datas: Sequence[bytes] | None = getattr(records, "datas", None)
    if datas is not None:
        return datas
    return [record.value if isinstance(record, Part) else record.data for record in records]
