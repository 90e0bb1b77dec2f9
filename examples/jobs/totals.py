"""The functions of totals.toml."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def priced(records: DataFrame) -> DataFrame:
    """A transform: from the decoded rows of a batch to those that the sinks get."""
    rows = records.select("value.*", "sequence_number")
    return rows.withColumn("price", fn.col("quantity") * fn.col("amount"))


def add_up(batch: DataFrame, batch_id: int) -> None:
    """A sink: a file per batch, named by its id. A batch that runs again writes the same one again: exactly once."""
    total = batch.agg(fn.sum("price")).first()
    assert total is not None
    folder = Path(os.environ["LAKE"], "totals")
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"batch": batch_id, "total": str(total[0])})
    written = folder / f".{batch_id}.json"
    written.write_text(text)
    written.rename(folder / f"{batch_id}.json")
