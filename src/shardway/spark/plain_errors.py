"""Spark shows one clear message in place of a stack of its frames."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from shardway.errors import ShardwayError


@contextmanager
def plain_errors() -> Iterator[None]:
    """Let Spark show an expected error as its message alone.

    Spark's Python workers print the whole stack of an exception before its message, unless this variable is set when
    they do. The source sets it only on the way out: a Python worker that fails ends with the exception, so no other
    task sees the variable.
    """
    try:
        yield
    except ShardwayError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
