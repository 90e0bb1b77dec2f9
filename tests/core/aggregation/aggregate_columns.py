"""Reads an aggregate into columns, which tests compare with what was put."""

from __future__ import annotations

from shardway.core.aggregation.aggregate import DEFAULT_LIMITS, AggregateLimits
from shardway.core.aggregation.reader import open_aggregate


def append_user_records(
    data: bytes,
    partition_keys: list[str],
    datas: list[bytes],
    explicit_hash_keys: list[str | None],
    limits: AggregateLimits = DEFAULT_LIMITS,
) -> int:
    """Append the user records of an aggregate to three columns; return how many were appended.

    0 when ``data`` is a plain record; then nothing was appended. Explicit hash keys come as decimal text.
    """
    aggregate = open_aggregate(data, limits)
    if aggregate is None:
        return 0
    partition_keys.extend(aggregate.partition_keys())
    datas.extend(aggregate.datas)
    explicit_hash_keys.extend(aggregate.explicit_hash_key_texts())
    return len(aggregate)
