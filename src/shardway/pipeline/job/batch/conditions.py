"""Compute the condition of an expectation, and find what is wrong with one before the stream is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as fn
from pyspark.sql.types import BooleanType

from shardway.pipeline.job.errors.error_text import message_of
from shardway.pipeline.job.file.expectation_rules import NO_COLUMN, NOT_OF_ONE_ROW, NOT_THE_SAME, SUBQUERY
from shardway.pipeline.jvm import java_column
from shardway.pipeline.py4j_error import Py4JError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

_TRY = "org.apache.spark.sql.catalyst.expressions.TryEval"
_COLUMNS = "org.apache.spark.sql.classic.ExpressionUtils"
_NODES = {
    "Aggregate": f"has an aggregate: {NOT_OF_ONE_ROW}",
    "Window": f"has a window function: {NOT_OF_ONE_ROW}",
    "Generate": f"has a function that makes rows: {NOT_OF_ONE_ROW}",
}
_SUBQUERIES = ("Exists", "ListQuery")
_PYTHON = "calls a Python function, whose errors would end the job: call it in a transform"


def met(spark: SparkSession, sql: str) -> Column:
    """Return whether a row meets a condition: false where it is false or null, and where it cannot be computed.

    Put this into a branch of ``when`` that Spark does not always take: what several conditions have in common is
    computed before all of them otherwise, where nothing catches its errors.
    """
    return fn.coalesce(_try_condition(spark, fn.expr(sql)), fn.lit(False))


def _try_condition(spark: SparkSession, condition: Column) -> Column:
    """Return a condition that is null where Spark raises an error for a value, as ``try_divide`` is for a division."""
    try:
        columns = getattr(spark._jvm, _COLUMNS)
        tried = getattr(spark._jvm, _TRY)(columns.expression(java_column(condition)))
        return Column(columns.column(tried))
    except (Py4JError, TypeError):  # these are Spark's own classes: where one is missing, an error ends the job
        return condition


def condition_fault(rows: DataFrame, sql: str) -> str | None:
    """Return what is wrong with a condition over decoded rows; None where it is one. Nothing is read."""
    try:
        chosen = rows.select(fn.expr(sql))
    except PySparkException as error:
        return message_of(error, payloads=True)
    plan: Any = chosen._jdf.queryExecution().analyzed()
    found = [node for node in (str(plan.nodeName()), str(plan.child().nodeName())) if node in _NODES]
    if found:
        return _NODES[found[0]]
    kinds = [field.dataType for field in chosen.schema.fields]
    if kinds != [BooleanType()]:
        told = "several columns" if len(kinds) > 1 else kinds[0].simpleString().upper()
        return f"is {told}, and not BOOLEAN: write a condition, such as value.amount > 0"
    return _expression_fault(plan.projectList().apply(0))


def _expression_fault(expression: Any) -> str | None:
    names = {str(part.getClass().getSimpleName()) for part in _parts(expression)}
    if any("Subquery" in name or name in _SUBQUERIES for name in names):
        return SUBQUERY
    if any(name.startswith("PythonUDF") for name in names):
        return _PYTHON
    if not expression.deterministic():
        return NOT_THE_SAME
    return NO_COLUMN if expression.references().isEmpty() else None


def _parts(expression: Any) -> Iterator[Any]:
    yield expression
    children = expression.children()
    for number in range(children.size()):
        yield from _parts(children.apply(number))
