"""Lets Spark find ``format("shardway")`` by itself.

Spark imports every top-level module whose name begins with ``pyspark_`` when it meets a format that it does not
know, for unrelated queries too: this one imports next to nothing until it is asked.
"""

from __future__ import annotations

from shardway.extras import needing

with needing("spark", 'format("shardway")'):
    from shardway.spark.source import ShardwayDataSource as DefaultSource

__all__ = ["DefaultSource"]
