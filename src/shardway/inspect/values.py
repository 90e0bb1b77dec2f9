"""The values of the read model: plain values that become JSON as they are.

Hash keys and sequence numbers are decimal texts, since JSON's readers take no numbers of 128 bits. Times are aware
datetimes in UTC. Each report names its schema, what it cost in calls, and what the credentials did not show.
"""

from __future__ import annotations

import datetime as dt

import msgspec

WRITE_BYTES_PER_S = 1024 * 1024
WRITE_RECORDS_PER_S = 1_000
READ_BYTES_PER_S = 2 * 1024 * 1024
READ_CALLS_PER_S = 5
"""Calls of GetRecords that a shard answers each second. This limit, and the three above, are those of Amazon Kinesis
Data Streams, Quotas and limits.
"""


PERMISSION_CODES = frozenset({"AccessDenied", "AccessDeniedException", "NotAuthorized", "OptInRequired"})
"""The error codes with which a service answers credentials that are good and lack a permission."""


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """Something that could not be looked at: mostly because a permission is missing."""

    what: str
    """What the report lacks."""
    action: str
    """The IAM action that shows it: ``kinesis:ListShards``."""
    message: str
    """What the service said."""
    code: str = "AccessDeniedException"
    """The service's error code: that a permission is missing, that a key was refused, that credentials have expired, or
    that calls came too often.
    """

    @property
    def lacks_permission(self) -> bool:
        """True where a permission is missing; False where the call failed for another reason."""
        return self.code in PERMISSION_CODES

    @property
    def why(self) -> str:
        """Why the report lacks this, in short."""
        return f"the credentials lack {self.action}" if self.lacks_permission else f"{self.action}: {self.code}"

    @property
    def told(self) -> str:
        """Why the report lacks this, with what the service said, for people."""
        if self.lacks_permission:
            return f"{self.why}: {self.message}"
        return f"{self.action} was refused ({self.code}): {self.message}"


class CredentialsView(msgspec.Struct, frozen=True, kw_only=True):
    """How long the credentials that sign the calls are good. It never holds the credentials."""

    temporary: bool
    """True: the credentials have a session token, and end."""
    renewed: bool
    """True: a source gives new credentials. False: they were given as an option, or are in the environment."""
    expires_at: dt.datetime | None = None
    """When the credentials end. None: they do not say it, as credentials of the environment do not."""


class ShardLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What each shard of a stream takes and gives in a second, for all programs together."""

    write_bytes_per_s: int = WRITE_BYTES_PER_S
    write_records_per_s: int = WRITE_RECORDS_PER_S
    read_bytes_per_s: int = READ_BYTES_PER_S
    read_calls_per_s: int = READ_CALLS_PER_S


class StreamFound(msgspec.Struct, frozen=True, kw_only=True):
    """A stream in a listing: what ListStreams says of the stream, or only its name."""

    name: str
    arn: str | None = None
    status: str | None = None
    mode: str | None = None
    """``PROVISIONED`` or ``ON_DEMAND``."""
    created_at: dt.datetime | None = None


class StreamView(msgspec.Struct, frozen=True, kw_only=True):
    """A stream as DescribeStreamSummary describes it."""

    name: str
    arn: str
    status: str
    mode: str | None
    """``PROVISIONED`` or ``ON_DEMAND``; None: the service does not say it."""
    created_at: dt.datetime
    retention_hours: int
    open_shards: int
    consumers: int | None
    """The number of consumers that are registered for enhanced fan-out."""
    encryption: str | None
    """``NONE`` or ``KMS``."""
    key_id: str | None
    """The key that encrypts the stream."""
    shard_metrics: tuple[str, ...]
    """Names of the metrics that are kept per shard (enhanced monitoring), for a price."""
    max_record_kib: int | None
    distribution: str | None
    """``AUTO``: the service spreads records as it likes, whatever their keys."""
    warm_throughput_mib_s: int | None
    """MiB a second that an on-demand stream is kept ready for."""
    channels: int | None
    queues: int | None
    """The number of queues that the stream feeds; ``channels`` is the number of channels that deliver from it."""
    limits: ShardLimits = ShardLimits()


class ShardView(msgspec.Struct, frozen=True, kw_only=True):
    """A shard with its place in the lineage."""

    shard_id: str
    open: bool
    generation: int
    """0 for a shard without a known parent; else one more than the generation of its youngest parent."""
    parents: tuple[str, ...]
    children: tuple[str, ...]
    trimmed_parents: tuple[str, ...]
    """Parents that the retention has removed from the listing."""
    first_hash_key: str
    last_hash_key: str
    """The last hash key of the shard's range, which belongs to it."""
    hash_share: float
    """The shard's part of all hash keys, from 0 to 1."""
    first_sequence_number: str
    last_sequence_number: str | None
    opened_at: dt.datetime | None
    """When the shard was opened, by its first sequence number; None: the number has an unknown shape."""


class ConsumerView(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer that is registered for enhanced fan-out."""

    name: str
    arn: str
    status: str
    created_at: dt.datetime


class StreamsReport(msgspec.Struct, frozen=True, kw_only=True):
    """The streams of an account in a region."""

    schema: str = "shardway.streams/1"
    streams: list[StreamFound]
    missing: list[Missing]
    calls: dict[str, int]


class StreamReport(msgspec.Struct, frozen=True, kw_only=True):
    """A stream, its shards and its registered consumers."""

    schema: str = "shardway.stream/1"
    name: str
    stream: StreamView | None
    """The stream's description. None: the credentials do not show it (`missing`)."""
    shards: list[ShardView] | None
    """All shards that the retention covers, parents before children; None: the credentials do not show them."""
    holes: list[tuple[str, str]]
    """Hash ranges, both ends inclusive, that no open shard takes. A reshard that is under way shows some."""
    consumers: list[ConsumerView] | None
    missing: list[Missing]
    calls: dict[str, int]
