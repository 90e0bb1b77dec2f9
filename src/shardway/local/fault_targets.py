"""Say which stream and shards a call is about, so that a fault can be ordered for them alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from shardway.local.model.sequence_numbers import shard_index_of, shard_name
from shardway.local.model.tokens import read_iterator

if TYPE_CHECKING:
    from shardway.local.model import KinesisModel
    from shardway.local.model.stream import Stream


_SHARD_MEMBERS = ("ShardId", "ShardToSplit", "ShardToMerge", "AdjacentShardToMerge")


class Target(NamedTuple):
    """The stream and the shards of a call, as far as it names them."""

    stream: str | None
    shards: frozenset[str]


_NO_TARGET = Target(None, frozenset())


def target_of(model: KinesisModel, operation: str, body: bytes) -> Target:
    """Return the target of a JSON request. A request that the model would refuse anyhow has an empty one."""
    try:
        request = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return _NO_TARGET
    if not isinstance(request, dict):
        return _NO_TARGET
    iterator = request.get("ShardIterator")
    if isinstance(iterator, str):
        return _of_iterator(iterator)
    stream = _stream_name(request)
    if operation in ("PutRecord", "PutRecords"):
        known = model.state.streams.get(stream or "")
        entries = request.get("Records") if operation == "PutRecords" else [request]
        if known is None or not isinstance(entries, list):
            return Target(stream, frozenset())
        return Target(stream, frozenset(name for entry in entries if (name := shard_of_entry(known, entry))))
    named = (request.get(member) for member in _SHARD_MEMBERS)
    indexes = (shard_index_of(name) for name in named if isinstance(name, str))
    return Target(stream, frozenset(shard_name(index) for index in indexes if index is not None))


def shard_of_entry(stream: Stream, entry: Any) -> str | None:
    """Return the shard that a record to be put would go to; None when the entry is not valid."""
    if not isinstance(entry, dict) or not stream.open_shards:
        return None
    explicit, key = entry.get("ExplicitHashKey"), entry.get("PartitionKey")
    if isinstance(explicit, str) and explicit.isascii() and explicit.isdigit() and int(explicit) < 2**128:
        return stream.route_hash(int(explicit)).name
    return stream.route_keys([key])[0].name if isinstance(key, str) and key else None


def _of_iterator(text: str) -> Target:
    found = read_iterator(text)
    if found is None:
        return _NO_TARGET
    state, stream = found
    return Target(stream, frozenset((shard_name(state.shard_index),)))


def _stream_name(request: dict[str, Any]) -> str | None:
    name = request.get("StreamName")
    if isinstance(name, str):
        return name
    for member in ("StreamARN", "ConsumerARN", "ResourceARN"):
        arn = request.get(member)
        if isinstance(arn, str):
            return arn.partition(":stream/")[2].partition("/")[0] or None
    return None
