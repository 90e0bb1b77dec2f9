"""Errors as Spark words them: whose failure they are, and what is told of them."""

from __future__ import annotations

from shardway.pipeline.job.errors.error_text import message_of
from shardway.pipeline.job.errors.failures import by_the_data, source_failed

WORKER = "[PYTHON_EXCEPTION] An exception was thrown from the Python worker:\n"
STACK = (
    "Traceback (most recent call last):\n"
    '  File "/opt/spark/python/pyspark/worker.py", line 3500, in main\n'
    "    process()\n"
    '  File "/jobs/prices.py", line 9, in parsed\n'
    "    return int(text)\n"
    "           ^^^^^^^^^\n"
)


def test_a_function_that_raises_on_a_row_is_told_with_its_place_and_without_the_row() -> None:
    for quoted in ("'top-secret'", '"top-secret\'s"', '\'{"name": "top-secret"}\''):
        error = RuntimeError(f"{WORKER}{STACK}ValueError: no number: {quoted}\n")
        assert by_the_data(error)
        assert not source_failed(error)
        assert message_of(error) == "ValueError (prices.py, line 9, in parsed)"
        assert message_of(error, payloads=True).startswith(f"RuntimeError: ValueError: no number: {quoted}")


def test_what_a_writer_raises_is_not_the_datas_failure() -> None:
    ours = RuntimeError(f"{WORKER}shardway.errors.InvalidRecordError: copies: data is null in a row\n")
    other = RuntimeError(
        f'{WORKER}{STACK}  File "pyspark/sql/worker/write_into_data_source.py", line 1\nOSError: full\n'
    )
    assert not by_the_data(ours)
    assert message_of(ours) == "copies: data is null in a row"
    assert not by_the_data(other)


def test_what_is_raised_while_reading_is_the_sources_failure() -> None:
    error = RuntimeError(
        f"{WORKER}shardway.errors.NotFoundError: Stream orders not found.\nwhile reading stream orders, range 1 to 2\n"
    )
    assert source_failed(error)
    assert not by_the_data(error)
    assert message_of(error) == "Stream orders not found."


def test_a_value_that_spark_quotes_is_left_out() -> None:
    text = '[CAST_INVALID_INPUT] The value \'top-secret\' of the type "STRING" cannot be cast to "INT". SQLSTATE: 22018'
    error = RuntimeError(text)
    assert by_the_data(error)
    assert "top-secret" not in message_of(error)
    assert message_of(error) == '[CAST_INVALID_INPUT] a value of "STRING", "INT" in a row; SQLSTATE: 22018'
