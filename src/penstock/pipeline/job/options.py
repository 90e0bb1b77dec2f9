"""Options in a job file, as Spark and ``format("penstock")`` take them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark.options import parse_sink_options, sink_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from penstock.pipeline.job.model import Scalar


def as_options(given: Mapping[str, Scalar]) -> dict[str, str]:
    """Options as text, ``true`` and ``false`` as Spark writes them."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}


def check_stream_columns(rows: DataFrame, options: Mapping[str, str]) -> None:
    """Raises OptionError when rows do not have what a stream takes."""
    sink_columns(rows.schema, parse_sink_options(options))
