"""Know the columns of a DataFrame and whether it is a stream, also where Spark must not be asked.

In the query functions of a declarative pipeline (``pyspark.pipelines``) Spark refuses every question about a
DataFrame: tables that it reads may not be there yet. A step that wants to know something gets by without, or reads
it from the plan, which a Spark Connect client holds itself.

Some methods ask in secret. ``drop`` and ``withColumn`` have the server look at what is there: with a table of the
same pipeline that is not there yet ``drop`` fails; with one that is there from an earlier run, Spark takes it for a
table of another pipeline, and no longer runs the flow that writes it first. Only ``select`` leaves a plan as it is.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import DataType, StructType
from pyspark.sql.utils import is_remote

from shardway.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import Column


_DEFINITIONS = "pyspark.pipelines.graph_element_registry"
_REFUSED_CONDITION = "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION"


def columns_of(records: DataFrame) -> list[str] | None:
    """Return the names of the columns; None where Spark must not be asked."""
    return None if _defines_a_pipeline() else records.columns


def column_or_null(records: DataFrame, name: str) -> Column:
    """Return the column of this name, of letters and digits; null in every row where there is none."""
    columns = columns_of(records)
    if columns is None:
        # A pattern stands for the columns that it matches, and may match none: Spark looks when it resolves the plan.
        return fn.coalesce(records.colRegex(f"`{name}`"), fn.lit(None))
    return fn.col(name) if name in columns else fn.lit(None)


def with_column(records: DataFrame, name: str, column: Column, *, new: bool = True) -> DataFrame:
    """Do what ``withColumn`` does, for a name that needs no quotes. ``new``: there is no such column yet."""
    if not _defines_a_pipeline():
        return records.withColumn(name, column)
    return records.select("*" if new else fn.expr(f"* EXCEPT ({name})"), column.alias(name))


def without(records: DataFrame, *names: str) -> DataFrame:
    """Do what ``drop`` does, for columns that are there and need no quotes."""
    return records.selectExpr(f"* EXCEPT ({', '.join(names)})") if _defines_a_pipeline() else records.drop(*names)


def is_stream(records: DataFrame) -> bool:
    """True when the DataFrame reads a stream."""
    if not _defines_a_pipeline():
        return records.isStreaming
    of_connect: Any = records
    return _reads_a_stream(of_connect._plan.plan(of_connect.sparkSession.client))


def schema_of(ddl: str) -> DataType:
    """Return the type that a DDL text describes. Raises OptionError where Spark must not be asked, since Spark parses
    it.
    """
    try:
        return StructType.fromDDL(ddl)
    except PySparkException as error:
        if error.getCondition() != _REFUSED_CONDITION:
            raise
    raise OptionError(
        "Spark parses no schema inside of a query function of a declarative pipeline: make it outside of the function, "
        "SCHEMA = StructType.fromDDL(...), and give that"
    )


def check_classic(what: str) -> None:
    """Raises OptionError in a Spark Connect session. ``what``: the thing that works through Spark's own JVM."""
    if is_remote():
        raise OptionError(
            f"{what} works through Spark's own JVM, which a Spark Connect session does not reach: write with Spark's "
            'writers there, such as writeStream.format("parquet") or the format of a table, or run this in a session '
            "without Connect, as shardway run and spark-submit do"
        )


def _defines_a_pipeline() -> bool:
    """True while a definitions file of a declarative pipeline is loaded, and so in its query functions."""
    definitions: Any = sys.modules.get(_DEFINITIONS)
    if definitions is None:
        return False
    try:
        definitions.get_active_graph_element_registry()
    except PySparkException:
        return False
    return True


def _reads_a_stream(message: Any) -> bool:
    """True when a read of a stream lies anywhere in a message of Spark Connect's."""
    if message.DESCRIPTOR.name == "Read":
        return bool(message.is_streaming)
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        repeated = not hasattr(value, "DESCRIPTOR")
        if any(_reads_a_stream(one) for one in (value if repeated else [value])):
            return True
    return False
