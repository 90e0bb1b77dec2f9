"""Write records as lines: for a terminal, as JSON, or as a table, in parts that come in time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import typer

from shardway.cli.interrupt import Stopping
from shardway.cli.output import warn
from shardway.cli.record_choice import RecordChoice
from shardway.cli.report_output import Shape
from shardway.errors import OptionError
from shardway.inspect.moments import time_text
from shardway.shown import json_line, json_lines, one_line
from shardway.wiring import stream_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shardway.inspect import Inspector, Missing, SeenRecord
    from shardway.inspect.records.seen_records import SeenPage


TEXT_CHARACTERS_MAX = 2_000
"""The characters that a table shows of a record."""
PART_S = 0.05
"""A command makes lines for so many seconds before it writes them: a page of records with much inside takes longer."""
PART_RECORDS = 10_000
"""Records without a filter whose lines are made before they are written."""


def record_shower(
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
        self._reported_count = 0

    def tell(self, missing: Sequence[Missing]) -> None:
        """Say once what keeps records from coming for a while."""
        for one in missing[self._reported_count :]:
            warn(f"{one.told}. Reading goes on")
        self._reported_count = len(missing)

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
                yield len(lines), _join(lines)
                lines, end_s = [], time.monotonic() + PART_S
        yield len(lines), _join(lines)

    def write(self, lines: int, text: str) -> None:
        """Write a part in one go."""
        if lines:
            self.is_over = not _write(text)
            self.lines += lines
        self.is_over = self.is_over or self.lines == self._limit


def _join(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def line_maker(shape: Shape, with_decoded: bool) -> Callable[[SeenRecord], str]:
    """Return the function that makes a line of a record. Raises OptionError for a shape that needs an end."""
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


def _write(text: str) -> bool:
    """Write a text. Return False when no program reads the output any more, as behind ``head``."""
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        # Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True
