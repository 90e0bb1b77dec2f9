"""Options in a job file, as Spark and ``format("penstock")`` take them."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from penstock.pipeline.job.model import Scalar

_SINK_OPTIONS = "penstock.spark.sink_options"


def as_options(given: Mapping[str, Scalar]) -> dict[str, str]:
    """Options as text, ``true`` and ``false`` as Spark writes them."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}


def check_write_options(given: Mapping[str, str]) -> None:
    """Raises OptionError for wrong options of ``format("penstock")`` for writing."""
    _sink_options().parse_sink_options(given)


def check_stream_columns(rows: DataFrame, options: Mapping[str, str]) -> None:
    """Raises OptionError when rows do not have what a stream takes."""
    module = _sink_options()
    module.sink_columns(rows.schema, module.parse_sink_options(dict(options)))


def _sink_options() -> Any:
    if find_spec(_SINK_OPTIONS) is None:
        raise OptionError("this version of Penstock does not write to streams")
    return import_module(_SINK_OPTIONS)
