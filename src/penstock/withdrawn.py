"""Names of version 0.1 that users write, and what each is called now. None is an alias: an error names the new name."""

from __future__ import annotations

FLAGS = {
    "--aggregate": "--aggregation",
    "--dynamodb-endpoint": "--dynamodb-endpoint-url",
    "--neighbour-endpoint": "--neighbour-endpoint-url",
    "--ordered": "--ordered-by-key",
    "--ttl": "--record-ttl",
}
"""Options of commands."""

SPARK_OPTIONS = {"bufferbytes": "bufferBytesMax"}
"""Options of ``format("penstock")``: the old name, in lower case as Spark compares them."""

JOB_FIELDS = {
    ("deduplicate", "within"): "window",
    ("stamps", "within"): "window",
}
"""Fields of job files, with the table that each stands in."""


def is_called(new: str) -> str:
    """What an error says of the name that takes the place of an old one."""
    return f"is called {new} since version 0.2"
