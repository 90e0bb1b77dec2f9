"""Call into Spark's JVM: what each batch asks in the same words is made once, and only sent for each batch.

Each function of ``pyspark.sql.functions`` is a dozen questions to Spark's JVM, and each class that is looked up by
its name is searched for in all packages that PySpark imports. What is made so knows no DataFrame, and serves all of
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, SparkSession


def java_column(column: Any) -> Any:
    """Return a column as the JVM has it."""
    return column._jc


def java_seq(spark: SparkSession, items: Sequence[Any]) -> Any:
    """Return strings, or columns as the JVM has them, as a sequence of Scala's."""
    from pyspark.sql.classic.column import _to_seq  # an installation for Spark Connect alone lacks it

    return _to_seq(spark.sparkContext, items)


class Selection:
    """Selects columns, and the rows that fulfil a condition if there is one, from any number of DataFrames."""

    def __init__(self, columns: Callable[[], Sequence[Column]], where: Callable[[], Column] | None = None) -> None:
        self._columns = columns
        self._condition = where
        self._context: Any = None
        self._java_parts: tuple[Any, Any] = None, None
        """The columns and the condition, as the JVM of that context has them."""

    def of(self, rows: DataFrame) -> DataFrame:
        """Return the chosen columns and rows of a DataFrame."""
        context = rows.sparkSession.sparkContext
        if context is not self._context:
            chosen = java_seq(rows.sparkSession, [java_column(column) for column in self._columns()])
            self._java_parts = chosen, None if self._condition is None else java_column(self._condition())
            self._context = context
        chosen, condition = self._java_parts
        found: Any = rows._jdf
        if condition is not None:
            found = found.filter(condition)
        return DataFrame(found.select(chosen), rows.sparkSession)
