"""``shardway records`` follows a stream, gets a record, searches, and counts. It only reads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from shardway.cli.interrupt import Stopping
from shardway.cli.looking import Names, looking
from shardway.cli.output import of_bytes, warn
from shardway.cli.producing import EndpointUrl, Profile, Region, Stream
from shardway.cli.report_output import Rate, Shape, Since, begin_of, show_report
from shardway.cli.tables import table_of
from shardway.errors import OptionError
from shardway.inspect.moments import HOW, moment_s, time_text
from shardway.model import IteratorAt, Position
from shardway.shown import json_line, json_lines, one_line
from shardway.wiring import ConnectionOptions, stream_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shardway.inspect import Inspector, Missing, Reading, SeenRecord
    from shardway.inspect.records.registries import Registries
    from shardway.inspect.records.seen_records import SeenPage

app = typer.Typer(no_args_is_help=True, help="Records: follow a stream, get a record, search and count.")

TEXT_CHARACTERS_MAX = 2_000
"""The characters that a table shows of a record."""
PART_S = 0.05
"""Seconds for which lines are made before they are written: a page of records with much inside takes longer."""

PART_RECORDS = 10_000
"""Records without a filter whose lines are made before they are written."""


def _position(default: str) -> Any:
    how = f"Where to begin: {HOW}, the last two with /INDEX inside of an aggregate."
    return typer.Option("--starting-position", help=how, metavar="POSITION", show_default=default)


Until = Annotated[str | None, typer.Option(help="Leave out what arrived later: a time, or a span ago.", metavar="TIME")]
Shards = Annotated[
    list[str] | None, typer.Option("--shard", help="Only this shard; may be given again.", metavar="SHARD")
]
Key = Annotated[
    str | None, typer.Option(help="Only records with this partition key, out of its shards.", metavar="KEY")
]
Where = Annotated[
    str | None, typer.Option(help='Only records that it holds for: .amount >= 10 and key == "a".', metavar="FILTER")
]
FanOut = Annotated[
    str | None,
    typer.Option(
        "--fan-out",
        help="Have records pushed by this registered consumer, which no other program is using, in place of polling.",
        metavar="CONSUMER",
    ),
]
GlueRegistry = Annotated[
    bool, typer.Option("--glue-registry", help="Fetch the schemas that records name from AWS Glue, and decode by them.")
]
SchemaRegistry = Annotated[
    str | None,
    typer.Option(
        "--schema-registry",
        help="Fetch them from this registry, which speaks Confluent's protocol. SHARDWAY_SCHEMA_REGISTRY_AUTH is its "
        "USER:PASSWORD.",
        metavar="URL",
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", "-n", help="Stop after so many records.", min=1, metavar="N")]
Decode = Annotated[bool, typer.Option("--decode", help="In lines of JSON: also what is inside, and why.")]
Output = Annotated[
    Shape, typer.Option("--output", "-o", help="table; or jsonl: a line that shardway put --format records takes back.")
]


class ReadStart(NamedTuple):
    """Where reading begins."""

    starting_position: str | None
    since: str | None
    default: str

    def place(self, now_s: float) -> tuple[IteratorAt, Position | None]:
        """Return the place, and the last user record that is left out there. Raises OptionError."""
        from shardway.inspect import Goal

        if self.since is None:
            at, index = Goal(self.starting_position or self.default).at(now_s)
            number = at.sequence_number
            if number is None:
                return at, None
            if at.type == "AFTER_SEQUENCE_NUMBER":  # the rest of its aggregate comes, too
                return IteratorAt.at_sequence(number), Position(number, index)
            return at, Position(number, index - 1) if index else None
        if self.starting_position is not None:
            raise OptionError("--since and --starting-position both say where to begin: give one of them")
        begin_s = begin_of(self.since, now_s)
        assert begin_s is not None
        return IteratorAt.at_timestamp(begin_s), None


class ReadMethod(NamedTuple):
    """How records are read, and what they are decoded by."""

    fan_out: str | None = None
    glue_registry: bool = False
    schema_registry: str | None = None

    def registries(self, inspector: Inspector) -> Registries | None:
        """Return the registries to ask; None where none is to be asked. Raises OptionError."""
        from shardway.inspect.records.registries import Registries

        if not self.glue_registry and self.schema_registry is None:
            return None
        return Registries(inspector.wire, glue=self.glue_registry, url=self.schema_registry)


class RecordChoice:
    """Which records a command shows: all of its options that choose."""

    def __init__(
        self,
        begin: ReadStart,
        until: str | None,
        shards: list[str] | None,
        key: str | None,
        where: str | None,
        how: ReadMethod,
    ) -> None:
        from shardway.inspect.filters import parse

        self.begin, self.until, self.how = begin, until, how
        self.shards, self.key = tuple(shards or ()), key
        self.test: Callable[[SeenRecord], bool] | None = None if where is None else parse(where)
        begin.place(time.time())  # a text that is no place is refused before any call is made
        if until is not None:
            moment_s(until, 0.0)

    def reading(self, now_s: float, *, follow: bool = False) -> Reading:
        """Return what is to be read."""
        from shardway.inspect import Reading

        at, behind = self.begin.place(now_s)
        return Reading(
            starting_position=at,
            behind=behind,
            shards=self.shards,
            partition_key=self.key,
            until_s=None if self.until is None else moment_s(self.until, now_s),
            follow=follow and self.until is None,
            fan_out=self.how.fan_out,
            is_patient=follow,
        )


@app.command("tail")
def tail_command(
    stream: Stream,
    starting_position: Annotated[str | None, _position("latest")] = None,
    since: Since = None,
    until: Until = None,
    shard: Shards = None,
    key: Key = None,
    where: Where = None,
    limit: Limit = None,
    fan_out: FanOut = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Go on at the newest record, or end there.")
    ] = True,
    decode: Decode = False,
    glue_registry: GlueRegistry = False,
    schema_registry: SchemaRegistry = None,
    rate: Rate = 2.0,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: Output = Shape.table,
) -> None:
    """Show records as they come, through reshards, until Ctrl-C.

    KPL aggregates are opened, and what is compressed or framed is shown as what is inside of it. A shard's records come
    in their order. With --until or --no-follow the command ends where that is reached.
    """
    how = ReadMethod(fan_out, glue_registry, schema_registry)
    chosen = RecordChoice(ReadStart(starting_position, since, "latest"), until, shard, key, where, how)
    connection = ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile)
    shower = _shower(stream, chosen, _line_of(output, decode), limit, follow=follow)
    asyncio.run(looking(connection, shower, names=Names(stream=stream), calls_per_s=rate))


@app.command("grep")
def grep_command(
    text: Annotated[
        str, typer.Argument(help="What to look for: in the text that is inside of a record.", metavar="TEXT")
    ],
    stream: Stream,
    pattern: Annotated[
        bool, typer.Option("--pattern", "-e", help="TEXT is a pattern of RE2 (needs the package google-re2).")
    ] = False,
    ignore_case: Annotated[
        bool, typer.Option("--ignore-case", "-i", help="Small and capital letters are the same.")
    ] = False,
    starting_position: Annotated[str | None, _position("trim-horizon")] = None,
    since: Since = None,
    until: Until = None,
    shard: Shards = None,
    key: Key = None,
    where: Where = None,
    limit: Limit = None,
    fan_out: FanOut = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on at the newest record.")] = False,
    decode: Decode = False,
    glue_registry: GlueRegistry = False,
    schema_registry: SchemaRegistry = None,
    rate: Rate = 2.0,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: Output = Shape.table,
) -> None:
    """Show the records that hold a text: after decompression, and inside of aggregates. Status 1 when none does."""
    how = ReadMethod(fan_out, glue_registry, schema_registry)
    chosen = RecordChoice(ReadStart(starting_position, since, "trim-horizon"), until, shard, key, where, how)
    _search_too(chosen, text, pattern=pattern, ignore_case=ignore_case)
    connection = ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile)
    shower = _shower(stream, chosen, _line_of(output, decode), limit, follow=follow)
    if not asyncio.run(looking(connection, shower, names=Names(stream=stream), calls_per_s=rate)):
        raise typer.Exit(1)


@app.command("get")
def get_command(
    stream: Stream,
    position: Annotated[
        str, typer.Argument(help="Sequence number, with /INDEX for one inside of an aggregate.", metavar="POSITION")
    ],
    shard: Annotated[
        str | None, typer.Option(help="Its shard, where the number does not tell.", metavar="SHARD")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Write the data alone, byte for byte.")] = False,
    decode: Decode = False,
    glue_registry: GlueRegistry = False,
    schema_registry: SchemaRegistry = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: Output = Shape.table,
) -> None:
    """Show one record by its position, with what is inside of it and why it was taken for that."""
    from shardway.inspect.records.reader import get

    number, _, sub = position.partition("/")
    if not (number.isascii() and number.isdigit()) or (sub and not (sub.isascii() and sub.isdigit())):
        raise OptionError(f"{position!r} is no position: write a sequence number, or NUMBER/INDEX")
    connection = ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile)

    how = ReadMethod(None, glue_registry, schema_registry)

    async def look(inspector: Inspector) -> SeenRecord:
        registries = how.registries(inspector)
        found = await get(inspector, stream_name(stream), int(number), int(sub or 0), shard)
        if registries is not None:
            found.decoded = await registries.opened(found.decoded)
        return found

    record = asyncio.run(looking(connection, look, names=Names(stream=stream)))
    if raw:
        sys.stdout.buffer.write(record.data)
        sys.stdout.buffer.flush()
    elif output is Shape.table:
        print(_line_of(Shape.table, False)(record))
        for step in record.decoded.steps:
            print(one_line(f"  {step.kind}: {step.why}"))
    else:
        print(_line_of(output, decode)(record))


@app.command("count")
def count_command(
    stream: Stream,
    starting_position: Annotated[str | None, _position("trim-horizon")] = None,
    since: Since = None,
    until: Until = None,
    shard: Shards = None,
    key: Key = None,
    where: Where = None,
    fan_out: FanOut = None,
    glue_registry: GlueRegistry = False,
    schema_registry: SchemaRegistry = None,
    rate: Rate = 2.0,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: Output = Shape.table,
) -> None:
    """Count user records and their bytes by shard, up to the newest record at the start."""
    from shardway.inspect import CountReport, ShardCount
    from shardway.inspect.records.reader import read_pages

    how = ReadMethod(fan_out, glue_registry, schema_registry)
    chosen = RecordChoice(ReadStart(starting_position, since, "trim-horizon"), until, shard, key, where, how)
    connection = ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile)

    async def look(inspector: Inspector) -> CountReport:
        records: Counter[str] = Counter()
        payload: Counter[str] = Counter()
        reading, registries = chosen.reading(inspector.now_s), chosen.how.registries(inspector)
        async with contextlib.aclosing(read_pages(inspector, stream_name(stream), reading, registries)) as pages:
            async for page in pages:
                end_s = time.monotonic() + PART_S
                for record in page:
                    if chosen.test is None or chosen.test(record):
                        records[record.shard_id] += 1
                        payload[record.shard_id] += len(record.data)
                    if time.monotonic() >= end_s:
                        await asyncio.sleep(0)  # Ctrl-C is heard here
                        end_s = time.monotonic() + PART_S
        shards = [
            ShardCount(shard_id=one, user_records=records[one], payload_bytes=payload[one]) for one in sorted(records)
        ]
        return CountReport(
            stream=stream_name(stream).short,
            user_records=records.total(),
            payload_bytes=payload.total(),
            shards=shards,
            missing=list(inspector.missing),
            calls=inspector.calls,
        )

    report = asyncio.run(looking(connection, look, names=Names(stream=stream), calls_per_s=rate))
    rows = [(one.shard_id, f"{one.user_records:,}", of_bytes(one.payload_bytes)) for one in report.shards]
    rows.append(("all", f"{report.user_records:,}", of_bytes(report.payload_bytes)))
    show_report(report, report.shards, table_of(("SHARD", "RECORDS", "DATA"), rows), output)


def _shower(
    stream: str, chosen: RecordChoice, line_of: Callable[[SeenRecord], str], limit: int | None, *, follow: bool
) -> Any:
    """Show records until their end, a signal, or a reader of the output that has gone; return their number."""
    from shardway.inspect.records.reader import read_pages

    async def show(inspector: Inspector) -> int:
        stopping, out = Stopping(), _Output(limit)
        name, registries = stream_name(stream), chosen.how.registries(inspector)
        # This call raises for a stream that is not there, and its answer shows the service's time.
        await inspector.shown(f"the stream {name}", "kinesis", inspector.describe(name))
        pages = read_pages(inspector, name, chosen.reading(inspector.now_s, follow=follow), registries)
        with stopping.listening():
            async with contextlib.aclosing(pages), contextlib.aclosing(stopping.until_asked(pages)) as found:
                async for page in found:
                    out.tell(inspector.missing)
                    for lines, text in out.parts(page, chosen.test, line_of):
                        out.write(lines, text)
                        await asyncio.sleep(0)  # a signal is heard between two parts
                        if out.is_over or stopping.asked:
                            break
                    if out.is_over:
                        break
        if stopping.signal is not None and stopping.signal is not signal.SIGINT:
            raise typer.Exit(128 + stopping.signal)
        return out.lines

    return show


class _Output:
    """Writes to standard output, and knows whether more is wanted there."""

    def __init__(self, limit: int | None) -> None:
        self.lines = 0
        self.is_over = False
        """True once all lines that were asked for are written, or no program reads the output any more, as behind
        ``head``.
        """
        self._limit = limit
        self._told = 0

    def tell(self, missing: Sequence[Missing]) -> None:
        """Say once what keeps records from coming for a while."""
        for one in missing[self._told :]:
            warn(f"{one.told}. Reading goes on")
        self._told = len(missing)

    def parts(
        self, page: SeenPage, test: Callable[[SeenRecord], bool] | None, line_of: Callable[[SeenRecord], str]
    ) -> Iterator[tuple[int, str]]:
        """Yield the lines of a page's records that are wanted, in parts that each take a moment to make: the number of
        lines, and their text.
        """
        if test is None and line_of is _plain_line:
            end = len(page) if self._limit is None else min(len(page), self._limit - self.lines)
            for first in range(0, end, PART_RECORDS):  # a page of aggregates may have two million records
                plain = page.lines(first, min(end, first + PART_RECORDS))
                yield len(plain), json_lines(plain)
            return
        lines: list[str] = []
        end_s = time.monotonic() + PART_S
        for record in page:
            if test is None or test(record):
                lines.append(line_of(record))
                if self.lines + len(lines) == self._limit:
                    break
            if time.monotonic() >= end_s:
                yield len(lines), _joined(lines)
                lines, end_s = [], time.monotonic() + PART_S
        yield len(lines), _joined(lines)

    def write(self, lines: int, text: str) -> None:
        """Write a part in one go."""
        if lines:
            self.is_over = not _written(text)
            self.lines += lines
        self.is_over = self.is_over or self.lines == self._limit


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _search_too(chosen: RecordChoice, text: str, *, pattern: bool, ignore_case: bool) -> None:
    from shardway.inspect import filters

    also = chosen.test
    if pattern:
        search = filters.pattern(f"(?i){text}" if ignore_case else text)
    else:
        wanted = text.casefold() if ignore_case else text

        def search(value: str) -> bool:
            return wanted in (value.casefold() if ignore_case else value)

    chosen.test = lambda record: search(record.decoded.text or "") and (also is None or also(record))


def _line_of(shape: Shape, with_decoded: bool) -> Callable[[SeenRecord], str]:
    if shape is Shape.table:
        return _text_of
    if shape is not Shape.jsonl:
        raise OptionError("records are shown as -o table or -o jsonl: there is no end to wait for")
    return _decoded_line if with_decoded else _plain_line


def _plain_line(record: SeenRecord) -> str:
    return json_line(record.to_line())


def _decoded_line(record: SeenRecord) -> str:
    return json_line(record.to_line(with_decoded=True))


def _text_of(record: SeenRecord) -> str:
    found = record.record
    position = f"{found.sequence_number}" + (f"/{found.sub_sequence_number}" if found.aggregated else "")
    text = record.decoded.shown
    cut = text if len(text) <= TEXT_CHARACTERS_MAX else f"{text[:TEXT_CHARACTERS_MAX]}... ({len(text)} characters)"
    return "  ".join(
        (time_text(record.arrived_at), found.shard_id, position, one_line(record.partition_key), one_line(cut))
    )


def _written(text: str) -> bool:
    """Write a text. Return False when no program reads the output any more, as behind ``head``."""
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        # Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True
