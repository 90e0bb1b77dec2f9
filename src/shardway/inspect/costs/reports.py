"""Compute what a stream, its readers, their leases and their metrics cost, and what would cost less.

All figures come from a snapshot's measured traffic and a dated list of prices; no service is called. A month has 730
hours. A figure that the snapshot does not hold is not guessed: the report leaves out what needs it, and says so.
"""

from __future__ import annotations

import datetime as dt
import math
from typing import TYPE_CHECKING

import msgspec

from shardway.inspect.costs.items import Item, commitment, lease_items, on_demand_items, provisioned_items, total
from shardway.inspect.costs.prices import PUT_UNIT_BYTES
from shardway.inspect.costs.traffic import FREE_RETENTION_HOURS, Leases, Traffic
from shardway.inspect.doctor.snapshots import PEAK_S, Snapshot
from shardway.inspect.lag.reports import FAILOVER_S
from shardway.inspect.values import WRITE_BYTES_PER_S, WRITE_RECORDS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway.inspect.applications.views import ApplicationView
    from shardway.inspect.costs.prices import Prices


HEADROOM = 1.5
"""The measured peak times this number is the peak that the shards are counted for."""
SAVING_MIN = 1.0
"""The least saving in a month, in the currency of the prices, that is worth a line."""
KCL_RENEW_S = FAILOVER_S / 3 - 0.025
SHARDWAY_RENEWALS = 2
"""Renewals of a lease by a Shardway worker within its failover time."""


class ModeCost(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream costs in one mode."""

    mode: str
    """``provisioned``, ``on-demand`` or ``on-demand advantage``."""
    current: bool
    monthly: float
    items: list[Item]
    remark: str | None = None


class Saving(msgspec.Struct, frozen=True, kw_only=True):
    """Something that would cost less."""

    id: str
    monthly: float
    """How much less the bill of a month would be, in the currency of the prices."""
    what: str
    why: str


class CostReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream and an application cost in a month."""

    schema: str = "shardway.cost/1"
    stream: str | None
    application: str | None
    taken_at: dt.datetime
    prices_as_of: dt.date
    region: str
    currency: str
    monthly: float
    """The cost of the stream in its present mode, together with what is in ``around``."""
    traffic: Traffic | None
    modes: list[ModeCost]
    around: list[Item]
    """The bill of leases and metrics, which is the same in each mode."""
    savings: list[Saving]
    """All savings, the largest first."""
    left_out: list[str]
    """Sentences that say what could not be computed, and why."""


def cost_of(snapshot: Snapshot, prices: Prices, *, readers: int | None = None) -> CostReport:
    """Return the bill of what a snapshot shows. ``readers``: how many applications poll the whole stream; None: the
    polling that CloudWatch has measured counts, or else one application, where no registered consumer is active.
    """
    carried = traffic_of(snapshot, readers=readers)
    traffic = carried if isinstance(carried, Traffic) else None
    left_out: list[str] = [] if isinstance(carried, Traffic) else [carried]
    around, view = [], snapshot.application
    if view is not None and view.store == "dynamodb":
        leases = leases_of(snapshot, view)
        around += lease_items(leases, prices.dynamodb)
        if not leases.measured:
            left_out.append(
                "checkpoints: the snapshot is of one look; with --window it tells how often rows are written"
            )
    listed = snapshot.metrics.listed if snapshot.metrics is not None else None
    stream = None if snapshot.stream is None else snapshot.stream.stream
    of_shards = 0 if stream is None else len(stream.shard_metrics) * stream.open_shards
    for what, count in (("metrics of the application", listed), ("metrics of each shard", of_shards)):
        if count:
            monthly = count * prices.cloudwatch.metric_month
            around.append(Item(what=what, quantity=count, unit="metrics", monthly=monthly))
    modes = [] if traffic is None else modes_of(traffic, prices)
    if traffic is not None and prices.advantage.lacks(traffic):
        left_out.append(
            "retention in the advantage mode: its price is not in the list (--prices takes one that has it)"
        )
    if traffic is not None:
        left_out += savings_left_out(traffic, snapshot)
    return CostReport(
        stream=None if snapshot.stream is None else snapshot.stream.name,
        application=None if view is None else view.name,
        taken_at=snapshot.taken_at,
        prices_as_of=prices.as_of,
        region=prices.region,
        currency=prices.currency,
        monthly=sum(one.monthly for one in modes if one.current) + total(around),
        traffic=traffic,
        modes=modes,
        around=around,
        savings=[] if traffic is None else savings_of(traffic, prices),
        left_out=left_out,
    )


def traffic_of(snapshot: Snapshot, *, readers: int | None) -> Traffic | str:
    """Return what the stream carries: CloudWatch's means of the last two weeks where there are any, else the rates of
    the records that were read. Where neither is there, return a sentence that says so.
    """
    report = snapshot.stream
    if report is None or report.stream is None:
        return "the stream: the snapshot does not show it"
    stream, heat = report.stream, snapshot.heat
    figures = {(one.name, one.statistic): one.value for one in snapshot.metrics.found} if snapshot.metrics else {}
    age_s = (snapshot.taken_at - stream.created_at).total_seconds()
    young = PEAK_S / min(PEAK_S, max(age_s, 3600.0))  # CloudWatch's mean is over two weeks, also of a younger stream
    mean_bytes, mean_records = figures.get(("IncomingBytes", "Mean")), figures.get(("IncomingRecords", "Mean"))
    ratio = 1.0
    if heat is not None and (records := sum(one.records for one in heat.shards)):
        ratio = sum(one.user_records for one in heat.shards) / records
    if mean_bytes is not None and mean_records is not None:
        bytes_per_s, records_per_s = mean_bytes * young, mean_records * young
        measured = "CloudWatch, two weeks" if young == 1 else "CloudWatch, since the stream was made"
    elif heat is not None and heat.shards:
        bytes_per_s = sum(one.bytes_per_s for one in heat.shards)
        records_per_s = sum(one.records_per_s for one in heat.shards)
        measured = "the records of the last minute"
    else:
        return "the stream: neither CloudWatch nor the stream's records show what it carries"
    polled = figures.get(("GetRecords.Bytes", "Mean"))
    consumers = sum(one.status == "ACTIVE" for one in report.consumers or ())
    if readers is None and polled is not None:
        polled_bytes_per_s = polled * young
    else:
        polling = (0 if consumers else 1) if readers is None else readers
        polled_bytes_per_s = polling * bytes_per_s
    return Traffic(
        records_per_s=records_per_s,
        bytes_per_s=bytes_per_s,
        peak_records_per_s=figures.get(("IncomingRecords", "Peak")),
        peak_bytes_per_s=figures.get(("IncomingBytes", "Peak")),
        measured=measured,
        user_records_per_record=ratio,
        mode=stream.mode or "PROVISIONED",
        shards=stream.open_shards,
        retention_hours=float(stream.retention_hours),
        fan_out=consumers,
        polled_bytes_per_s=polled_bytes_per_s,
    )


def leases_of(snapshot: Snapshot, view: ApplicationView) -> Leases:
    """Return how often the rows are written: the counters say it where the snapshot saw them move; else it is computed
    from the failover times.
    """
    alive = [one for one in view.leases if not one.ended and one.owner is not None]
    writes = seconds = 0.0
    for looks in snapshot.looks.values():
        if len(looks) > 1 and looks[-1].counter > looks[0].counter:
            writes += looks[-1].counter - looks[0].counter
            seconds = max(seconds, looks[-1].at_s - looks[0].at_s)
    measured = seconds > 0
    failovers = {one.worker_id: one.failover_s for one in view.workers if one.failover_s}
    computed = sum(
        SHARDWAY_RENEWALS / failovers[one.owner] if one.owner in failovers else 1 / KCL_RENEW_S for one in alive
    )
    table = next((one for one in view.tables if one.name == view.name), None)
    return Leases(
        leases=len(alive),
        writes_per_s=writes / seconds if measured else computed,
        measured=measured,
        write_units=None if table is None else table.write_units,
        read_units=None if table is None else table.read_units,
    )


def shards_needed(traffic: Traffic) -> int | None:
    """Return how many shards the peak takes, with headroom. None: the peak is not known."""
    if traffic.peak_bytes_per_s is None or traffic.peak_records_per_s is None:
        return None
    by_bytes = traffic.peak_bytes_per_s * HEADROOM / WRITE_BYTES_PER_S
    return max(1, math.ceil(by_bytes), math.ceil(traffic.peak_records_per_s * HEADROOM / WRITE_RECORDS_PER_S))


def modes_of(traffic: Traffic, prices: Prices) -> list[ModeCost]:
    """Return what the stream costs in its present mode and in the other modes. The service chooses the shards of an
    on-demand stream: as a provisioned stream it would have as many as its peak takes.
    """
    on_demand = traffic.mode == "ON_DEMAND"
    needed = shards_needed(traffic)
    modes = []
    if not on_demand or needed is not None:
        shards = needed if on_demand and needed is not None else traffic.shards
        items = provisioned_items(msgspec.structs.replace(traffic, shards=shards), prices.provisioned)
        remark = f"{shards} shards, for {HEADROOM:g} times the peak" if on_demand else None
        modes.append(
            ModeCost(mode="provisioned", current=not on_demand, monthly=total(items), items=items, remark=remark)
        )
    items = on_demand_items(traffic, prices.on_demand)
    modes.append(ModeCost(mode="on-demand", current=on_demand, monthly=total(items), items=items))
    items, floor = on_demand_items(traffic, prices.advantage), commitment(prices.advantage)
    remark = f"the account pays at least {floor:,.0f} {prices.currency} a month for all of its streams together"
    if prices.advantage.lacks(traffic):
        remark += "; without its retention, whose price is not in the list"
    modes.append(ModeCost(mode="on-demand advantage", current=False, monthly=total(items), items=items, remark=remark))
    return modes


def savings_of(traffic: Traffic, prices: Prices) -> list[Saving]:
    """Return what would cost less. Each saving is computed by itself: two of them together do not save the sum."""
    now = next(one.monthly for one in modes_of(traffic, prices) if one.current)

    def cost(**changes: float) -> float:
        changed = msgspec.structs.replace(traffic, **changes)
        return next(one.monthly for one in modes_of(changed, prices) if one.current)

    found = [_mode(traffic, prices, now), _aggregation(traffic, now, cost(records_per_s=_aggregated_rate(traffic)))]
    if traffic.mode == "PROVISIONED":
        needed = shards_needed(traffic)
        if needed is not None and needed < traffic.shards:
            why = f"the peak of an hour takes {needed} of {traffic.shards} shards, with {HEADROOM:g} times the room"
            what = f"merge shards, down to {needed}"
            found.append(Saving(id="shards", monthly=now - cost(shards=needed), what=what, why=why))
    if traffic.retention_hours > FREE_RETENTION_HOURS:
        saved = now - cost(retention_hours=FREE_RETENTION_HOURS)
        why = "it pays where no reader has to survive a longer outage; older records may be kept as files"
        found.append(Saving(id="retention", monthly=saved, what="keep records for 24 hours", why=why))
    if traffic.fan_out:
        polled = traffic.polled_bytes_per_s + traffic.fan_out * traffic.bytes_per_s
        saved = now - cost(fan_out=0, polled_bytes_per_s=polled)
        why = "it pays where a shard's 2 MiB a second are enough for all readers, and a lag of a second is no harm"
        found.append(Saving(id="fan-out", monthly=saved, what="let the fan-out consumers poll", why=why))
    return sorted((one for one in found if one is not None and one.monthly >= SAVING_MIN), key=lambda one: -one.monthly)


def savings_left_out(traffic: Traffic, snapshot: Snapshot) -> Iterator[str]:
    """Yield a sentence for each saving that could not be computed."""
    if traffic.mode == "PROVISIONED" and shards_needed(traffic) is None:
        yield "the shard count: CloudWatch shows no peak"
    metrics = snapshot.metrics
    if metrics is not None and metrics.worker_ids:
        yield (
            f"metrics without WorkerIdentifier: {metrics.worker_ids} workers are named in the dimensions of "
            f"{metrics.listed} metrics, and the snapshot does not tell how many would be left"
        )


def _aggregated_rate(traffic: Traffic) -> float:
    """Return the records a second if each were as large as a put unit: at least one a second, but no more than now."""
    return min(traffic.records_per_s, max(traffic.bytes_per_s / PUT_UNIT_BYTES, 1.0))


def _aggregation(traffic: Traffic, now: float, aggregated: float) -> Saving:
    why = f"a record has {traffic.record_bytes:,.0f} bytes; a unit is paid for whole"
    if traffic.user_records_per_record > 1.05:
        why += f", and an aggregate holds {traffic.user_records_per_record:.1f} records"
    return Saving(id="aggregation", monthly=now - aggregated, what="put aggregates of 25 KB", why=why)


def _mode(traffic: Traffic, prices: Prices, now: float) -> Saving | None:
    floor = commitment(prices.advantage)
    others = [
        one
        for one in modes_of(traffic, prices)
        if not one.current
        and (one.mode != "on-demand advantage" or (now > floor and not prices.advantage.lacks(traffic)))
    ]
    cheapest = min(others, key=lambda one: one.monthly, default=None)
    if cheapest is None:
        return None
    why = cheapest.remark or "all the traffic at the other mode's prices"
    return Saving(id="mode", monthly=now - cheapest.monthly, what=f"change the mode to {cheapest.mode}", why=why)
