"""Records with the source's columns, as DataFrames and as a stream of one batch per file."""

from __future__ import annotations

import datetime as dt
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

START = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)

COLUMNS = pa.schema(
    [
        ("partition_key", pa.string()),
        ("data", pa.binary()),
        ("stream", pa.string()),
        ("shard_id", pa.string()),
        ("sequence_number", pa.string()),
        ("sub_sequence_number", pa.int64()),
        ("approximate_arrival_timestamp", pa.timestamp("us", tz="UTC")),
        ("explicit_hash_key", pa.string()),
    ]
)
DDL = (
    "partition_key STRING, data BINARY, stream STRING, shard_id STRING, sequence_number STRING,"
    " sub_sequence_number BIGINT, approximate_arrival_timestamp TIMESTAMP, explicit_hash_key STRING"
)


class Written:
    """Makes records: the sequence number counts up, the arrival time is given in seconds after 10:00 UTC."""

    def __init__(self) -> None:
        self.count = 0

    def record(self, data: bytes | str, *, key: str = "anna", at_s: float = 0.0, **others: Any) -> dict[str, Any]:
        self.count += 1
        return {
            "partition_key": key,
            "data": data.encode() if isinstance(data, str) else data,
            "stream": "orders",
            "shard_id": "shardId-000000000000",
            "sequence_number": str(98 + self.count),  # from 99 on: the second is longer, and smaller as text
            "sub_sequence_number": 0,
            "approximate_arrival_timestamp": START + dt.timedelta(seconds=at_s),
            "explicit_hash_key": None,
            **others,
        }


@pytest.fixture
def written() -> Written:
    return Written()


@pytest.fixture
def frame(spark: SparkSession) -> Callable[[list[dict[str, Any]]], DataFrame]:
    """Records as a batch DataFrame."""
    return lambda records: spark.createDataFrame([tuple(record.values()) for record in records], DDL)


class RecordStream:
    """A stream whose batches are files: what is added is one batch, in the order of adding."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._count = 0
        folder.mkdir()

    def add(self, records: list[dict[str, Any]]) -> None:
        self._count += 1
        file = self._folder / f"{self._count:06d}.parquet"
        hidden = file.with_name("_" + file.name)
        pq.write_table(pa.Table.from_pylist(records, schema=COLUMNS), hidden)
        os.utime(hidden, (self._count, self._count))
        hidden.rename(file)

    def load(self) -> DataFrame:
        reader = self._spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self._folder))


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> RecordStream:
    return RecordStream(spark, tmp_path / "incoming")
