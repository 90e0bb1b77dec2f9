"""A job file for tests to change."""

from __future__ import annotations

GOOD = """\
name = "orders"
checkpoint = "checkpoints/orders"

[source]
streamName = "orders"
region = "eu-west-1"

[decode]
format = "json"
schema = "order_id STRING NOT NULL, amount DECIMAL(10,2)"

[dead_letters]
path = "lake/dead"

[[sinks]]
format = "parquet"
path = "lake/orders"
"""
