"""What counts the calls of a lease table hides nothing that the table can do."""

from __future__ import annotations

from collections import Counter

from shardway.aws.dynamodb.lease_table import DynamoLeaseTable
from shardway.aws.options import ConnectionOptions, Credentials
from shardway.ports import SharedWithKcl
from shardway.runtime.consumer.counted_table import counted_table
from shardway.stores.memory import MemoryLeaseTable
from shardway.telemetry.consumer_meter import ConsumerMeter


async def test_a_table_that_kcl_workers_can_reach_is_still_known_as_one() -> None:
    settings = ConnectionOptions(
        endpoint_url="http://127.0.0.1:9", region="us-east-1", credentials=Credentials("local", "local")
    )
    table = DynamoLeaseTable("leases", settings)
    assert isinstance(table, SharedWithKcl)
    assert isinstance(counted_table(table, Counter(), lambda event: None, ConsumerMeter(0.0)), SharedWithKcl)
    await table.close()


def test_beside_a_table_that_they_cannot_reach_none_are_looked_for() -> None:
    assert not isinstance(
        counted_table(MemoryLeaseTable(), Counter(), lambda event: None, ConsumerMeter(0.0)), SharedWithKcl
    )
