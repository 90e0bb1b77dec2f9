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

import msgspec

from penstock.aws.calls import reading
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.inspect import Inspector

HOUR_S, PERIOD_S = 3600, 60
MINUTES = HOUR_S // PERIOD_S
LATE_S = 300.0
"""Seconds after which CloudWatch has each minute's figures. A minute without a figure is not known before that, and
had no record afterwards: Kinesis sends none for a silent minute.
"""
AGAIN_S = 300.0
"""Seconds between two looks at a stream's figures."""
STREAMS_MAX = 50
"""The streams whose figures a page asks for; further ones are shown without."""
METRICS = ("IncomingRecords", "IncomingBytes")
STREAMS_OF_CALL = 500 // len(METRICS)
"""GetMetricData takes 500 queries a call."""
KEPT_MAX = 1_000
FIGURE_PRICE = 0.01
"""US dollars for a thousand figures of GetMetricData in us-east-1 (CloudWatch's list of prices, 2026-11)."""


class Hour(NamedTuple):
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

    hours: Mapping[str, Hour]
    fault: PenstockError | None
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


class _Result(msgspec.Struct):
    id: str = msgspec.field(name="Id")
    at_s: list[float] = msgspec.field(name="Timestamps", default=[])
    values: list[float] = msgspec.field(name="Values", default=[])


class _MetricData(msgspec.Struct):
    results: list[_Result] = msgspec.field(name="MetricDataResults")


class RateKeeper:
    """Keeps the figures of streams, and asks CloudWatch only for those that are old."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.figures = 0
        """The figures that were asked for so far: this many CloudWatch charges for."""
        self._clock = clock
        self._hours: dict[str, Hour] = {}
        self._asked_s: dict[str, float] = {}
        self._fault: PenstockError | None = None

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
                self._hours.update(await _asked(inspector, part))
                self._fault = None
            except PenstockError as fault:
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


async def _asked(inspector: Inspector, names: Sequence[str]) -> dict[str, Hour]:
    queries = [
        {
            "Id": f"m{place}_{kind}",
            "MetricStat": {
                "Metric": {
                    "Namespace": "AWS/Kinesis",
                    "MetricName": metric,
                    "Dimensions": [{"Name": "StreamName", "Value": name}],
                },
                "Period": PERIOD_S,
                "Stat": "Sum",
            },
        }
        for place, name in enumerate(names)
        for kind, metric in enumerate(METRICS)
    ]
    now_s = inspector.now_s
    end_s = int(now_s) // PERIOD_S * PERIOD_S  # the minute that is under way would look like a fall
    begin_s = end_s - HOUR_S
    body = await inspector.wire.call(
        "cloudwatch",
        "GetMetricData",
        msgspec.json.encode({"StartTime": begin_s, "EndTime": end_s, "MetricDataQueries": queries}),
    )
    with reading("GetMetricData"):
        results = {one.id: one for one in msgspec.json.decode(body, type=_MetricData).results}
    return {
        name: Hour(*(_by_minute(results.get(f"m{place}_{kind}"), begin_s, now_s) for kind in range(len(METRICS))))
        for place, name in enumerate(names)
    }


def _by_minute(result: _Result | None, begin_s: int, now_s: float) -> list[float | None]:
    """Return a number a second for each minute of the hour."""
    if result is None or not result.values:
        return [None] * MINUTES
    found: dict[int, float] = {}
    for at_s, value in zip(result.at_s, result.values, strict=False):
        found[int(at_s - begin_s) // PERIOD_S] = value / PERIOD_S
    silent_until = int(now_s - LATE_S - begin_s) // PERIOD_S
    return [found.get(at, 0.0 if at < silent_until else None) for at in range(MINUTES)]


def _newest(values: Sequence[float | None]) -> float | None:
    return next((one for one in reversed(values) if one is not None), None)
