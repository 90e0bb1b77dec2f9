"""A module that executors lack is told by its name, though other words that Python quotes there are not."""

from __future__ import annotations

import pytest

from shardway.pipeline.job.errors.error_text import message_of

TOLD = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/spark/python/pyspark/serializers.py", line 483, in loads
    return cloudpickle.loads(obj, encoding=encoding)
{error}
"""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("ModuleNotFoundError: No module named 'shardway'", "ModuleNotFoundError: No module named 'shardway'"),
        ("KeyError: 'anna'", "KeyError (serializers.py, line 483, in loads)"),
    ],
)
def test_what_cannot_be_imported_keeps_its_name(error: str, message: str) -> None:
    assert message_of(RuntimeError(TOLD.format(error=error))) == message
