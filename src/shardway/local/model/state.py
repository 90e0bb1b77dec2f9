"""The durable state of the service: shards, streams, their consumers, and the changes that make this state.

Every change is a value: ``(kind, ...)`` of numbers, texts, bytes, lists and maps, which msgspec writes as MessagePack
or JSON. An operation decides what to change, reads the clock and draws random numbers, and puts all of that into the
change; applying it is deterministic. So a service that applies the same changes again becomes the same service.
Numbers beyond 64 bits (hash keys) are texts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from shardway.local.model.shard_log import Segment
from shardway.local.model.stream import Consumer, Stream

Change: TypeAlias = tuple[Any, ...]


class State:
    """Streams by name, and what belongs to the account as a whole."""

    def __init__(self, arn_prefix: str) -> None:
        self.arn_prefix = arn_prefix
        """The beginning of the ARNs: ``arn:aws:kinesis:us-east-1:000000000000:``."""
        self.streams: dict[str, Stream] = {}
        self.by_uid: dict[int, Stream] = {}
        self.next_uid = 1
        self.last_created_s: dict[str, int] = {}
        """The second in which the newest stream of a name, or the newest consumer (``stream/consumer``), was made: the
        next one has a later second, which callers see.
        """
        self.commitment: dict[str, Any] = {"Status": "DISABLED"}
        """MinimumThroughputBillingCommitment in the account's settings."""

    def apply(self, change: Change) -> None:
        """Make a change, as decided by an operation or as read back from a journal."""
        _APPLY[change[0]](self, *change[1:])


def _create(  # noqa: PLR0913 - a change as the journal has it
    state: State,
    uid: int,
    name: str,
    now_ms: int,
    created_s: int,
    due_ms: int,
    ranges: list[tuple[str, str]],
    fields: dict[str, Any],
) -> None:
    stream = Stream(name, uid, f"{state.arn_prefix}stream/{name}", now_ms, created_s)
    stream.due_ms = due_ms
    for first, last in ranges:
        stream.add_shard(int(first), int(last), now_ms)
    _set(stream, fields)
    stream.reroute()
    state.streams[name] = stream
    state.by_uid[uid] = stream
    state.next_uid = max(state.next_uid, uid + 1)
    state.last_created_s[name] = created_s


def _set(target: Stream | Consumer, fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        setattr(target, name, value)


def _update(state: State, uid: int, due_ms: int | None, fields: dict[str, Any]) -> None:
    """Set attributes of a stream. With ``due_ms`` the stream is UPDATING until then."""
    stream = state.by_uid[uid]
    if "horizon_floor_ms" in fields:
        for shard in stream.shards:
            shard.log.trim(fields["horizon_floor_ms"])
    _set(stream, fields)
    if due_ms is not None:
        stream.status = "UPDATING"
        stream.due_ms = due_ms


def _delete(state: State, uid: int, due_ms: int) -> None:
    stream = state.by_uid[uid]
    stream.status = "DELETING"
    stream.due_ms = due_ms


def _reshard(state: State, uid: int, due_ms: int, stages: list[Any]) -> None:
    """Plan a resharding: stages of (indexes to close, [(parents, first hash key, last hash key)])."""
    stream = state.by_uid[uid]
    stream.status = "UPDATING"
    stream.due_ms = due_ms
    stream.plan = stages


def _settle(state: State, uid: int, now_ms: int) -> None:
    """End the present CREATING, UPDATING or DELETING."""
    stream = state.by_uid[uid]
    if stream.status == "DELETING":
        del state.by_uid[uid]
        del state.streams[stream.name]
        for shard in stream.shards:
            shard.notify()
        return
    stream.status = "ACTIVE"
    stream.ready = True
    stages, stream.plan = stream.plan, []
    for closing, births in stages:
        for parents, first, last in births:
            stream.add_shard(int(first), int(last), now_ms, tuple(parents))
        for index in closing:
            stream.shards[index].close(now_ms)
    if stages:
        stream.reroute()


def _put(state: State, uid: int, arrival_ms: int, counter: int, parts: list[Any]) -> None:
    """Append records. ``parts``: for each shard its index and a log segment. ``counter``: the last one given."""
    stream = state.by_uid[uid]
    stream.counter = counter
    for index, *segment in parts:
        shard = stream.shards[index]
        shard.log.append(Segment(*segment), arrival_ms)
        if shard.watchers:
            shard.notify()


def _consumer(state: State, uid: int, name: str, created_s: int, active_ms: int, tags: dict[str, str]) -> None:
    stream = state.by_uid[uid]
    state.last_created_s[f"{stream.name}/{name}"] = created_s
    stream.consumers[name] = Consumer(
        name=name,
        arn=f"{stream.arn}/consumer/{name}:{created_s}",
        created_s=created_s,
        active_ms=active_ms,
        tags=tags,
    )


def _consumer_update(state: State, uid: int, name: str, fields: dict[str, Any]) -> None:
    _set(state.by_uid[uid].consumers[name], fields)


def _account(state: State, commitment: dict[str, Any]) -> None:
    state.commitment = commitment


_APPLY: dict[str, Callable[..., None]] = {
    "create": _create,
    "update": _update,
    "delete": _delete,
    "reshard": _reshard,
    "settle": _settle,
    "put": _put,
    "consumer": _consumer,
    "consumer_update": _consumer_update,
    "account": _account,
}
