"""``shardway records`` follows a stream, gets a record, searches, and counts. It only reads."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from shardway.cli.looking import Names, looking
from shardway.cli.output import of_bytes
from shardway.cli.producing import EndpointUrl, Profile, Region, Stream
from shardway.cli.record_choice import (
    Decode,
    FanOut,
    GlueRegistry,
    Key,
    Limit,
    Output,
    ReadMethod,
    ReadStart,
    RecordChoice,
    SchemaRegistry,
    Shards,
    Until,
    Where,
    position_option,
)
from shardway.cli.record_lines import PART_S, line_maker, record_shower
from shardway.cli.report_output import Rate, Shape, Since, show_report
from shardway.cli.tables import table_of
from shardway.errors import OptionError
from shardway.shown import one_line
from shardway.wiring import ConnectionOptions, stream_name

if TYPE_CHECKING:
    from shardway.inspect import Inspector, SeenRecord


app = typer.Typer(no_args_is_help=True, help="Records: follow a stream, get a record, search and count.")


@app.command("tail")
def tail_command(
    stream: Stream,
    starting_position: Annotated[str | None, position_option("latest")] = None,
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
    shower = record_shower(stream, chosen, line_maker(output, decode), limit, follow=follow)
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
    starting_position: Annotated[str | None, position_option("trim-horizon")] = None,
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
    shower = record_shower(stream, chosen, line_maker(output, decode), limit, follow=follow)
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
        print(line_maker(Shape.table, False)(record))
        for step in record.decoded.steps:
            print(one_line(f"  {step.kind}: {step.why}"))
    else:
        print(line_maker(output, decode)(record))


@app.command("count")
def count_command(
    stream: Stream,
    starting_position: Annotated[str | None, position_option("trim-horizon")] = None,
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
