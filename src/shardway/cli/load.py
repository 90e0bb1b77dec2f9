"""``shardway load`` puts a stream under load, and shows figures every second."""

from __future__ import annotations

import asyncio
import math
import random
import string
import time
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from shardway.cli.output import OutputWhole, ResultShape, of_bytes, of_seconds, say, warn
from shardway.cli.producing import (
    BATCH_BYTES_MAX,
    BATCH_RECORDS_MAX,
    Aggregation,
    Batcher,
    EndpointUrl,
    Flush,
    OrderedByKey,
    Profile,
    RecordTtl,
    Region,
    Report,
    Run,
    Stream,
    finish,
)
from shardway.errors import OptionError
from shardway.model import OutRecord
from shardway.options import ProducerOptions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from shardway.cli.producing import Batch
    from shardway.runtime.producer.metrics import ProducerSnapshot

# --- what is put ----------------------------------------------------------------------------------
# The load generator puts records of chosen sizes and keys, which a reader can check.
#
# Each record's data is one JSON object: ``{"run":"5f0c1a2b","index":17,"time":1767225600.123,"pad":"..."}``. ``run``
# is the same for all records of one run, ``index`` counts them from 0 without a gap, ``time`` is when it was made, in
# epoch seconds, and ``pad`` fills it up with letters that compress badly.

SIZE_MIN = 80
"""The bytes that a record needs for its run, index and time."""
SIZE_MAX = 1024 * 1024 - 256
"""The bytes of the largest record: a stream takes 1 MiB with the key, if it is not set to take more."""
KEYS_MAX = 1_000_000
LOGNORMAL_SIGMA = 1.0
"""The deviation of the logarithm of a size: two thirds of the sizes are within a factor of e of the median."""

_LETTERS = (string.ascii_letters + string.digits).encode()


class Size(NamedTuple):
    """How large the data of a record is, in bytes: ``[low, high]`` evenly, or lognormal with a mean."""

    low: int
    high: int
    mean: int | None = None

    @classmethod
    def parse(cls, text: str) -> Size:
        """Return the size that a text names: ``512``, ``100-2000``, or ``lognormal:512``. Raises OptionError."""
        kind, _, mean = text.rpartition(":")
        low, _, high = text.partition("-")
        if kind == "lognormal" and mean.isdecimal():
            size = cls(SIZE_MIN, SIZE_MAX, int(mean))
            wrong = not SIZE_MIN <= int(mean) <= SIZE_MAX
        elif low.isdecimal() and (high.isdecimal() or "-" not in text):
            size = cls(int(low), int(high or low))
            wrong = not SIZE_MIN <= size.low <= size.high <= SIZE_MAX
        else:
            raise OptionError(f"--size {text}: write bytes, as in 512, 100-2000 or lognormal:512")
        if wrong:
            raise OptionError(f"--size {text}: sizes are from {SIZE_MIN} to {SIZE_MAX} bytes, the smaller one first")
        return size

    def sampler(self, rng: random.Random) -> Callable[[], int]:
        """Return a function that draws one size."""
        low, high = self.low, self.high
        if self.mean is not None:
            mu = math.log(self.mean) - LOGNORMAL_SIGMA**2 / 2  # the mean of a lognormal is exp(mu + sigma² / 2)
            return lambda: min(max(low, round(rng.lognormvariate(mu, LOGNORMAL_SIGMA))), high)
        return (lambda: low) if low == high else (lambda: rng.randint(low, high))


class Workload:
    """Makes the records of one run, one after the other."""

    def __init__(self, *, size: Size, keys: int, skew: float, run: str, rng: random.Random) -> None:
        """``keys`` partition keys; the k-th most frequent one comes with a chance in proportion to k**-skew.

        Raises OptionError.
        """
        faults = []
        if not 1 <= keys <= KEYS_MAX:
            faults.append(f"--keys {keys}: from 1 to {KEYS_MAX}")
        if not 0 <= skew <= 10:
            faults.append(f"--skew {skew}: from 0 (all keys alike) to 10")
        if faults:
            raise OptionError(faults)
        self.made = 0
        """The number of records that were made, which is the index of the next one."""
        self._rng = rng
        self._run = run
        self._size = size.sampler(rng)
        self._keys = [f"key-{number}" for number in range(keys)]
        self._weights = list(accumulate(float(k) ** -skew for k in range(1, keys + 1))) if skew else None
        self._letters = bytes(rng.choices(_LETTERS, k=2 * SIZE_MAX))

    def take(self, count: int, now_s: float) -> list[OutRecord]:
        """Make the next ``count`` records. ``now_s``: the time in them, in epoch seconds."""
        keys = self._rng.choices(self._keys, cum_weights=self._weights, k=count)
        first = self.made
        self.made += count
        return [OutRecord(self._data(first + place, now_s), key) for place, key in enumerate(keys)]

    def _data(self, index: int, now_s: float) -> bytes:
        head = f'{{"run":"{self._run}","index":{index},"time":{now_s:.3f},"pad":"'.encode()
        length = max(0, self._size() - len(head) - 2)
        start = index * 7919 % SIZE_MAX  # another part of the letters for each record
        return head + self._letters[start : start + length] + b'"}'


# --- the command ----------------------------------------------------------------------------------

MIB = 1024 * 1024
BUFFER_BYTES_MAX = 16 * MIB
DURATION_S = 60.0
"""The seconds of a run for which neither a time nor a number of records is given: nothing runs for ever."""
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
        self._taken = 0
        self.left_out = 0
        """Records that were due and not made: the producer did not keep up."""

    def over(self, passed_s: float) -> bool:
        """Return True when there is nothing more to do, ``passed_s`` seconds after the start."""
        return (self._records is not None and self._taken >= self._records) or (
            self._duration_s is not None and passed_s >= self._duration_s
        )

    def take(self, passed_s: float, most: int) -> int:
        """Return how many records to make now, at most ``most``; 0 when none is due yet."""
        if self._rate is not None:
            due = int(passed_s * self._rate) + 1 - self._taken - self.left_out
            behind = due - max(most, int(self._rate * CATCH_UP_S))
            if behind > 0:
                self.left_out += behind
                due -= behind
            most = min(most, due)
        if self._records is not None:
            most = min(most, self._records - self._taken)
        most = max(0, most)
        self._taken += most
        return most

    def wait_s(self, passed_s: float) -> float:
        """Return the seconds until the next record is due, or everything is over."""
        if self._rate is None:
            return 0.0
        wait = max(TICK_S, (self._taken + self.left_out) / self._rate - passed_s)
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
