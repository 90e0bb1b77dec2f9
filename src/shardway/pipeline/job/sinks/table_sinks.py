"""Make the sink of a table from its part of the job, and the settings that tables need of Spark's session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.pipeline.job.file.model import as_options
from shardway.pipeline.tables.delta import DeltaSink, delta_settings
from shardway.pipeline.tables.iceberg import IcebergSink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.pipeline.job.file.model import Job, Sink
    from shardway.pipeline.tables.table_sink import TableSink


_EXTENSIONS = "spark.sql.extensions"


def table_sink_of(sink: Sink) -> TableSink:
    """Return the sink that writes each batch once. Raises OptionError for an option that it sets itself."""
    options = as_options(sink.options)
    if sink.format == "delta":
        return DeltaSink(sink.path, table=sink.table, partition_by=sink.partition_by, time=sink.time, options=options)
    assert sink.table is not None
    return IcebergSink(sink.table, partition_by=sink.partition_by, time=sink.time, options=options)


def with_tables(job: Job, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the session's settings, and those that Delta needs where a sink is one of its tables and they are not
    given.
    """
    if not any(sink.format == "delta" for sink in job.sinks):
        return dict(settings)
    needed = delta_settings()
    extensions = [name for name in settings.get(_EXTENSIONS, "").split(",") if name]
    if needed[_EXTENSIONS] not in extensions:
        extensions.append(needed[_EXTENSIONS])
    return {**needed, **settings, _EXTENSIONS: ",".join(extensions)}
