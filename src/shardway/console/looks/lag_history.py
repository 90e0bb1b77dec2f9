"""How far an application was behind before any page showed it: in the last hour, as its workers told CloudWatch.

Workers of the KCL and of Shardway tell `MillisBehindLatest`: how far their reading is behind, in the namespace of the
application. It is not the age of what is not settled: a handler that hangs does not show in it. So it is drawn apart
from what the console has looked at, and only for the time before.

The console is the source from its first look on. So CloudWatch is asked once for an application, and again only after
`AGAIN_S`, for the shards that are furthest behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.console.looks.figures import PERIOD_S, FigureQuery, hour_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway.inspect import Inspector, LagReport


METRIC, OPERATION = "MillisBehindLatest", "ProcessTask"
SHARDS_MAX = 16
FIGURES = SHARDS_MAX + 1
"""The figures that are asked for at most: of the fleet, and of the shards that are furthest behind."""
AGAIN_S = 3600.0


async def lag_history(
    inspector: Inspector, application: str, report: LagReport | None
) -> Sequence[tuple[float, float]]:
    """Return the seconds by which the application's reading was behind, by epoch seconds: the worst of its shards in
    each minute for which CloudWatch has a figure. Raises ShardwayError.
    """
    shards = sorted(report.shards, key=lambda one: -(one.behind_s or 0.0)) if report is not None else []
    of: list[dict[str, str]] = [{"Operation": OPERATION}]
    of += [{"Operation": OPERATION, "ShardId": one.shard_id} for one in shards[:SHARDS_MAX]]
    hour = await hour_of(inspector, [FigureQuery(application, METRIC, one, "Maximum") for one in of])
    worst: dict[int, float] = {}
    for found in hour.found:
        for minute, value in found.items():
            worst[minute] = max(worst.get(minute, 0.0), value / 1000)
    return [(hour.begin_s + PERIOD_S * minute, worst[minute]) for minute in sorted(worst)]
