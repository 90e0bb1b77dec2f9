"""Check the rules between the fields of a job, which need no Spark."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from shardway.errors import OptionError
from shardway.pipeline.job.file.ddl import name_parts
from shardway.pipeline.job.file.decode_rules import decode_faults, missing_file, no_dead_letters, value_fields
from shardway.pipeline.job.file.expectation_rules import expectation_faults
from shardway.pipeline.job.file.faults import Fault, nearest
from shardway.pipeline.job.file.model import KEPT, Job, as_options
from shardway.pipeline.job.file.window_rules import window_columns, window_faults
from shardway.pipeline.job.functions import NoSparkError, load_function
from shardway.pipeline.job.sinks.formats import FOLDER_FORMATS, KNOWN_FORMATS, is_folder, is_table, reserved_options
from shardway.pipeline.locations import collide, identity
from shardway.spark.columns import SPARK_TYPES
from shardway.spark.options.parsing import parse_read_options, parse_sink_options

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from shardway.pipeline.job.file.lines import KeyPath
    from shardway.pipeline.job.file.model import Scalar, Sink


_MISSPELT_RATIO = 0.75
"""How near the name of a format is to one that is there, to be taken for that."""
_READS_ONCE = {"checkpointlocation"}


def faults_of(job: Job, folder: Path, unknown: Collection[str] = ()) -> list[Fault]:
    """Return every fault of a job. ``folder``: where its files are; ``unknown``: parts that are not known and are left
    out.
    """
    faults = [] if "source" in unknown else _source(job.source)
    if "decode" not in unknown:
        faults += decode_faults(job, folder)
        faults += [] if "dead_letters" in unknown or job.dead_letters is not None else no_dead_letters(job)
    faults += _dead_letters(job)
    fields = None if "decode" in unknown else value_fields(job)
    faults += expectation_faults(job, fields, unknown)
    faults += _deduplicate(job, fields)
    faults += [] if "window" in unknown else window_faults(job, lambda name: _unknown_column(name, fields))
    faults += _transform(job, folder)
    for number, sink in enumerate(job.sinks):
        found = _sink(sink, folder) + (_partitions(job, sink) if "decode" not in unknown else [])
        faults += [fault._replace(path=("sinks", number, *fault.path)) for fault in found]
    faults += place_faults(job)
    if job.stamps is not None and job.stamps.window is not None and job.deduplicate is not None:
        faults.append(
            Fault(("stamps", "window"), "is given beside deduplicate: duplicates are removed once, by one of them")
        )
    if job.trigger.available_now and job.trigger.every is not None:
        faults.append(Fault(("trigger", "every"), "contradicts available_now, which reads what is there and ends"))
    return faults


def _source(given: Mapping[str, Scalar]) -> list[Fault]:
    faults = [
        Fault(("source", name), "stands beside [source], as checkpoint")
        for name in given
        if name.lower() in _READS_ONCE
    ]
    return faults + _option_faults(given, ("source",), lambda options: parse_read_options(options, streaming=True))


def _option_faults(
    given: Mapping[str, Scalar], path: KeyPath, parse: Callable[[dict[str, str]], object]
) -> list[Fault]:
    """Return the faults that a parser of options finds, each at the option that it names."""
    try:
        parse(as_options(given))
    except OptionError as error:
        misspelt = any("did you mean streamName?" in fault for fault in error.faults)
        faults = [fault for fault in error.faults if not (misspelt and fault.endswith("is required"))]
        return [Fault((*path, *_named_in(fault, given)), fault) for fault in faults]
    return []


def _named_in(fault: str, given: Mapping[str, Scalar]) -> tuple[str, ...]:
    """Return the option that a fault is about: the first one given that it names."""
    names = {name.lower(): name for name in given}
    words = (word.lower() for word in re.findall(r"[\w.]+", fault))
    return next(((names[word],) for word in words if word in names), ())


def _dead_letters(job: Job) -> list[Fault]:
    dead = job.dead_letters
    if dead is None:
        return []
    given = [name for name, value in (("path", dead.path), ("stream", dead.stream)) if value is not None]
    given += ["discard"] if dead.discard else []
    if not given:
        return [Fault(("dead_letters",), "give it a path, a stream or discard = true")]
    faults = [Fault(("dead_letters", name), f"is given beside {given[0]}: give one of them") for name in given[1:]]
    if dead.stream is not None:
        faults += _option_faults(dead.stream, ("dead_letters", "stream"), parse_sink_options)
    return faults


def _deduplicate(job: Job, fields: list[str] | None) -> list[Fault]:
    if job.deduplicate is None:
        return []
    faults = []
    for number, key in enumerate(job.deduplicate.keys):
        what = _unknown_column(key, fields)
        if what:
            faults.append(Fault(("deduplicate", "keys", number), what))
    what = _unknown_column(job.deduplicate.time, fields)
    return faults + ([Fault(("deduplicate", "time"), what)] if what else [])


def _unknown_column(name: str, fields: list[str] | None) -> str:
    parent, *inner = name_parts(name) or [name]
    columns = [*SPARK_TYPES, "value"]
    if parent not in columns:
        hints = (nearest(name, [f"value.{one}" for one in fields or ()]), nearest(parent, columns))
        near = next((hint for hint in hints if "did you mean" in hint), "")
        return f"there is no column {name} before the transform{near}"
    if parent == "value" and inner and fields is not None and inner[0] not in fields:
        field = name.partition(".")[2]
        return f"value has no field {field}{nearest(field, fields)}"
    return ""


def _transform(job: Job, folder: Path) -> list[Fault]:
    transform = job.transform
    if transform is None:
        return []
    given = [name for name in ("sql", "sql_file", "function") if getattr(transform, name) is not None]
    if not given:
        return [Fault(("transform",), "give it sql, sql_file or a function")]
    faults = [Fault(("transform", name), f"is given beside {given[0]}: give one of them") for name in given[1:]]
    if transform.sql_file is not None:
        missing = missing_file(folder, transform.sql_file)
        faults += [Fault(("transform", "sql_file"), missing)] if missing else []
    return faults + _function(transform.function, ("transform", "function"), folder)


def _function(name: str | None, path: KeyPath, folder: Path) -> list[Fault]:
    if name is None:
        return []
    try:
        load_function(name, folder)
    except NoSparkError:
        return []  # nothing is known of it: the check notes that
    except OptionError as error:
        return [Fault(path, str(error))]
    return []


def _sink(sink: Sink, folder: Path) -> list[Fault]:
    if (sink.format is None) == (sink.function is None):
        return [Fault((), "give a sink either a format or a function")]
    faults = _function(sink.function, ("function",), folder)
    faults += _format(sink)
    of_files = sink.format in FOLDER_FORMATS
    if of_files and sink.path is None and sink.table is None:
        faults.append(Fault((), f"path is missing: where the {sink.format} files go"))
    if sink.path is not None and sink.table is not None:
        faults.append(Fault(("table",), "is given beside path: give one of them"))
    faults += _table(sink)
    unused = {
        "path": sink.path is not None and (sink.function is not None or sink.format in ("console", "shardway")),
        "table": sink.table is not None and (sink.function is not None or sink.format in ("console", "shardway")),
        "partition_by": bool(sink.partition_by)
        and (sink.function is not None or sink.format in ("console", "shardway")),
        "key": sink.key is not None and not of_files,
        "mode": sink.mode != "append" and (sink.format is None or sink.format in ("console", "shardway")),
        "options": bool(sink.options) and sink.function is not None,
    }
    faults += [Fault((name,), f"has no meaning for {sink.label}") for name, wrong in unused.items() if wrong]
    if of_files and sink.table is None and sink.mode != "append":
        faults.append(Fault(("mode",), "has no meaning for a folder: each batch adds to it, once"))
    if of_files and sink.table is not None and sink.key is not None:
        faults.append(Fault(("key",), "has no meaning for a table"))
    if sink.format == "shardway":
        faults += _option_faults(sink.options, ("options",), parse_sink_options)
    return faults


def _format(sink: Sink) -> list[Fault]:
    """Return the fault of a format whose name nearly is that of one that is there."""
    if sink.format is None or sink.format in KNOWN_FORMATS or "." in sink.format:
        return []
    near = difflib.get_close_matches(sink.format.lower(), KNOWN_FORMATS, n=1, cutoff=_MISSPELT_RATIO)
    return [Fault(("format",), f"Spark has no format {sink.format}: did you mean {near[0]}?")] if near else []


def _partitions(job: Job, sink: Sink) -> list[Fault]:
    """Return the columns to partition by that rows do not have, where the file says which columns they have."""
    fields = value_fields(job)
    if job.transform is not None or sink.sql is not None or (fields is None and job.window is None):
        return []
    made = ["value"] if job.decode.format in ("text", "bytes") else fields or []
    there = [*made, *KEPT] if job.window is None else window_columns(job.window)
    columns = {name.lower(): name for name in (*there, *(["hour"] if is_folder(sink) or is_table(sink) else []))}
    return [
        Fault(("partition_by", at), f"there is no column {name}{nearest(name, columns.values())}")
        for at, name in enumerate(sink.partition_by)
        if name.lower() not in columns
    ]


def _table(sink: Sink) -> list[Fault]:
    """Return what is wrong with a table of Delta or Iceberg that is to have each batch once."""
    if not is_table(sink):
        return []
    faults = [
        Fault(("options", name), "is set by the sink itself: it is what makes a batch known again")
        for name in reserved_options(sink)
    ]
    if sink.format == "iceberg" and sink.table is None:
        what = 'a table of a catalog, which stands under [spark] as "spark.sql.catalog.NAME"'
        faults.append(Fault(("path",) if sink.path is not None else (), f"table is missing: {what}"))
    if sink.format == "delta" and sink.table is None and sink.path is None:
        faults.append(Fault((), "path or table is missing: where the Delta table is"))
    return faults


def place_faults(job: Job, same: Callable[[str], str] = identity) -> list[Fault]:
    """Return the faults of places that collide: two writers of one folder would take each other's files away; a table
    takes one write of a batch.

    ``same``: the function that returns what all spellings of a path have in common.
    """
    taken = {same(job.checkpoint): "the Spark checkpoint directory"}
    faults = []
    sinks = list(enumerate(job.sinks))
    places: list[tuple[KeyPath, str]] = [(("sinks", at, "path"), same(sink.path)) for at, sink in sinks if sink.path]
    places += [(("sinks", at, "table"), _table_name(sink.table)) for at, sink in sinks if sink.table and is_table(sink)]
    if job.dead_letters is not None and job.dead_letters.path is not None:
        places.append((("dead_letters", "path"), same(job.dead_letters.path)))
    for path, place in places:
        before = next((one for one in taken if collide(place, one)), None)
        if before is not None:
            how = "is the same as" if before == place else "overlaps with the partitions of"
            faults.append(Fault(path, f"{how} {taken[before]}: each needs a place of its own"))
        taken.setdefault(place, Fault(path, "").place)
    return faults


def _table_name(table: str) -> str:
    return table.replace("`", "").replace(" ", "")
