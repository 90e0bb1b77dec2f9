"""A query over all that is there, and what it failed of."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame


def failure(rows: DataFrame, write: Callable[[DataFrame, int], object], checkpoint: Path) -> str:
    """What a query failed of that writes a whole stream; empty when it came to its end."""
    writing = rows.writeStream.foreachBatch(write)  # type: ignore[arg-type]  # Spark does not look at what it returns
    writing = writing.trigger(availableNow=True)
    query = writing.option("checkpointLocation", str(checkpoint)).start()
    try:
        query.awaitTermination()
        return ""
    except Exception as error:
        return str(error)
    finally:
        query.stop()
