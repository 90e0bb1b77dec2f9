"""``shardway put`` puts lines of a file or of standard input into a stream."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import stat
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardway.cli.accounts import Report
from shardway.cli.delivery import Batcher
from shardway.cli.output import OutputWhole, ResultShape, warn
from shardway.cli.producing import (
    Aggregation,
    EndpointUrl,
    Flush,
    OrderedByKey,
    Profile,
    RecordTtl,
    Region,
    Run,
    Stream,
    finish,
)
from shardway.cli.progress import progress
from shardway.cli.put_lines import BadLineError, Form, Line, Lines, read_chunks, record_maker
from shardway.errors import OptionError
from shardway.options.producer import ProducerOptions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from shardway.cli.accounts import Batch


BUFFER_BYTES_MAX = 16 * 1024 * 1024
"""The bytes that are read ahead of what is written. At a shard's 1 MiB/s this is well within the default time to live.
"""
BAD_LINES_SHOWN_MAX = 10


class Format(StrEnum):
    """What a line is."""

    lines = "lines"
    jsonl = "jsonl"
    records = "records"


File = Annotated[
    Path | None, typer.Argument(help="File to read; standard input without it, or with -.", metavar="FILE")
]
LineFormat = Annotated[
    Format,
    typer.Option(
        "--format",
        help="A line is data as it is, a JSON value with fields to choose from, or a record of shardway records.",
    ),
]
Key = Annotated[str | None, typer.Option(help="JSON field with the partition key.", metavar="FIELD")]
KeyText = Annotated[
    str | None,
    typer.Option(
        help="Partition key of all records. If no option names a key, each record gets a random one.", metavar="TEXT"
    ),
]
HashKey = Annotated[str | None, typer.Option(help="JSON field with the explicit hash key.", metavar="FIELD")]
Data = Annotated[
    str | None, typer.Option(help="JSON field with the data. Without it, the whole line is the data.", metavar="FIELD")
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Skip bad lines. Without it, the first bad line stops the command.")
]
KeepGoing = Annotated[
    bool,
    typer.Option(
        "--keep-going", help="Go on when a record could not be written. Without it, the command stops reading."
    ),
]


def command(
    stream: Stream,
    file: File = None,
    form: LineFormat = Format.lines,
    key: Key = None,
    key_text: KeyText = None,
    explicit_hash_key: HashKey = None,
    data: Data = None,
    skip_bad: SkipBad = False,
    keep_going: KeepGoing = False,
    aggregation: Aggregation = False,
    ordered_by_key: OrderedByKey = False,
    record_ttl: RecordTtl = 120.0,
    flush: Flush = 10.0,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: OutputWhole = ResultShape.text,
) -> None:
    """Put each line of FILE or of standard input into STREAM as a record. Ends with status 0 if all were written."""
    source = LineSource(
        _form(form, key_text, key, explicit_hash_key, data),
        name="standard input" if file is None or str(file) == "-" else str(file),
        skip_bad=skip_bad,
    )
    options = ProducerOptions(
        aggregation=aggregation,
        ordered_by_key=ordered_by_key,
        record_ttl_s=record_ttl,
        buffer_bytes_max=BUFFER_BYTES_MAX,
    )
    run = Run(
        stream, options=options, region=region, endpoint_url=endpoint_url, profile=profile, stop_on_loss=not keep_going
    )
    with _open(file) as descriptor:
        total_bytes = _size(descriptor)
        metrics = asyncio.run(
            run.deliver(
                source.batches(descriptor),
                flush_s=flush,
                watch=lambda producer: progress(producer, lambda: source.bytes_read, total_bytes),
            )
        )
    report = Report(
        stream=stream,
        account=run.account,
        metrics=metrics,
        what="lines",
        interrupted=run.stopping.signal,
        fault=source.fault,
        further={
            "lines_read": source.lines.number,
            "bad_lines_skipped": source.skipped,
            "input_complete": source.complete,
        },
    )
    finish(report, as_json=output is ResultShape.json)


def _form(form: Format, key_text: str | None, key: str | None, hash_key: str | None, data: str | None) -> Form:
    return Form(
        records=form is Format.records,
        jsonl=form is Format.jsonl,
        key_text=key_text,
        key=key,
        explicit_hash_key=hash_key,
        data=data,
    )


class LineSource:
    """Makes batches of records out of lines, as the lines come."""

    def __init__(self, form: Form, *, name: str, skip_bad: bool) -> None:
        self.name = name
        self.lines = Lines()
        self.bytes_read = 0
        self.skipped = 0
        """Bad lines that were passed over."""
        self.fault: str | None = None
        """Why reading ended early."""
        self.complete = False
        """True once the end was read."""
        self._make = record_maker(form, random.Random())
        self._skip_bad = skip_bad
        self._batcher = Batcher()

    async def batches(self, descriptor: int) -> AsyncGenerator[Batch, None]:
        """Read to the end, or to the first bad line, and yield what came before it."""
        try:
            async for chunk in read_chunks(descriptor):
                self.bytes_read += len(chunk)
                for batch in self._batches(self.lines.feed(chunk)):
                    yield batch
                if self.fault is not None:
                    return
        except OSError as fault:
            self.fault = f"{self.name} cannot be read on after line {self.lines.number}: {fault.strerror or fault}"
            return
        for batch in self._batches(self.lines.end()):
            yield batch
        self.complete = self.fault is None

    def _batches(self, lines: list[Line]) -> Iterator[Batch]:
        for line in lines:
            try:
                if line.text is None:
                    raise BadLineError("it is too long")
                record = self._make(line.text)
            except BadLineError as fault:
                if not self._passed_over(f"{self.name}, line {line.number}: {fault}"):
                    break
                continue
            if record is not None:
                yield from self._batcher.add(line.number, record)
        yield from self._batcher.take()

    def _passed_over(self, text: str) -> bool:
        if not self._skip_bad:
            self.fault = text
            return False
        self.skipped += 1
        if self.skipped <= BAD_LINES_SHOWN_MAX:
            warn(f"{text}; passed over")
        if self.skipped == BAD_LINES_SHOWN_MAX:
            warn("further bad lines are only counted")
        return True


@contextlib.contextmanager
def _open(file: Path | None) -> Iterator[int]:
    """Open the file, or take standard input, as a descriptor to read from. Raises OptionError."""
    if file is None or str(file) == "-":
        yield 0
        return
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except OSError as fault:
        raise OptionError(f"{file} cannot be read: {fault.strerror or fault}") from fault
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _size(descriptor: int) -> int | None:
    """Return the bytes of a file; None for what has no size (a pipe, a terminal)."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None
