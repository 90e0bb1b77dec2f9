"""``shardway load`` puts a stream under load, and shows figures every second."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Annotated

import typer

from shardway.cli.accounts import Report
from shardway.cli.delivery import BATCH_BYTES_MAX, BATCH_RECORDS_MAX, Batcher
from shardway.cli.output import OutputWhole, ResultShape, of_bytes, of_seconds, say, warn
from shardway.cli.producing import (
    Aggregation,
    EndpointUrl,
    Flush,
    OrderedByKey,
    Profile,
    RecordTtl,
    Region,
    Run,
    Stream,
    finish,
)
from shardway.cli.workload import Size, Workload
from shardway.errors import OptionError
from shardway.options.producer import ProducerOptions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from shardway.cli.accounts import Batch
    from shardway.events.producer_snapshot import ProducerSnapshot


MIB = 1024 * 1024
BUFFER_BYTES_MAX = 16 * MIB
DURATION_S = 60.0
"""How many seconds a run lasts without a time or a number of records: nothing runs for ever."""
CATCH_UP_S = 1.0
"""Seconds that a producer may be behind its rate; records that were due earlier are left out, and counted."""
TICK_S = 0.005
"""The least seconds between two batches of records that are made."""


class Schedule:
    """How many records are due, as time passes: at a rate, or as many as are taken, until a time or a number."""

    def __init__(self, *, rate_per_s: float | None, records: int | None, duration_s: float | None) -> None:
        """Raises OptionError."""
        given = {"--rate": rate_per_s, "--records": records, "--duration": duration_s}
        faults = [f"{name} must be more than 0" for name, value in given.items() if value is not None and value <= 0]
        if faults:
            raise OptionError(faults)
        self._rate = rate_per_s
        self._records = records
        self._duration_s = DURATION_S if records is None and duration_s is None else duration_s
        self._taken_count = 0
        self.left_out = 0
        """Records that were due and not made: the producer did not keep up."""

    def over(self, passed_s: float) -> bool:
        """Return True when there is nothing more to do, ``passed_s`` seconds after the start."""
        return (self._records is not None and self._taken_count >= self._records) or (
            self._duration_s is not None and passed_s >= self._duration_s
        )

    def take(self, passed_s: float, most: int) -> int:
        """Return how many records to make now, at most ``most``; 0 when none is due yet."""
        if self._rate is not None:
            due = int(passed_s * self._rate) + 1 - self._taken_count - self.left_out
            behind = due - max(most, int(self._rate * CATCH_UP_S))
            if behind > 0:
                self.left_out += behind
                due -= behind
            most = min(most, due)
        if self._records is not None:
            most = min(most, self._records - self._taken_count)
        most = max(0, most)
        self._taken_count += most
        return most

    def wait_s(self, passed_s: float) -> float:
        """Return the seconds until the next record is due, or everything is over."""
        if self._rate is None:
            return 0.0
        wait = max(TICK_S, (self._taken_count + self.left_out) / self._rate - passed_s)
        return wait if self._duration_s is None else min(wait, max(0.0, self._duration_s - passed_s))


Rate = Annotated[
    float | None, typer.Option(help="Records per second. Without it, as many as the stream takes.", metavar="N")
]
Duration = Annotated[
    float | None, typer.Option(help="Seconds to run; 60 if no other option ends the run.", metavar="S")
]
Records = Annotated[int | None, typer.Option(help="End after this many records.", metavar="N")]
DataSize = Annotated[
    str,
    typer.Option(
        help="Bytes of a record's data: 512, evenly 100-2000, or lognormal:512 with that mean.", metavar="SIZE"
    ),
]
Keys = Annotated[int, typer.Option(help="How many partition keys there are.", metavar="N")]
Skew = Annotated[
    float,
    typer.Option(help="Zipf exponent of the keys: with 0 all are used alike, with 1 the first one most.", metavar="S"),
]
Seed = Annotated[
    int | None, typer.Option(help="Number that chooses sizes and keys: the same one gives the same again.", metavar="N")
]


def command(
    stream: Stream,
    rate: Rate = None,
    duration: Duration = None,
    records: Records = None,
    size: DataSize = "512",
    keys: Keys = 10_000,
    skew: Skew = 0.0,
    seed: Seed = None,
    aggregation: Aggregation = False,
    ordered_by_key: OrderedByKey = False,
    record_ttl: RecordTtl = 120.0,
    flush: Flush = 10.0,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: OutputWhole = ResultShape.text,
) -> None:
    """Put generated records into STREAM. Their data is JSON with run, index and time, so that a reader can check."""
    run_id = f"{random.SystemRandom().getrandbits(32):08x}"
    schedule = Schedule(rate_per_s=rate, records=records, duration_s=duration)
    sizes = Size.parse(size)
    work = Workload(size=sizes, keys=keys, skew=skew, run=run_id, rng=random.Random(seed))
    options = ProducerOptions(
        aggregation=aggregation,
        ordered_by_key=ordered_by_key,
        record_ttl_s=record_ttl,
        buffer_bytes_max=BUFFER_BYTES_MAX,
    )
    run = Run(
        stream,
        options=options,
        region=region,
        endpoint_url=endpoint_url,
        profile=profile,
        stop_on_loss=False,
        on_metrics=LiveLines(),
    )
    at_once = max(1, min(BATCH_RECORDS_MAX, BATCH_BYTES_MAX // (sizes.mean or sizes.high)))
    metrics = asyncio.run(run.deliver(generate(work, schedule, at_once), flush_s=flush))
    report = Report(
        stream=stream,
        account=run.account,
        metrics=metrics,
        what="indexes",
        interrupted=run.stopping.signal,
        further={"run": run_id, "left_out": schedule.left_out},
    )
    if schedule.left_out:
        warn(f"the producer did not keep up with the rate: {schedule.left_out:,} records were due and not made")
    finish(report, as_json=output is ResultShape.json)


async def generate(work: Workload, schedule: Schedule, at_once: int) -> AsyncGenerator[Batch, None]:
    """Yield batches as they are due, each of at most ``at_once`` records that are made now."""
    batcher = Batcher()
    began_s = time.monotonic()
    while not schedule.over(passed_s := time.monotonic() - began_s):
        count = schedule.take(passed_s, at_once)
        for number, record in enumerate(work.take(count, time.time()), work.made - count):
            for batch in batcher.add(number, record):
                yield batch
        for batch in batcher.take():
            yield batch
        # The producer shares this loop, so it gets a turn between full batches, too.
        await asyncio.sleep(0 if count == at_once else schedule.wait_s(passed_s))


class LiveLines:
    """Writes a line on standard error for each interval of the producer's metrics."""

    def __init__(self) -> None:
        self._passed_s = 0.0

    def __call__(self, snapshot: ProducerSnapshot) -> None:
        """Write the line of one interval."""
        self._passed_s += snapshot.period_s
        say(live_line(self._passed_s, snapshot))


def live_line(passed_s: float, snapshot: ProducerSnapshot) -> str:
    """Return a line on what was done in an interval."""
    p50, p99 = (of_seconds(snapshot.latency_s.quantile(q)) for q in (0.5, 0.99))
    lost = snapshot.user_records_failed + snapshot.user_records_expired
    return (
        f"{passed_s:5.0f} s  {snapshot.records_per_s:10,.0f} records/s  {of_bytes(snapshot.bytes_per_s):>10}/s  "
        f"p50 {p50:>8}  p99 {p99:>8}  {snapshot.records_refused:,} refused  "
        f"{snapshot.user_records_pending:,} under way" + (f"  {lost:,} not written" if lost else "")
    )
