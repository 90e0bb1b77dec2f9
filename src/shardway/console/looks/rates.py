"""How many records and bytes a second streams took in the last hour, minute by minute, as CloudWatch counted them.

CloudWatch wants money for each figure that is asked for, and open pages ask again and again. So a stream's figures are
asked for once in `AGAIN_S`, however many pages are open and however often they are loaded, and for `STREAMS_MAX`
streams at most. `figures_an_hour` says what that comes to, and the page of the cost says it too. One call brings the
figures of up to `STREAMS_OF_CALL` streams, so the calls stay far below the 50 a second that CloudWatch allows.

A refusal is remembered as long as an answer is: credentials without the permission are not tried again by each page.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from shardway.console.looks.figures import FIGURES_MAX, HOUR_S, MINUTES, PERIOD_S, FigureQuery, hour_of
from shardway.errors import ShardwayError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shardway.console.looks.figures import HourAnswers
    from shardway.inspect import Inspector


LATE_S = 300.0
"""Seconds after which CloudWatch has each minute's figures. A minute without a figure is not known before that, and
had no record afterwards: Kinesis sends none for a silent minute.
"""
AGAIN_S = 300.0
"""Seconds between two looks at a stream's figures."""
STREAMS_MAX = 50
"""The streams whose figures a page asks for; further ones are shown without."""
METRICS = ("IncomingRecords", "IncomingBytes")
STREAMS_OF_CALL = FIGURES_MAX // len(METRICS)
KEPT_MAX = 1_000


class HourlyTraffic(NamedTuple):
    """What a stream took in the last hour."""

    records_per_s: Sequence[float | None]
    """Kinesis records a second, a number for each minute, the oldest first; None: not known."""
    bytes_per_s: Sequence[float | None]

    @property
    def records_now(self) -> float | None:
        """The newest known number of records a second."""
        return _newest(self.records_per_s)

    @property
    def bytes_now(self) -> float | None:
        """The newest known number of bytes a second."""
        return _newest(self.bytes_per_s)

    @property
    def is_known(self) -> bool:
        """True where CloudWatch has any figure of the hour."""
        return self.records_now is not None or self.bytes_now is not None


class Rates(NamedTuple):
    """The rates of some streams."""

    hours: Mapping[str, HourlyTraffic]
    fault: ShardwayError | None
    """Why the newest look failed; None: it did not."""

    def total(self, metric: str) -> list[float | None]:
        """Return the sums of all streams, minute by minute: of ``records`` or ``bytes``."""
        chosen = [one.records_per_s if metric == "records" else one.bytes_per_s for one in self.hours.values()]
        known = [one for one in chosen if any(value is not None for value in one)]
        sums = ([value for value in minute if value is not None] for minute in zip(*known, strict=True))
        return [sum(one) if len(one) == len(known) else None for one in sums]

    def newest(self, metric: str) -> float | None:
        """Return the newest sum of all streams: of ``records`` or ``bytes``."""
        return _newest(self.total(metric))


class RateKeeper:
    """Keeps the figures of streams, and asks CloudWatch only for those that are old."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.figures = 0
        """The figures that were asked for so far: this many CloudWatch charges for."""
        self._clock = clock
        self._hours: dict[str, HourlyTraffic] = {}
        self._asked_s: dict[str, float] = {}
        self._fault: ShardwayError | None = None

    async def rates(self, inspector: Inspector, names: Sequence[str]) -> Rates:
        """Return the rates of these streams. What fails is told in the result, and not raised."""
        chosen = list(dict.fromkeys(names))[:STREAMS_MAX]
        now_s = self._clock()
        old = [one for one in chosen if self._asked_s.get(one, -AGAIN_S) + AGAIN_S <= now_s]
        for at in range(0, len(old), STREAMS_OF_CALL):
            part = old[at : at + STREAMS_OF_CALL]
            for name in part:
                self._asked_s.pop(name, None)
                self._asked_s[name] = now_s  # the newest stands last
            self.figures += len(part) * len(METRICS)
            try:
                self._hours.update(await _ask(inspector, part))
                self._fault = None
            except ShardwayError as fault:
                self._fault = fault
        self._forget()
        return Rates({name: self._hours[name] for name in chosen if name in self._hours}, self._fault)

    def _forget(self) -> None:
        while len(self._asked_s) > KEPT_MAX:
            oldest = next(iter(self._asked_s))
            del self._asked_s[oldest]
            self._hours.pop(oldest, None)


def figures_an_hour(streams: int) -> int:
    """Return how many figures an hour the console asks CloudWatch for at most, while a page shows these streams."""
    return round(min(streams, STREAMS_MAX) * len(METRICS) * HOUR_S / AGAIN_S)


async def _ask(inspector: Inspector, names: Sequence[str]) -> dict[str, HourlyTraffic]:
    wanted = [FigureQuery("AWS/Kinesis", metric, {"StreamName": name}) for name in names for metric in METRICS]
    hour = await hour_of(inspector, wanted)
    rates = [_by_second(one, hour) for one in hour.found]
    return {name: HourlyTraffic(*rates[at * len(METRICS) : (at + 1) * len(METRICS)]) for at, name in enumerate(names)}


def _by_second(found: Mapping[int, float], hour: HourAnswers) -> list[float | None]:
    """Return a number a second for each minute of the hour."""
    if not found:
        return [None] * MINUTES
    silent_until = int(hour.now_s - LATE_S - hour.begin_s) // PERIOD_S
    late = [0.0 if at < silent_until else None for at in range(MINUTES)]
    return [found[at] / PERIOD_S if at in found else late[at] for at in range(MINUTES)]


def _newest(values: Sequence[float | None]) -> float | None:
    return next((one for one in reversed(values) if one is not None), None)
