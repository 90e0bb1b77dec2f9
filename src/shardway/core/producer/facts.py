"""The facts that the batcher notes of what became of records. A meter counts them, and some become events.

All numbers are counts unless their name says more. A shard id is None where no shard could be predicted.
"""

from __future__ import annotations

from typing import NamedTuple


class Landed(NamedTuple):
    """Kinesis records were written: one that holds all the user records, or one for each of them."""

    shard_id: str
    records: int
    user_records: int
    record_bytes: int
    """The bytes of the records' data and keys."""
    data_bytes: int
    """The bytes of the user records' data."""


class Written(NamedTuple):
    """User records that were put together have their result."""

    shard_id: str
    user_records: int
    attempts: int
    """The number of requests that carried each of the user records."""
    doubtful: bool
    """True if the stream may hold the user records twice."""
    latency_s: float
    """Seconds from the put of the user records to their result."""


class Refused(NamedTuple):
    """Kinesis records of a request that was answered were not taken; they are sent again."""

    shard_id: str | None
    records: int
    error_code: str


class Expired(NamedTuple):
    """The time to live of user records has passed."""

    shard_id: str | None
    user_records: int
    attempts: int
    doubtful: bool
    latency_s: float


class Failed(NamedTuple):
    """User records can not be written and were given up."""

    shard_id: str | None
    user_records: int
    attempts: int
    error_code: str
    latency_s: float


class Withdrawn(NamedTuple):
    """User records were withdrawn before they were sent."""

    user_records: int


class Repeated(NamedTuple):
    """Aggregates landed on a shard whose range does not hold them, and are put again by shard."""

    shard_id: str
    aggregates: int
    user_records: int


class Unknown(NamedTuple):
    """It is not known whether these Kinesis records were written; they are put again."""

    records: int
    reason: str


Fact = Landed | Written | Refused | Expired | Failed | Withdrawn | Repeated | Unknown
