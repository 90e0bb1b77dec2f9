"""Draw figures over time as SVG on the server: the lag of shards as lines with names at their ends, and sparklines.

The server does not know how wide a window is, and the content security policy allows no style in a page. So a chart is
drawn twice, for a wide window and for a phone, and the style sheet shows one of the two: the letters of both have a
size that can be read, and "now" stands inside of the box at every width.

Lines differ by colour and by their dashes, so that they can be told apart without colours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from penstock.inspect.moments import span_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Points = Sequence[tuple[float, Mapping[str, float]]]

SERIES_MAX = 8
"""The lines of a chart, each of another colour and dash."""
POINTS_MAX = 360
"""The points of a line: a chart has no more columns of pixels to show them."""
NAME_CHARACTERS_MAX = 12


class _Size(NamedTuple):
    kind: str
    width: float
    height: float
    left: float
    right: float
    bottom: float = 24.0
    top: float = 10.0


_WIDE = _Size("wide", 1000.0, 220.0, 84.0, 212.0)
_NARROW = _Size("narrow", 360.0, 210.0, 80.0, 40.0)
_LINE_HEIGHT = 15.0
"""The distance of two names at the ends of lines: closer ones would cover each other."""


def short_name(name: str) -> str:
    """Return the name of a shard without what all shards' names have in common."""
    if not name.startswith("shardId-"):
        return name if len(name) <= NAME_CHARACTERS_MAX else name[: NAME_CHARACTERS_MAX - 1] + "…"
    return name.removeprefix("shardId-").lstrip("0") or "0"


def lag_chart(points: Points, now_s: float) -> Markup:
    """Draw the lag in seconds over time: the worst few shards by name. ``points``: pairs of a time and the lags by
    shard.
    """
    if len(points) < 2:
        return Markup('<p class="quiet">One look is no trend: the chart begins with the second one.</p>')
    points = _thinned(points)
    begin_s = points[0][0]
    span_s = max(now_s - begin_s, 1.0)
    top = max(max(values.values(), default=0.0) for _, values in points) or 1.0
    last = points[-1][1]
    chosen = sorted(last, key=lambda one: (-last[one], one))[:SERIES_MAX]
    worst = max(last.values(), default=0.0)
    label = f"Lag over the last {span_text(span_s)}: at most {span_text(top)}, now {span_text(worst)}"
    drawn = [_chart(size, points, chosen, (begin_s, span_s, top), label) for size in (_WIDE, _NARROW)]
    return Markup("").join([*drawn, _legend(chosen, last)])


def _thinned(points: Points) -> Points:
    """Return at most `POINTS_MAX` of the points, the newest among them."""
    step = -(-len(points) // POINTS_MAX)
    return points if step == 1 else [*points[:-1:step], points[-1]]


def _chart(size: _Size, points: Points, chosen: Sequence[str], scale: tuple[float, float, float], label: str) -> Markup:
    begin_s, span_s, top = scale
    end_x, inner = size.width - size.right, size.height - size.top - size.bottom

    def x_of(time_s: float) -> float:
        return size.left + (time_s - begin_s) / span_s * (end_x - size.left)

    def y_of(value: float) -> float:
        return size.top + (1 - value / top) * inner

    lines = [
        Markup('<polyline class="line line-{n}" points="{points}"><title>{name}</title></polyline>').format(
            n=number,
            points=" ".join(f"{x_of(when):.1f},{y_of(values[name]):.1f}" for when, values in points if name in values),
            name=name,
        )
        for number, name in enumerate(chosen)
    ]
    grid = [
        Markup(
            '<path class="grid" d="M{a:g} {y:.1f}H{b:g}"/><text class="tick" x="{x:g}" y="{t:.1f}">{text}</text>'
        ).format(a=size.left, b=end_x, y=y_of(top * share), x=size.left - 6, t=y_of(top * share) + 4,
                 text=span_text(top * share))
        for share in (0.0, 0.5, 1.0)
    ]  # fmt: skip
    grid.append(
        Markup(
            '<text class="tick start" x="{x:g}" y="{y:g}">{text} ago</text><text class="tick" x="{b:g}" y="{y:g}">now'
            "</text>"
        ).format(x=size.left, b=end_x, y=size.height - 6, text=span_text(span_s))
    )
    last, is_wide = points[-1][1], size is _WIDE
    ends = _apart([y_of(last[name]) for name in chosen], size.top + 4, size.height - size.bottom)
    names = [
        Markup(
            '<path class="leader" d="M{a:.1f} {y:.1f}L{b:.1f} {e:.1f}"/>{swatch}'
            '<text class="end end-{n}" x="{x:.1f}" y="{t:.1f}">{text}</text>'
        ).format(
            a=end_x + 2, y=y_of(last[name]), b=end_x + 9, e=end, n=number, t=end + 4, x=end_x + (42 if is_wide else 13),
            swatch=Markup('<path class="line line-{n}" d="M{x:.1f} {y:.1f}h26"/>').format(
                n=number, x=end_x + 12, y=end) if is_wide else "",
            text=f"{short_name(name)} · {span_text(last[name])}" if is_wide else short_name(name)[:4],
        )
        for number, (name, end) in enumerate(zip(chosen, ends, strict=True))
    ]  # fmt: skip
    return Markup(
        '<svg class="chart {kind}" role="img" viewBox="0 0 {w:g} {h:g}" aria-label="{label}">{body}</svg>'
    ).format(kind=size.kind, w=size.width, h=size.height, label=label, body=Markup("").join([*grid, *lines, *names]))


def _apart(wanted: Sequence[float], first: float, last: float) -> list[float]:
    """Return heights as near as may be to the wanted ones (which grow), each a line of text below the one before, and
    all within the bounds if there is room.
    """
    found: list[float] = []
    for one in wanted:
        found.append(max(one, found[-1] + _LINE_HEIGHT if found else first))
    over = max(0.0, found[-1] - last) if found else 0.0
    for at in range(len(found) - 1, -1, -1):
        bound = found[at + 1] - _LINE_HEIGHT if at + 1 < len(found) else found[at] - over
        found[at] = min(found[at], bound)
    return found


def _legend(names: Sequence[str], last: Mapping[str, float]) -> Markup:
    items = [
        Markup('<li><svg class="swatch" viewBox="0 0 34 10" aria-hidden="true"><path class="line line-{n}" '
               'd="M0 5H34"/></svg>{name}: {value}</li>').format(n=n, name=name, value=span_text(last[name]))
        for n, name in enumerate(names)
    ]  # fmt: skip
    return Markup('<ul class="legend">{items}</ul>').format(items=Markup("").join(items))


SPARK_W, SPARK_H = 120.0, 26.0


def spark(values: Sequence[float | None], label: str, kind: str = "") -> Markup:
    """Draw a line of numbers as small as a word, from zero to its peak. None: there is no number at that time, and the
    line has a gap.
    """
    known = [one for one in values if one is not None]
    if len(known) < 2:
        return Markup('<span class="quiet">-</span>')
    top, step = max(known) or 1.0, (SPARK_W - 6) / max(1, len(values) - 1)
    runs: list[list[tuple[float, float]]] = [[]]
    for at, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((2 + at * step, 3 + (1 - value / top) * (SPARK_H - 6)))
    base = SPARK_H - 2
    parts = []
    for run in (one for one in runs if one):
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in run)
        parts.append(
            Markup('<polygon class="area" points="{a:.1f},{z:g} {line} {b:.1f},{z:g}"/><polyline points="{line}"/>')
            .format(a=run[0][0], b=run[-1][0], z=base, line=line)
        )  # fmt: skip
    x, y = next(run for run in reversed(runs) if run)[-1]
    return Markup(
        '<svg class="spark {kind}" role="img" viewBox="0 0 {w:g} {h:g}" aria-label="{label}"><title>{label}</title>'
        '{body}<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2"/></svg>'
    ).format(kind=kind, w=SPARK_W, h=SPARK_H, label=label, body=Markup("").join(parts), x=x, y=y)
