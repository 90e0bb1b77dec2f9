"""Windows, joins and a state of one's own over streams, as the guide shows them: run on Spark, and compared by hand."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from examples import stateful_orders
from shardway.aws.kinesis.shapes import PutEntry
from shardway.local.embedded import LocalKinesis
from shardway.model import StreamName
from tests.docs.doc_pages import DOCS, ROOT, part, programs
from tests.spark.querying import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

QUERY_S_MAX = 200


class Shop:
    """The streams ``orders`` and ``payments`` of one local service, and queries over them that collect their rows."""

    def __init__(self, spark: SparkSession, local: LocalKinesis, folder: Path) -> None:
        self.spark, self.local, self.folder = spark, local, folder
        self.streams = {name: Stream(local, StreamName(name)) for name in ("orders", "payments")}
        for stream in self.streams.values():
            stream.call("CreateStream", ShardCount=2)
        self.rows: list[dict[str, Any]] = []

    def put(self, stream: str, first: int, count: int) -> None:
        orders = [
            (f"customer-{n % 3}", {"order_id": f"o-{n}", "customer": f"customer-{n % 3}", "amount": 1.5})
            for n in range(first, first + count)
        ]
        self.streams[stream].put_entries([PutEntry(json.dumps(order).encode(), key) for key, order in orders])

    def pass_time(self, seconds: float) -> None:
        self.local.clock.advance(seconds)
        for stream in self.streams.values():
            stream.call("DescribeStreamSummary")

    def read(self, stream: str) -> DataFrame:
        where = {"region": self.local.region, "endpointUrl": self.local.endpoint_url}
        return stateful_orders.read(self.spark, stream, **where, startingPosition="TRIM_HORIZON")

    def run(self, rows: DataFrame, mode: str) -> list[dict[str, Any]]:
        """Read all that is there by now, from where the query before stood, and return its rows."""
        found: list[dict[str, Any]] = []
        writer = rows.writeStream.outputMode(mode).option("checkpointLocation", str(self.folder / "checkpoint"))
        query = (
            writer.foreachBatch(lambda batch, _: found.extend(row.asDict(recursive=True) for row in batch.collect()))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(QUERY_S_MAX)
        finally:
            query.stop()
        return found


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    provider = "spark.sql.streaming.stateStore.providerClass"
    spark.conf.set(provider, stateful_orders.STATE_STORE)
    with LocalKinesis() as local:
        made = Shop(spark, local, tmp_path)
        yield made
        for stream in made.streams.values():
            stream.close()
    spark.conf.unset(provider)


@pytest.mark.spark
def test_a_minute_comes_once_when_it_is_over_and_the_newest_one_stays_open(shop: Shop) -> None:
    for minute in range(3):
        shop.put("orders", 30 * minute, 30)
        shop.pass_time(90)
    found = shop.run(stateful_orders.totals_by_minute(shop.read("orders")), "append")
    assert {(row["orders"], row["amount"]) for row in found} == {(10, Decimal("15.00"))}
    assert len(found) == 2 * 3  # the third minute is silent since: no later record says that it is over
    shop.put("orders", 90, 3)
    shop.pass_time(90)
    found += shop.run(stateful_orders.totals_by_minute(shop.read("orders")), "append")
    assert len(found) == 3 * 3
    windows = {(row["window"]["start"], row["customer"]) for row in found}
    assert len(windows) == len(found)


@pytest.mark.spark
def test_an_order_comes_with_its_payment_or_without_one_after_five_minutes(shop: Shop) -> None:
    shop.put("orders", 0, 6)
    shop.pass_time(60)
    shop.put("payments", 0, 4)
    for stream in ("orders", "payments"):
        shop.pass_time(600)
        shop.put(stream, 100, 1)
    shop.pass_time(600)
    for stream in ("orders", "payments"):
        shop.put(stream, 200, 1)
    shop.pass_time(10)
    joined = stateful_orders.with_payments(shop.read("orders"), shop.read("payments"))
    paid = {row["order_id"]: row["paid_id"] for row in shop.run(joined, "append")}
    assert {order: paid.get(order, "waits") for order in (f"o-{n}" for n in range(6))} == {
        "o-0": "o-0",
        "o-1": "o-1",
        "o-2": "o-2",
        "o-3": "o-3",
        "o-4": None,
        "o-5": None,
    }


@pytest.mark.spark
def test_a_state_of_ones_own_goes_on_from_batch_to_batch(shop: Shop) -> None:
    shop.put("orders", 0, 30)
    shop.pass_time(10)
    first = shop.run(stateful_orders.counts(shop.read("orders")), "update")
    shop.put("orders", 30, 6)
    shop.pass_time(10)
    second = shop.run(stateful_orders.counts(shop.read("orders")), "update")
    assert {row["customer"]: row["orders"] for row in first} == {f"customer-{n}": 10 for n in range(3)}
    assert {row["customer"]: row["orders"] for row in second} == {f"customer-{n}": 12 for n in range(3)}


def test_the_guide_shows_the_examples_code() -> None:
    shown = programs(part(DOCS / "guides" / "pipeline.md", "Windows, joins and a state of your own"))
    code = (ROOT / "examples" / "stateful_orders.py").read_text(encoding="utf-8")
    assert len(shown) == 3
    assert all(block.strip() in code for block in shown)
    assert issubclass(stateful_orders.OrderCount, StatefulProcessor)


class Odd(StatefulProcessor):
    """It fails before a query's first batch."""

    def init(self, handle: Any) -> None:
        raise ValueError("no such state")

    def handleInputRows(self, key: Any, rows: Any, timer_values: Any) -> Iterator[Any]:
        yield from ()

    def close(self) -> None:
        pass


@pytest.mark.skipif(not pyspark.__version__.startswith("4.3."), reason="the guide tells what Spark 4.3 says")
def test_the_guide_tells_what_a_processor_that_fails_looks_like(spark: SparkSession, shop: Shop) -> None:
    told = (DOCS / "guides" / "pipeline.md").read_text(encoding="utf-8")
    made_with = Path(pyspark.__file__).parent / "sql" / "streaming" / "proto" / "StateMessage_pb2.py"
    found = re.search(r"# Protobuf Python Version: ([\d.]+)", made_with.read_text())
    assert found is not None
    assert f"'protobuf>={found[1]}'" in told
    shop.put("orders", 0, 3)
    shop.pass_time(3)
    odd = (
        shop.read("orders")
        .groupBy("customer")
        .transformWithState(Odd(), "customer STRING", outputMode="Update", timeMode="None")
    )
    with pytest.raises(StreamingQueryException) as caught:
        shop.run(odd, "update")
    assert "TransformWithStateInPySpark driver worker exited unexpectedly (crashed)" in str(caught.value)
    assert "TransformWithStateInPySpark driver worker exited unexpectedly (crashed)" in told
    assert "no such state" not in str(caught.value)
    setting = "spark.sql.pyspark.jvmStacktrace.enabled"
    assert setting in told
    spark.conf.set(setting, True)
    try:
        assert "ValueError: no such state" in str(caught.value)
    finally:
        spark.conf.unset(setting)
