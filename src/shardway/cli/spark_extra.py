"""Say what is missing where a command needs Spark, and Spark is not there."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from shardway.errors import OptionError
from shardway.extras import brings, is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def needing_spark(what: str) -> Iterator[None]:
    """Stand around the imports of a command: raise OptionError in place of an ImportError of Spark's. ``what``: what
    needs Spark.
    """
    try:
        yield
    except ModuleNotFoundError as fault:
        if not brings("spark", fault.name):
            raise
        client = fault.name == "py4j" and is_installed("pyspark")
        why = " (this is PySpark's client, which only speaks to a Connect server)" if client else ""
        raise OptionError(f'{what} needs Spark itself{why}: pip install "shardway[spark]"') from fault
