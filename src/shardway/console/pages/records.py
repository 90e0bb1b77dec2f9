"""Show records of a stream: a page of them, one of them, or a download."""

from __future__ import annotations

import asyncio
import contextlib
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import StreamingResponse

from shardway.console.columns import FIXED, Columns
from shardway.console.looks.newest import NewestRecords
from shardway.console.page import PageError, console_of, link, rendered
from shardway.console.pages.record_query import NUMBER, RecordQuery
from shardway.console.pages.record_search import (
    SearchProgress,
    address_of_following,
    address_of_older,
    each_record,
    search_from,
    search_newest,
)
from shardway.console.pages.record_views import note_view, shard_ids
from shardway.errors import OptionError
from shardway.inspect import SeenRecord
from shardway.inspect.moments import HOW, time_text
from shardway.inspect.records.reader import get, read_pages
from shardway.wiring import stream_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.responses import Response

    from shardway.console.console import Console


DOWNLOAD_ROWS_MAX = 10_000
DOWNLOAD_S = 60.0


async def records(request: Request) -> Response:
    """Show a page of records."""
    console, name = console_of(request), request.path_params["name"]
    fault, chosen, found = None, None, SearchProgress()
    try:
        chosen = RecordQuery(console, name, request.query_params)
    except OptionError as error:
        fault = str(error)
    if chosen is not None:
        await note_view(request, "records.viewed", chosen.target())
        await (search_newest if chosen.is_newest else search_from)(console, chosen, found)
    following = address_of_following(name, chosen, found)
    context: dict[str, Any] = {
        "title": f"Records of {name}",
        "name": name,
        "query": request.query_params,
        "at": chosen.at if chosen is not None else request.query_params.get("from", ""),
        "chosen": chosen,
        "found": found,
        "fault": fault or found.fault,
        "following": following,
        "older": address_of_older(name, chosen, found),
        "columns": chosen.columns if chosen is not None else Columns([]),
        "fixed": FIXED,
        "how": HOW,
        "download": None if chosen is None else link("streams", name, "download", **chosen.query(limit=None, col=None)),
        "download_rows_max": DOWNLOAD_ROWS_MAX,
        "download_s": DOWNLOAD_S,
        "tail": link(
            "streams", name, "tail", **({} if chosen is None else chosen.query(from_="latest", until=None, col=None))
        ),
        "shards": await shard_ids(console, name),
    }
    return rendered(request, "records.html", context, status=400 if fault else 200)


async def record(request: Request) -> Response:
    """Show one whole record."""
    console, name = console_of(request), request.path_params["name"]
    query = request.query_params
    number, sub, shard = query.get("seq", ""), query.get("sub", "0"), query.get("shard") or None
    if not NUMBER.fullmatch(number) or not NUMBER.fullmatch(sub):
        raise PageError(400, "A position is a sequence number, and for records of aggregates a number in it.")
    await note_view(request, "record.viewed", {"stream": name, "shard": shard, "sequence_number": number, "sub": sub})
    seen = await get(console.inspector.make_sibling(), stream_name(name), int(number), int(sub), shard)

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
    await note_view(request, "records.downloaded", chosen.target())
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    headers = {"content-disposition": f'attachment; filename="{safe}.jsonl"'}
    return StreamingResponse(_lines(console, chosen), media_type="application/octet-stream", headers=headers)


async def _lines(console: Console, chosen: RecordQuery) -> AsyncIterator[bytes]:
    inspector, count = console.inspector.make_sibling(), 0
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

    async with asyncio.timeout(DOWNLOAD_S), contextlib.aclosing(each_record(console, pages, look)) as parts:
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


ROUTES = [
    ("/streams/{name}/records", ["GET"], records),
    ("/streams/{name}/record", ["GET"], record),
    ("/streams/{name}/download", ["GET"], download),
]
