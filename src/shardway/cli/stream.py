"""``shardway stream`` shows streams, their shards, and where their load lies. It only reads."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shardway.cli.looking import Names, looking
from shardway.cli.output import of_bytes
from shardway.cli.producing import EndpointUrl, Profile, Region, Stream
from shardway.cli.report_output import Output, Rate, Shape, Since, back_s, pairs_of, show_report, tell_missing
from shardway.cli.tables import table_of
from shardway.inspect.moments import span_text, time_text
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from shardway.inspect import Inspector, ShardHeat, ShardView, StreamReport

app = typer.Typer(no_args_is_help=True, help="Streams: list them, their shards, and where their load lies.")

RecordsMax = Annotated[int, typer.Option(help="Records to read of each shard at most.", min=1, metavar="N")]
KeysMax = Annotated[int, typer.Option("--keys", help="Keys to show of each shard.", min=0, metavar="N")]
NoKeys = Annotated[bool, typer.Option("--no-keys", help="Show no partition key, only what each takes.")]


@app.command("ls")
def ls_command(
    region: Region = None, endpoint_url: EndpointUrl = None, profile: Profile = None, output: Output = Shape.table
) -> None:
    """List the streams of the account in the region."""
    connection = ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile)
    report = asyncio.run(looking(connection, lambda inspector: inspector.streams()))
    rows = ((one.name, one.status, one.mode, time_text(one.created_at)) for one in report.streams)
    show_report(report, report.streams, table_of(("STREAM", "STATUS", "MODE", "CREATED"), rows), output)
    tell_missing(report.missing)


@app.command("describe")
def describe_command(
    stream: Stream,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: Output = Shape.table,
) -> None:
    """Describe a stream: its settings, its open shards, its registered consumers."""
    connection = ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile)
    report = asyncio.run(looking(connection, lambda inspector: inspector.stream(stream), names=Names(stream=stream)))
    show_report(report, [report], _stream_text(report), output)
    tell_missing(report.missing)


@app.command("shards")
def shards_command(
    stream: Stream,
    every: Annotated[bool, typer.Option("--all", help="Also the closed shards that the retention covers.")] = False,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: Output = Shape.table,
) -> None:
    """List the open shards of a stream, with their lineage and hash ranges."""
    connection = ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile)
    report = asyncio.run(
        looking(connection, lambda inspector: inspector.stream(stream, consumers=False), names=Names(stream=stream))
    )
    shown = [one for one in report.shards or () if every or one.open]
    head = ("SHARD", "STATE", "HASH SHARE", "FIRST HASH KEY", "PARENTS", "CHILDREN", "OPENED")
    show_report(report, shown, table_of(head, map(_shard_row, shown)), output)
    tell_missing(report.missing)


@app.command("heat")
def heat_command(
    stream: Stream,
    since: Since = "5m",
    records_max: RecordsMax = 20_000,
    keys: KeysMax = 5,
    no_keys: NoKeys = False,
    rate: Rate = 2.0,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: Output = Shape.table,
) -> None:
    """Read the records of a while and show hot shards and keys, with the hash key at which a hot shard is best split.

    KPL aggregates are opened. The command reads within its share of each shard's calls (--rate), so a busy stream takes
    a while.
    """
    connection = ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile)
    since_s = back_s(since, time.time()) or 0.0

    async def look(inspector: Inspector) -> Any:
        return await inspector.heat(
            stream,
            since_s=since_s,
            records_max=records_max,
            keys_shown_max=keys,
            show_keys=not no_keys,
        )

    report = asyncio.run(looking(connection, look, names=Names(stream=stream), calls_per_s=rate))
    show_report(report, report.shards, _heat_text(report.shards), output)
    tell_missing(report.missing)


def _stream_text(report: StreamReport) -> str:
    pairs: list[tuple[str, Any]] = [("stream", report.name)]
    if (found := report.stream) is not None:
        pairs += [
            ("arn", found.arn),
            ("status", found.status),
            ("mode", found.mode),
            ("created", time_text(found.created_at)),
            ("retention", span_text(found.retention_hours * 3600)),
            ("open shards", found.open_shards),
            ("encryption", " ".join(one for one in (found.encryption, found.key_id) if one)),
            ("shard metrics", ", ".join(found.shard_metrics)),
            ("record size", f"up to {found.max_record_kib} KiB" if found.max_record_kib else None),
            ("distribution", found.distribution),
            ("warm throughput", f"{found.warm_throughput_mib_s} MiB/s" if found.warm_throughput_mib_s else None),
            ("channels", found.channels),
            ("queues", found.queues),
        ]
    if report.shards is not None:
        closed = sum(not one.open for one in report.shards)
        pairs.append(("closed shards", f"{closed} that the retention still covers"))
    pairs += [("hole", f"no open shard takes the hash keys {first} to {last}") for first, last in report.holes]
    for one in report.consumers or ():
        pairs.append(("consumer", f"{one.name}, {one.status}, registered {time_text(one.created_at)}"))
    return pairs_of(pairs)


def _shard_row(shard: ShardView) -> tuple[Any, ...]:
    trimmed = [f"{one} (trimmed)" for one in shard.trimmed_parents]
    return (
        shard.shard_id,
        "open" if shard.open else "closed",
        f"{shard.hash_share:.2%}",
        shard.first_hash_key,
        ", ".join([*shard.parents, *trimmed]) or None,
        ", ".join(shard.children) or None,
        time_text(shard.opened_at),
    )


def _heat_text(shards: list[ShardHeat]) -> str:
    head = ("SHARD", "HOT", "OF LIMIT", "OF STREAM", "RECORDS/S", "BYTES/S", "SPAN", "HOT KEYS")
    rows = [
        (
            one.shard_id,
            "hot" if one.hot else None,
            f"{one.utilization:.0%}",
            f"{one.share:.0%}",
            f"{one.records_per_s:,.1f}",
            of_bytes(one.bytes_per_s),
            span_text(one.span_s) + ("" if one.complete else f" (bound: the first {one.covered:.0%})"),
            ", ".join(f"{key.partition_key or '(hidden)'} {key.share:.0%}" for key in one.hot_keys[:3]),
        )
        for one in shards
    ]
    advice = [f"{one.shard_id}: {one.advice}" for one in shards if one.advice]
    return "\n".join([table_of(head, rows), *advice])
