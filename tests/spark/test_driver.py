"""What Spark's driver is told, without Spark: above all what versions without AvailableNow for sources depend on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from querying import Stream

from penstock.errors import DataLossError, OptionError
from penstock.spark.driver import Driver, wire_settings
from penstock.spark.options import parse_read_options
from penstock.spark.ranges import ReadSettings
from penstock.spark.reading import read_partition

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
        made.append(Driver(options, ReadSettings(wire=wire_settings(options, "task")), all_at_first=all_at_first))
        return made[-1]

    yield make
    for driver in made:
        driver.close()


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


def test_a_start_in_the_future(make_driver: MakeDriver) -> None:
    driver = make_driver(startingPosition="AT_TIMESTAMP", startingTimestamp="2199-01-01T00:00:00Z")
    with pytest.raises(OptionError, match="is in the future"):
        driver.latest(None, capped=True)
