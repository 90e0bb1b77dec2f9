"""What Spark's driver is told, without Spark: above all what versions without AvailableNow for sources depend on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from shardway.aws.calls.signed_calls import SignedCalls
from shardway.aws.credentials import CredentialCache
from shardway.aws.wire import Wire
from shardway.errors import DataLossError, OptionError
from shardway.spark.driver.driver import Driver
from shardway.spark.driver.pace import Pace
from shardway.spark.options.parsing import parse_read_options
from shardway.spark.ranges import TaskOptions
from shardway.spark.task.partition_reader import read_partition
from tests.spark.querying import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    MakeDriver = Callable[..., Driver]

HOUR_S = 3600


@pytest.fixture
def make_driver(stream: Stream) -> Iterator[MakeDriver]:
    made = []

    def make(*, all_at_first: bool = False, **given: str) -> Driver:
        local = stream.local
        where = {"streamName": "orders", "region": local.region, "endpointUrl": local.endpoint_url}
        options = parse_read_options({**where, "startingPosition": "TRIM_HORIZON", **given}, streaming=True)
        made.append(Driver(options, TaskOptions.of(options, options.connection("task")), all_at_first=all_at_first))
        return made[-1]

    yield make
    for driver in made:
        driver.close()


def looks(stream: Stream) -> int:
    return stream.local.stats().tags["driver"]["GetRecords"].calls


def rows_of(driver: Driver, end: Mapping[str, object]) -> int:
    return sum(batch.num_rows for task in driver.partitions(end) for batch in read_partition(task))


def test_the_first_plan_takes_what_arrived_just_now(stream: Stream, make_driver: MakeDriver) -> None:
    stream.put(100)
    driver = make_driver(all_at_first=True)
    first = driver.latest(None, capped=True)
    assert rows_of(driver, first) == 100
    stream.put(10)
    again = make_driver(all_at_first=True)
    again.stand_at(first)
    assert rows_of(again, again.latest(None, capped=True)) == 10


@pytest.mark.parametrize(("began_ago_s", "rows"), [(5, 100), (0, 110), (70, 110), (-30, 110)])
def test_available_now_reads_up_to_the_start_that_the_caller_names(
    stream: Stream, make_driver: MakeDriver, began_ago_s: int, rows: int
) -> None:
    """A start of more than a minute ago, or one to come, is that of a clock which was set since."""
    stream.put(100)
    stream.settle(20)
    stream.put(10)
    driver = make_driver(availableNowMs=str(int((time.time() - began_ago_s) * 1000)))
    driver.freeze()
    assert rows_of(driver, driver.latest(None, capped=False)) == rows


def test_a_shard_with_a_page_of_records_before_silence_takes_three_looks(
    stream: Stream, make_driver: MakeDriver
) -> None:
    """The first records, whether anything comes behind the cut, and all that is left: no search of the time between."""
    shards = len(stream.open_shards())
    stream.put(300 * shards)
    stream.settle(20)
    driver = make_driver()
    assert rows_of(driver, driver.latest(None, capped=False)) == 300 * shards
    assert looks(stream) <= 3 * shards


@pytest.mark.parametrize("hours", [1, 6, 23])
def test_a_page_of_records_before_hours_of_silence_takes_a_look_for_each_page_of_it(
    stream: Stream, make_driver: MakeDriver, hours: int
) -> None:
    """A page crosses an hour. A search of the time between would take sixteen probes of several pages each."""
    shards = len(stream.open_shards())
    stream.put(100 * shards)
    stream.settle(hours * HOUR_S)
    driver = make_driver()
    assert rows_of(driver, driver.latest(None, capped=False)) == 100 * shards
    assert looks(stream) <= (4 + hours) * shards


def test_records_an_hour_apart_are_read_on_to_the_last(stream: Stream, make_driver: MakeDriver) -> None:
    for _ in range(9):
        stream.put(30)
        stream.settle(HOUR_S + 60)
    driver = make_driver()
    ends: list[dict[str, Any]] = []
    for _ in range(9):
        driver._pace = Pace()  # without the wait between two looks
        ends.append(driver.latest(ends[-1] if ends else None, capped=True))
    batches = [end for number, end in enumerate(ends) if number == 0 or end != ends[number - 1]]
    assert sum(rows_of(driver, end) for end in batches) == 9 * 30


def test_without_available_now_for_sources_the_first_plan_ends_at_the_callers_start(
    stream: Stream, make_driver: MakeDriver
) -> None:
    stream.put(100)
    stream.settle(20)
    stream.put(10)
    driver = make_driver(all_at_first=True, availableNowMs=str(int((time.time() - 5) * 1000)))
    first = driver.latest(None, capped=True)
    assert rows_of(driver, first) == 100


def test_a_restart_at_a_batch_that_was_trimmed_since_is_no_loss(stream: Stream, make_driver: MakeDriver) -> None:
    """Only reading it again is."""
    stream.put(10)
    stream.settle(2 * HOUR_S)
    stream.put(10)
    stream.settle()
    end = make_driver().latest(None, capped=True)
    stream.settle(23 * HOUR_S)
    driver = make_driver()
    driver.stand_at(end)
    assert rows_of(driver, driver.latest(end, capped=True)) == 0
    with pytest.raises(DataLossError, match="is trimmed"):
        driver.partitions(end)


@pytest.mark.parametrize("hours", [-26, 1, 26, 24 * 400])
def test_a_clock_that_is_set_while_the_query_runs_is_no_loss(
    stream: Stream, make_driver: MakeDriver, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """Wherever the code reads the machine's time: no call was made since, so nothing can be known to be lost."""
    set_by_s = 0.0
    machine_s = time.time
    monkeypatch.setattr(time, "time", lambda: machine_s() + set_by_s)
    for made in (Wire.__init__, SignedCalls.__init__, CredentialCache.__init__):
        assert made.__kwdefaults__ is not None
        monkeypatch.setitem(made.__kwdefaults__, "now", lambda: machine_s() + set_by_s)
    driver = make_driver(pollIntervalMs="200")
    end: dict[str, Any] | None = None
    for _ in range(2):
        stream.put(10)
        stream.settle()
        before = end
        while (end := driver.latest(before, capped=True)) == before:
            pass
        assert end is not None
        assert rows_of(driver, end) == 10
        stream.settle(HOUR_S)  # the shards are silent, and seen to be
        for set_to_s in (set_by_s, hours * HOUR_S):
            set_by_s = set_to_s
            looked = looks(stream)
            while looks(stream) < looked + 4:
                assert driver.latest(end, capped=True) == end


def test_a_start_in_the_future(make_driver: MakeDriver) -> None:
    driver = make_driver(startingPosition="AT_TIMESTAMP", startingTimestamp="2199-01-01T00:00:00Z")
    with pytest.raises(OptionError, match="is in the future"):
        driver.latest(None, capped=True)


def test_a_start_at_this_moment_is_waited_for(stream: Stream, make_driver: MakeDriver) -> None:
    """The service's clock is known to a second: this moment may be one that the service would refuse."""
    driver = make_driver(startingPosition="AT_TIMESTAMP", startingTimestamp=f"{time.time():.6f}")
    assert driver.latest(None, capped=True) is not None
    assert stream.local.clock.now() >= time.time() - 5


def test_looks_at_half_seconds_find_the_services_second(stream: Stream, make_driver: MakeDriver) -> None:
    """Such looks meet the same two moments of the service's second each time: 0.2 s behind its change at best."""
    driver = make_driver()
    for number in range(12):
        stream.put(20)
        phase_s = 0.2 + 0.5 * (number % 2)
        time.sleep((phase_s - time.time()) % 1.0)  # the local service's seconds are those of this machine
        driver.latest(None, capped=True)
    wire = driver._wire
    assert wire is not None
    assert wire.clock.width_s(wire.now()) < 0.1
