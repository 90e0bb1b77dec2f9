"""Write a first job file for a stream: ``shardway run --init STREAM``.

The command looks at the newest records of all shards, within bounds of records, bytes and time, and writes what
`shardway.pipeline.job.draft.draft` makes of them. It replaces no file.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import typer

from shardway.cli.looking import Names, looking
from shardway.cli.output import warn
from shardway.console.looks.newest import SHARDS_MAX, NewestQuery, NewestRecords
from shardway.errors import OptionError, ShardwayError
from shardway.payloads.opening import OPENED_BYTES_MAX
from shardway.pipeline.job import ExitCode
from shardway.pipeline.job.draft.draft import Place, Sample, job_text
from shardway.wiring import stream_name

if TYPE_CHECKING:
    from pathlib import Path

    from shardway.inspect import Inspector
    from shardway.inspect.records.seen_records import SeenRecord
    from shardway.wiring import ConnectionOptions

RECORDS_MAX = 100
READ_BYTES_MAX = 64 * 1024 * 1024
READING_MAX_S = 20.0
DECODING_MAX_S = 20.0
DECODED_BYTES_MAX = 64 * 1024 * 1024
"""The bytes of all records together, as they are or opened, that are decoded."""


def write_draft(stream: str, connection: ConnectionOptions, file: Path | None) -> ExitCode:
    """Write a job file for a stream: to ``file``, or to standard output. Return the command's exit status. Raises
    OptionError for a file that is there, or cannot be written.
    """
    if file is not None and file.exists():
        raise _is_there(file)
    name = stream_name(stream)

    async def look(inspector: Inspector) -> tuple[Sample, list[str]]:
        return await _sample(NewestRecords(inspector, name, NewestQuery(RECORDS_MAX, bytes_max=READ_BYTES_MAX)))

    try:
        sample, remarks = asyncio.run(looking(connection, look, names=Names(stream=stream)))
    except OptionError:
        raise
    except ShardwayError as fault:
        warn(str(fault))
        return ExitCode.SOURCE
    if sample.records == 0:
        why = " ".join(remarks) or "it is empty"
        raise OptionError(
            f"the stream {name.short} has shown no record to take a schema from: {why}. Put some records, or write the "
            "job file by hand: shardway run --schema shows its fields"
        )
    text = job_text(Place(stream, connection.region, connection.endpoint_url), sample, remarks)
    if file is None:
        typer.echo(text, nl=False)
    else:
        _write(file, text)
    return ExitCode.DONE


async def _sample(newest: NewestRecords) -> tuple[Sample, list[str]]:
    """Return what the newest records have inside, and a sentence for each bound that left something out."""
    remarks = []
    try:
        async with asyncio.timeout(READING_MAX_S):
            await newest.search()
    except TimeoutError:
        remarks.append(f"The search for records ended after {READING_MAX_S:g} s: not all shards may be in it.")
    else:
        if not newest.is_done:
            remarks.append("The search for records ended at its bound of bytes: not all shards may be in it.")
    if newest.shards_left_out:
        remarks.append(f"The stream has more than {SHARDS_MAX} shards: {newest.shards_left_out} were not read.")
    records = newest.records
    sample = await asyncio.to_thread(_take_sample, records)
    if sample.records < len(records):
        remarks.append(f"{len(records) - sample.records} more records were found, and took too long to decode.")
    return sample, remarks


def _take_sample(records: list[SeenRecord]) -> Sample:
    sample, left, end_s = Sample(), DECODED_BYTES_MAX, time.monotonic() + DECODING_MAX_S
    for record in records:
        left -= len(record.data)
        if left < 0 or time.monotonic() > end_s:
            break
        left -= sample.see(record.shard_id, record.data, opened_bytes_max=min(OPENED_BYTES_MAX, left))
    return sample


def _is_there(file: Path) -> OptionError:
    return OptionError(f"{file} is there already: --init replaces no file. Name another one")


def _write(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8", newline="\n") as out:
            out.write(text)
    except FileExistsError:  # it came while the records were read
        raise _is_there(file) from None
    except OSError as fault:
        raise OptionError(f"{file}: {fault.strerror}") from fault
    warn(f"{file} is written: read it, and check it with shardway run {file} --check")
