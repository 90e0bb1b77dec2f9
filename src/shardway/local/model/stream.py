"""A stream: its shards, its settings and its registered consumers."""

from __future__ import annotations

import hashlib
import importlib
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Protocol

from shardway.local.model.errors import not_found
from shardway.local.model.shard import Shard
from shardway.model import HASH_KEY_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shardway.local.model.service import KinesisModel

    class _Hash(Protocol):
        def digest(self) -> bytes: ...


class Consumer:
    """A consumer that is registered with a stream. Its status follows from the time."""

    def __init__(self, *, name: str, arn: str, created_s: int, active_ms: int, tags: dict[str, str]) -> None:
        self.name = name
        self.arn = arn
        self.created_s = created_s
        self.active_ms = active_ms
        """The time until which the consumer is CREATING."""
        self.gone_ms: int | None = None
        """Once the consumer was deregistered: the time until which it is DELETING, and after which it is gone."""
        self.tags = tags
        self.policy: str | None = None

    def exists(self, now_ms: int) -> bool:
        """Return False once the consumer is deregistered and gone."""
        return self.gone_ms is None or now_ms < self.gone_ms

    def status(self, now_ms: int) -> str:
        """Return CREATING, ACTIVE or DELETING."""
        if self.gone_ms is not None:
            return "DELETING"
        return "CREATING" if now_ms < self.active_ms else "ACTIVE"

    def describe(self, now_ms: int) -> dict[str, Any]:
        """Return the members that all answers about a consumer have."""
        return {
            "ConsumerName": self.name,
            "ConsumerARN": self.arn,
            "ConsumerStatus": self.status(now_ms),
            "ConsumerCreationTimestamp": self.created_s,
        }


def consumer_of_arn(model: KinesisModel, arn: str) -> tuple[Stream, Consumer]:
    """Return (stream, consumer) for a consumer's ARN. Raises ResourceNotFoundException."""
    stream_arn, _, rest = arn.partition("/consumer/")
    stream = model.find_stream(None, stream_arn)
    consumer = stream.consumers.get(rest.partition(":")[0]) if stream is not None else None
    if stream is None or consumer is None or consumer.arn != arn or not consumer.exists(model.now_ms()):
        raise not_found(f"Consumer {arn}, account {model.account_id} not found.")
    return stream, consumer


HOUR_MS = 3_600_000
KIB = 1024
ROUTE_CACHE_KEYS_MAX = 65_536
"""The partition keys whose shard is remembered; the cache starts anew when it is full."""
SEQUENCE_LEAD_S = 2
"""How many seconds the first shards' second of creation lies before the stream's creation, as AWS's does."""


def _md5_of() -> Callable[[bytes], _Hash]:
    """Return the cheapest MD5 there is: CPython's own, which not all builds have, costs half of OpenSSL's for a short
    key.
    """
    try:
        md5: Callable[[bytes], _Hash] = importlib.import_module("_md5").md5
    except ImportError:
        return lambda key: hashlib.md5(key, usedforsecurity=False)
    return md5


_md5 = _md5_of()


def even_ranges(shards: int) -> list[tuple[int, int]]:
    """Return the hash ranges of a new stream's shards, as AWS divides: all are equal, and the last one has the rest."""
    width = (HASH_KEY_MAX + 1) // shards
    firsts = [width * i for i in range(shards)]
    lasts = [first - 1 for first in firsts[1:]] + [HASH_KEY_MAX]
    return list(zip(firsts, lasts, strict=True))


class Stream:
    """A stream, with all that the service knows of it."""

    def __init__(self, name: str, uid: int, arn: str, now_ms: int, created_s: int) -> None:
        self.name = name
        self.uid = uid
        """A number that no other stream ever had, not even one of the same name."""
        self.arn = arn
        self.created_ms = now_ms
        self.created_s = created_s
        """StreamCreationTimestamp in whole seconds, which differ for each stream of the same name."""
        self.ready = False
        """True once the stream was ACTIVE: before that it shows no shards."""
        self.status = "CREATING"
        self.due_ms = now_ms
        """The time at which the present CREATING, UPDATING or DELETING is over."""
        self.plan: list[Any] = []
        """The stages of the resharding that happens at ``due_ms``."""
        self.mode = "PROVISIONED"
        self.retention_hours = 24
        self.horizon_floor_ms = 0
        """The least horizon: records that were trimmed before the retention was made longer stay trimmed."""
        self.encryption = "NONE"
        self.key_id: str | None = None
        self.metrics: list[str] = []
        self.max_record_kib = KIB
        self.strategy = "USER_PARTITION_KEY"
        self.warm_mibps: int | None = None
        self.tags: dict[str, str] = {}
        self.consumers: dict[str, Consumer] = {}
        self.policy: str | None = None
        self.shards: list[Shard] = []
        self.counter = 0
        """The last counter given to a record. All shards share the counters, so that one shard's numbers have gaps, as
        AWS's have.
        """
        self.scaled_ms: list[int] = []
        """The times at which UpdateShardCount was called within the last day."""
        self._open: list[Shard] = []
        self._starts: list[bytes] = []
        self._routes: dict[str, Shard] = {}

    @property
    def open_shards(self) -> list[Shard]:
        """The shards that take records, in the order of their hash ranges."""
        return self._open

    @property
    def writable(self) -> bool:
        """True while the stream takes records."""
        return self.status in ("ACTIVE", "UPDATING")

    @property
    def record_bytes_max(self) -> int:
        """The bytes of the longest record, data and partition key together."""
        return self.max_record_kib * KIB

    def horizon_ms(self, now_ms: int) -> int:
        """Return the time before which records are trimmed, by their arrival."""
        return max(self.horizon_floor_ms, now_ms - self.retention_hours * HOUR_MS)

    def listed_shards(self, now_ms: int) -> list[Shard]:
        """Return the shards that exist for a caller, in the order of their ids: none while the stream is being created,
        and no shard that is trimmed.
        """
        if not self.ready:
            return []
        horizon = self.horizon_ms(now_ms)
        return [shard for shard in self.shards if not shard.gone(horizon)]

    def shard(self, index: int, now_ms: int) -> Shard | None:
        """Return the shard with this index, if it exists for a caller."""
        if not self.ready or not 0 <= index < len(self.shards):
            return None
        shard = self.shards[index]
        return None if shard.gone(self.horizon_ms(now_ms)) else shard

    def add_shard(self, first: int, last: int, now_ms: int, parents: tuple[int, ...] = ()) -> Shard:
        """Make the next shard. The caller closes its parents and then calls ``reroute``."""
        if parents:
            created_s = max(now_ms // 1000, *(self.shards[p].created_s for p in parents)) + 1
        else:
            created_s = self.created_s - SEQUENCE_LEAD_S
        shard = Shard(len(self.shards), (first, last), created_s=created_s, created_ms=now_ms, parents=parents)
        for parent in parents:
            self.shards[parent].children.append(shard.index)
        self.shards.append(shard)
        return shard

    def reroute(self) -> None:
        """Route hash keys anew, after shards were made or closed."""
        self._open = sorted((s for s in self.shards if s.closed_ms is None), key=lambda s: s.first_hash_key)
        self._starts = [shard.first_hash_key.to_bytes(16, "big") for shard in self._open]
        self._routes = {}

    def route_keys(self, partition_keys: Sequence[str]) -> list[Shard]:
        """Return the open shards that take records with these partition keys, one for each key."""
        routes, starts, shards = self._routes, self._starts, self._open
        found: list[Any] = list(map(routes.get, partition_keys))
        if None in found:
            if len(routes) > ROUTE_CACHE_KEYS_MAX:
                routes.clear()
            for place, key in enumerate(partition_keys):
                if found[place] is None:
                    shard = shards[bisect_right(starts, _md5(key.encode()).digest()) - 1]
                    found[place] = routes[key] = shard
        return found

    def route_hash(self, hash_key: int) -> Shard:
        """Return the open shard that takes records with this explicit hash key."""
        return self._open[bisect_right(self._starts, hash_key.to_bytes(16, "big")) - 1]
