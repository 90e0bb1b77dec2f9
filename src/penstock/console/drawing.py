"""Draw charts as SVG on the server: the lineage of shards, and the lag over time.

Colours are classes of the style sheet, so that they follow light and dark; no attribute holds a style, since the
content security policy allows none. A table or a sentence beside each chart says what it shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from penstock.core.hashkeys import HASH_KEY_MAX
from penstock.inspect.moments import span_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.inspect import ShardHeat, ShardView

SHARDS_MAX = 600
"""The shards that are drawn; a drawing of more would be a blur."""
WIDTH, ROW, GAP = 1000.0, 34.0, 8.0
HEATS = (0.1, 0.25, 0.5, 0.8)
"""Shares of a shard's limit at which the next colour begins."""


def heat_level(utilization: float) -> int:
    """Return the level of a shard's colour, from 0 to 4."""
    return sum(utilization >= one for one in HEATS)


def lineage(shards: Sequence[ShardView], heat: Mapping[str, ShardHeat]) -> Markup:
    """Draw the hash range from left to right, with a row for each generation: a split becomes two boxes in the next
    row, and a merge one.
    """
    drawn = [one for one in shards if one.open] + [one for one in shards if not one.open]
    drawn = sorted(drawn[:SHARDS_MAX], key=lambda one: (one.generation, int(one.first_hash_key)))
    rows = max((one.generation for one in drawn), default=0) + 1
    height = rows * (ROW + GAP) + 4
    places = {one.shard_id: _place(one) for one in drawn}
    parts = [_link(places[parent], places[one.shard_id]) for one in drawn for parent in one.parents if parent in places]
    parts += [_box(one, places[one.shard_id], heat.get(one.shard_id)) for one in drawn]
    opened = sum(one.open for one in drawn)
    label = f"Lineage: {opened} open and {len(drawn) - opened} closed shards in {rows} generations, by hash range"
    return Markup('<svg class="lineage" role="img" viewBox="0 0 {w:g} {h:g}" aria-label="{label}">{body}</svg>').format(
        w=WIDTH, h=height, label=label, body=Markup("").join(parts)
    )


@dataclass(frozen=True)
class _Place:
    x: float
    y: float
    width: float


def _place(shard: ShardView) -> _Place:
    first, last = int(shard.first_hash_key), int(shard.last_hash_key) + 1
    scale = WIDTH / (HASH_KEY_MAX + 1)
    return _Place(first * scale, shard.generation * (ROW + GAP) + 2, (last - first) * scale)


def _link(above: _Place, below: _Place) -> Markup:
    left, right = max(above.x, below.x), min(above.x + above.width, below.x + below.width)
    top, bottom = above.y + ROW, below.y
    if right <= left or bottom <= top:
        return Markup("")
    return Markup('<path class="flow" d="M{a:.1f} {t:.1f}H{b:.1f}L{b:.1f} {u:.1f}H{a:.1f}Z"/>').format(
        a=left + 1, b=right - 1, t=top, u=bottom
    )


def _box(shard: ShardView, place: _Place, heat: ShardHeat | None) -> Markup:
    number = shard.shard_id.removeprefix("shardId-").lstrip("0") or "0"
    told = f"{shard.shard_id}, {'open' if shard.open else 'closed'}, {shard.hash_share:.2%} of the hash keys"
    kind = "open" if shard.open else "closed"
    if heat is not None:
        kind += f" heat-{heat_level(heat.utilization)}"
        told += f", {heat.utilization:.0%} of its limit"
        number += f" · {heat.utilization:.0%}"
    width = max(place.width - 2, 0.8)
    text = (
        Markup('<text x="{x:.1f}" y="{y:.1f}">{number}</text>').format(
            x=place.x + 1 + width / 2, y=place.y + ROW / 2 + 4, number=number
        )
        if width > 9 * len(number)
        else Markup("")
    )
    return Markup(
        '<g class="shard {kind}"><title>{told}</title>'
        '<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:g}" rx="3"/>{text}</g>'
    ).format(kind=kind, told=told, x=place.x + 1, y=place.y, w=width, h=ROW, text=text)


CHART_W, CHART_H, LEFT, BOTTOM, TOP = 1000.0, 220.0, 76.0, 24.0, 10.0
SERIES_MAX = 8


def lag_chart(points: Sequence[tuple[float, Mapping[str, float]]], now_s: float) -> Markup:
    """Draw the lag in seconds over time: the worst of all shards, and the worst few by name. ``points``: pairs of a
    time and the lags by shard.
    """
    if len(points) < 2:
        return Markup('<p class="quiet">One look is no trend: the chart begins with the second one.</p>')
    begin_s = points[0][0]
    span_s = max(now_s - begin_s, 1.0)
    top = max(max(values.values(), default=0.0) for _, values in points) or 1.0
    last = points[-1][1]
    chosen = sorted(last, key=lambda one: (-last[one], one))[:SERIES_MAX]

    def at(time_s: float, value: float) -> str:
        x = LEFT + (time_s - begin_s) / span_s * (CHART_W - LEFT - 8)
        y = TOP + (1 - value / top) * (CHART_H - TOP - BOTTOM)
        return f"{x:.1f},{y:.1f}"

    lines = [
        Markup('<polyline class="line line-{n}" points="{points}"><title>{name}</title></polyline>').format(
            n=number, points=" ".join(at(when, values[name]) for when, values in points if name in values), name=name
        )
        for number, name in enumerate(chosen)
    ]
    grid = [
        Markup(
            '<path class="grid" d="M{a:g} {y:.1f}H{b:g}"/><text class="tick" x="{x:g}" y="{t:.1f}">{text}</text>'
        ).format(a=LEFT, b=CHART_W - 8, y=y, x=LEFT - 6, t=y + 4, text=span_text(top * share))
        for share in (0.0, 0.5, 1.0)
        for y in [TOP + (1 - share) * (CHART_H - TOP - BOTTOM)]
    ]
    grid.append(
        Markup(
            '<text class="tick start" x="{x:g}" y="{y:g}">{text} ago</text>'
            '<text class="tick" x="{b:g}" y="{y:g}">now</text>'
        ).format(x=LEFT, b=CHART_W - 8, y=CHART_H - 6, text=span_text(span_s))
    )
    worst = max(last.values(), default=0.0)
    label = f"Lag over the last {span_text(span_s)}: at most {span_text(top)}, now {span_text(worst)}"
    return Markup(
        '<svg class="chart" role="img" viewBox="0 0 {w:g} {h:g}" aria-label="{label}">{grid}{lines}</svg>{legend}'
    ).format(
        w=CHART_W, h=CHART_H, label=label, grid=Markup("").join(grid), lines=Markup("").join(lines),
        legend=_legend(chosen, last),
    )  # fmt: skip


def _legend(names: Sequence[str], last: Mapping[str, float]) -> Markup:
    items = [
        Markup('<li><svg class="swatch" viewBox="0 0 18 10" aria-hidden="true"><path class="line line-{n}" '
               'd="M0 5H18"/></svg>{name}: {value}</li>').format(n=n, name=name, value=span_text(last[name]))
        for n, name in enumerate(names)
    ]  # fmt: skip
    return Markup('<ul class="legend">{items}</ul>').format(items=Markup("").join(items))


def bar(share: float) -> Markup:
    """Draw a share from 0 to 1 as a bar beside its text."""
    width = max(0.0, min(1.0, share)) * 60
    text = escape(f"{share:.0%}")
    return Markup(
        '<span class="share"><svg class="bar" viewBox="0 0 60 8" aria-hidden="true"><rect class="ground" width="60" '
        'height="8" rx="2"/><rect class="heat-{level}" width="{w:.1f}" height="8" rx="2"/></svg>{text}</span>'
    ).format(level=heat_level(share), w=width, text=text)
