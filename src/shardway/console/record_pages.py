"""The pages of a stream's records: a list, one record by its position, a download, and a live tail.

The address of each page holds all that was chosen, so it can be sent to another reader of the same console. Each
view of payloads is in the audit log before the payloads are sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from starlette.responses import StreamingResponse

from shardway.console.columns import FIXED, Columns, cell_of, fields_of, whole_characters
from shardway.console.newest import Mark, NewestQuery, NewestRecords
from shardway.console.page import BEAT_S, HEADERS, PADDING, PageError, console_of, link, rendered, visitor_of
from shardway.console.sampling import fault_text
from shardway.console.tailing import rows
from shardway.errors import OptionError, ShardwayError
from shardway.inspect import Reading, SeenRecord
from shardway.inspect.filters import parse
from shardway.inspect.moments import HOW, moment_s, place, time_text
from shardway.inspect.records.reader import get, read_pages
from shardway.shown import one_line
from shardway.tasks import wait_set
from shardway.wiring import stream_name

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from starlette.datastructures import QueryParams
    from starlette.requests import Request
    from starlette.responses import Response

    from shardway.console.asgi import Console
    from shardway.console.payloads import Row
    from shardway.console.tailing import Basket
    from shardway.inspect.records.seen_records import SeenPage

T = TypeVar("T")

NEWEST = "newest"
"""The place at which a list of records begins unless its address names another: with the newest of all shards."""
ROWS = 50
ROWS_MAX = 500
SEARCHED_MAX = 20_000
WHOLE_BYTES_MAX = 16 * 1024
"""The size up to which a row of a list holds the whole record, folded up."""
WHOLE_CHARACTERS_MAX = 1024 * 1024
"""The characters that all rows of a list hold so."""
SEARCH_S = 6.0
"""Seconds for which a page searches; then it shows what it found, and how far it came."""
DOWNLOAD_ROWS_MAX = 10_000
DOWNLOAD_S = 60.0
TAIL_INTERVAL_S = 0.25
_BROWSER = re.compile(r"[A-Za-z0-9-]{8,64}", re.ASCII)
_NUMBER = re.compile(r"\d{1,128}", re.ASCII)


class RecordQuery:
    """Which records a page shows: all that its address says. Raises OptionError."""

    def __init__(self, console: Console, stream: str, query: QueryParams, *, at: str = NEWEST) -> None:
        self.stream = stream
        self.at = query.get("from", "").strip() or at
        self.until = query.get("until", "").strip() or None
        self.shard = query.get("shard", "").strip() or None
        self.key = query.get("key", "") or None
        self.where = query.get("where", "").strip() or None
        self.limit = _limit(query.get("limit", ""))
        console.payloads.checked(where=self.where, key=self.key)
        self.matches: Callable[[SeenRecord], bool] | None = None if self.where is None else parse(self.where)
        self.is_newest = self.at.lower() == NEWEST and at == NEWEST
        before = query.get("before", "") if self.is_newest else ""
        self.before = Mark.parse(before) if before else None
        self.columns = Columns(query.getlist("col"))
        if not self.is_newest:
            place(self.at, 0.0)
        if self.until is not None:
            moment_s(self.until, 0.0)

    def reading(self, now_s: float) -> Reading:
        """Return what is to be read, to the tip."""
        return Reading(
            starting_position=place(self.at, now_s),
            shards=() if self.shard is None else (self.shard,),
            partition_key=self.key,
            until_s=None if self.until is None else moment_s(self.until, now_s),
        )

    def wish(self, console: Console, now_s: float) -> NewestQuery:
        """Return which of the newest records are wanted. A filter sees what a page shows."""
        matches = self.matches
        return NewestQuery(
            limit=self.limit,
            shard=self.shard,
            key=self.key,
            until_s=None if self.until is None else moment_s(self.until, now_s),
            before=self.before,
            matches=None if matches is None else lambda one: matches(console.payloads.masked(one)),
        )

    def query(self, **changed: Any) -> dict[str, Any]:
        """Return the fields of the address, with changes."""
        own: dict[str, Any] = {
            "from_": None if self.is_newest else self.at,
            "until": self.until,
            "shard": self.shard,
            "key": self.key,
            "where": self.where,
            "col": self.columns.names,
        }
        own["limit"] = None if self.limit == ROWS else self.limit
        return {**own, **changed}

    def target(self) -> dict[str, Any]:
        """Return what the audit log says of the choice. A key and a filter may hold data, so the log says only that
        there was one.
        """
        told = {"stream": self.stream, "from": self.at, "until": self.until, "shard": self.shard}
        told["key"] = "given" if self.key else None
        told["where"] = "given" if self.where else None
        return {name: value for name, value in told.items() if value is not None}


class RecordRow(NamedTuple):
    """A record in the list, with the cells of chosen fields, and its whole text as far as the list holds it."""

    row: Row
    cells: dict[str, str | None]
    whole: str | None
    """The text with JSON indented; None: it is too large for the list, and stands on the record's own page."""
    is_json: bool
    mark: Mark


def _limit(text: str) -> int:
    """Return how many rows a page shows. A number of any length may stand in an address."""
    if not _NUMBER.fullmatch(text):
        return ROWS
    return min(int(text), ROWS_MAX) or ROWS


class SearchProgress:
    """What a search has found so far."""

    def __init__(self) -> None:
        self.rows: list[RecordRow] = []
        self.fields: list[str] = []
        """Fields of the JSON that was found, to choose columns from."""
        self.searched = 0
        self.more = ""
        """Why the search ended before the tip; empty: it came to the tip."""
        self.fault: str | None = None
        self.is_over = False
        """True: the page has come, and a thread need make no more rows."""


async def records(request: Request) -> Response:
    """Show a page of records."""
    console, name = console_of(request), request.path_params["name"]
    fault, chosen, found = None, None, SearchProgress()
    try:
        chosen = RecordQuery(console, name, request.query_params)
    except OptionError as error:
        fault = str(error)
    if chosen is not None:
        await _audited(request, "records.viewed", chosen.target())
        await (_search_newest if chosen.is_newest else _search)(console, chosen, found)
    following = _following(name, chosen, found)
    context: dict[str, Any] = {
        "title": f"Records of {name}",
        "name": name,
        "query": request.query_params,
        "at": chosen.at if chosen is not None else request.query_params.get("from", ""),
        "chosen": chosen,
        "found": found,
        "fault": fault or found.fault,
        "following": following,
        "older": _older(name, chosen, found),
        "columns": chosen.columns if chosen is not None else Columns([]),
        "fixed": FIXED,
        "how": HOW,
        "download": None if chosen is None else link("streams", name, "download", **chosen.query(limit=None, col=None)),
        "download_rows_max": DOWNLOAD_ROWS_MAX,
        "download_s": DOWNLOAD_S,
        "tail": link(
            "streams", name, "tail", **({} if chosen is None else chosen.query(from_="latest", until=None, col=None))
        ),
        "shards": await _shards(console, name),
    }
    return rendered(request, "records.html", context, status=400 if fault else 200)


async def _search(console: Console, chosen: RecordQuery, found: SearchProgress) -> None:
    inspector = console.inspector.apart()
    reading, records = chosen.reading(inspector.now_s), list[SeenRecord]()
    pages = read_pages(inspector, stream_name(chosen.stream), reading)

    def look(record: SeenRecord) -> SeenRecord | None:
        is_wanted = chosen.matches is None or chosen.matches(console.payloads.masked(record))
        return SeenRecord(record.record) if is_wanted else None  # without what was decoded for the filter

    try:
        async with asyncio.timeout(SEARCH_S), contextlib.aclosing(_each(console, pages, look)) as parts:
            async for record in parts:
                found.searched += 1
                if record is not None:
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


async def _search_newest(console: Console, chosen: RecordQuery, found: SearchProgress) -> None:
    inspector = console.inspector.apart()
    wish = chosen.wish(console, inspector.now_s)
    newest = NewestRecords(inspector, stream_name(chosen.stream), wish, console.decoding)
    try:
        async with asyncio.timeout(SEARCH_S):
            await newest.search()
    except TimeoutError:
        found.more = f"{SEARCH_S:g} s were searched, so older and newer ones may be left out: choose a shard"
    except ShardwayError as fault:
        found.fault = fault_text(fault)
    records = newest.records
    found.searched = newest.searched
    if newest.is_done and len(records) >= chosen.limit:
        found.more = f"the newest {chosen.limit} of {'the shard' if chosen.shard else 'all shards'}"
    elif not newest.is_done and not found.more:
        found.more = f"{newest.searched} records were searched"
    if newest.shards_left_out:
        found.more = f"{newest.shards_left_out} more shards were not read: choose one"
    await _shown_in_time(console, chosen, records, found)


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


def _older(name: str, chosen: RecordQuery | None, found: SearchProgress) -> str | None:
    """Return the address of the records before those of a page of the newest; None: there are no more."""
    if chosen is None or not chosen.is_newest or len(found.rows) < chosen.limit:
        return None
    return link("streams", name, "records", **chosen.query(before=found.rows[-1].mark.text))


async def _each(
    console: Console, pages: AsyncGenerator[SeenPage, None], look: Callable[[SeenRecord], T]
) -> AsyncGenerator[T, None]:
    """Yield what ``look`` makes of each record; it decodes records, so it runs in a thread."""
    async with contextlib.aclosing(pages):
        async for page in pages:
            async with contextlib.aclosing(console.decoding.each(page, look)) as parts:
                async for part in parts:
                    for one in part:
                        yield one


def _following(name: str, chosen: RecordQuery | None, found: SearchProgress) -> str | None:
    """Return the address of the records that follow; None for several shards, since only one shard has an order."""
    if chosen is None or chosen.is_newest or not found.rows or not found.more or chosen.shard is None:
        return None
    return link("streams", name, "records", **chosen.query(from_=f"after:{found.rows[-1].row.sequence_number}"))


async def record(request: Request) -> Response:
    """Show one whole record."""
    console, name = console_of(request), request.path_params["name"]
    query = request.query_params
    number, sub, shard = query.get("seq", ""), query.get("sub", "0"), query.get("shard") or None
    if not _NUMBER.fullmatch(number) or not _NUMBER.fullmatch(sub):
        raise PageError(400, "A position is a sequence number, and for records of aggregates a number in it.")
    await _audited(request, "record.viewed", {"stream": name, "shard": shard, "sequence_number": number, "sub": sub})
    seen = await get(console.inspector.apart(), stream_name(name), int(number), int(sub), shard)

    def look() -> tuple[SeenRecord, str, bool]:
        masked = console.payloads.masked(seen)
        return masked, *console.payloads.whole_text(masked)

    masked, text, cut = await console.decoding.call(look)
    context: dict[str, Any] = {
        "title": f"Record of {name}",
        "name": name,
        "record": masked,
        "raw": seen.record,
        "arrived": time_text(seen.arrived_at),
        "text": text,
        "cut": cut,
    }
    return rendered(request, "record.html", context)


async def download(request: Request) -> Response:
    """Answer with lines of JSON. Where nothing is hidden, ``shardway put --format records`` takes them back byte for
    byte.

    After `DOWNLOAD_S` the answer breaks off, so that no browser takes a part of it for the whole.
    """
    console, name = console_of(request), request.path_params["name"]
    chosen = RecordQuery(console, name, request.query_params)
    if not console.payloads.shown:
        raise PageError(403, "This console shows no payloads, and gives none out.")
    await _audited(request, "records.downloaded", chosen.target())
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    headers = {"content-disposition": f'attachment; filename="{safe}.jsonl"'}
    return StreamingResponse(_lines(console, chosen), media_type="application/octet-stream", headers=headers)


async def _lines(console: Console, chosen: RecordQuery) -> AsyncIterator[bytes]:
    inspector, count = console.inspector.apart(), 0
    if chosen.is_newest:
        wish = chosen.wish(console, inspector.now_s)
        newest = NewestRecords(inspector, stream_name(chosen.stream), wish, console.decoding)
        async with asyncio.timeout(DOWNLOAD_S):
            await newest.search()
            oldest_first = reversed(newest.records)  # as a stream has them
            async for part in console.decoding.each(oldest_first, partial(_line, console)):
                for one in part:
                    yield one
        return
    pages = read_pages(inspector, stream_name(chosen.stream), chosen.reading(inspector.now_s))

    def look(record: SeenRecord) -> bytes | None:
        if chosen.matches is not None and not chosen.matches(console.payloads.masked(record)):
            return None
        return _line(console, record)

    async with asyncio.timeout(DOWNLOAD_S), contextlib.aclosing(_each(console, pages, look)) as parts:
        async for line in parts:
            if line is None:
                continue
            yield line
            count += 1
            if count >= DOWNLOAD_ROWS_MAX:
                return


def _line(console: Console, one: SeenRecord) -> bytes:
    """Return a record as a line of the download. Where something is hidden, the line has what a list shows of it."""
    payloads = console.payloads
    return msgspec.json.encode(one.to_line() if payloads.whole else payloads.row(payloads.masked(one))) + b"\n"


async def tail(request: Request) -> Response:
    """Show the page of a live tail; its records come by events."""
    console, name = console_of(request), request.path_params["name"]
    fault, chosen = None, None
    try:
        chosen = RecordQuery(console, name, request.query_params, at="latest")
        if chosen.key:
            raise OptionError('a tail has no key of its own: write it into the filter, as in key == "a"')
    except OptionError as error:
        fault = str(error)
    query = {} if chosen is None else chosen.query(until=None, limit=None, col=None)
    context: dict[str, Any] = {
        "title": f"Live tail of {name}",
        "name": name,
        "query": request.query_params,
        "fault": fault,
        "events": None if fault else link("streams", name, "tail", "events", **query),
        "records": link("streams", name, "records", **{**query, "from_": None}),
        "how": HOW,
        "shards": await _shards(console, name),
    }
    return rendered(request, "tail.html", context, status=400 if fault else 200)


async def tail_events(request: Request) -> Response:
    """Answer with the records of a live tail, until the browser leaves."""
    console, name, query = console_of(request), request.path_params["name"], request.query_params
    browser = query.get("browser", "")
    if not _BROWSER.fullmatch(browser):
        raise PageError(400, "A live tail names its browser.")
    visitor = visitor_of(request)
    browser = f"{visitor.name} {browser}"  # so no visitor takes another's basket
    for_text = query.get("for", "")
    for_s = float(for_text) if _NUMBER.fullmatch(for_text) else None
    basket = console.tails.basket_of(browser)
    # A proxy may hold the rows that an endless answer has taken: a browser that comes in steps from now on begins anew.
    anew = basket is None or (for_s is not None and not basket.in_steps)
    if basket is None or anew:
        chosen = RecordQuery(console, name, query, at="latest")
        await _audited(request, "records.tailed", chosen.target())
        shards = () if chosen.shard is None else (chosen.shard,)
        basket = console.tails.follow(browser, name, chosen.at, shards, chosen.matches)
    basket.in_steps = for_s is not None
    events = _tail_events(console, basket, for_s, anew=anew)
    return StreamingResponse(events, media_type="text/event-stream", headers=HEADERS)


async def _tail_events(console: Console, basket: Basket, for_s: float | None, *, anew: bool) -> AsyncIterator[str]:
    """Yield events with rows. ``for_s``: the answer ends after this time, so that a proxy that holds the answer back
    lets it go. ``anew``: the browser's reading begins now, though the browser may have been here before.
    """
    turn = basket.taken_over()
    clock = asyncio.get_running_loop().time
    end_s = None if for_s is None else clock() + for_s
    yield f"{PADDING}retry: 1000\n\n"
    try:
        while not console.ending.is_set() and basket.turn == turn and (end_s is None or clock() < end_s):
            held = basket.take()
            shown = await console.decoding.call(partial(rows, held, console.payloads)) if held else []
            if basket.turn != turn:
                basket.put_back(held)
                break
            told = {"rows": shown, "seen": basket.seen, "matched": basket.matched, "lost": basket.lost, "anew": anew}
            told |= {"fault": basket.fault, "note": basket.note}
            yield f"event: rows\ndata: {msgspec.json.encode(told).decode()}\n\n"
            anew = False
            if basket.fault is not None:
                break
            await wait_set(basket.filled, BEAT_S if end_s is None else min(BEAT_S, max(0.0, end_s - clock())))
            await asyncio.sleep(TAIL_INTERVAL_S)
    finally:
        if basket.turn == turn:
            console.tails.left(basket)


async def _audited(request: Request, action: str, target: dict[str, Any]) -> None:
    console = console_of(request)
    if console.payloads.shown:
        await console.audit.viewed(visitor_of(request), action, {name: _told(one) for name, one in target.items()})


def _told(value: Any) -> Any:
    return one_line(value)[:256] if isinstance(value, str) else value


async def _shards(console: Console, name: str) -> list[str]:
    sample = await console.sampler.sample(console.topics.stream(name), wait_s=3.0)
    return [one.shard_id for one in (sample.value.shards or [])] if sample.value is not None else []


ROUTES = [
    ("/streams/{name}/records", ["GET"], records),
    ("/streams/{name}/record", ["GET"], record),
    ("/streams/{name}/download", ["GET"], download),
    ("/streams/{name}/tail", ["GET"], tail),
    ("/streams/{name}/tail/events", ["GET"], tail_events),
]
