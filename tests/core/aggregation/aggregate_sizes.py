"""What an aggregate's size would be, counted a second time: for tests of what the writer counts as it goes."""

from __future__ import annotations

from shardway.core.aggregation.fields import SHAPES, ref_bytes
from shardway.core.aggregation.writer import Aggregator
from shardway.core.protobuf import varint_bytes


def entry_bytes(text_bytes: int) -> int:
    """Return the size of a table entry with that many bytes of text."""
    return 1 + varint_bytes(text_bytes) + text_bytes


def framed_bytes_with(
    aggregator: Aggregator, partition_key: str, data_bytes: int, explicit_hash_key: int | None = None
) -> int:
    """What ``framed_bytes`` would be after adding a user record with that much data."""
    entries_bytes, refs_bytes = 0, 0
    if (index := aggregator._key_indexes.get(partition_key)) is None:
        index = len(aggregator._key_indexes)
        entries_bytes += entry_bytes(len(partition_key.encode()))
    refs_bytes += ref_bytes(index)
    if explicit_hash_key is not None:
        if (index := aggregator._hash_indexes.get(explicit_hash_key)) is None:
            index = len(aggregator._hash_indexes)
            entries_bytes += entry_bytes(len(str(explicit_hash_key)))
        refs_bytes += ref_bytes(index)
    return aggregator.framed_bytes + entries_bytes + SHAPES[refs_bytes][data_bytes][2]
