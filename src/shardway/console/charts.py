"""Draw figures over time as SVG on the server: the lag of shards as lines with names at their ends, and sparklines.

The server does not know how wide a window is, and the content security policy allows no style in a page. So a chart is
drawn twice, for a wide window and for a phone, and the style sheet shows one of the two: the letters of both have a
size that can be read, and "now" stands inside of the box at every width.

Lines differ by colour and by their dashes, so that they can be told apart without colours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from shardway.inspect.moments import span_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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


_WIDE = _Size("large", 1000.0, 220.0, 84.0, 212.0)
_NARROW = _Size("small", 360.0, 210.0, 80.0, 40.0)
_NOTE = Markup(
    '<p class="quiet">Left of the upright line: how far the reading was behind, as the workers told CloudWatch. A '
    "handler that hangs does not show in it. From the line on: how old the oldest record is that is not settled.</p>"
)
_LINE_HEIGHT = 15.0
"""The distance of two names at the ends of lines: closer ones would cover each other."""


def short_name(name: str) -> str:
    """Return the name of a shard without what all shards' names have in common."""
    if not name.startswith("shardId-"):
        return name if len(name) <= NAME_CHARACTERS_MAX else name[: NAME_CHARACTERS_MAX - 1] + "…"
    return name.removeprefix("shardId-").lstrip("0") or "0"


def lag_chart(points: Points, now_s: float, told: Sequence[tuple[float, float]] = ()) -> Markup:
    """Draw the lag in seconds over time: the worst few shards by name. ``points``: pairs of a time and the lags by
    shard. ``told``: pairs of a time and a lag, before the first point, as the workers told it of themselves.
    """
    if len(points) < 2 and not told:
        return Markup('<p class="quiet">One look is no trend: the chart begins with the second one.</p>')
    points = _thin(points)
    begin_s = told[0][0] if told else points[0][0]
    span_s = max(now_s - begin_s, 1.0)
    top = max([*(max(values.values(), default=0.0) for _, values in points), *(one for _, one in told)]) or 1.0
    last = points[-1][1]
    chosen = sorted(last, key=lambda one: (-last[one], one))[:SERIES_MAX]
    worst = max(last.values(), default=0.0)
    label = f"Lag over the last {span_text(span_s)}: at most {span_text(top)}, now {span_text(worst)}"
    svg = Markup('<svg class="chart {}" role="img" viewBox="0 0 {:g} {:g}" aria-label="{}">{}</svg>')
    drawn = [
        svg.format(size.kind, size.width, size.height, label, _chart(plane, points, told, chosen))
        for size in (_WIDE, _NARROW)
        for plane in [_Plane(size, begin_s, span_s, top)]
    ]
    return Markup("").join([*drawn, _legend(chosen, last), _NOTE if told else ""])


def _thin(points: Points) -> Points:
    """Return at most `POINTS_MAX` of the points, the newest among them."""
    step = -(-len(points) // POINTS_MAX)
    return points if step == 1 else [*points[:-1:step], points[-1]]


class _Plane(NamedTuple):
    """Where times and lags are in a drawing."""

    size: _Size
    begin_s: float
    span_s: float
    top: float
    """The largest lag, which stands at the top."""

    @property
    def end_x(self) -> float:
        """Where "now" is."""
        return self.size.width - self.size.right

    @property
    def bottom_y(self) -> float:
        """Where a lag of 0 is."""
        return self.size.height - self.size.bottom

    def x(self, time_s: float) -> float:
        """Return where a time is."""
        return self.size.left + (time_s - self.begin_s) / self.span_s * (self.end_x - self.size.left)

    def y(self, lag_s: float) -> float:
        """Return where a lag is."""
        return self.size.top + (1 - lag_s / self.top) * (self.bottom_y - self.size.top)

    def line(self, points: Iterable[tuple[float, float]]) -> str:
        """Return the points of a line."""
        return " ".join(f"{self.x(when):.1f},{self.y(value):.1f}" for when, value in points)


def _chart(plane: _Plane, points: Points, told: Sequence[tuple[float, float]], chosen: Sequence[str]) -> Markup:
    parts = [_grid(plane)]
    if told:
        first_x, top_y = plane.x(points[0][0]), plane.size.top
        parts.append(Markup('<polyline class="line told" points="{}"/>').format(plane.line(told)))
        parts.append(Markup('<path class="grid first" d="M{:.1f} {:g}V{:g}"/>').format(first_x, top_y, plane.bottom_y))
    for number, name in enumerate(chosen):
        line = plane.line((when, values[name]) for when, values in points if name in values)
        parts.append(
            Markup('<polyline class="line line-{}" points="{}"><title>{}</title></polyline>').format(number, line, name)
        )
    return Markup("").join([*parts, _ends(plane, points[-1][1], chosen)])


def _grid(plane: _Plane) -> Markup:
    size, end_x = plane.size, plane.end_x
    lines = [
        Markup('<path class="grid" d="M{:g} {:.1f}H{:g}"/><text class="tick" x="{:g}" y="{:.1f}">{}</text>').format(
            size.left, plane.y(lag_s), end_x, size.left - 6, plane.y(lag_s) + 4, span_text(lag_s)
        )
        for lag_s in (0.0, plane.top / 2, plane.top)
    ]
    times = Markup(
        '<text class="tick start" x="{:g}" y="{:g}">{} ago</text><text class="tick" x="{:g}" y="{:g}">now</text>'
    )
    y = size.height - 6
    return Markup("").join([*lines, times.format(size.left, y, span_text(plane.span_s), end_x, y)])


def _ends(plane: _Plane, last: Mapping[str, float], chosen: Sequence[str]) -> Markup:
    """Return the names of the lines at their ends. On a phone the list below the chart has the values."""
    size, end_x, is_wide = plane.size, plane.end_x, plane.size is _WIDE
    heights = _spread_heights([plane.y(last[name]) for name in chosen], size.top + 4, plane.bottom_y)
    parts = []
    for number, (name, y) in enumerate(zip(chosen, heights, strict=True)):
        leader = Markup('<path class="leader" d="M{:.1f} {:.1f}L{:.1f} {:.1f}"/>')
        parts.append(leader.format(end_x + 2, plane.y(last[name]), end_x + 9, y))
        if is_wide:
            parts.append(Markup('<path class="line line-{}" d="M{:.1f} {:.1f}h26"/>').format(number, end_x + 12, y))
        text = f"{short_name(name)} · {span_text(last[name])}" if is_wide else short_name(name)[:4]
        label = Markup('<text class="end end-{}" x="{:.1f}" y="{:.1f}">{}</text>')
        parts.append(label.format(number, end_x + (42 if is_wide else 13), y + 4, text))
    return Markup("").join(parts)


def _spread_heights(wanted: Sequence[float], first: float, last: float) -> list[float]:
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
