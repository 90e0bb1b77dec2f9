"""Items of a bill, of traffic and leases and by prices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from shardway.inspect.costs.prices import GIB, HOURS, ON_DEMAND_UNIT_BYTES, PUT_UNIT_BYTES, SECONDS
from shardway.inspect.costs.traffic import FREE_RETENTION_HOURS, LONG_RETENTION_HOURS

if TYPE_CHECKING:
    from shardway.inspect.costs.prices import DynamoDb, OnDemand, Provisioned
    from shardway.inspect.costs.traffic import Leases, Traffic


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a bill."""

    what: str
    quantity: float
    unit: str
    monthly: float


def monthly_gib(bytes_per_s: float) -> float:
    """Return how many GiB a month of this traffic has."""
    return bytes_per_s * SECONDS / GIB


def provisioned_items(traffic: Traffic, prices: Provisioned) -> list[Item]:
    """Return the bill of a provisioned stream."""
    shards, kept_hours = traffic.shards, traffic.retention_hours
    units = traffic.records_per_s * max(1.0, math.ceil(traffic.record_bytes / PUT_UNIT_BYTES)) * SECONDS / 1e6
    items = [
        Item(what="shards", quantity=shards, unit="shards", monthly=shards * HOURS * prices.shard_hour),
        Item(what="puts", quantity=units, unit="million units of 25 KB", monthly=units * prices.put_units_million),
    ]
    if kept_hours > FREE_RETENTION_HOURS:
        monthly = shards * HOURS * prices.retention_shard_hour
        items.append(Item(what="retention up to 7 days", quantity=shards, unit="shards", monthly=monthly))
    items += _long_retention(traffic, prices.long_retention_gb_month)
    if traffic.fan_out:
        readers = traffic.fan_out * shards
        gib = monthly_gib(traffic.bytes_per_s) * traffic.fan_out
        hours = readers * HOURS * prices.fan_out_shard_hour
        items.append(Item(what="fan-out consumers", quantity=readers, unit="consumers and shards", monthly=hours))
        items.append(Item(what="fan-out data", quantity=gib, unit="GiB", monthly=gib * prices.fan_out_gb))
    return items


def on_demand_items(traffic: Traffic, prices: OnDemand) -> list[Item]:
    """Return the bill of an on-demand stream. Each record counts as a whole number of KB."""
    record_bytes = max(1.0, math.ceil(traffic.record_bytes / ON_DEMAND_UNIT_BYTES)) * ON_DEMAND_UNIT_BYTES
    taken = monthly_gib(traffic.records_per_s * record_bytes)
    polled, pushed = monthly_gib(traffic.polled_bytes_per_s), monthly_gib(traffic.bytes_per_s) * traffic.fan_out
    items = [
        Item(what="stream", quantity=1, unit="streams", monthly=HOURS * prices.stream_hour),
        Item(what="data in, by whole KB", quantity=taken, unit="GiB", monthly=taken * prices.in_gb),
        Item(what="data out", quantity=polled, unit="GiB", monthly=polled * prices.out_gb),
        Item(what="fan-out data", quantity=pushed, unit="GiB", monthly=pushed * prices.fan_out_gb),
    ]
    hours = min(traffic.retention_hours, LONG_RETENTION_HOURS) - FREE_RETENTION_HOURS
    if hours > 0 and prices.retention_gb_month is not None:
        kept = traffic.bytes_per_s * hours * 3600 / GIB
        monthly = kept * prices.retention_gb_month
        items.append(Item(what="retention up to 7 days", quantity=kept, unit="GiB", monthly=monthly))
    items += _long_retention(traffic, prices.long_retention_gb_month)
    return [one for one in items if one.monthly > 0]


def _long_retention(traffic: Traffic, gb_month: float | None) -> list[Item]:
    hours = traffic.retention_hours - LONG_RETENTION_HOURS
    if hours <= 0 or gb_month is None:
        return []
    kept = traffic.bytes_per_s * hours * 3600 / GIB
    return [Item(what="retention over 7 days", quantity=kept, unit="GiB", monthly=kept * gb_month)]


def commitment(prices: OnDemand) -> float:
    """Return what an account pays in a month at least, for all of its streams in a region together."""
    gib = monthly_gib(prices.commitment_mib_per_s * 1024 * 1024)
    return gib * (prices.in_gb + prices.out_gb)


def lease_items(leases: Leases, prices: DynamoDb) -> list[Item]:
    """Return what a lease table costs by its writes, or by its capacity. Reads of the table are few, and left out."""
    if leases.write_units is not None:
        monthly = HOURS * (
            leases.write_units * prices.write_unit_hour + (leases.read_units or 0) * prices.read_unit_hour
        )
        unit = "write units, with their read units"
        return [Item(what="capacity of the lease table", quantity=leases.write_units, unit=unit, monthly=monthly)]
    millions = leases.writes_per_s * SECONDS / 1e6
    return [
        Item(
            what="renewals and checkpoints of leases" if leases.measured else "renewals of leases",
            quantity=millions,
            unit="million writes",
            monthly=millions * prices.write_million,
        )
    ]


def total(items: list[Item]) -> float:
    """Return the sum of the items' costs in a month."""
    return sum(one.monthly for one in items)
