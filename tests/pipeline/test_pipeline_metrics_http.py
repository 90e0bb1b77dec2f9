"""The gauges as Prometheus scrapes them from Spark's own page, by the names and settings of the reference page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from shardway.local import LocalKinesis

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "spark-metrics.md"
TIMEOUT_S = 300
PROGRAM = """
import json, os, sys, urllib.request
from pyspark.sql import SparkSession
from shardway.pipeline import ALL_COLUMNS, MetricsListener, observed

builder = SparkSession.builder.master("local[2]").config("spark.ui.port", "0").config("spark.driver.memory", "1g")
for name in ("host", "bindAddress"):
    builder = builder.config(f"spark.driver.{name}", "127.0.0.1")
for name, value in json.loads(sys.argv[3]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.streams.addListener(MetricsListener(spark))
reading = spark.readStream.format("shardway").schema(ALL_COLUMNS).options(**json.loads(sys.argv[1]))
writer = observed(reading.load()).writeStream.format("noop").queryName("orders-to-lake")
query = writer.option("checkpointLocation", sys.argv[2]).trigger(availableNow=True).start()
query.awaitTermination()
spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
port = spark.sparkContext.uiWebUrl.rpartition(":")[2]
told = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics/prometheus/").read().decode()
print("\\n".join(line for line in told.splitlines() if "shardway" in line))
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_prometheus_scrapes_them_by_the_names_on_the_page(tmp_path: Path) -> None:
    import boto3

    page = PAGE.read_text(encoding="utf-8")
    toml = page.partition("```text\n[spark]")[2].partition("```")[0]
    with LocalKinesis(streams={"orders": 2}) as local:
        client = boto3.client("kinesis", endpoint_url=local.endpoint_url, region_name=local.region)
        for number in range(20):
            client.put_record(StreamName="orders", Data=b"x" * 10, PartitionKey=f"key-{number}")
        client.close()
        local.clock.advance(3)
        given = {
            "streamName": "orders", "region": local.region, "endpointUrl": local.endpoint_url,
            "startingPosition": "TRIM_HORIZON",
        }  # fmt: skip
        settings = tomllib.loads(toml)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, json.dumps(given), str(tmp_path / "checkpoint"), json.dumps(settings)],
            env={**os.environ, **local.environment()}, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    shown = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines() if line.startswith("metrics_"))
    values = {name.partition("{")[0]: int(value) for name, value in shown.items()}
    wanted = {
        "rows": 20,
        "bytes": 200,
        "shards": 2,
        "unreadShards": 2,
        "possibleLosses": 0,
        "aggregatesOutsideRange": 0,
    }
    before = "metrics_shop_driver_AccumulatorSource_shardway_orders_to_lake_orders_"
    assert {name: values[f"{before}{name}_Value"] for name in wanted} == wanted
    assert set(values) >= {f"{before}lagMs_Value", f"{before}batch_Value"}
    assert f"{before}lagMs_Value" in page
