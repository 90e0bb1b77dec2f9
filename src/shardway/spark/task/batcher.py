"""A batcher puts rows together to Arrow record batches, and adds the columns that are the same for a whole shard.

Where a batch ends depends on the rows alone, never on where pages happened to end, so that every attempt yields the
same batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from shardway.spark.columns import OUTSIDE
from shardway.spark.task.arrow_columns import arrow_schema
from shardway.spark.task.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway.spark.ranges import TaskOptions


class Batcher:
    """Puts rows together to record batches, each with at most ``batch_bytes_max`` bytes (data and keys) and
    ``batch_rows_max`` rows.

    A single row that is larger makes a batch of its own.
    """

    def __init__(self, stream: str, options: TaskOptions) -> None:
        self.schema = arrow_schema(options.columns, options.columns_not_null)
        self._bytes_max = options.batch_bytes_max
        self._rows_max = options.batch_rows_max
        self._stream = pa.scalar(stream, pa.string())
        self._pieces: list[tuple[Rows, int, int]] = []
        self._bytes = 0
        self._count = 0

    def add(self, rows: Rows, start: int, count: int) -> Iterator[pa.RecordBatch]:
        """Take ``count`` rows from ``start``; yield the batches that are full by it."""
        end = start + count
        while start < end:
            room = rows.fitting(start, self._bytes_max - self._bytes, self._rows_max - self._count)
            taken = min(room, end - start)
            if taken == 0 and self._pieces:
                yield self._batch()
                continue
            taken = max(taken, 1)
            self._pieces.append((rows, start, taken))
            self._bytes += rows.bytes_of(start, taken)
            self._count += taken
            start += taken

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield what is left at the end, if anything."""
        if self._pieces:
            yield self._batch()

    def _batch(self) -> pa.RecordBatch:
        arrays = [self._column(name) for name in self.schema.names]
        self._pieces, self._bytes, self._count = [], 0, 0
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, name: str) -> pa.Array:
        if name == "stream":
            return pa.repeat(self._stream, self._count)
        parts = [_slice(rows, name, start, count) for rows, start, count in self._pieces]
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _slice(rows: Rows, name: str, start: int, count: int) -> pa.Array:
    array: Any = rows.arrays.get(name)
    if array is not None:
        return array.slice(start, count)
    if name == "shard_id":
        return pa.repeat(pa.scalar(rows.shard_id, pa.string()), count)
    if name == "sub_sequence_number":
        return pa.array(np.zeros(count, np.int64))
    if name == OUTSIDE:
        return pa.array(np.zeros(count, np.bool_))
    return pa.nulls(count, pa.string())
