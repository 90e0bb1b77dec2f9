"""The programs for Databricks and Glue do what their pages say, over local streams.

What belongs to the platform is replaced: tables by folders, the address of the stream, the end that never comes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import botocore.session
import pyarrow.dataset as ds
import pytest

from shardway.testing import LocalKinesis
from shardway.wiring import ConnectionOptions
from tests.docs.doc_pages import DOCS, blocks
from tests.docs.test_producer_pages import user_records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

DEPLOY = DOCS / "guides" / "deploy"


@pytest.fixture
def local() -> Iterator[LocalKinesis]:
    with LocalKinesis(streams={"orders": 2}) as local:
        yield local


def client(local: LocalKinesis) -> Any:
    session = botocore.session.get_session()
    return session.create_client("kinesis", endpoint_url=local.endpoint_url, region_name=local.region)


def program(page: str, replaced: dict[str, str], names: dict[str, Any]) -> dict[str, Any]:
    """Run the program of a page; its names afterwards."""
    (block,) = blocks(DEPLOY / page, "python")
    text = block.text
    for old, new in replaced.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    names = {"__name__": "program", **names}
    exec(compile(text, block.name, "exec"), names)
    return names


@pytest.mark.slow
@pytest.mark.spark
def test_the_program_for_databricks(spark: SparkSession, local: LocalKinesis, tmp_path: Path) -> None:
    kinesis = client(local)
    orders = [{"order_id": str(number % 40), "customer": "anna", "amount": "1.50"} for number in range(50)]
    data = [json.dumps(order).encode() for order in orders] + [b"no order"]
    for one in data:
        kinesis.put_record(StreamName="orders", Data=one, PartitionKey="anna")
    kinesis.close()
    local.clock.advance(3.0)
    session = spark.newSession()
    names = program(
        "databricks.md",
        {
            "SparkSession.builder.getOrCreate()": "SESSION",
            '"/Volumes/main/sales/checkpoints/orders"': "FOLDER + '/checkpoint'",
            '.option("region", "eu-west-1")': '.option("region", REGION).option("endpointUrl", ENDPOINT)',
            "DeltaSink, decode_json": "BatchFolder, decode_json",
            'DeltaSink(table="main.sales.orders")': 'BatchFolder(FOLDER + "/orders")',
            'DeltaSink(table="main.sales.orders_dead_letters")': 'BatchFolder(FOLDER + "/dead")',
            "query.awaitTermination()": "query.processAllAvailable()",
        },
        {"SESSION": session, "FOLDER": str(tmp_path), "REGION": local.region, "ENDPOINT": local.endpoint_url},
    )
    names["query"].stop()
    rows = ds.dataset(tmp_path / "orders").to_table()
    assert sorted(rows["order_id"].to_pylist(), key=int) == [str(number) for number in range(40)]
    letters = ds.dataset(tmp_path / "dead").to_table()
    assert letters["data"].to_pylist() == [b"no order"]
    assert session.conf.get("spark.sql.shuffle.partitions") == spark.conf.get("spark.sql.shuffle.partitions")


@pytest.mark.spark
def test_the_program_for_glue(spark: SparkSession, local: LocalKinesis) -> None:
    spark.range(12_000).selectExpr("concat('customer-', id % 7) AS customer", "id AS order_id").repartition(
        2
    ).createOrReplaceTempView("orders")
    wire = ConnectionOptions(region=local.region, endpoint_url=local.endpoint_url)
    try:
        program(
            "glue.md",
            {'SyncProducer("orders", options=options)': 'SyncProducer("orders", options=options, connection=WIRE)'},
            {"WIRE": wire},
        )
    finally:
        spark.catalog.dropTempView("orders")
    kinesis = client(local)
    written = [json.loads(data) for data in user_records(kinesis)]
    kinesis.close()
    assert sorted(order["order_id"] for order in written) == list(range(12_000))
    assert local.stats().calls("PutRecords") < 100
