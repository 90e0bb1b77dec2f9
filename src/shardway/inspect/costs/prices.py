"""The prices of AWS's services, from a file."""

from __future__ import annotations

import datetime as dt
from importlib import resources
from typing import TYPE_CHECKING

import msgspec

from shardway.errors import OptionError
from shardway.inspect.costs.traffic import FREE_RETENTION_HOURS, LONG_RETENTION_HOURS

if TYPE_CHECKING:
    from pathlib import Path

    from shardway.inspect.costs.traffic import Traffic


PRICES = "prices-2026-11.toml"
HOURS = 730.0
SECONDS = HOURS * 3600.0
GIB = 1024.0**3
KIB = 1024.0
PUT_UNIT_BYTES = 25 * 1024
ON_DEMAND_UNIT_BYTES = 1024


class Provisioned(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prices of provisioned streams."""

    shard_hour: float
    put_units_million: float
    retention_shard_hour: float
    long_retention_gb_month: float
    fan_out_shard_hour: float
    fan_out_gb: float


class OnDemand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prices of on-demand streams, of one kind."""

    stream_hour: float
    in_gb: float
    out_gb: float
    fan_out_gb: float
    commitment_mib_per_s: float
    """The traffic in, and the same out, that all streams of the account together pay for at least."""
    retention_gb_month: float | None = None
    """The price of records that are kept for more than 24 hours, up to 7 days. None: the price is not known; the report
    leaves the retention out, and says so.
    """
    long_retention_gb_month: float | None = None
    """The price of records that are older than 7 days; None: it is not known."""

    def lacks(self, traffic: Traffic) -> bool:
        """Return True where this traffic needs a price that is not known."""
        long = traffic.retention_hours > LONG_RETENTION_HOURS and self.long_retention_gb_month is None
        return long or (traffic.retention_hours > FREE_RETENTION_HOURS and self.retention_gb_month is None)


class DynamoDb(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prices of lease tables."""

    write_million: float
    read_million: float
    write_unit_hour: float
    read_unit_hour: float


class CloudWatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prices of metrics."""

    metric_month: float


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A dated list of prices in one region."""

    as_of: dt.date
    region: str
    currency: str
    provisioned: Provisioned
    on_demand: OnDemand
    advantage: OnDemand
    dynamodb: DynamoDb
    cloudwatch: CloudWatch


def prices_from(path: Path | None = None) -> Prices:
    """Return the prices in a file; without a ``path``, the prices that come with the package. Raises OptionError."""
    try:
        content = (resources.files("shardway.inspect") / PRICES).read_bytes() if path is None else path.read_bytes()
        return msgspec.toml.decode(content, type=Prices)
    except OSError as fault:
        raise OptionError(f"--prices {path}: {fault.strerror}") from fault
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise OptionError(f"--prices {path}: it holds no prices: {fault}") from None
