"""Check the rules of a job's decode, which need no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.aws.options import region_fault, url_fault
from shardway.errors import OptionError
from shardway.payloads.confluent import checked_url
from shardway.payloads.frames import CONFLUENT, GLUE
from shardway.payloads.opening import OPENED_BYTES_MAX
from shardway.pipeline.job.file.ddl import ddl_faults, field_names
from shardway.pipeline.job.file.faults import Fault
from shardway.pipeline.job.file.model import Registry
from shardway.pipeline.service_schemas import CLOUDWATCH_LOGS, SERVICE_SCHEMAS
from shardway.spark.columns import SPARK_TYPES

if TYPE_CHECKING:
    from pathlib import Path

    from shardway.pipeline.job.file.model import Job

JSON_FRAMES = (CONFLUENT, GLUE)
"""The formats of records in the frame of a schema registry."""
JSON_FORMATS = ("json", *JSON_FRAMES)
"""The formats whose records are JSON, or become that, before the job's DDL says which fields they have."""


def decode_faults(job: Job, folder: Path) -> list[Fault]:
    """Return what is wrong with how the data becomes values. ``folder``: where the job's files are."""
    decode, faults = job.decode, []
    needs = decode.format in (*JSON_FORMATS, "avro", "protobuf")
    if decode.schema is not None and decode.schema_file is not None:
        faults.append(Fault(("decode", "schema_file"), "is given beside schema: give one of them"))
    if needs and decode.schema is None and decode.schema_file is None:
        what = "schema_file (a descriptor set)" if decode.format == "protobuf" else "schema (or schema_file)"
        faults.append(Fault(("decode",), f"{what} is missing: {decode.format} cannot be decoded without"))
    if not needs:
        faults += [
            Fault(("decode", name), f"has no meaning for {decode.format}")
            for name in ("schema", "schema_file")
            if getattr(decode, name) is not None
        ]
    if decode.format == "protobuf":
        if decode.message is None:
            faults.append(Fault(("decode",), "message is missing: which one of the descriptor set it is"))
        if decode.schema is not None:
            faults.append(
                Fault(("decode", "schema"), "is not taken for protobuf: give a descriptor set in schema_file")
            )
    elif decode.message is not None:
        faults.append(Fault(("decode", "message"), f"has no meaning for {decode.format}"))
    return faults + _registry(job) + _compression(job) + _schema(job, folder)


def _registry(job: Job) -> list[Fault]:
    """Return what is wrong with the place of the schema registry."""
    format_, given = job.decode.format, job.decode.registry
    if format_ not in JSON_FRAMES:
        why = f"has no meaning for {format_}"
        return [] if given is None else [Fault(("decode", "registry"), why)]
    given = given or Registry()
    wrong = ("region", "endpoint_url") if format_ == CONFLUENT else ("url",)
    faults = [
        Fault(("decode", "registry", name), f"has no meaning for {format_}")
        for name in wrong
        if getattr(given, name) is not None
    ]
    if format_ == CONFLUENT and given.url is None:
        example = '{ url = "https://registry.example.com" }'
        faults.append(Fault(("decode",), f"the address of the schema registry is missing: registry = {example}"))
    if format_ == CONFLUENT and given.url is not None:
        try:
            checked_url(given.url, option="url")
        except OptionError as error:
            faults.append(Fault(("decode", "registry", "url"), str(error).partition(": ")[2]))
    if format_ == GLUE and given.region is not None and (fault := region_fault(given.region)):
        faults.append(Fault(("decode", "registry", "region"), fault))
    if format_ == GLUE and given.endpoint_url is not None and (fault := url_fault(given.endpoint_url)):
        faults.append(Fault(("decode", "registry", "endpoint_url"), fault))
    return faults


def _compression(job: Job) -> list[Fault]:
    decode = job.decode
    if decode.format == CLOUDWATCH_LOGS:
        why = f"has no meaning for {decode.format}, whose data is opened in any case"
        return [] if decode.compression is None else [Fault(("decode", "compression"), why)]
    is_opened = decode.compression is not None or decode.format == GLUE
    if not is_opened and decode.opened_bytes_max != OPENED_BYTES_MAX:
        return [Fault(("decode", "opened_bytes_max"), "has no meaning without compression")]
    return []


def _schema(job: Job, folder: Path) -> list[Fault]:
    decode, faults = job.decode, []
    schema, where = decode.schema, ("decode", "schema")
    if decode.schema_file is not None:
        where = ("decode", "schema_file")
        missing = missing_file(folder, decode.schema_file)
        faults += [Fault(where, missing)] if missing else []
        is_ddl = decode.format in JSON_FORMATS and not missing
        schema = (folder / decode.schema_file).read_text("utf-8") if is_ddl else None
    if decode.format in JSON_FORMATS and schema is not None:
        faults += [Fault(where, what) for what in ddl_faults(schema)]
        if job.transform is None and job.window is None:
            taken = sorted(set(field_names(schema)) & (set(SPARK_TYPES) - {"data", "explicit_hash_key"}))
            faults += [
                Fault(where, f"has a field {name}, which is a column of the source too: name it anew in a transform")
                for name in taken
            ]
    return faults


def no_dead_letters(job: Job) -> list[Fault]:
    """Return the fault of a job that gives its dead letters no place, where it may have some."""
    if job.decode.takes_all:
        return []
    format_, compression = job.decode.format, job.decode.compression
    what = f"can be opened as {compression}" if format_ == "bytes" else f"is {format_}"
    if format_ in JSON_FRAMES:
        what = f"is in a frame of {format_}, with a schema that the registry has"
    why = f"not every record {what}: give it a path, a stream or discard = true"
    return [Fault((), f"dead_letters is missing: {why}")]


def value_fields(job: Job) -> list[str] | None:
    """Return the fields of ``value`` where the file names them; an empty list where it has none, and None where they
    are not known here.
    """
    if job.decode.format in ("text", "bytes"):
        return []
    if job.decode.format in SERVICE_SCHEMAS:
        return field_names(SERVICE_SCHEMAS[job.decode.format])
    if job.decode.format in JSON_FORMATS and job.decode.schema is not None and not ddl_faults(job.decode.schema):
        return field_names(job.decode.schema)
    return None


def missing_file(folder: Path, name: str) -> str:
    """Return what is wrong where a file of the job is not there; an empty text where it is."""
    file = folder / name
    return "" if file.is_file() else f"there is no file {name} in the folder of the job file"
