"""Orders from a Kinesis stream into tables, as one of Spark's Declarative Pipelines; and on into another stream.

::

    spark-pipelines run --spec examples/declarative/spark-pipeline.yml

Spark loads this file and calls the functions once, to learn the plans. What is read from the stream is read by
``decoded`` alone; the others read its table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from shardway.pipeline import decode_json, deduplicate, explain_json, split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

spark = SparkSession.active()

ORDER = StructType.fromDDL("order_id STRING NOT NULL, customer STRING NOT NULL, amount DECIMAL(10,2) NOT NULL")
POSITION = ["stream", "shard_id", "sequence_number", "sub_sequence_number"]


@dp.table
def decoded() -> DataFrame:
    """All records: decoded, or with the reason why not; of equal orders within ten minutes the first."""
    stream = {"streamName": "orders", "startingPosition": "TRIM_HORIZON"}
    records = spark.readStream.format("shardway").options(**stream).load()
    return deduplicate(decode_json(records, ORDER), "value.order_id", window="10 minutes")


@dp.table(partition_cols=["customer"])
def orders() -> DataFrame:
    """What was decoded."""
    good, _ = split(spark.readStream.table("decoded"))
    return good.select("value.*", "approximate_arrival_timestamp")


@dp.table
def dead_letters() -> DataFrame:
    """What was not, and why."""
    _, dead = split(spark.readStream.table("decoded"))
    return explain_json(dead, ORDER)


@dp.materialized_view
def totals() -> DataFrame:
    """Computed anew in each run, from all orders."""
    return (
        spark.read.table("orders")
        .groupBy("customer")
        .agg(fn.count("*").alias("orders"), fn.sum("amount").alias("amount"))
    )


dp.create_sink("good_orders", "shardway", {"streamName": "good-orders", "stamps": "position"})


@dp.append_flow(target="good_orders")
def to_good_orders() -> DataFrame:
    """Back into a stream, each row in an envelope that says where it came from."""
    good, _ = split(spark.readStream.table("decoded"))
    return good.select("partition_key", "data", *POSITION)
