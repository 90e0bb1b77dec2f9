"""Write a first job file for a stream, from a look at some of its records.

The file has what the look tells: the source, a schema for records that are JSON objects, and in comments what the look
saw and what a schema does not say. It has names of fields, types and counts, and no value of a record.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from shardway.errors import ShardwayError
from shardway.inspect.records.decoding import decode
from shardway.payloads.opening import OPENED_BYTES_MAX, OpeningBudget
from shardway.pipeline.job.draft.inferred_schema import InferredSchema, members_of, quoted, same_column, shown
from shardway.pipeline.job.draft.toml import comment, toml_lines, toml_text
from shardway.pipeline.job.file.model import KEPT
from shardway.spark.stamps import open_sealed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shardway.pipeline.job.draft.inferred_schema import Field


OPENING_MAX_S = 0.5
"""The seconds that the layers of one record may take."""
_JOB_NAME_CHARACTERS_MAX = 100
_TEXT_KINDS = ("text", "json", "cloudwatch-logs", "ndjson")
_NEEDED_LAYERS = {"base64"}
_FRAMES = {"glue", "confluent"}
_COMPRESSIONS = {"gzip", "zstd"}
_HOUR = "hour"


class Place(NamedTuple):
    """A stream, and where it is, as the command was told."""

    stream: str
    """The name of the stream, or its ARN."""
    region: str | None = None
    endpoint_url: str | None = None

    @property
    def short(self) -> str:
        """The name of the stream."""
        return self.stream.rpartition("/")[2]


class Sample:
    """What some records of a stream have inside, without any of their values."""

    def __init__(self) -> None:
        self.records = 0
        self.shards: set[str] = set()
        self.sealed = 0
        """The records that are envelopes with a stamp."""
        self.texts = 0
        """The records whose data is UTF-8 as it is, or once it is opened."""
        self.compressed = 0
        """The records that are text or JSON in gzip or zstd."""
        self.logs = 0
        """The records of CloudWatch Logs."""
        self.schema = InferredSchema()
        """The schema of the records that are one JSON object as they are, or once they are opened."""
        self.inner = InferredSchema()
        """The schema of the JSON objects that lie inside of something that a job's decode does not open."""
        self.others: Counter[str] = Counter()
        """What the records are that are not one JSON object, and how many are that."""

    def see(self, shard_id: str, data: bytes, *, opened_bytes_max: int = OPENED_BYTES_MAX) -> int:
        """Take a record into account, and return the bytes that its layers opened to. Raises nothing, whatever the data
        is.
        """
        self.records += 1
        self.shards.add(shard_id)
        data = self._open(data)
        found = decode(data, budget=OpeningBudget(bytes_max=opened_bytes_max, time_max_s=OPENING_MAX_S))
        kinds = [step.kind for step in found.steps]
        is_compressed = len(kinds) == 2 and kinds[0] in _COMPRESSIONS and kinds[1] in _TEXT_KINDS
        is_plain = len(kinds) == 1 or is_compressed
        self.texts += is_plain and kinds[-1] in _TEXT_KINDS
        self.compressed += is_compressed
        self.logs += is_plain and kinds[-1] == "cloudwatch-logs"
        members = members_of(found.text) if found.text is not None and found.is_json else None
        if members is None:
            named = "json that is no object" if kinds[-1] == "json" else kinds[-1]
            self.others[" in ".join([named, *reversed(kinds[:-1])])] += 1
        elif is_plain:
            self.schema.see(members)
        else:
            self.inner.see(members)
            self.others[" in ".join(["a json object", *reversed(kinds[:-1])])] += 1
        return 0 if len(kinds) == 1 else len(found.data)

    def _open(self, data: bytes) -> bytes:
        try:
            opened = open_sealed(data)
        except (ShardwayError, ValueError):  # the version is not known here, or the stamp is none
            return data
        if opened is None:
            return data
        self.sealed += 1
        return bytes(opened.data)


def job_text(place: Place, sample: Sample, remarks: Iterable[str] = ()) -> str:
    """Return a job file as text. ``remarks``: what the look left out, a sentence each."""
    fields = sample.schema.fields
    name = re.sub(r"^[^A-Za-z0-9]+", "", place.short)[:_JOB_NAME_CHARACTERS_MAX] or "job"
    parts = [
        comment(_sample_text(place, sample, remarks)),
        f"name = {toml_text(name)}\ncheckpoint = {toml_text(f'checkpoints/{name}')}",
        _source(place),
    ]
    if sample.sealed:
        parts.append(comment(["The records were written with stamps: their envelopes are opened."]) + "\n[stamps]")
    if sample.logs == sample.records:
        parts += [_logs(), _dead_letters(name)]
        fields = []
    elif fields:
        parts += [_json(sample, fields), _dead_letters(name), *_transform(fields)]
    elif sample.texts == sample.records:
        parts += [f'[decode]\nformat = "text"{_compression(sample)}', _dead_letters(name)]
    else:
        parts.append(comment(_undecoded_text(sample)))
    parts += [*_deduplicate(fields), _sink(name), '[trigger]\nevery = "10 seconds"']
    return "\n\n".join(parts) + "\n"


def _sample_text(place: Place, sample: Sample, remarks: Iterable[str]) -> Iterator[str]:
    records, objects = sample.records, sample.schema.objects
    yield f"A first job file for the stream {place.short}, written by shardway run --init. Read it before you run it."
    shards = "1 shard" if len(sample.shards) == 1 else f"{len(sample.shards)} shards"
    yield (
        f"The look took in the newest {records:,} records, of {shards}; {objects:,} of them are one JSON object. "
        "No value of a record is in this file."
    )
    if sample.others:
        fate = "The job makes dead letters of the others" if sample.schema.fields else "The others are"
        yield f"{fate}: {', '.join(f'{count} {kind}' for kind, count in sample.others.most_common())}."
    yield from remarks


def _source(place: Place) -> str:
    which = "streamARN" if place.stream.startswith("arn:") else "streamName"
    lines = ["[source]", f"{which} = {toml_text(place.stream)}"]
    if place.region is not None:
        lines.append(f"region = {toml_text(place.region)}")
    if place.endpoint_url is not None:
        if urlsplit(place.endpoint_url).username is None:
            lines.append(f"endpointUrl = {toml_text(place.endpoint_url)}")
        else:
            lines.append('# endpointUrl = "..."  it has a user and a password, which are not copied into a file')
    lines.append('startingPosition = "TRIM_HORIZON"  # the oldest record; LATEST: only what comes from now on')
    return "\n".join(lines)


def _json(sample: Sample, fields: list[Field]) -> str:
    required = [shown(field.name) for field in fields if field.is_in_all]
    told = [
        f"The fields of {sample.schema.objects} objects. A record with a field of another type becomes a dead letter; "
        "fields that are not named here are ignored."
    ]
    if required:
        told.append(f"Each of these objects has: {', '.join(required)}. NOT NULL behind a type makes a field required.")
    told += sample.schema.notes
    head = f'[decode]\nformat = "json"{_compression(sample)}'
    return f"{comment(told)}\n{head}\nschema = {toml_lines(sample.schema.ddl)}"


def _compression(sample: Sample) -> str:
    """Return the line that has compressed records opened; nothing where there are none."""
    if not sample.compressed:
        return ""
    return f'\ncompression = "auto"  # {sample.compressed} of the {sample.records} records are compressed'


def _logs() -> str:
    told = [
        "A record holds several lines of a log, in the array log_events: a transform makes a row of each, by "
        "inline(log_events), WHERE message_type = 'DATA_MESSAGE'."
    ]
    return f'{comment(told)}\n[decode]\nformat = "cloudwatch-logs"'


def _undecoded_text(sample: Sample) -> Iterator[str]:
    yield "There is no [decode]: the column value is the data as it is, because the records are not all plain text."
    layers = sorted(_NEEDED_LAYERS.intersection(word for kind in sample.others for word in kind.split(" ")))
    if layers:
        yield (
            f"No format of [decode] opens {', '.join(layers)}. A function of [transform] can: module:function, from "
            "DataFrame to DataFrame."
        )
    for frame in sorted(_FRAMES.intersection(word for kind in sample.others for word in kind.split(" "))):
        yield (
            f'Records are in the frame of a schema registry. [decode] with format = "{frame}" reads them, with a '
            "schema of the fields that the job takes."
        )
    if any(kind.split(" ")[-1] in _COMPRESSIONS for kind in sample.others):
        yield 'Records are compressed. [decode] with format = "bytes" and compression = "auto" opens them.'
    if sample.inner.fields:
        yield f"Inside are JSON objects; the fields of {sample.inner.objects} of them:"
        yield from (f"  {shown(field.name)}" for field in sample.inner.fields)


def _dead_letters(name: str) -> str:
    return f"[dead_letters]\npath = {toml_text(f'lake/{name}-dead-letters')}"


def _transform(fields: list[Field]) -> list[str]:
    """Return a transform where a field has the name of a column that the rows have too; else nothing."""
    columns = {same_column(name) for name in (*KEPT, _HOUR)}
    if not any(same_column(field.name) in columns for field in fields):
        return []
    taken = columns | {same_column(field.name) for field in fields}
    chosen = []
    for field in fields:
        path = f"value.{_always_quoted(field.name)}"
        if same_column(field.name) in columns:
            new = f"value_{field.name}"
            while same_column(new) in taken:
                new += "_"
            taken.add(same_column(new))
            path += f" AS {_always_quoted(new)}"
        chosen.append(path)
    sql = "SELECT\n  " + ",\n  ".join([*chosen, *KEPT]) + "\nFROM records"
    told = ["Fields with the name of a column that each row has beside its value get another name here."]
    return [f"{comment(told)}\n[transform]\nsql = {toml_lines(sql)}"]


def _always_quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _deduplicate(fields: list[Field]) -> list[str]:
    plain = [field for field in fields if quoted(field.name) == field.name]
    if not plain:
        return []
    key = next((one for one in plain if one.is_in_all and one.name.lower().endswith("id")), plain[0])
    return [
        comment(
            [
                "Without these lines a record that the producer put twice comes out twice. Name what is unique in it.",
                "[deduplicate]",
                f'keys = ["value.{key.name}"]',
                'window = "10 minutes"',
            ]
        )
    ]


def _sink(name: str) -> str:
    return f'[[sinks]]\nformat = "parquet"\npath = {toml_text(f"lake/{name}")}\npartition_by = ["{_HOUR}"]'
