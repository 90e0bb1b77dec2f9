"""The Spark data source ``format("shardway")``: exact micro-batches from a Kinesis stream.

Nothing is imported here, so that looking at a part does not load PySpark.
"""
