"""One clear message in place of a stack of Spark's frames."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import PenstockError


@contextmanager
def plain_errors() -> Iterator[None]:
    """Lets Spark show an expected error as its message alone.

    Spark's Python workers print the whole stack of an exception before its message, unless this variable is set when
    they do. The source sets it only on the way out: a Python worker that fails ends with the exception, so no other
    task sees the variable.
    """
    try:
        yield
    except PenstockError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
