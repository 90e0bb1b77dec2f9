"""Tables as sinks of a job: Delta and Iceberg, each batch once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipeline.delta_sink import DeltaSink, delta_settings
from penstock.pipeline.iceberg_sink import IcebergSink
from penstock.pipeline.job.options import as_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.pipeline.job.model import Job, Sink
    from penstock.pipeline.table_sink import TableSink

_EXTENSIONS = "spark.sql.extensions"


def table_sink_of(sink: Sink) -> TableSink:
    """The sink that writes each batch once. Raises OptionError for an option that it sets itself."""
    options = as_options(sink.options)
    if sink.format == "delta":
        return DeltaSink(sink.path, table=sink.table, partition_by=sink.partition_by, time=sink.time, options=options)
    assert sink.table is not None
    return IcebergSink(sink.table, partition_by=sink.partition_by, time=sink.time, options=options)


def reserved_options(sink: Sink) -> list[str]:
    """The options of a table's sink that it sets itself."""
    reserved = {"delta": DeltaSink.RESERVED, "iceberg": IcebergSink.RESERVED}.get(sink.format or "", ())
    return [name for name in sink.options if name.lower() in reserved]


def with_tables(job: Job, settings: Mapping[str, str]) -> dict[str, str]:
    """The session's settings, and those that Delta needs where a sink is one of its tables and they are not given."""
    if not any(sink.format == "delta" for sink in job.sinks):
        return dict(settings)
    needed = delta_settings()
    extensions = [name for name in settings.get(_EXTENSIONS, "").split(",") if name]
    if needed[_EXTENSIONS] not in extensions:
        extensions.append(needed[_EXTENSIONS])
    return {**needed, **settings, _EXTENSIONS: ",".join(extensions)}
