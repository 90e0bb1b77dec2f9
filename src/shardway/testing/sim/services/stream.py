"""The stream of a simulation is the local Kinesis's model of the service, which the client's real code reads."""

from __future__ import annotations

import base64
import json
from collections import deque
from typing import TYPE_CHECKING, Any

from shardway.core.aggregation.writer import encode_aggregate
from shardway.core.leases.lease_key import LeaseKey, StreamKey
from shardway.local.model import KinesisModel, Limits
from shardway.model import HASH_KEY_MAX
from shardway.testing.sim.history.shard_story import BAD, Put

if TYPE_CHECKING:
    import random

    from shardway.testing.sim.history.history import History
    from shardway.testing.sim.plan import FaultPlan
    from shardway.testing.sim.virtual_time import VirtualTime

EPOCH_S = 1_700_000_000.0
"""The epoch seconds that wall clocks show at virtual time 0."""

SUB_RECORDS_MAX = 4


class ServiceTime:
    """The service's clock. ``passed_s``: time that passed while no worker ran; the simulation skips it."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self.passed_s = 0.0

    def __call__(self) -> float:
        """Return the service's time in epoch seconds."""
        return EPOCH_S + self._time.now_s + self.passed_s


class SimulatedStream:
    """The service, what is put into it, and its reshards."""

    def __init__(
        self, name: str, plan: FaultPlan, shards: int, now_s: ServiceTime, history: History, rng: random.Random
    ) -> None:
        self.name = name
        self.model = KinesisModel(
            clock=now_s, rng=rng, limits=Limits(per_shard=plan.limits, page_span_s=plan.page_span_s), shard_quota=1_000
        )
        self._plan = plan
        self._history = history
        self._rng = rng
        self._put = 0
        self._keys = [(f"k{one}", rng.randrange(HASH_KEY_MAX + 1)) for one in range(plan.keys)]
        self._singles: deque[tuple[Put, int, float]] = deque()
        self._now_s = now_s
        self._ask("CreateStream", StreamName=name, ShardCount=shards)
        arn = self._ask("DescribeStreamSummary", StreamName=name)["StreamDescriptionSummary"]
        account = arn["StreamARN"].split(":")[4]
        several = StreamKey(account, name, int(arn["StreamCreationTimestamp"]))
        self._key = several if plan.streams > 1 else None
        self._list()

    def key_of(self, shard_id: str) -> str:
        """Return the key of a shard's lease."""
        return LeaseKey(shard_id, self._key).text

    def put(self, records: int) -> None:
        """Write ``records`` records, to shards by chance; the history learns where they are."""
        entries, puts = [], []
        for _ in range(records):
            users, where = self._draw()
            key, data = users[0]
            if len(users) > 1:
                data = encode_aggregate([(one.key, one.data, where) for one in users])
            entries.append(
                {"Data": base64.b64encode(data).decode(), "PartitionKey": key, "ExplicitHashKey": str(where)}
            )
            puts.append(users)
        # The service stamps a record with the millisecond in which it arrives: a start within that millisecond has it.
        arrived_s = self.model.now_ms() / 1000
        answer = self._ask("PutRecords", StreamName=self.name, Records=entries)
        for result, users in zip(answer["Records"], puts, strict=True):
            if "SequenceNumber" in result:  # else the shard is full, and the record is not put again
                self._history.put(self.key_of(result["ShardId"]), int(result["SequenceNumber"]), users, arrived_s)

    def _draw(self) -> tuple[list[Put], int]:
        """Draw a record, or those of an aggregate, and where they go."""
        plan, rng = self._plan, self._rng
        if plan.repeats and rng.random() < plan.repeats and (again := self._draw_again()) is not None:
            return again
        key, where = rng.choice(self._keys) if self._keys else ("k", rng.randrange(HASH_KEY_MAX + 1))
        count = rng.randint(2, SUB_RECORDS_MAX) if plan.aggregates and rng.random() < 0.5 else 1
        users = []
        for _ in range(count):
            bad = plan.bad > 0 and rng.random() < plan.bad
            users.append(Put(key, b"%d" % self._put + (BAD if bad else b"")))
            self._put += 1
        if count == 1 and plan.repeats:
            self._singles.append((users[0], where, self._now_s()))
        return users, where

    def _draw_again(self) -> tuple[list[Put], int] | None:
        """Draw a record that was put before, as a producer does that got no answer. The time between the two never
        lies so close to the window that a millisecond decides whether the second is a duplicate.
        """
        window_s, now_s = self._plan.window_s, self._now_s()
        while self._singles and now_s - self._singles[0][2] > 2 * window_s:
            self._singles.popleft()
        if not self._singles:
            return None
        place = self._rng.randrange(len(self._singles))
        put, where, at_s = self._singles[place]
        if abs(now_s - at_s - window_s) < 1.0:
            return None
        self._singles[place] = put, where, now_s
        return [put], where

    def split(self, choice: float) -> None:
        """Make two of one open shard, in the middle or near it."""
        open_shards = self._open()
        shard = open_shards[int(choice * len(open_shards))]
        first, last = _range(shard)
        if last - first > 16:
            middle = first + int((last - first) * self._rng.uniform(0.25, 0.75))
            self._ask("SplitShard", StreamName=self.name, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(middle))
            self._list()

    def merge(self, choice: float) -> None:
        """Make one of two neighbours."""
        open_shards = self._open()
        if len(open_shards) > 1:
            place = int(choice * (len(open_shards) - 1))
            left, right = open_shards[place : place + 2]
            self._ask(
                "MergeShards",
                StreamName=self.name,
                ShardToMerge=left["ShardId"],
                AdjacentShardToMerge=right["ShardId"],
            )
            self._list()

    def _open(self) -> list[Any]:
        shards = self._ask("ListShards", StreamName=self.name)["Shards"]
        taking = [one for one in shards if "EndingSequenceNumber" not in one["SequenceNumberRange"]]
        return sorted(taking, key=_range)

    def _list(self) -> set[str]:
        found = set()
        for one in self._ask("ListShards", StreamName=self.name)["Shards"]:
            parents = [self.key_of(one[name]) for name in ("ParentShardId", "AdjacentParentShardId") if name in one]
            key = self.key_of(one["ShardId"])
            self._history.shard(key, self.name, parents, "EndingSequenceNumber" not in one["SequenceNumberRange"])
            found.add(key)
        return found

    def listed_by_key(self) -> dict[str, str]:
        """Return the shards that are listed, by the keys of their leases."""
        listed = self._ask("ListShards", StreamName=self.name)["Shards"]
        return {self.key_of(one["ShardId"]): one["ShardId"] for one in listed}

    def listed(self) -> set[str]:
        """Return the shards that the retention has left anything of, by the keys of their leases."""
        return self._list()

    def _ask(self, operation: str, **request: Any) -> Any:
        answer = self.model.handle(operation, json.dumps(request).encode())
        return json.loads(answer) if answer else None


def _range(shard: Any) -> tuple[int, int]:
    return int(shard["HashKeyRange"]["StartingHashKey"]), int(shard["HashKeyRange"]["EndingHashKey"])
