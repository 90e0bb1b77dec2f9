"""The options for writing. Each option that is listed does something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import Meta

from shardway.spark.options.option import Option
from shardway.spark.options.stream_options import StreamOptions
from shardway.spark.options.texts import parse_text

MIB = 1024 * 1024
BUFFER_BYTES_MAX_LEAST = 11 * MIB
"""The least bytes of the buffer: a record of 10 MiB, the largest that Kinesis takes, and its book-keeping fit in."""
NO_STAMPS = "none"
BY_POSITION = "position"


def parse_stamps(text: str) -> str:
    """Parse which stamps rows get: two words, in any case, or the name of a column."""
    stamps = parse_text(text)
    return stamps.lower() if stamps.lower() in (NO_STAMPS, BY_POSITION) else stamps


class SinkOptions(StreamOptions, frozen=True, kw_only=True):
    """The options of one sink."""

    aggregation: Annotated[
        bool,
        Option(
            "boolean",
            "Pack rows into KPL aggregates: fewer and larger Kinesis records, for less cost and more throughput. "
            "Readers must open them, as the source here, the KCL and the KPL's readers do.",
        ),
    ] = False
    ordered_by_key: Annotated[
        bool,
        Option(
            "boolean",
            "Keep the order of each partition key within a task, also when records are refused and put again; see "
            "“Order”.",
        ),
    ] = False
    stamps: Annotated[
        str,
        Option(
            "`none`, `position`, or a column",
            "Write each row in an envelope that says which row it is, so that a reader can remove duplicates. It says "
            "so by the position of the record that the row comes from, or by a key column (string or integer); see "
            "“Stamps”.",
            parse=parse_stamps,
        ),
    ] = NO_STAMPS
    stamp_index: Annotated[
        str | None,
        Option(
            "an integer column",
            "With `stamps` `position`, where a record of the source becomes several rows: the column that numbers "
            "them, the same in every run (`posexplode` makes one).",
        ),
    ] = None
    buffer_bytes_max: Annotated[
        int,
        Meta(ge=BUFFER_BYTES_MAX_LEAST),
        Option(
            "bytes",
            "The most memory of a task for rows that are not written yet: data, partition key and 256 bytes each. When "
            "it is full, the task waits.",
        ),
    ] = 16 * MIB
    write_timeout_ms: Annotated[
        int,
        Meta(ge=1_000),
        Option("milliseconds", "A task fails when none of the rows that it holds was written for this long."),
    ] = 120_000

    @property
    def write_timeout_s(self) -> float:
        """Seconds after which a task fails if none of its rows is written."""
        return self.write_timeout_ms / 1000

    def rules(self, given: Mapping[str, str]) -> Iterator[str]:
        """Yield what is wrong with the stream and the stamps."""
        yield from super().rules(given)
        if self.stamp_index is not None and self.stamps != BY_POSITION:
            yield "stampIndex numbers the rows of one source position: it needs stamps position"
