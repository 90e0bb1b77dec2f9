"""Read jobs on the page of numbers that they serve for Prometheus."""

from __future__ import annotations

import math
import re
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from shardway.inspect.jobs.views import JobExpectation, JobStream, JobView
from shardway.inspect.moments import utc
from shardway.payloads.redirects import NoRedirect
from shardway.telemetry.metric_table import AGE, TABLE
from shardway.telemetry.metrics import APPLICATION, EXPECTATION, STREAM, Kind, Reporter, prometheus_label

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


METRICS_BYTES_MAX = 8 * 1024 * 1024
ANSWER_S = 10.0
"""Seconds that a look waits for the answer of an endpoint."""
QUERIES_MAX = 100
"""The queries of one endpoint that are looked at."""
_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)\{(.*)\} (\S+)(?: \d+)?", re.ASCII)
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"', re.ASCII)
_FIELDS = {
    one.prometheus_name: one.field for one in TABLE if one.of is Reporter.QUERY and one.kind is not Kind.HISTOGRAM
}
_BATCH_S = next(one.prometheus_name for one in TABLE if one.of is Reporter.QUERY and one.kind is Kind.HISTOGRAM)
_MARK = next(one.prometheus_name for one in TABLE if one.of is Reporter.QUERY and one.field == "batches")
"""The number that only queries have: an application without it is a consumer in the same process."""
_NAMES = {**_FIELDS, f"{_BATCH_S}_sum": "sum", f"{_BATCH_S}_count": "count", AGE.prometheus_name: "age"}
_OF_QUERY, _OF_STREAM = prometheus_label(APPLICATION), prometheus_label(STREAM)
_OF_EXPECTATION = prometheus_label(EXPECTATION)
_OF_EXPECTATIONS = {"expectations_met": "met", "expectations_not_met": "not_met"}
EXPECTATIONS_MAX = 100
"""The expectations of one query that are shown."""


def jobs_of_metrics(text: str, place: str, now_s: float) -> Iterator[JobView]:
    """Yield the queries that a page for Prometheus has numbers of."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    queries: set[str] = set()
    judged: dict[str, dict[str, dict[str, int]]] = {}
    for line in text.splitlines():
        if line.startswith("#") or line.partition("{")[0] not in _NAMES:
            continue
        if (match := _SAMPLE.fullmatch(line)) is None:
            continue
        labels = {name: _unescape(value) for name, value in _LABEL.findall(match[2])}
        query, stream = labels.get(_OF_QUERY), labels.get(_OF_STREAM, "")
        if query is None or (query not in found and len(found) >= QUERIES_MAX):
            continue
        if match[1] == _MARK:
            queries.add(query)
        numbers = found.setdefault(query, {}).setdefault(stream, {})
        name, value = _NAMES[match[1]], float(match[3])
        if name not in _OF_EXPECTATIONS:
            numbers[name] = value
        elif (count := _whole_number(value)) is not None and (expectation := labels.get(_OF_EXPECTATION)) is not None:
            counts = judged.setdefault(query, {})
            if expectation in counts or len(counts) < EXPECTATIONS_MAX:
                counts.setdefault(expectation, {})[_OF_EXPECTATIONS[name]] = count
    for query in sorted(queries):
        expectations = {name: JobExpectation(**counts) for name, counts in sorted(judged.get(query, {}).items())}
        yield _job_of_numbers(query, place, found[query], expectations, now_s)


def _job_of_numbers(
    query: str,
    place: str,
    by_stream: Mapping[str, Mapping[str, float]],
    expectations: dict[str, JobExpectation],
    now_s: float,
) -> JobView:
    of_query = [numbers for numbers in by_stream.values() if "batches" in numbers]

    def total(name: str) -> int | None:
        known = [number for one in of_query if name in one and (number := _whole_number(one[name])) is not None]
        return sum(known) if known else None

    age_s = max((one["age"] for one in by_stream.values() if "age" in one), default=None)
    count, spent_s = sum(one.get("count", 0) for one in of_query), sum(one.get("sum", 0) for one in of_query)
    streams = [
        JobStream(
            stream=stream,
            lag_s=numbers.get("lag_s"),
            **{
                name: _whole_number(numbers[name])
                for name in ("shards", "shards_unread", "shards_silent", "shards_left_out", "possible_losses")
                if name in numbers
            },
        )
        for stream, numbers in sorted(by_stream.items())
        if "batches" in numbers
    ]
    return JobView(
        name=query,
        place=place,
        source="metrics",
        streams=streams,
        batches=total("batches"),
        records=total("records_read"),
        dead_letters=total("records_dead_lettered"),
        duplicates=total("records_duplicate"),
        late=total("records_late"),
        dropped=total("records_dropped"),
        expectations=expectations,
        batch_s=spent_s / count if count else None,
        told_at=None if age_s is None or not math.isfinite(age_s) else utc(now_s - age_s),
    )


def _whole_number(value: float) -> int | None:
    return round(value) if math.isfinite(value) else None


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"n": "\n"}.get(match[1], match[1]), text)


def fetch_page(url: str) -> str:
    """Return the text of a page of numbers. Raises ValueError for one that cannot be read."""
    parts, size, end_s = list[bytes](), 0, time.monotonic() + ANSWER_S
    path = url.partition("://")[2].partition("/")[2]
    address = url if path else f"{url.rstrip('/')}/metrics"
    opener = urllib.request.build_opener(NoRedirect, urllib.request.ProxyHandler({}))
    try:
        with opener.open(address, timeout=ANSWER_S) as answer:
            while part := answer.read1(65_536):
                parts.append(part)
                size += len(part)
                if size > METRICS_BYTES_MAX or time.monotonic() > end_s:
                    raise ValueError(f"the answer has more than {METRICS_BYTES_MAX} bytes, or takes too long")
    except urllib.error.HTTPError as fault:
        raise ValueError(f"it answers with status {fault.code}") from None
    except urllib.error.URLError as fault:
        raise ValueError(f"it does not answer: {fault.reason}") from None
    return b"".join(parts).decode("utf-8", "replace")
