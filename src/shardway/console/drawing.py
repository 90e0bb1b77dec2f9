"""Draw shards as SVG on the server: their lineage, and shares as bars. `charts` draws figures over time.

Colours are classes of the style sheet, so that they follow light and dark; no attribute holds a style, since the
content security policy allows none. A table or a sentence beside each chart says what it shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from shardway.core.hashkeys import HASH_KEY_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardway.inspect import ShardHeat, ShardView

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


def bar(share: float) -> Markup:
    """Draw a share from 0 to 1 as a bar beside its text."""
    width = max(0.0, min(1.0, share)) * 60
    text = escape(f"{share:.0%}")
    return Markup(
        '<span class="share"><svg class="bar" viewBox="0 0 60 8" aria-hidden="true"><rect class="ground" width="60" '
        'height="8" rx="2"/><rect class="heat-{level}" width="{w:.1f}" height="8" rx="2"/></svg>{text}</span>'
    ).format(level=heat_level(share), w=width, text=text)
