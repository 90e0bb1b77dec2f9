"""What Spark does with a source, without Spark: batch after batch through the driver, with an application's leases."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from shardway.aws.dynamodb.lease_table import DynamoLeaseTable
from shardway.aws.options import ConnectionOptions, Credentials
from shardway.core.leases import writes
from shardway.core.leases.conditional_write import Done
from shardway.options import LeaseOptions
from shardway.spark.driver.driver import Driver
from shardway.spark.driver.pace import Pace
from shardway.spark.options.parsing import parse_read_options
from shardway.spark.ranges import TaskOptions
from shardway.spark.task.partition_reader import read_partition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.core.leases import LeaseRow
    from tests.spark.querying import Stream

DEADLINE_S = 60.0
FAILOVER_S = 1.0


class Query:
    """One query after the other on a stream, and the leases as their table has them."""

    def __init__(self, stream: Stream, application: str, dynamodb_url: str | None = None) -> None:
        """``dynamodb_url``: where the leases are; None: beside the stream."""
        self.stream = stream
        self.dynamodb_url = dynamodb_url or stream.local.endpoint_url
        self.application = application
        self.driver: Driver | None = None
        self.options: dict[str, str] = {}

    def start(self, stored: Mapping[str, Any] | None = None, **options: str) -> Query:
        local = self.stream.local
        given = {
            "streamName": self.stream.name.name or "",
            "region": local.region,
            "endpointUrl": local.endpoint_url,
            "dynamodbEndpointUrl": self.dynamodb_url,
            "applicationName": self.application,
            "startingPosition": "TRIM_HORIZON",
            "leaseIntervalMs": "100",
            "leaseFailoverMs": str(int(FAILOVER_S * 1000)),
            "pollIntervalMs": "200",
            **options,
        }
        self.options = given
        read = parse_read_options(given, streaming=True)
        self.driver = Driver(read, TaskOptions.of(read, read.connection("task")))
        self.end = stored
        return self

    def batch(self) -> list[bytes]:
        """One micro-batch, committed. Empty when nothing is new."""
        assert self.driver is not None
        self.stream.settle()
        self.driver._pace = Pace()  # without the wait between two looks
        end = self.driver.latest(self.end, capped=True)
        if end == self.end:
            return []
        rows = [
            data
            for task in self.driver.partitions(end)
            for page in read_partition(task)
            for data in page["data"].to_pylist()
        ]
        self.end = end
        return rows

    def read(self, wanted: int) -> list[bytes]:
        """So many rows, each batch committed, the last one too."""
        rows: list[bytes] = []
        end_s = time.monotonic() + DEADLINE_S
        while len(rows) < wanted:
            assert time.monotonic() < end_s, f"{len(rows)} of {wanted} rows"
            rows += self.batch()
        return rows + self.batch()

    def stop(self) -> None:
        if self.driver is not None:
            self.driver.close()
            self.driver = None

    def rows(self) -> dict[str, LeaseRow]:
        async def scan() -> dict[str, LeaseRow]:
            table = self.table()
            try:
                return {row.key: row for row in (await table.scan(consistent=True)).rows}
            finally:
                await table.close()

        return asyncio.run(scan())

    def table(self) -> DynamoLeaseTable:
        anybody = Credentials("local", "local")
        wire = ConnectionOptions(endpoint_url=self.dynamodb_url, region=self.stream.local.region, credentials=anybody)
        return DynamoLeaseTable(self.application, wire, LeaseOptions(request_timeout_s=30.0))

    def put_row(self, row: LeaseRow) -> None:
        async def put() -> None:
            table = self.table()
            await table.ensure()
            await table.create(row)
            await table.close()

        asyncio.run(put())

    def delete_row(self, key: str) -> LeaseRow:
        """The row as it was deleted. The query may renew it between a look at it and its deletion: then once more."""

        async def delete() -> LeaseRow:
            table = self.table()
            try:
                async with asyncio.timeout(DEADLINE_S):
                    while True:
                        (row,) = [row for row in (await table.scan(consistent=True)).rows if row.key == key]
                        if isinstance(await table.write(writes.delete(row)), Done):
                            return row
            finally:
                await table.close()

        return asyncio.run(delete())

    def behind(self) -> int:
        assert self.driver is not None
        report = self.driver.report()
        return 0 if report is None else int(report["leasesBehind"])

    def until_mirrored(self) -> None:
        end_s = time.monotonic() + DEADLINE_S
        while self.behind():
            assert time.monotonic() < end_s, "the leases stay behind"
            time.sleep(0.02)
