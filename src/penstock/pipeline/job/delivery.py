"""What each sink promises when a batch runs again: said by the check, and on the reference page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.pipeline.job import packages
from penstock.pipeline.job.faults import nearest

if TYPE_CHECKING:
    from penstock.pipeline.job.model import DeadLetters, Job, Sink

FOLDER_FORMATS = ("parquet", "json", "orc", "csv")
"""Written as a folder of files that carry the batch's number."""

TABLE_FORMATS = {
    "delta": "its commit carries the batch's number (txnVersion): a batch that runs again writes nothing",
    "iceberg": "its snapshot carries the batch's number: a batch that runs again writes nothing",
}
"""Written as a table whose commits carry the batch's number; what that says of a batch that runs again."""

EXACTLY_ONCE, AT_LEAST_ONCE, NOT_KEPT = "exactly once", "at least once", "not kept"

KNOWN_FORMATS = (
    *FOLDER_FORMATS, "console", "penstock", "noop", "text", "xml", "jdbc", "avro", "kafka", "delta", "iceberg",
    "binaryFile",
)  # fmt: skip
"""Formats of Spark and of well-known packages; another one may be there all the same."""


class Delivery(NamedTuple):
    """How often a row is in a sink after a kill at any moment."""

    sink: str
    how: str
    why: str
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {name: value for name, value in self._asdict().items() if value}


def deliveries(job: Job) -> list[Delivery]:
    """One for each sink, in order, and one for the dead letters."""
    found = [_of_sink(number, sink, job) for number, sink in enumerate(job.sinks)]
    if job.dead_letters is not None:
        found.append(_of_dead_letters(job.dead_letters))
    return found


def _of_sink(number: int, sink: Sink, job: Job) -> Delivery:
    name = f"sinks[{number}] {sink.label}"
    if sink.function is not None:
        return Delivery(
            name, AT_LEAST_ONCE, "it is called again for a batch that runs again, with the same rows and batch id: "
            "exactly once if it goes by the id"
        )  # fmt: skip
    assert sink.format is not None
    if is_folder(sink):
        return Delivery(name, EXACTLY_ONCE, "its files carry the batch's number: a batch that runs again replaces them")
    if is_table(sink):
        return Delivery(name, EXACTLY_ONCE, TABLE_FORMATS[sink.format], packages.missing(sink.format, job.spark))
    if sink.format == "penstock":
        return _of_stream(name, sink.options)
    if sink.format == "console":
        return Delivery(name, AT_LEAST_ONCE, "a batch that runs again is shown again")
    near = nearest(sink.format, KNOWN_FORMATS) if sink.format not in KNOWN_FORMATS and "." not in sink.format else ""
    note = f"{sink.format} is no format of Spark's own{near}" if "did you mean" in near else ""
    if sink.mode == "overwrite":
        return Delivery(name, AT_LEAST_ONCE, "each batch takes the place of all before it", note)
    return Delivery(name, AT_LEAST_ONCE, "a batch that runs again is written again", note)


def _of_dead_letters(dead: DeadLetters) -> Delivery:
    if dead.discard:
        return Delivery("dead letters", NOT_KEPT, "they are counted only")
    if dead.stream is not None:
        target = str(dead.stream.get("streamName") or dead.stream.get("streamARN"))
        return _of_stream(f"dead letters penstock {target}", dead.stream)
    return Delivery(
        f"dead letters {dead.format} {dead.path}",
        EXACTLY_ONCE,
        "its files carry the batch's number: a batch that runs again replaces them",
    )


def _of_stream(name: str, options: dict[str, Any]) -> Delivery:
    given = {key.lower(): value for key, value in options.items()}
    if str(given.get("stamps", "none")).lower() == "none":
        return Delivery(
            name, AT_LEAST_ONCE, "a stream takes nothing back; with the option stamps a reader can remove the repeats"
        )
    return Delivery(name, AT_LEAST_ONCE, "a stream takes nothing back; its stamps let a reader remove the repeats")


def is_folder(sink: Sink) -> bool:
    """True for a sink that is a folder of files, each batch once."""
    return sink.format in FOLDER_FORMATS and sink.table is None and sink.path is not None


def is_table(sink: Sink) -> bool:
    """True for a sink that is a table of a format with transactions, each batch once."""
    return sink.format in TABLE_FORMATS and sink.mode == "append"
