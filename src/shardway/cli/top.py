"""``shardway top`` shows how far applications are behind, on a screen that goes on. It only reads.

The screen is written as a whole, in one write, over what was there: nothing is cleared first, so nothing flickers, also
over a slow line. Where standard output is no terminal there is no screen, but a table or a line of JSON for each look.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from shardway.cli.application import OfStream, OkText, StalledText, StoreText, Table
from shardway.cli.completing import complete_applications
from shardway.cli.interrupt import StoppedError, Stopping
from shardway.cli.lag_table import COLOURS, RED, headline, lag_lines, painted
from shardway.cli.looking import LookHistory, Names, looking
from shardway.cli.producing import EndpointUrl, Profile, Region
from shardway.cli.report_output import Output, Rate, Shape, Since, begin_of, show_report
from shardway.cli.tables import Line, cut, is_wide, terminal_columns
from shardway.cli.terminal import ENTER, pressed_keys, whole_screen, write_text
from shardway.errors import OptionError, ShardwayError
from shardway.inspect.moments import span_s
from shardway.shown import one_line
from shardway.waiting import wait_set
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardway.inspect import Inspector, LagReport, LagTimes, Look, Store


HOME, TO_LINE_END, TO_END = "\x1b[H", "\x1b[K", "\x1b[J"
BEGIN_FRAME, END_FRAME = "\x1b[?2026h", "\x1b[?2026l"
"""The signs around a frame. A terminal that knows them shows the frame at once; the others ignore them."""
REVERSED, PLAIN = "\x1b[7m", "\x1b[0m"
KEYS = "q quit   j/k or arrows scroll   space look now"
INTERVAL_MIN_S = 1.0
_UP_KEYS, _DOWN_KEYS = ("k", "\x1b[A", "\x1bOA"), ("j", "\x1b[B", "\x1bOB")


def command(
    names: Annotated[
        list[str],
        typer.Argument(help="Names of applications.", metavar="APPLICATION", autocompletion=complete_applications),
    ],
    stream: OfStream = None,
    interval: Annotated[str, typer.Option(help="Between two looks.", metavar="SPAN")] = "5s",
    frames: Annotated[
        int | None,
        typer.Option(help="End after so many looks; else at q, and after one without a terminal.", min=1, metavar="N"),
    ] = None,
    ok: OkText = "60s",
    stalled: StalledText = "2m",
    since: Since = None,
    store: StoreText = "dynamodb",
    table: Table = None,
    rate: Rate = 2.0,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: Output = Shape.table,
) -> None:
    """Show how far applications are behind, shard by shard, the worst first, until q.

    Each look takes a GetShardIterator and mostly one GetRecords call of each shard, within --rate. The trend is that of
    the looks so far, or of those --since a time.
    """
    from shardway.inspect import LagTimes, Store

    every_s = span_s(interval)
    if every_s < INTERVAL_MIN_S:
        raise OptionError(f"--interval: {interval} is too often: {INTERVAL_MIN_S:g} s at least")
    connection = ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile)
    begin_of(since, time.time())
    times = LagTimes(ok_s=span_s(ok), stalled_s=span_s(stalled))
    watching = Watch(names, stream, Store.parse(store, table), times, since)
    on_screen = output is Shape.table and sys.stdout.isatty()

    async def look(inspector: Inspector) -> None:
        if on_screen:
            await Screen(watching, every_s, frames).run(inspector)
        else:
            await _print_frames(watching, inspector, every_s, frames or 1, output)

    asyncio.run(looking(connection, look, names=Names(tuple(names), stream, (store, table)), calls_per_s=rate))


class Watch:
    """What is looked at, and what the looks so far have shown."""

    def __init__(
        self, names: Sequence[str], stream: str | None, store: Store, times: LagTimes, since: str | None = None
    ) -> None:
        self.reports: dict[str, LagReport] = {}
        self.fault: str | None = None
        """Why the last look failed, if it did."""
        self._names, self._stream, self._store, self._times, self._since = names, stream, store, times, since
        self._looks: dict[str, Mapping[str, Sequence[Look]]] = {}

    async def look(self, inspector: Inspector) -> None:
        """Look once at each application. The first look at an application raises its error; where a later look fails,
        the application is shown as it was.
        """
        self.fault = None
        counting = LookHistory(None, self._since).counting(self._times)
        for name in self._names:
            try:
                self.reports[name], self._looks[name] = await inspector.lag(
                    name, self._stream, self._store, times=counting, history=self._looks.get(name)
                )
            except ShardwayError as fault:
                if name not in self.reports:
                    raise
                self.fault = f"{name}: {fault}"


async def _print_frames(watching: Watch, inspector: Inspector, every_s: float, frames: int, shape: Shape) -> None:
    from shardway.inspect.lag.verdicts import report_urgency

    stopping = Stopping()
    with stopping.listening(), contextlib.suppress(StoppedError):
        for number in range(frames):
            if number:
                await stopping.unless_asked(asyncio.sleep(every_s))
            await stopping.unless_asked(watching.look(inspector))
            for report in sorted(watching.reports.values(), key=report_urgency):
                if shape is Shape.table:
                    text = "\n".join(painted(one) for one in _lines([report], terminal_columns()))
                    show_report(report, [], text, shape)
                else:
                    show_report(report, [report], "", shape)


class Screen:
    """The terminal, while the command has it."""

    def __init__(self, watching: Watch, every_s: float, frames: int | None) -> None:
        self._watch = watching
        self._every_s = every_s
        self._frames = frames
        self._offset = 0
        self._stopping = Stopping()
        self._refresh = asyncio.Event()

    async def run(self, inspector: Inspector) -> None:
        """Show frames until q, Ctrl-C, SIGTERM, or the last look that was asked for. The terminal is then as it was."""
        loop, looked = asyncio.get_running_loop(), 0
        with self._stopping.listening(), pressed_keys(self._on_key), whole_screen():
            for number in (signal.SIGWINCH, signal.SIGCONT):
                loop.add_signal_handler(number, self._redraw if number == signal.SIGCONT else self._show)
            try:
                self._show("looking ...")
                while self._frames is None or looked < self._frames:
                    await self._stopping.unless_asked(self._watch.look(inspector))
                    looked += 1
                    self._show()
                    self._refresh.clear()
                    await self._stopping.unless_asked(wait_set(self._refresh, self._every_s))
            except StoppedError:
                pass
            finally:
                for number in (signal.SIGWINCH, signal.SIGCONT):
                    loop.remove_signal_handler(number)
        if self._stopping.signal not in (None, signal.SIGINT):
            raise typer.Exit(128 + signal.SIGTERM)

    def _on_key(self, key: str) -> None:
        if key in ("q", "Q", "\x03"):
            self._stopping.ask()
        elif key == " ":
            self._refresh.set()
        elif key in _UP_KEYS + _DOWN_KEYS:
            self._offset = max(0, self._offset + (1 if key in _DOWN_KEYS else -1))
            self._show()

    def _redraw(self) -> None:
        """Write the whole screen again, after another program had the terminal."""
        write_text(ENTER)
        self._show()

    def _show(self, note: str | None = None) -> None:
        size = os.get_terminal_size(sys.stdout.fileno())
        watching = self._watch
        lines = _lines(list(watching.reports.values()), None if is_wide.get() else size.columns)
        room = max(1, size.lines - 1)
        self._offset = min(self._offset, max(0, len(lines) - room))
        foot = note or watching.fault or KEYS
        is_coloured = not os.environ.get("NO_COLOR")
        write_text(frame(lines[self._offset :], foot, size.columns, size.lines, is_coloured=is_coloured))


def frame(lines: Sequence[Line], foot: str, columns: int, height: int, *, is_coloured: bool = False) -> str:
    """Return a screen: the lines that fit, and the foot in reverse. It is written over what was there."""
    room = max(0, height - 1)
    shown = []
    for one in lines[:room]:
        text = cut(one.text, columns)
        shown.append((f"{one.tone}{text}{PLAIN}" if is_coloured and one.tone else text) + TO_LINE_END)
    shown += [TO_LINE_END] * (room - len(shown))
    last = f"{REVERSED}{cut(one_line(foot), columns)}{PLAIN}{TO_LINE_END}"
    return BEGIN_FRAME + HOME + "\r\n".join([*shown, last]) + TO_END + END_FRAME


def _lines(reports: Sequence[LagReport], columns: int | None) -> list[Line]:
    """Return what is shown of several applications, the worst first. Their headlines come before all tables: with many
    shards the second application would not be in sight.
    """
    from shardway.inspect.lag.verdicts import report_urgency

    lines: list[Line] = []
    ordered = sorted(reports, key=report_urgency)
    if len(ordered) > 1:
        lines = [_head(one) for one in ordered] + [Line("")]
    for report in ordered:
        lines += [_head(report), *lag_lines(report, columns, trend=True), Line("")]
        lines += [Line(f"not shown: {one_line(one.what)} ({one_line(one.action)})") for one in report.missing]
    return lines


def _head(report: LagReport) -> Line:
    return Line(f"{headline(report)}   {report.taken_at:%H:%M:%S} UTC", tone=COLOURS.get(report.state.value, RED))
