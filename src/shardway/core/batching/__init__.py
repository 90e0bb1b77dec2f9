"""Batching leads from user records to PutRecords requests and back to outcomes, without any I/O.

``Batcher`` is the whole: records go in as a ``Chunk`` (what was put at about the same time), it says what to send now
and when to ask again, is told what the service answered, and settles every record with exactly one outcome. Time and
chance are arguments, so that the simulator can run it, and the producer and the Spark sink share it.
"""

from shardway.core.batching.batcher import Batcher, BatchLimits
from shardway.core.batching.chunk import Chunk, EntryResult, NotWritten, Outcome, Run
from shardway.core.batching.lanes import Failure, Load, Request

__all__ = [
    "BatchLimits",
    "Batcher",
    "Chunk",
    "EntryResult",
    "Failure",
    "Load",
    "NotWritten",
    "Outcome",
    "Request",
    "Run",
]
