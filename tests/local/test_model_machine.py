"""The service beside a naive one: every record that was acknowledged is read once, in order, from the right shard."""

from __future__ import annotations

import hashlib
import random
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shardway.local.model import KinesisModel
from shardway.local.model.limits import PAGE_SPAN_S
from tests.local.model_kit import HASH_KEYS, World

RETENTION_S = 24 * 3_600


class Row(NamedTuple):
    number: int
    data: str
    arrived_s: float


class Follower:
    """Reads one shard from its start in pages, as a consumer does."""

    def __init__(self, world: World, shard: int) -> None:
        self.shard = shard
        self.iterator: str | None = world.iterator(shard=shard)
        self.used_at = world.now
        self.last = 0
        """The number of the last record read."""


class ServiceMachine(RuleBasedStateMachine):
    """Puts, splits, merges, scalings and reads on a stream, with a clock that moves."""

    @initialize(shards=st.integers(1, 4), settle_s=st.sampled_from([0.0, 3.0]))
    def begin(self, shards: int, settle_s: float) -> None:
        self.world = World(settle_s=settle_s)
        self.world.create(shards=shards)
        self.world.advance(settle_s)
        self.rows: dict[int, list[Row]] = {}
        self.followers: list[Follower] = []
        self.serial = 0

    def open_shards(self) -> list[Any]:
        """The open shards in the order of their ranges."""
        shards = [s for s in self.world.shards() if "EndingSequenceNumber" not in s["SequenceNumberRange"]]
        return sorted(shards, key=lambda s: int(s["HashKeyRange"]["StartingHashKey"]))

    def active(self) -> bool:
        return bool(self.world.summary()["StreamStatus"] == "ACTIVE")

    @rule(keys=st.lists(st.text("abcdefgh", min_size=1, max_size=2), min_size=1, max_size=25), single=st.booleans())
    def put(self, keys: list[str], single: bool) -> None:
        ranges = {s["ShardId"]: s["HashKeyRange"] for s in self.open_shards()}
        texts = []
        for _ in keys:
            self.serial += 1
            texts.append(f"{self.serial}")
        if single:
            answers = [self.world.put(text.encode(), key) for text, key in zip(texts, keys, strict=True)]
        else:
            records = [(text.encode(), key) for text, key in zip(texts, keys, strict=True)]
            answers = self.world.put_many(records)["Records"]
        for answer, text, key in zip(answers, texts, keys, strict=True):
            hashed = int.from_bytes(hashlib.md5(key.encode()).digest(), "big")
            home = ranges[answer["ShardId"]]
            assert int(home["StartingHashKey"]) <= hashed <= int(home["EndingHashKey"])
            rows = self.rows.setdefault(int(answer["ShardId"][-12:]), [])
            row = Row(int(answer["SequenceNumber"]), text, self.world.now)
            assert not rows or rows[-1].number < row.number
            rows.append(row)

    @rule(data=st.data())
    def split(self, data: st.DataObject) -> None:
        if self.active():
            shard = data.draw(st.sampled_from(self.open_shards()))
            ends = shard["HashKeyRange"]
            low, high = int(ends["StartingHashKey"]) + 2, int(ends["EndingHashKey"]) - 1
            if low <= high:
                self.world.split(int(shard["ShardId"][-12:]), data.draw(st.integers(low, high)))

    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        shards = self.open_shards()
        if self.active() and len(shards) > 1:
            at = data.draw(st.integers(0, len(shards) - 2))
            lower, upper = (int(shard["ShardId"][-12:]) for shard in shards[at : at + 2])
            self.world.merge(lower, upper)

    @rule(data=st.data())
    def scale(self, data: st.DataObject) -> None:
        count = len(self.open_shards())
        calls = len([m for m in self.world.model.state.streams["s"].scaled_ms if m / 1000 > self.world.now - 86_400])
        if self.active() and calls < 10 and count <= 8:
            target = data.draw(st.integers(max(1, (count + 1) // 2), 2 * count))
            self.world.call("UpdateShardCount", StreamName="s", TargetShardCount=target, ScalingType="UNIFORM_SCALING")

    @rule(seconds=st.sampled_from([0.001, 0.5, 3.0, 120.0, 20_000.0, RETENTION_S - 100.0]))
    def advance(self, seconds: float) -> None:
        self.world.advance(seconds)

    @rule(data=st.data())
    def follow(self, data: st.DataObject) -> None:
        shard = data.draw(st.sampled_from(self.world.ids()))
        self.followers.append(Follower(self.world, shard))

    def kept(self, shard: int) -> list[Row]:
        horizon = self.world.now - RETENTION_S
        return [row for row in self.rows.get(shard, []) if row.arrived_s >= horizon - 1e-6]

    @precondition(lambda self: self.followers)
    @rule(data=st.data(), limit=st.integers(1, 4))
    def read_on(self, data: st.DataObject, limit: int) -> None:
        """A page of a follower: the next rows of its shard that are still kept, never one twice, none left out."""
        follower = data.draw(st.sampled_from(self.followers))
        if follower.iterator is None:
            return
        if self.world.now - follower.used_at > 299 or follower.shard not in self.world.ids():
            self.followers.remove(follower)
            return
        kept = self.kept(follower.shard)
        expected = [row for row in kept if row.number > follower.last][:limit]
        page = self.world.get(follower.iterator, Limit=limit)
        for _ in range(int(RETENTION_S / PAGE_SPAN_S) + 1):
            if page["Records"] or not page["MillisBehindLatest"]:
                break
            further = self.world.get(page["NextShardIterator"], Limit=limit)
            assert further["MillisBehindLatest"] < page["MillisBehindLatest"], "silence is crossed page by page"
            page = further
        found = [int(r["SequenceNumber"]) for r in page["Records"]]
        assert found == [row.number for row in expected[: len(found)]]
        if found:
            follower.last = found[-1]
        left = [row for row in kept if row.number > follower.last]
        assert page["MillisBehindLatest"] > 0 or not left
        assert found or not expected
        follower.iterator = page.get("NextShardIterator")
        follower.used_at = self.world.now
        if follower.iterator is None:
            assert not left
            assert page["ChildShards"]

    @rule(data=st.data(), after=st.booleans())
    def read_from_a_number(self, data: st.DataObject, after: bool) -> None:
        shard = data.draw(st.sampled_from(self.world.ids()))
        rows = self.kept(shard)
        if rows:
            at = data.draw(st.integers(0, len(rows) - 1))
            kind = "AFTER_SEQUENCE_NUMBER" if after else "AT_SEQUENCE_NUMBER"
            found = self.world.read(kind, shard, StartingSequenceNumber=str(rows[at].number))
            assert found == [row.data.encode() for row in rows[at + after :]]

    @rule(data=st.data())
    def read_from_a_time(self, data: st.DataObject) -> None:
        shard = data.draw(st.sampled_from(self.world.ids()))
        rows = self.kept(shard)
        if rows:
            moment = data.draw(st.sampled_from([row.arrived_s for row in rows]))
            found = self.world.read("AT_TIMESTAMP", shard, Timestamp=moment)
            assert found == [row.data.encode() for row in rows if row.arrived_s >= moment]

    @invariant()
    def open_shards_partition_the_hash_space(self) -> None:
        if hasattr(self, "world"):
            ranges = [tuple(map(int, s["HashKeyRange"].values())) for s in self.open_shards()]
            assert ranges[0][0] == 0
            assert ranges[-1][1] == HASH_KEYS - 1
            assert all(low[1] + 1 == high[0] for low, high in pairwise(ranges))
            assert self.world.summary()["OpenShardCount"] == len(ranges)

    @invariant()
    def children_are_above_their_parents(self) -> None:
        if not hasattr(self, "world"):
            return
        shards = {s["ShardId"]: s for s in self.world.shards()}
        for shard in shards.values():
            begin = int(shard["SequenceNumberRange"]["StartingSequenceNumber"])
            for member in ("ParentShardId", "AdjacentParentShardId"):
                parent = shards.get(shard.get(member, ""))
                if parent is not None:
                    assert int(parent["SequenceNumberRange"]["EndingSequenceNumber"]) < begin
            rows = self.rows.get(int(shard["ShardId"][-12:]), [])
            assert all(begin < row.number for row in rows)

    def teardown(self) -> None:
        """At the end all is read once more, also from a service that was made from the journal."""
        if not hasattr(self, "world"):
            return
        replayed = World()
        replayed.now = self.world.now
        replayed.model = KinesisModel(
            clock=lambda: self.world.now,
            rng=random.Random(1),
            stream_settle_s=self.world.model.stream_settle_s,
            shard_quota=500,
        )
        for change in self.world.journal:
            replayed.model.apply(msgspec.msgpack.decode(msgspec.msgpack.encode(change)))
        old = [self.world.iterator(shard=index) for index in self.world.ids()]
        assert replayed.shards() == self.world.shards()
        assert replayed.summary() == self.world.summary()
        for index in self.world.ids():
            expected = [row.data.encode() for row in self.kept(index)]
            assert self.world.read(shard=index) == expected
            assert replayed.read(shard=index) == expected
        for iterator in old:
            assert self.world.get(iterator)["Records"] == replayed.get(iterator)["Records"]
        assert int(replayed.put()["SequenceNumber"]) == int(self.world.put()["SequenceNumber"])


ServiceMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestService = ServiceMachine.TestCase


def test_the_journal_of_everything_else_is_replayed() -> None:
    world = World()
    arn = world.create(Tags={"a": "1"}, MaxRecordSizeInKiB=2048)
    consumer = world.call("RegisterStreamConsumer", StreamARN=arn, ConsumerName="c")["Consumer"]["ConsumerARN"]
    world.call("TagResource", ResourceARN=consumer, Tags={"b": "2"})
    world.call("PutResourcePolicy", ResourceARN=arn, Policy="{}")
    world.call("StartStreamEncryption", StreamName="s", EncryptionType="KMS", KeyId="k")
    world.call("IncreaseStreamRetentionPeriod", StreamName="s", RetentionPeriodHours=48)
    world.call("EnableEnhancedMonitoring", StreamName="s", ShardLevelMetrics=["IncomingBytes"])
    world.call("UpdateAccountSettings", MinimumThroughputBillingCommitment={"Status": "ENABLED"})
    world.call("CreateStream", StreamName="gone")
    world.call("DeleteStream", StreamName="gone")
    world.put()
    world.split()
    again = World()
    for change in world.journal:
        again.model.apply(msgspec.msgpack.decode(msgspec.msgpack.encode(change)))
    for operation, request in (
        ("DescribeStream", {"StreamName": "s"}),
        ("DescribeStreamSummary", {"StreamName": "s"}),
        ("ListStreams", {}),
        ("ListTagsForResource", {"ResourceARN": consumer}),
        ("ListTagsForStream", {"StreamName": "s"}),
        ("DescribeStreamConsumer", {"ConsumerARN": consumer}),
        ("GetResourcePolicy", {"ResourceARN": arn}),
        ("DescribeAccountSettings", {}),
        ("DescribeLimits", {}),
        ("ListShards", {"StreamName": "s"}),
    ):
        assert again.call(operation, **request) == world.call(operation, **request), operation
    again.create("gone")
    assert again.summary("gone")["StreamCreationTimestamp"] == int(world.now) + 1, "later than the first of that name"
