"""What a batcher tells of its work, as values: its caller takes them from ``Batcher.told`` after each step.

All numbers are counts unless their name says more. A shard id is None where no shard could be predicted.
"""

from __future__ import annotations

from typing import NamedTuple


class Landed(NamedTuple):
    """Kinesis records were written: one that holds all the user records, or one for each."""

    shard_id: str
    records: int
    user_records: int
    record_bytes: int
    """Their data and keys."""
    data_bytes: int
    """The data of the user records."""


class Written(NamedTuple):
    """User records that were put together have their result."""

    shard_id: str
    user_records: int
    attempts: int
    """The requests that carried each of them."""
    doubtful: bool
    """True if the stream may hold them twice."""
    latency_s: float
    """Since they were put."""


class Refused(NamedTuple):
    """Kinesis records of a request that was answered were not taken; they are tried again."""

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
    """Whether these Kinesis records were written is not known; they are put again."""

    records: int
    reason: str


Fact = Landed | Written | Refused | Expired | Failed | Withdrawn | Repeated | Unknown
