"""Errors of a real Spark about values of rows: no value is in what is shown of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as fn

from shardway.pipeline.job.errors.error_text import message_of
from shardway.pipeline.job.errors.failures import by_the_data

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

CANARY = "canary-4111111111111111"
NUMBER = 4_111_111_111_111_111
SHAPES = (CANARY, f"O'{CANARY} Street", f"{CANARY}\nSecond {CANARY}", f'"{CANARY}"', f"] {CANARY} SQLSTATE: 42000")
"""Values with what a message could take for its own parts."""

EXPRESSIONS = {
    "CAST_INVALID_INPUT": "CAST(text AS INT)",
    "CAST_OVERFLOW": "CAST(number AS INT)",
    "NUMERIC_VALUE_OUT_OF_RANGE": "CAST(number AS DECIMAL(3, 1))",
    "ARITHMETIC_OVERFLOW": "number * number * number",
    "INVALID_URL": "parse_url(concat('http://a b/', text), 'HOST')",
    "CANNOT_DECODE_URL": "url_decode(concat('%zz', text))",
    "DUPLICATED_MAP_KEY": "map(text, 1, text, 2)",
    "MALFORMED_RECORD_IN_PARSING": "from_json(concat('{', text), 'a INT', map('mode', 'FAILFAST'))",
    "CANNOT_PARSE_TIMESTAMP": "to_timestamp(text, 'yyyy-MM-dd')",
    "INVALID_ARRAY_INDEX": "array(1)[number % 7 + 100]",
    "USER_RAISED_EXCEPTION": "raise_error(text)",
    "INVALID_FORMAT": "to_number(text, '999')",
}
"""What fails, and the beginning of the class that Spark gives it."""


def failed(rows: Callable[[], Any]) -> Exception:
    with pytest.raises(Exception) as caught:
        rows()
    return caught.value


@pytest.mark.parametrize("text", SHAPES)
def test_no_value_of_a_row_is_shown(spark: SparkSession, text: str) -> None:
    rows = spark.createDataFrame([(text, NUMBER)], "text STRING, number BIGINT")
    told = {}
    for name, expression in EXPRESSIONS.items():
        error = failed(rows.selectExpr(f"{expression} AS made").write.format("noop").mode("overwrite").save)
        told[name] = message_of(error)
        assert by_the_data(error), told[name]
    assert {name: said for name, said in told.items() if "canary" in said or str(NUMBER) in said} == {}
    assert {name: said for name, said in told.items() if "\n" in said or "Second" in said or "Street" in said} == {}
    for name, said in told.items():
        assert f"[{name}" in said, f"{name}: {said}"
    assert 'a value of "BIGINT", "INT" in a row' in told["CAST_OVERFLOW"]
    assert "in CAST(text AS INT)" in told["CAST_INVALID_INPUT"], "the place is a piece of the query"


def test_what_is_wanted_in_full_is_shown_so(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(CANARY,)], "text STRING").selectExpr("CAST(text AS INT) AS made")
    error = failed(rows.collect)
    assert CANARY in message_of(error, payloads=True)
    assert CANARY not in message_of(error)


def raising(kind: str) -> Callable[[str], int]:
    def function(text: str) -> int:
        if kind == "ValueError":
            raise ValueError(f"no customer {text}")
        if kind == "KeyError":
            return {"other": 1}[text]
        if kind == "OSError":
            raise OSError(28, f"{text} is full")
        if kind == "Nested":
            try:
                return int(text)
            except ValueError as error:
                raise RuntimeError(f"Traceback (most recent call last):\n{text}: {text}") from error
        raise type(f"Strange{kind}", (Exception,), {})(f"{text}\n{text}: no\n\n  at {text}")

    return function


@pytest.mark.parametrize("text", SHAPES[:3])
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("ValueError", "ValueError (test_job_payloads.py, line "),
        ("KeyError", "KeyError (test_job_payloads.py, line "),
        ("OSError", "OSError: [Errno 28] No space left on device (test_job_payloads.py"),
        ("Nested", "RuntimeError (test_job_payloads.py, line "),
        ("Other", "StrangeOther (test_job_payloads.py, line "),
    ],
)
def test_a_python_function_is_told_by_its_errors_type_and_place(
    spark: SparkSession, kind: str, said: str, text: str
) -> None:
    rows = spark.createDataFrame([(text,)], "text STRING")
    error = failed(
        rows.select(fn.udf(lambda text: raising(kind)(text), "int")("text")).write.format("noop").mode("overwrite").save
    )
    assert by_the_data(error)
    assert message_of(error).startswith(said)
    assert "canary" not in message_of(error)
    on_the_driver = failed(lambda: raising(kind)(text))
    assert "canary" not in message_of(on_the_driver)
    assert "(test_job_payloads.py, line " in message_of(on_the_driver)


def test_what_is_not_about_rows_is_shown(spark: SparkSession) -> None:
    assert "no_such_column" in message_of(failed(lambda: spark.range(1).select("no_such_column")))
    assert "/no/such/folder" in message_of(failed(lambda: spark.read.parquet("/no/such/folder")))
    assert message_of(ImportError("there is no module x")) == "ImportError: there is no module x"
