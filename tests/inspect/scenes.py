"""A stream, an application's tables and their metrics on the local service, to look at as the tools do."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import boto3
import msgspec

from shardway.aws.dynamodb.values import typed_item
from shardway.core.hashkeys import even_ranges
from shardway.core.leases import Checkpoint, LeaseRow
from shardway.inspect import Inspector, LagTimes, Snapshot
from shardway.model import Position
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.inspect import Look
    from shardway.local import LocalKinesis

HASH_KEYS = 2**128


def shard_id(number: int) -> str:
    """Of the shard that was made so late."""
    return f"shardId-{number:012d}"


class Clients:
    """Of one local service, for all scenes on it: making them takes longer than what they do."""

    def __init__(self, local: LocalKinesis) -> None:
        made = {"endpoint_url": local.endpoint_url, "region_name": local.region}
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        self.local = local
        self.dynamodb: Any = boto3.client("dynamodb", **made, **keys)
        self.cloudwatch: Any = boto3.client("cloudwatch", **made, **keys)

    def close(self) -> None:
        """Close the connections."""
        self.dynamodb.close()
        self.cloudwatch.close()


class Scene:
    """One stream and one application, which have the same name unless it is given."""

    def __init__(
        self, clients: Clients, name: str, shards: int = 2, kind: str = "kcl 2.x", application: str | None = None
    ) -> None:
        self.clients, self.local, self.name, self.kind = clients, clients.local, name, kind
        self.application = application or name
        self.looks: dict[str, list[Look]] = {}
        """What earlier snapshots saw."""
        self.answers: dict[str, Callable[[dict[str, Any]], None]] = {}
        """Changes of what an operation answers: what the local service does not model."""
        self.credentials: Any = None
        self.ranges = even_ranges(shards)
        self.ask("CreateStream", StreamName=name, ShardCount=shards)

    # --- the stream -------------------------------------------------------------------------------

    def ask(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """One call to Kinesis."""
        answer = self.local.ask(operation, msgspec.json.encode(parameters))
        found: dict[str, Any] = json.loads(answer) if answer else {}
        return found

    @property
    def arn(self) -> str:
        """Of the stream."""
        return self._described("StreamARN")

    @property
    def status(self) -> str:
        """Of the stream: ``ACTIVE`` or another one."""
        return self._described("StreamStatus")

    def _described(self, name: str) -> str:
        found: str = self.ask("DescribeStreamSummary", StreamName=self.name)["StreamDescriptionSummary"][name]
        return found

    def put(self, shard: int = 0, data: bytes = b"x", key: str = "k") -> str:
        """A record; returns its sequence number."""
        hash_key = str(self.ranges[shard][0])
        answer = self.ask("PutRecord", StreamName=self.name, PartitionKey=key, ExplicitHashKey=hash_key, Data=data)
        return str(answer["SequenceNumber"])

    def advance(self, seconds: float) -> None:
        """Let time pass for the service."""
        self.local.clock.advance(seconds)

    # --- the tables -------------------------------------------------------------------------------

    def table(
        self, suffix: str = "", key: str = "leaseKey", units: tuple[int, int] | None = None, index: bool = False
    ) -> None:
        """A table of the application."""
        attributes = [{"AttributeName": key, "AttributeType": "S"}]
        more: dict[str, Any] = {"BillingMode": "PAY_PER_REQUEST"}
        if units is not None:
            more = {"ProvisionedThroughput": {"ReadCapacityUnits": units[0], "WriteCapacityUnits": units[1]}}
        if index:
            attributes.append({"AttributeName": "leaseOwner", "AttributeType": "S"})
            owner, lease = (
                {"AttributeName": "leaseOwner", "KeyType": "HASH"},
                {"AttributeName": "leaseKey", "KeyType": "RANGE"},
            )
            more["GlobalSecondaryIndexes"] = [
                {
                    "IndexName": "LeaseOwnerToLeaseKeyIndex",
                    "KeySchema": [owner, lease],
                    "Projection": {"ProjectionType": "KEYS_ONLY"},
                }
            ]
        self.clients.dynamodb.create_table(
            TableName=self.application + suffix,
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
            AttributeDefinitions=attributes,
            **more,
        )

    def row(self, attributes: dict[str, Any], suffix: str = "") -> None:
        """Write a row of plain attributes."""
        self.clients.dynamodb.put_item(TableName=self.application + suffix, Item=typed_item(attributes))

    def lease(self, shard: int, at: str = "TRIM_HORIZON", **more: Any) -> None:
        """Write a lease as a worker of this kind writes it; ``at`` is a sequence number or a word of the KCL."""
        checkpoint = Checkpoint.at(Position(int(at), 0)) if at[0].isdigit() else Checkpoint.parse(at, 0)
        values: dict[str, Any] = {"owner": f"w{shard}", "counter": 1, "checkpoint": checkpoint}
        if self.kind != "kcl 1.x" and shard < len(self.ranges):
            values["first_hash_key"], values["last_hash_key"] = self.ranges[shard]
        if self.kind == "kcl 3.x":
            values["entity"] = "LEASE"
        if self.kind == "shardway":
            values["process"] = f"p/{more.get('owner', values['owner'])}"
        self.row(LeaseRow(key=shard_id(shard), **{**values, **more}).attributes())

    def leases(self, *at: str, **more: Any) -> None:
        """A table with a lease for each shard, at the given positions."""
        self.table()
        if self.kind == "kcl 3.x":
            self.fleet()
        for shard, position in enumerate(at):
            self.lease(shard, position, **more)

    def at_tip(self, **more: Any) -> list[str]:
        """A table with a lease for each shard, whose only record is settled."""
        numbers = [self.put(shard) for shard in range(len(self.ranges))]
        self.leases(*numbers, **more)
        return numbers

    def fleet(self, leader: str | None = "w0", updated_s: float = 0.0, mode: str = "CLIENT_VERSION_3X") -> None:
        """The rows that a fleet of the KCL 3.5 has beside its leases."""
        now_s = int(self.local.clock.now() + updated_s)
        self.row({"leaseKey": "Migration3.0", "entityType": "CLIENT_VERSION_MIGRATION", "cv": mode})
        if leader is not None:
            self.row({"leaseKey": "Leader", "entityType": "LEADER", "ownerName": leader})
        for worker in range(len(self.ranges)):
            self.row({"leaseKey": f"w{worker}", "entityType": "WORKER_METRIC_STATS", "lut": now_s, "sup": 1})

    # --- metrics ----------------------------------------------------------------------------------

    def metric(self, namespace: str, name: str, value: float, **of: str) -> None:
        """A figure as a program, or a service, has told it to CloudWatch ten minutes ago."""
        self.clients.cloudwatch.put_metric_data(
            Namespace=namespace,
            MetricData=[
                {
                    "MetricName": name,
                    "Dimensions": [{"Name": key, "Value": given} for key, given in of.items()],
                    "Value": value,
                    "Timestamp": self.local.clock.now() - 600,
                }
            ],
        )

    def of_stream(self, name: str, value: float) -> None:
        """A figure of Kinesis."""
        self.metric("AWS/Kinesis", name, value, StreamName=self.name)

    # --- looking ----------------------------------------------------------------------------------

    def inspector(self) -> Inspector:
        """One that waits for no shard: its pace is tested elsewhere."""
        found = Inspector(
            ConnectionOptions(
                region=self.local.region, endpoint_url=self.local.endpoint_url, credentials=self.credentials
            )
        )
        found.paces.calls_per_s, found.paces.bytes_per_s = 10_000.0, 1e12
        plain = found.wire.call

        async def call(service: str, operation: str, body: bytes, **more: Any) -> bytes:
            answer = await plain(service, operation, body, **more)
            if (change := self.answers.get(operation)) is None:
                return answer
            changed = json.loads(answer)
            change(changed)
            return msgspec.json.encode(changed)

        found.wire.call = call  # type: ignore[method-assign]
        return found

    def snapshot(self, *, application: bool = True) -> Snapshot:
        """What the doctor looks at, as it is read from a file."""

        async def look() -> Snapshot:
            async with self.inspector() as inspector:
                name = self.application if application else None
                return await inspector.snapshot(name, self.name, times=LagTimes(), history=self.looks)

        taken = asyncio.run(look())
        self.looks = taken.looks
        return msgspec.json.decode(msgspec.json.encode(taken), type=Snapshot)
