"""Search the records that a page shows, for a bounded time, and make its rows."""

from __future__ import annotations

import asyncio
import contextlib
import math
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from shardway.console.columns import cell_of, fields_of, whole_characters
from shardway.console.looks.newest import Mark, NewestRecords
from shardway.console.looks.sampler import fault_text
from shardway.console.page import link
from shardway.errors import ShardwayError
from shardway.inspect import SeenRecord
from shardway.inspect.moments import time_text, utc
from shardway.inspect.moves.skipping import position_text
from shardway.inspect.records.reader import read_pages
from shardway.model import Position
from shardway.wiring import stream_name

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from shardway.console.console import Console
    from shardway.console.pages.record_query import RecordQuery
    from shardway.console.payloads import Row
    from shardway.inspect.records.seen_records import SeenPage


T = TypeVar("T")
SEARCHED_MAX = 20_000
WHOLE_BYTES_MAX = 16 * 1024
"""The size up to which a row of a list holds the whole record, folded up."""
WHOLE_CHARACTERS_MAX = 1024 * 1024
"""The characters that all rows of a list hold so."""
SEARCH_S = 6.0
"""How many seconds a page searches; then it shows what it found, and how far it came."""


class RecordRow(NamedTuple):
    """A record in the list, with the cells of chosen fields, and its whole text as far as the list holds it."""

    row: Row
    cells: dict[str, str | None]
    whole: str | None
    """The text with JSON indented; None: it is too large for the list, and stands on the record's own page."""
    is_json: bool
    mark: Mark

    @property
    def position(self) -> Position:
        """The record's position in its shard."""
        return Position(self.mark.sequence_number, self.mark.sub_sequence_number)


class SearchProgress:
    """What a search has found so far."""

    def __init__(self) -> None:
        self.rows: list[RecordRow] = []
        self.fields: list[str] = []
        """Fields of the JSON that was found, to choose columns from."""
        self.searched = 0
        self.more = ""
        """Why the search ended before the tip; empty: it came to the tip."""
        self.is_cut_off = False
        """True: the search of the newest ended before it had found them."""
        self.whole_from: Mark | None = None
        """The oldest place from which on a search that was cut off has looked at every record; None: there is none."""
        self.came_to: Position | None = None
        """The last record that was searched, where one shard was read from a place on."""
        self.fault: str | None = None
        self.is_over = False
        """True: the page has come, and a thread need make no more rows."""


async def search_from(console: Console, chosen: RecordQuery, found: SearchProgress) -> None:
    """Search the records from the place that a query names."""
    inspector = console.inspector.make_sibling()
    reading, records = chosen.reading(inspector.now_s), list[SeenRecord]()
    pages = read_pages(inspector, stream_name(chosen.stream), reading)

    def look(record: SeenRecord) -> tuple[SeenRecord, bool]:
        is_wanted = chosen.matches is None or chosen.matches(console.payloads.masked(record))
        return SeenRecord(record.record), is_wanted  # without what was decoded for the filter

    try:
        async with asyncio.timeout(SEARCH_S), contextlib.aclosing(each_record(console, pages, look)) as parts:
            async for record, is_wanted in parts:
                found.searched += 1
                found.came_to = Position(record.record.sequence_number, record.record.sub_sequence_number)
                if is_wanted:
                    records.append(record)
                if len(records) >= chosen.limit:
                    found.more = f"the first {chosen.limit} are shown"
                    break
                if found.searched >= SEARCHED_MAX:
                    found.more = f"{SEARCHED_MAX} records were searched"
                    break
    except TimeoutError:
        found.more = f"{SEARCH_S:g} s were searched; a shard is asked once a second"
    except ShardwayError as fault:
        found.fault = fault_text(fault)
    await _shown_in_time(console, chosen, records, found)


async def search_newest(console: Console, chosen: RecordQuery, found: SearchProgress) -> None:
    """Search the newest records of all shards, or of one."""
    inspector = console.inspector.make_sibling()
    wish = chosen.wish(console, inspector.now_s)
    newest = NewestRecords(inspector, stream_name(chosen.stream), wish, console.decoding)
    try:
        async with asyncio.timeout(SEARCH_S):
            await newest.search()
    except TimeoutError:
        found.more = f"{SEARCH_S:g} s were searched, so older and newer ones may be left out: choose a shard"
        if (whole_from_s := newest.whole_from_s) is not None:
            found.more = f"{SEARCH_S:g} s were searched, and all back to {time_text(utc(whole_from_s))}"
    except ShardwayError as fault:
        found.fault = fault_text(fault)
    records = newest.records
    found.searched = newest.searched
    if newest.is_done and len(records) >= chosen.limit:
        found.more = f"the newest {chosen.limit} of {'the shard' if chosen.shard else 'all shards'}"
    elif not newest.is_done:
        found.is_cut_off, found.whole_from = True, _whole_from(newest, chosen)
        found.more = found.more or f"{newest.searched} records were searched"
    if newest.shards_left_out:
        found.more = f"{newest.shards_left_out} more shards were not read: choose one"
    await _shown_in_time(console, chosen, records, found)


def _whole_from(newest: NewestRecords, chosen: RecordQuery) -> Mark | None:
    """Return the oldest place from which on a search that was cut off has looked at every record. None: it has not
    looked at all records of any time.
    """
    if newest.whole_from_s is None:
        return None
    # An address has whole milliseconds: of those around the place some may come twice, and none is left out.
    mark = Mark(math.ceil(newest.whole_from_s * 1000) + 1, 0, 0)
    return mark if chosen.before is None or mark < chosen.before else None


async def _shown_in_time(
    console: Console, chosen: RecordQuery, records: list[SeenRecord], found: SearchProgress
) -> None:
    """Make rows of records for as long as a page searches. Those that are made by then are shown."""
    try:
        async with asyncio.timeout(SEARCH_S):
            await console.decoding.call(partial(_show, console, chosen, records, found))
    except TimeoutError:
        found.is_over = True
        found.more = f"{SEARCH_S:g} s were searched, and some records take longer to decode"


def _show(console: Console, chosen: RecordQuery, records: list[SeenRecord], found: SearchProgress) -> None:
    """Make rows of records as they may be seen. All rows together hold a bounded count of characters. It decodes one
    record after the other, and keeps no large value: call it in a thread.
    """
    payloads, room = console.payloads, WHOLE_CHARACTERS_MAX
    fields = [one for one in chosen.columns.shown if one.steps]
    values = []
    for record in map(payloads.masked, records):
        if found.is_over:
            return
        decoded = record.decoded
        value = decoded.value if payloads.shown and decoded.is_json else None
        whole = None
        if len(decoded.data) <= WHOLE_BYTES_MAX and room > 0:
            text = whole_characters(payloads.whole_text(record)[0])
            whole = text if len(text) <= WHOLE_BYTES_MAX else None
            room -= len(text)
        if len(decoded.data) <= WHOLE_BYTES_MAX:
            values.append(value)
        cells = {one.name: cell_of(value, one.steps) for one in fields}
        found.rows.append(RecordRow(payloads.row(record), cells, whole, decoded.is_json, Mark.of(record)))
    found.fields = fields_of(values)


def address_of_older(name: str, chosen: RecordQuery | None, found: SearchProgress) -> str | None:
    """Return the address of the records before those of a page of the newest; None: there are no more.

    A search that was cut off may have missed records between its older rows. So the next page begins at the place from
    which on the search has looked at every record, and shows those older rows again.
    """
    if chosen is None or not chosen.is_newest:
        return None
    last = found.rows[-1].mark if found.rows else None
    if last is None or (len(found.rows) < chosen.limit and not found.is_over):
        last = found.whole_from
    elif found.is_cut_off:
        last = None if found.whole_from is None else max(last, found.whole_from)
    return None if last is None else link("streams", name, "records", **chosen.query(before=last.text))


async def each_record(
    console: Console, pages: AsyncGenerator[SeenPage, None], look: Callable[[SeenRecord], T]
) -> AsyncGenerator[T, None]:
    """Yield what ``look`` makes of each record; it decodes records, so it runs in a thread."""
    async with contextlib.aclosing(pages):
        async for page in pages:
            async with contextlib.aclosing(console.decoding.each(page, look)) as parts:
                async for part in parts:
                    for one in part:
                        yield one


def address_of_following(name: str, chosen: RecordQuery | None, found: SearchProgress) -> str | None:
    """Return the address of the records that follow; None for several shards, since only one shard has an order."""
    if chosen is None or chosen.is_newest or not found.more or chosen.shard is None:
        return None
    came_to = found.came_to
    if found.is_over:  # the rows of those that take long to decode did not come
        came_to = found.rows[-1].position if found.rows else None
    if came_to is None:
        return None
    return link("streams", name, "records", **chosen.query(from_=f"after:{position_text(came_to)}"))
