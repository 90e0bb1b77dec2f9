"""Bills of known traffic, by the prices that come with the package."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shardway.errors import OptionError
from shardway.inspect import Look, Snapshot, Traffic, cost_of, prices_from
from shardway.inspect.applications.views import ApplicationView, LeaseView, TableView
from shardway.inspect.costs.items import commitment, lease_items, on_demand_items, provisioned_items, total
from shardway.inspect.costs.prices import PRICES
from shardway.inspect.costs.reports import modes_of, shards_needed
from shardway.inspect.costs.traffic import Leases
from shardway.inspect.doctor.snapshots import MetricsView, MetricView
from shardway.inspect.values import ConsumerView, StreamReport, StreamView

KIB, MIB = 1024.0, 1024.0 * 1024.0
PRICE = prices_from()
NOW = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)


def traffic(record_bytes: float = KIB, bytes_per_s: float = MIB, **more: Any) -> Traffic:
    records = bytes_per_s / record_bytes if bytes_per_s else 0.0
    return Traffic(records_per_s=records, bytes_per_s=bytes_per_s, measured="given", **more)


def by_name(items: list[Any]) -> dict[str, float]:
    return {one.what: round(one.monthly, 2) for one in items}


def test_a_full_shard_with_records_of_a_kilobyte_and_with_aggregates() -> None:
    assert by_name(provisioned_items(traffic(), PRICE.provisioned)) == {"shards": 10.95, "puts": 37.68}
    assert by_name(provisioned_items(traffic(25 * KIB), PRICE.provisioned)) == {"shards": 10.95, "puts": 1.51}


def test_a_record_larger_than_a_unit_takes_whole_units() -> None:
    (_, puts) = provisioned_items(traffic(26 * KIB, 26 * KIB), PRICE.provisioned)
    assert puts.quantity == pytest.approx(2 * 730 * 3600 / 1e6)


def test_on_demand_with_one_polling_reader() -> None:
    polled = traffic(polled_bytes_per_s=MIB)
    assert by_name(on_demand_items(polled, PRICE.on_demand)) == {
        "stream": 29.2,
        "data in, by whole KB": 205.31,
        "data out": 102.66,
    }
    assert total(on_demand_items(polled, PRICE.advantage)) == pytest.approx(123.2, abs=0.1)
    assert commitment(PRICE.advantage) == pytest.approx(3080, abs=1)


def test_on_demand_counts_small_records_as_whole_kilobytes() -> None:
    small, whole = (on_demand_items(traffic(size, 100 * size), PRICE.on_demand)[1] for size in (100.0, KIB))
    assert small.monthly == pytest.approx(whole.monthly)


def test_fan_out_costs_as_much_as_the_shard_again() -> None:
    found = by_name(provisioned_items(traffic(fan_out=1), PRICE.provisioned))
    assert (found["fan-out consumers"], found["fan-out data"]) == (10.95, 33.36)


@pytest.mark.parametrize(("hours", "shard", "long"), [(24, 0, 0), (48, 14.6, 0), (168, 14.6, 0), (169, 14.6, 0.08)])
def test_retention_of_a_provisioned_stream(hours: float, shard: float, long: float) -> None:
    found = by_name(provisioned_items(traffic(retention_hours=hours), PRICE.provisioned))
    assert (found.get("retention up to 7 days", 0), found.get("retention over 7 days", 0)) == (shard, long)


def test_retention_on_demand_is_of_what_is_kept() -> None:
    found = by_name(on_demand_items(traffic(retention_hours=168.0), PRICE.on_demand))
    assert found["retention up to 7 days"] == pytest.approx(MIB * 144 * 3600 / 1024**3 * 0.10, abs=0.01)


def test_a_price_that_is_not_known_is_left_out_and_said_and_its_mode_is_not_proposed() -> None:
    large = traffic(25 * KIB, 400 * MIB, shards=800, retention_hours=48.0)
    known = msgspec.structs.replace(PRICE.advantage, retention_gb_month=0.023, long_retention_gb_month=0.023)
    priced = msgspec.structs.replace(PRICE, advantage=known)
    for prices, is_known in ((PRICE, False), (priced, True)):
        advantage = modes_of(large, prices)[-1]
        assert ("without its retention" in (advantage.remark or "")) is not is_known
        assert ("retention up to 7 days" in by_name(advantage.items)) is is_known
        assert prices.advantage.lacks(large) is not is_known
        assert not prices.advantage.lacks(traffic())


def test_a_lease_for_a_month() -> None:
    (kcl,) = lease_items(Leases(leases=1, writes_per_s=1 / (10 / 3 - 0.025), measured=False), PRICE.dynamodb)
    assert kcl.monthly == pytest.approx(0.50, abs=0.01)
    (checkpoints,) = lease_items(Leases(leases=1, writes_per_s=1.0, measured=True), PRICE.dynamodb)
    assert checkpoints.monthly == pytest.approx(1.64, abs=0.01)
    (table,) = lease_items(
        Leases(leases=1, writes_per_s=9.0, measured=True, write_units=10, read_units=10), PRICE.dynamodb
    )
    assert table.monthly == pytest.approx(730 * 10 * (0.00065 + 0.00013))


def test_provisioned_wins_above_four_percent_of_its_shards() -> None:
    """Of full shards with aggregates: at 4 % the two modes cost about the same, beside the price of the stream."""
    for share, cheaper in ((0.02, "on-demand"), (0.08, "provisioned")):
        bytes_per_s = share * 10 * MIB
        carried = traffic(25 * KIB, bytes_per_s, shards=10, polled_bytes_per_s=bytes_per_s)
        found = {one.mode: one.monthly - 29.2 * (one.mode == "on-demand") for one in modes_of(carried, PRICE)}
        assert min(("on-demand", "provisioned"), key=lambda one: found[one]) == cheaper


def test_shards_for_a_peak() -> None:
    assert shards_needed(traffic()) is None
    assert shards_needed(traffic(peak_bytes_per_s=2 * MIB, peak_records_per_s=10.0)) == 3
    assert shards_needed(traffic(peak_bytes_per_s=1.0, peak_records_per_s=3_000.0)) == 5


def snapshot(**more: Any) -> Snapshot:
    view = StreamView(
        name="orders",
        arn="arn:aws:kinesis:us-east-1:1:stream/orders",
        status="ACTIVE",
        mode="PROVISIONED",
        created_at=NOW - dt.timedelta(days=100),
        retention_hours=168,
        open_shards=10,
        consumers=1,
        encryption="NONE",
        key_id=None,
        shard_metrics=("IncomingBytes",),
        max_record_kib=None,
        distribution=None,
        warm_throughput_mib_s=None,
        channels=None,
        queues=None,
    )
    figures = [
        ("IncomingBytes", "Mean", 0.2 * MIB),
        ("IncomingRecords", "Mean", 400.0),
        ("IncomingBytes", "Peak", MIB),
        ("IncomingRecords", "Peak", 1_000.0),
        ("GetRecords.Bytes", "Mean", 0.2 * MIB),
    ]
    consumer = ConsumerView(name="fast", arn="arn", status="ACTIVE", created_at=NOW)
    values: dict[str, Any] = {
        "stream": StreamReport(
            name="orders", stream=view, shards=None, holes=[], consumers=[consumer], missing=[], calls={}
        ),
        "metrics": MetricsView(
            found=[
                MetricView(namespace="AWS/Kinesis", name=name, of={}, statistic=statistic, hours=336, value=value)
                for name, statistic, value in figures
            ],
            listed=120,
        ),
        **more,
    }
    return Snapshot(taken_at=NOW, **values)


def test_a_bill_names_what_would_cost_less_the_most_first() -> None:
    report = cost_of(snapshot(), PRICE)
    saved = {one.id: round(one.monthly, 2) for one in report.savings}
    assert list(saved) == ["shards", "mode", "retention", "fan-out", "aggregation"]
    assert saved["retention"] == 146.0
    assert saved["fan-out"] == pytest.approx(10 * 10.95 + 0.2 * 33.36, abs=0.01)
    assert saved["shards"] == pytest.approx(8 * (10.95 + 14.6 + 10.95))
    assert by_name(report.around) == {"metrics of the application": 36.0, "metrics of each shard": 3.0}
    current = next(one for one in report.modes if one.current)
    assert current.mode == "provisioned"
    assert report.monthly == pytest.approx(current.monthly + 39.0)
    assert (report.prices_as_of, report.schema) == (dt.date(2026, 11, 1), "shardway.cost/1")
    assert [one.partition(":")[0] for one in report.left_out] == ["retention in the advantage mode"]
    assert msgspec.json.decode(msgspec.json.encode(report))["traffic"]["measured"] == "CloudWatch, two weeks"


def test_a_stream_younger_than_two_weeks_has_its_mean_of_its_own_life() -> None:
    old = snapshot()
    assert old.stream is not None
    assert old.stream.stream is not None
    young = msgspec.structs.replace(old.stream.stream, created_at=NOW - dt.timedelta(days=7))
    found = cost_of(snapshot(stream=msgspec.structs.replace(old.stream, stream=young)), PRICE).traffic
    assert found is not None
    assert (found.bytes_per_s, found.measured) == (0.4 * MIB, "CloudWatch, since the stream was made")


def test_what_a_snapshot_does_not_hold_is_left_out_and_said() -> None:
    report = cost_of(Snapshot(taken_at=NOW), PRICE)
    assert (report.monthly, report.modes, report.traffic) == (0, [], None)
    assert report.left_out == ["the stream: the snapshot does not show it"]
    blind = cost_of(snapshot(metrics=None), PRICE)
    assert blind.left_out == ["the stream: neither CloudWatch nor the stream's records show what it carries"]


def lease(shard: int, owner: str | None, *, ended: bool = False) -> LeaseView:
    values: dict[str, Any] = dict.fromkeys(LeaseView.__struct_fields__)
    values |= {"key": f"{shard}", "shard_id": f"{shard}", "owner": owner, "counter": 1, "ended": ended}
    return LeaseView(**values)


def application(**more: Any) -> ApplicationView:
    values: dict[str, Any] = {
        "name": "billing", "store": "dynamodb", "kinds": [], "streams": [], "workers": [], "unreadable": {},
        "other_rows": [], "client_version": None, "table_migration": None, "tables": [],
        "leases": [lease(0, "w1"), lease(1, "w2"), lease(2, None), lease(3, "w1", ended=True)],
    }  # fmt: skip
    return ApplicationView(**{**values, **more})


def test_leases_are_counted_by_their_counters_where_they_were_seen_to_move() -> None:
    looks = {
        key: [Look(at_s=at_s, owner="w", sequence_number=None, counter=int(at_s) * moves) for at_s in (0.0, 10.0, 20.0)]
        for key, moves in (("0", 1), ("1", 2), ("2", 0))
    }
    report = cost_of(snapshot(application=application(), looks=looks), PRICE)
    (writes, *_) = report.around
    assert writes.quantity == pytest.approx(3 * 730 * 3600 / 1e6)
    once = cost_of(snapshot(application=application()), PRICE)
    assert once.around[0].quantity == pytest.approx(2 / (10 / 3 - 0.025) * 730 * 3600 / 1e6)
    assert once.left_out[0].startswith("checkpoints:")
    table = TableView(name="billing", status="ACTIVE", billing="provisioned", read_units=10, write_units=20)
    paid = cost_of(snapshot(application=application(tables=[table])), PRICE)
    assert paid.around[0].what == "capacity of the lease table"
    assert cost_of(snapshot(application=application(store="sqlite")), PRICE).around[0].what.startswith("metrics")


def test_an_on_demand_stream_is_compared_with_the_shards_that_its_peak_takes() -> None:
    carried = traffic(mode="ON_DEMAND", peak_bytes_per_s=1.2 * MIB, peak_records_per_s=1_000.0, shards=200)
    modes = {one.mode: one for one in modes_of(carried, PRICE)}
    assert (modes["on-demand"].current, modes["provisioned"].items[0].quantity) == (True, 2)
    assert "provisioned" not in {one.mode for one in modes_of(traffic(mode="ON_DEMAND"), PRICE)}


def test_prices_of_another_region(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "src" / "shardway" / "inspect" / PRICES).read_text()
    path = tmp_path / "prices.toml"
    path.write_text(text.replace("us-east-1", "eu-west-1").replace("0.015", "0.017"))
    assert (prices_from(path).region, prices_from(path).provisioned.shard_hour) == ("eu-west-1", 0.017)
    path.write_text("[provisioned]\n")
    with pytest.raises(OptionError, match="it holds no prices"):
        prices_from(path)
    with pytest.raises(OptionError, match="No such file"):
        prices_from(tmp_path / "none")
