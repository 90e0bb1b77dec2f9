"""Values of what is paid for: the traffic of a stream and the leases of its applications."""

from __future__ import annotations

import msgspec

FREE_RETENTION_HOURS = 24.0
LONG_RETENTION_HOURS = 168.0


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream carries, and how it is kept and read: all that determines its price."""

    records_per_s: float
    """Kinesis records; an aggregate is one."""
    bytes_per_s: float
    peak_records_per_s: float | None = None
    peak_bytes_per_s: float | None = None
    """The bytes a second of the busiest hour, as `peak_records_per_s` has its records. None: the peak is not known."""
    measured: str
    """Where the figures come from."""
    user_records_per_record: float = 1.0
    mode: str = "PROVISIONED"
    shards: int = 1
    retention_hours: float = FREE_RETENTION_HOURS
    fan_out: int = 0
    """The number of registered consumers. Each of them reads the whole stream."""
    polled_bytes_per_s: float = 0.0
    """The bytes a second that all readers together poll."""

    @property
    def record_bytes(self) -> float:
        """The mean size of a Kinesis record, in bytes; 0.0 where there are no records."""
        return self.bytes_per_s / self.records_per_s if self.records_per_s else 0.0


class Leases(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps an application's leases alive."""

    leases: int
    writes_per_s: float
    """Writes a second of all leases together."""
    measured: bool
    """False: the writes are computed from the failover time, and checkpoints are not among them."""
    write_units: int | None = None
    read_units: int | None = None
    """The table's provisioned capacity; None: the table is paid for by its calls."""
