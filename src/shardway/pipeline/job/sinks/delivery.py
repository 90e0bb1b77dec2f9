"""Say what each sink of a job promises: each row exactly once, or at least once, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.pipeline.job.session import packages
from shardway.pipeline.job.sinks.formats import TABLE_FORMATS, is_folder, is_table

if TYPE_CHECKING:
    from shardway.pipeline.job.file.model import DeadLetters, Job, Sink


EXACTLY_ONCE, AT_LEAST_ONCE, NOT_KEPT = "exactly once", "at least once", "not kept"


class Delivery(NamedTuple):
    """Says how often a row is in a sink after a kill at any moment."""

    sink: str
    how: str
    why: str
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that are not empty, for JSON."""
        return {name: value for name, value in self._asdict().items() if value}


def deliveries(job: Job) -> list[Delivery]:
    """Return what each sink promises, in order, and what the place of the dead letters does."""
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
    if sink.format == "shardway":
        return _of_stream(name, sink.options)
    if sink.format == "console":
        return Delivery(name, AT_LEAST_ONCE, "a batch that runs again is shown again")
    if sink.mode == "overwrite":
        return Delivery(name, AT_LEAST_ONCE, "each batch takes the place of all before it")
    return Delivery(name, AT_LEAST_ONCE, "a batch that runs again is written again")


def _of_dead_letters(dead: DeadLetters) -> Delivery:
    if dead.discard:
        return Delivery("dead letters", NOT_KEPT, "they are counted only")
    if dead.stream is not None:
        target = str(dead.stream.get("streamName") or dead.stream.get("streamARN"))
        return _of_stream(f"dead letters shardway {target}", dead.stream)
    return Delivery(
        f"dead letters {dead.format} {dead.path}",
        EXACTLY_ONCE,
        "its files carry the batch's number: a batch that runs again replaces them",
    )


def _of_stream(name: str, options: dict[str, Any]) -> Delivery:
    given = {key.lower(): value for key, value in options.items()}
    if str(given.get("stamps", "none")).lower() == "none":
        return Delivery(
            name,
            AT_LEAST_ONCE,
            "a stream takes nothing back; with the option stamps a reader can remove the duplicates",
        )
    return Delivery(name, AT_LEAST_ONCE, "a stream takes nothing back; its stamps let a reader remove the duplicates")
