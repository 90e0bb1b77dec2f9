"""Queries with a state over streams of orders and payments: totals by the minute, orders with their payments, and a
count that goes on for each customer.

::

    python examples/stateful_orders.py totals --region eu-west-1 --checkpoint checkpoints/totals

The program prints what each batch brings, until it is stopped.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

ORDER = "order_id STRING, customer STRING, amount DECIMAL(10,2)"
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def read(spark: SparkSession, stream: str, **options: str) -> DataFrame:
    """Return the fields of a stream's JSON, and when each record arrived."""
    records = spark.readStream.format("shardway").options(streamName=stream, **options).load()
    value = fn.from_json(fn.col("data").cast("string"), ORDER)
    return records.select(value.alias("value"), "approximate_arrival_timestamp").select(
        "value.*", fn.col("approximate_arrival_timestamp").alias("arrived")
    )


def totals_by_minute(orders: DataFrame) -> DataFrame:
    """Return a row for each minute and customer. Write it in append mode: a row comes once, when its minute is over."""
    return (
        orders.withWatermark("arrived", "10 seconds")
        .groupBy(fn.window("arrived", "1 minute"), "customer")
        .agg(fn.count("*").alias("orders"), fn.sum("amount").alias("amount"))
    )


def with_payments(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """Return each order with its payment, or without one where none arrived within five minutes."""
    paid = payments.select(fn.col("order_id").alias("paid_id"), fn.col("arrived").alias("paid_at"))
    return orders.withWatermark("arrived", "1 minute").join(
        paid.withWatermark("paid_at", "1 minute"),
        fn.expr("order_id = paid_id AND paid_at BETWEEN arrived AND arrived + INTERVAL 5 MINUTES"),
        "leftOuter",
    )


class OrderCount(StatefulProcessor):
    """Counts the orders of each customer, over all batches."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Get the state of the customer."""
        self._count = handle.getValueState("count", "orders BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Yield the customer's count once for each batch that has orders of the customer."""
        known = self._count.get()
        orders = (0 if known is None else known[0]) + sum(1 for _ in rows)
        self._count.update((orders,))
        yield Row(customer=key[0], orders=orders)

    def close(self) -> None:
        """Nothing is open."""


def counts(orders: DataFrame) -> DataFrame:
    """Return the count of each customer that has orders in the batch. Write it in update mode."""
    return orders.groupBy("customer").transformWithState(
        OrderCount(), "customer STRING, orders BIGINT", outputMode="Update", timeMode="None"
    )


def main(arguments: list[str]) -> None:
    """Take the arguments, and run until the program is stopped."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("query", choices=["totals", "payments", "counts"])
    parser.add_argument("--checkpoint", required=True, help="Spark checkpoint directory")
    parser.add_argument("--region")
    args = parser.parse_args(arguments)
    spark = (
        SparkSession.builder.appName(args.query)
        .config("spark.sql.streaming.stateStore.providerClass", STATE_STORE)
        .getOrCreate()
    )
    options = {} if args.region is None else {"region": args.region}
    orders = read(spark, "orders", **options)
    if args.query == "totals":
        rows, mode = totals_by_minute(orders), "append"
    elif args.query == "payments":
        rows, mode = with_payments(orders, read(spark, "payments", **options)), "append"
    else:
        rows, mode = counts(orders), "update"
    writer = rows.writeStream.format("console").outputMode(mode).option("checkpointLocation", args.checkpoint)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1:])
