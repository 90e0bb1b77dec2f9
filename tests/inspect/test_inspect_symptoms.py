"""Each symptom of the doctor on the local Kinesis: a scene that provokes it, and one beside it that does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shardway.aws.options import Credentials
from shardway.core.aggregation.writer import encode_aggregate
from shardway.core.hashkeys import HASH_KEY_MAX
from shardway.core.leases import Checkpoint
from shardway.core.leases.worker_row import WorkerRow
from shardway.inspect import examine
from shardway.inspect.doctor.symptoms import SYMPTOMS
from shardway.local import LocalKinesis
from shardway.testing import Fault
from tests.inspect.scenes import Clients, Scene, shard_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.inspect import Snapshot

    Make = Callable[..., Scene]
    Play = Callable[[Make], Snapshot]

pytestmark = pytest.mark.xdist_group("inspected-tables")
BIG = b"x" * 900_000


SOUND: dict[str, Play] = {}
ILL: dict[str, Play] = {}


def sound(play: Play) -> Play:
    """Named ``d001_why``: the scene does not have that symptom."""
    SOUND[play.__name__] = play
    return play


def ill(play: Play) -> Play:
    """The scene has that symptom."""
    ILL[play.__name__] = play
    return play


def id_of(name: str) -> str:
    return f"SHW-{name[:4].upper()}"


# --- tables and leases ----------------------------------------------------------------------------


def provisioned(make: Make, units: int) -> Snapshot:
    scene = make(shards=4)
    scene.table(units=(5, units))
    for shard in range(4):
        scene.lease(shard)
    return scene.snapshot()


@ill
def d001_one_write_unit(make: Make) -> Snapshot:
    return provisioned(make, 1)


@sound
def d001_enough_write_units(make: Make) -> Snapshot:
    return provisioned(make, 2)


def behind(make: Make, then: str, **more: Any) -> tuple[Scene, list[str]]:
    """Three records; the lease is at the first one, and later where ``then`` says."""
    scene = make(shards=1)
    numbers = [scene.put() for _ in range(3)]
    scene.leases(numbers[0])
    scene.advance(300)
    scene.snapshot()
    scene.advance(130)
    scene.lease(0, numbers[int(then)], counter=40, **more)
    return scene, numbers


@ill
def d002_the_lease_is_renewed_and_stands_still(make: Make) -> Snapshot:
    return behind(make, "0")[0].snapshot()


@sound
def d002_the_checkpoint_moves(make: Make) -> Snapshot:
    return behind(make, "1")[0].snapshot()


@ill
def d003_no_owner(make: Make) -> Snapshot:
    scene = make()
    scene.leases("TRIM_HORIZON", "TRIM_HORIZON", owner=None)
    return scene.snapshot()


@ill
def d003_no_lease_for_a_shard(make: Make) -> Snapshot:
    scene = make(kind="kcl 1.x")
    scene.leases("TRIM_HORIZON")
    return scene.snapshot()


@sound
def d003_an_ended_lease_needs_no_owner(make: Make) -> Snapshot:
    scene = make()
    scene.leases("SHARD_END", "TRIM_HORIZON")
    scene.lease(0, "SHARD_END", owner=None)
    return scene.snapshot()


@ill
def d004_leases_leave_keys_out(make: Make) -> Snapshot:
    scene = make(shards=3)
    scene.leases("TRIM_HORIZON", "TRIM_HORIZON")
    return scene.snapshot()


@ill
def d004_the_kcl_counts_partial_leases(make: Make) -> Snapshot:
    scene = make()
    scene.at_tip()
    scene.metric(scene.name, "NumStreamsWithPartialLeases", 1, Operation="PeriodicShardSyncManager")
    return scene.snapshot()


@sound
def d004_children_cover_what_their_parent_had(make: Make) -> Snapshot:
    scene = make(shards=1)
    middle = (HASH_KEY_MAX + 1) // 2
    scene.ask("SplitShard", StreamName=scene.name, ShardToSplit=shard_id(0), NewStartingHashKey=str(middle))
    scene.leases("SHARD_END")
    scene.lease(1, first_hash_key=0, last_hash_key=middle - 1, parents=frozenset({shard_id(0)}))
    scene.lease(2, first_hash_key=middle, last_hash_key=HASH_KEY_MAX, parents=frozenset({shard_id(0)}))
    return scene.snapshot()


@ill
def d005_the_lag_grows(make: Make) -> Snapshot:
    return behind(make, "1")[0].snapshot()


@sound
def d005_it_catches_up(make: Make) -> Snapshot:
    scene = make(shards=1)
    numbers = []
    for _ in range(3):
        numbers.append(scene.put())
        scene.advance(300)
    scene.leases(numbers[0])
    scene.snapshot()
    scene.advance(10)
    scene.lease(0, numbers[1], counter=5)
    return scene.snapshot()


def after_hours(make: Make, hours: float) -> Snapshot:
    scene = make(shards=1)
    scene.leases(scene.put())
    scene.put()
    scene.advance(hours * 3600)
    return scene.snapshot()


@ill
def d006_the_checkpoint_is_older_than_the_retention(make: Make) -> Snapshot:
    return after_hours(make, 30)


@sound
def d006_the_checkpoint_is_younger(make: Make) -> Snapshot:
    return after_hours(make, 20)


def counted(make: Make, namespace: str, name: str, value: float, **of: str) -> Snapshot:
    scene = make()
    scene.at_tip()
    given = {key: scene.name if text == "NAME" else text for key, text in of.items()}
    scene.metric(scene.name if namespace == "NAME" else namespace, name, value, **given)
    return scene.snapshot()


@ill
def d007_the_kcl_counts_expired_iterators(make: Make) -> Snapshot:
    return counted(make, "NAME", "ExpiredIterator", 3, Operation="ProcessTask")


@sound
def d007_it_counts_none(make: Make) -> Snapshot:
    return counted(make, "NAME", "ExpiredIterator", 0, Operation="ProcessTask")


# --- the stream and its load ----------------------------------------------------------------------


@ill
def d008_the_stream_counts_refused_reads(make: Make) -> Snapshot:
    return counted(make, "AWS/Kinesis", "ReadProvisionedThroughputExceeded", 7, StreamName="NAME")


@ill
def d008_reads_are_refused_meanwhile(make: Make) -> Snapshot:
    scene = make()
    scene.at_tip()
    scene.local.faults.add(Fault(how="throttle", operation="GetRecords", count=1))
    return scene.snapshot()


@sound
def d008_another_stream_counts_them(make: Make) -> Snapshot:
    return counted(make, "AWS/Kinesis", "ReadProvisionedThroughputExceeded", 7, StreamName="another")


def loaded(make: Make, shards: list[int]) -> Snapshot:
    scene = make(shards=3)
    scene.advance(10)
    for number, shard in enumerate(shards):
        scene.put(shard, BIG, f"key-{number}")
    return scene.snapshot(application=False)


@ill
def d009_one_shard_has_most_of_the_load(make: Make) -> Snapshot:
    return loaded(make, [1] * 8)


@ill
def d009_writes_are_refused(make: Make) -> Snapshot:
    return counted(make, "AWS/Kinesis", "WriteProvisionedThroughputExceeded", 7, StreamName="NAME")


@sound
def d009_all_shards_have_it(make: Make) -> Snapshot:
    return loaded(make, [0, 1, 2] * 3)


@ill
def d010_on_demand_and_writes_are_refused(make: Make) -> Snapshot:
    scene = make()
    scene.at_tip()
    scene.ask("UpdateStreamMode", StreamARN=scene.arn, StreamModeDetails={"StreamMode": "ON_DEMAND"})
    scene.of_stream("WriteProvisionedThroughputExceeded", 7)
    return scene.snapshot()


@sound
def d010_writes_of_a_provisioned_stream_are_refused(make: Make) -> Snapshot:
    return counted(make, "AWS/Kinesis", "WriteProvisionedThroughputExceeded", 7, StreamName="NAME")


def with_peak(make: Make, bytes_per_s: float) -> Snapshot:
    scene = make(shards=8)
    scene.of_stream("IncomingBytes", bytes_per_s * 3600)
    return scene.snapshot(application=False)


@ill
def d011_eight_shards_for_a_little(make: Make) -> Snapshot:
    return with_peak(make, 10_000)


@sound
def d011_eight_shards_for_half_of_what_they_take(make: Make) -> Snapshot:
    return with_peak(make, 4 * 1024 * 1024)


def with_consumer(make: Make, status: str) -> Snapshot:
    scene = make()
    scene.ask("RegisterStreamConsumer", StreamARN=scene.arn, ConsumerName="fan")

    def change(answer: dict[str, Any]) -> None:
        answer["Consumers"][0]["ConsumerStatus"] = status

    scene.answers["ListStreamConsumers"] = change
    return scene.snapshot(application=False)


@ill
def d012_a_consumer_is_being_made(make: Make) -> Snapshot:
    return with_consumer(make, "CREATING")


@ill
def d012_subscriptions_are_refused(make: Make) -> Snapshot:
    scene = make()
    scene.ask("RegisterStreamConsumer", StreamARN=scene.arn, ConsumerName="fan")
    scene.metric("AWS/Kinesis", "SubscribeToShard.RateExceeded", 4, StreamName=scene.name, ConsumerName="fan")
    return scene.snapshot(application=False)


@sound
def d012_a_consumer_is_active(make: Make) -> Snapshot:
    return with_consumer(make, "ACTIVE")


def with_index(make: Make, status: str) -> Snapshot:
    scene = make()
    scene.table(index=True)
    scene.lease(0)
    scene.lease(1)

    def change(answer: dict[str, Any]) -> None:
        answer["Table"]["GlobalSecondaryIndexes"][0]["IndexStatus"] = status

    scene.answers["DescribeTable"] = change
    return scene.snapshot()


@ill
def d013_the_index_is_being_filled(make: Make) -> Snapshot:
    return with_index(make, "CREATING")


@sound
def d013_the_index_is_active(make: Make) -> Snapshot:
    return with_index(make, "ACTIVE")


def in_mode(make: Make, mode: str) -> Snapshot:
    scene = make(kind="kcl 3.x")
    scene.at_tip()
    scene.fleet(mode=mode)
    return scene.snapshot()


@ill
def d014_the_fleet_comes_from_2x(make: Make) -> Snapshot:
    return in_mode(make, "CLIENT_VERSION_UPGRADE_FROM_2X")


@sound
def d014_the_fleet_is_there(make: Make) -> Snapshot:
    return in_mode(make, "CLIENT_VERSION_3X")


def anew(make: Make, deleted: bool) -> Snapshot:
    scene = make()
    scene.at_tip()
    scene.advance(200)
    if deleted:
        scene.ask("DeleteStream", StreamName=scene.name)
        scene.ask("CreateStream", StreamName=scene.name, ShardCount=2)
    return scene.snapshot()


@ill
def d015_the_stream_was_made_anew(make: Make) -> Snapshot:
    return anew(make, True)


@ill
def d015_a_shard_that_the_stream_never_had(make: Make) -> Snapshot:
    scene = make()
    scene.at_tip()
    scene.lease(77)
    return scene.snapshot()


@sound
def d015_the_stream_is_the_same(make: Make) -> Snapshot:
    return anew(make, False)


@ill
def d016_records_failed(make: Make) -> Snapshot:
    return counted(make, "NAME", "RecordsFailedProcessing", 3, Operation="ProcessTask")


@sound
def d016_no_record_failed(make: Make) -> Snapshot:
    return counted(make, "NAME", "RecordsFailedProcessing", 0, Operation="ProcessTask")


def switched(make: Make, switches: int) -> Snapshot:
    scene = make()
    scene.at_tip(switches=switches)
    return scene.snapshot()


@ill
def d017_the_owner_has_changed(make: Make) -> Snapshot:
    return switched(make, 1)


@sound
def d017_it_has_not(make: Make) -> Snapshot:
    return switched(make, 0)


def half_a_minute(make: Make, counter: int) -> Snapshot:
    scene = make()
    numbers = scene.at_tip()
    scene.snapshot()
    scene.advance(30)
    for shard, number in enumerate(numbers):
        scene.lease(shard, number, counter=counter)
    return scene.snapshot()


@ill
def d018_the_counters_stand_still(make: Make) -> Snapshot:
    return half_a_minute(make, 1)


@sound
def d018_the_counters_move(make: Make) -> Snapshot:
    return half_a_minute(make, 10)


def aggregated(make: Make, hash_key: int) -> Snapshot:
    scene = make()
    scene.put(1, encode_aggregate([("a", b"one", None), ("b", b"two", hash_key)]))
    scene.put(1, encode_aggregate([("a", b"one", hash_key), ("b", b"two", hash_key)]))
    return scene.snapshot(application=False)


@ill
def d019_a_user_record_of_another_shard(make: Make) -> Snapshot:
    return aggregated(make, 1)


@sound
def d019_user_records_of_this_shard(make: Make) -> Snapshot:
    scene = make()
    scene.put(1, encode_aggregate([("a", b"one", HASH_KEY_MAX), ("b", b"two", HASH_KEY_MAX)]))
    return scene.snapshot(application=False)


# --- this machine and the account -----------------------------------------------------------------


def signed(make: Make, token: str | None) -> Snapshot:
    scene = make()
    scene.at_tip()
    scene.credentials = Credentials("AKIAEXAMPLE", "secret", token)
    return scene.snapshot()


@ill
def d020_a_token_that_nothing_renews(make: Make) -> Snapshot:
    return signed(make, "token")


@ill
def d020_calls_are_refused_as_expired(make: Make) -> Snapshot:
    scene = make()
    scene.at_tip()
    scene.local.faults.add(Fault(how="expired_token"))
    return scene.snapshot()


@sound
def d020_keys_that_do_not_end(make: Make) -> Snapshot:
    return signed(make, None)


@ill
def d021_the_service_has_another_time(make: Make) -> Snapshot:
    scene = make()
    scene.advance(100)
    return scene.snapshot(application=False)


@sound
def d021_the_service_has_the_same_time(make: Make) -> Snapshot:
    return alone({"streams": {"clock": 1}}, lambda scene: scene.snapshot(application=False))


def alone(settings: dict[str, Any], play: Callable[[Scene], Snapshot]) -> Snapshot:
    """On a service of its own, which has no other services beside it."""
    with LocalKinesis(**settings) as local:
        local.faults.add(Fault(how="access_denied", operation="GetMetricData"))
        local.faults.add(Fault(how="access_denied", operation="ListMetrics"))
        scene = Scene.__new__(Scene)
        scene.clients = Clients(local)
        scene.local, scene.name, scene.looks, scene.answers, scene.credentials = local, "clock", {}, {}, None
        try:
            return play(scene)
        finally:
            scene.clients.close()


def with_metrics(make: Make, count: int) -> Snapshot:
    scene = make()
    scene.at_tip()
    data = [
        {"MetricName": "Time", "Dimensions": [{"Name": "WorkerIdentifier", "Value": f"w{number}"}], "Value": 1.0}
        for number in range(count)
    ]
    scene.clients.cloudwatch.put_metric_data(Namespace=scene.name, MetricData=data)
    return scene.snapshot()


@ill
def d022_a_metric_for_each_worker_there_ever_was(make: Make) -> Snapshot:
    return with_metrics(make, 210)


@sound
def d022_a_few_metrics(make: Make) -> Snapshot:
    return with_metrics(make, 10)


def of_processes(make: Make, *processes: str) -> Snapshot:
    scene = make(kind="shardway")
    for shard, (number, process) in enumerate(zip([scene.put(0), scene.put(1)], processes, strict=True)):
        if not shard:
            scene.table()
        scene.lease(shard, number, owner="w1", process=f"{process}/w1")
    return scene.snapshot()


@ill
def d023_two_processes_with_one_name(make: Make) -> Snapshot:
    return of_processes(make, "a", "b")


@sound
def d023_one_process(make: Make) -> Snapshot:
    return of_processes(make, "a", "a")


@ill
def d024_owner_after_owner_gives_up(make: Make) -> Snapshot:
    return behind(make, "0", switches=3)[0].snapshot()


@sound
def d024_it_went_on_with_the_next_owner(make: Make) -> Snapshot:
    return behind(make, "1", switches=3)[0].snapshot()


@sound
def d024_nothing_waits(make: Make) -> Snapshot:
    return switched(make, 3)


@ill
def d025_the_rate_of_the_account_is_used_up(make: Make) -> Snapshot:
    scene = make()
    scene.at_tip()
    scene.local.faults.add(Fault(how="throttle", operation="ListShards", count=1))
    return scene.snapshot()


@ill
def d025_all_shards_are_used(make: Make) -> Snapshot:
    settings = {"streams": {"clock": 10}, "shard_quota": 11}
    return alone(settings, lambda scene: scene.snapshot(application=False))


@sound
def d025_there_are_many_left(make: Make) -> Snapshot:
    return switched(make, 0)


def encrypted(make: Make, code: str | None) -> Snapshot:
    scene = make()
    scene.at_tip()
    scene.ask("StartStreamEncryption", StreamName=scene.name, EncryptionType="KMS", KeyId="alias/orders")
    if code is not None:
        scene.local.faults.add(Fault(how="error", operation="GetRecords", code=code, message="no"))
    return scene.snapshot()


@ill
def d026_the_key_is_disabled(make: Make) -> Snapshot:
    return encrypted(make, "KMSDisabledException")


@sound
def d026_the_key_is_good(make: Make) -> Snapshot:
    return encrypted(make, None)


def with_channels(make: Make, count: int) -> Snapshot:
    scene = make()

    def change(answer: dict[str, Any]) -> None:
        answer["StreamDescriptionSummary"] |= {"ChannelCount": count, "QueueCount": count}

    scene.answers["DescribeStreamSummary"] = change
    return scene.snapshot(application=False)


@ill
def d027_a_channel(make: Make) -> Snapshot:
    return with_channels(make, 1)


@sound
def d027_no_channel(make: Make) -> Snapshot:
    return with_channels(make, 0)


@ill
def d028_seven_hours_of_a_day(make: Make) -> Snapshot:
    return after_hours(make, 7)


@sound
def d028_an_hour_of_a_day(make: Make) -> Snapshot:
    return after_hours(make, 1)


@ill
def d029_the_kpl_gives_records_up(make: Make) -> Snapshot:
    return counted(make, "KinesisProducerLibrary", "UserRecordExpired", 5, StreamName="NAME")


@sound
def d029_of_another_stream(make: Make) -> Snapshot:
    return counted(make, "KinesisProducerLibrary", "UserRecordExpired", 5, StreamName="another")


@ill
def d030_a_permission_lacks(make: Make) -> Snapshot:
    scene = make()
    scene.at_tip()
    scene.local.faults.add(Fault(how="access_denied", operation="DescribeTable"))
    return scene.snapshot()


@sound
def d030_a_key_is_refused_and_no_permission_lacks(make: Make) -> Snapshot:
    return encrypted(make, "KMSDisabledException")


@ill
def d031_a_counter_that_is_text(make: Make) -> Snapshot:
    scene = make()
    scene.at_tip()
    scene.row({"leaseKey": "odd", "leaseCounter": "many", "checkpoint": "LATEST"})
    return scene.snapshot()


@sound
def d031_rows_of_the_kcl_35_beside_the_leases(make: Make) -> Snapshot:
    return in_mode(make, "CLIENT_VERSION_3X")


# --- workers --------------------------------------------------------------------------------------


def owned_by(make: Make, *owners: str) -> Snapshot:
    scene = make(shards=1)
    number = scene.put()
    scene.table()
    for counter, owner in enumerate(owners):
        scene.lease(0, number, owner=owner, counter=counter)
        scene.advance(3)
        taken = scene.snapshot()
    return taken


@ill
def d032_to_and_fro(make: Make) -> Snapshot:
    return owned_by(make, "w1", "w2", "w1")


@sound
def d032_one_takeover(make: Make) -> Snapshot:
    return owned_by(make, "w1", "w2", "w2")


def with_workers(make: Make, *workers: WorkerRow) -> Snapshot:
    scene = make(kind="shardway")
    scene.at_tip()
    scene.table("-Workers", key="workerId")
    for one in workers:
        scene.row(one.attributes(), "-Workers")
    return scene.snapshot()


def worker(name: str, **more: Any) -> WorkerRow:
    return WorkerRow(**{"worker_id": name, "failover_s": 10.0, "version": "0.2", **more})


@ill
def d033_three_workers_for_two_shards(make: Make) -> Snapshot:
    return with_workers(make, worker("w0"), worker("w1"), worker("w2"))


@sound
def d033_a_worker_that_leaves_has_nothing_to_do(make: Make) -> Snapshot:
    return with_workers(make, worker("w0"), worker("w1"), worker("w2", leaving=True))


def led(make: Make, leader: str | None, updated_s: float = 0.0) -> Snapshot:
    scene = make(kind="kcl 3.x")
    numbers = [scene.put(0), scene.put(1)]
    scene.table()
    scene.fleet(leader, updated_s)
    for shard, number in enumerate(numbers):
        scene.lease(shard, number)
    return scene.snapshot()


@ill
def d034_there_is_no_leader(make: Make) -> Snapshot:
    return led(make, None)


@ill
def d034_the_leader_has_not_written_for_ten_minutes(make: Make) -> Snapshot:
    return led(make, "w0", -600)


@sound
def d034_there_is_a_leader(make: Make) -> Snapshot:
    return led(make, "w0")


def handed(make: Make, done: bool) -> Snapshot:
    scene = make(shards=1, kind="kcl 3.x")
    number = scene.put()
    scene.leases(number)
    scene.lease(0, number, owner="x1", checkpoint_owner="w0")
    scene.snapshot()
    scene.advance(25)
    scene.lease(0, number, owner="x1", checkpoint_owner=None if done else "w0", counter=9)
    return scene.snapshot()


@ill
def d035_both_owners_stay(make: Make) -> Snapshot:
    return handed(make, False)


@sound
def d035_the_new_owner_has_it(make: Make) -> Snapshot:
    return handed(make, True)


def prepared(make: Make, settled: bool) -> Snapshot:
    scene = make(shards=1)
    numbers = [scene.put(), scene.put()]
    pending = Checkpoint.parse(numbers[1], 0)
    scene.leases(numbers[0], pending=pending)
    scene.snapshot()
    scene.advance(25)
    scene.lease(0, numbers[int(settled)], pending=None if settled else pending, counter=9)
    return scene.snapshot()


@ill
def d036_it_stays_prepared(make: Make) -> Snapshot:
    return prepared(make, False)


@sound
def d036_it_is_settled(make: Make) -> Snapshot:
    return prepared(make, True)


@ill
def d037_the_stream_is_being_made(make: Make) -> Snapshot:
    settings = {"streams": {}, "stream_settle_s": 60.0}

    def play(scene: Scene) -> Snapshot:
        scene.ask("CreateStream", StreamName="clock", ShardCount=1)
        return scene.snapshot(application=False)

    return alone(settings, play)


@sound
def d037_the_stream_is_active(make: Make) -> Snapshot:
    return switched(make, 0)


def beside(make: Make, *suffixes: str) -> Snapshot:
    scene = make()
    scene.at_tip()
    for suffix in suffixes:
        scene.table(suffix, key="key" if suffix == "-CoordinatorState" else "wid")
    return scene.snapshot()


@ill
def d038_one_of_two_tables(make: Make) -> Snapshot:
    return beside(make, "-CoordinatorState")


@ill
def d038_no_lease(make: Make) -> Snapshot:
    scene = make()
    scene.table()
    return scene.snapshot()


@sound
def d038_both_tables(make: Make) -> Snapshot:
    return beside(make, "-CoordinatorState", "-WorkerMetricStats")


def standing_at(make: Make, at: str) -> Snapshot:
    scene = make()
    scene.leases(at, at)
    return scene.snapshot()


@ill
def d039_at_the_newest(make: Make) -> Snapshot:
    return standing_at(make, "LATEST")


@sound
def d039_at_the_oldest(make: Make) -> Snapshot:
    return standing_at(make, "TRIM_HORIZON")


def split(make: Make, parent: str) -> Snapshot:
    scene = make(shards=1)
    scene.put()
    half = str((HASH_KEY_MAX + 1) // 2)
    scene.ask("SplitShard", StreamName=scene.name, ShardToSplit=shard_id(0), NewStartingHashKey=half)
    number = scene.put()
    scene.leases(parent)
    scene.lease(1, number, parents=frozenset({shard_id(0)}))
    scene.lease(2, parents=frozenset({shard_id(0)}))
    return scene.snapshot()


@ill
def d040_the_parent_is_not_read_to_its_end(make: Make) -> Snapshot:
    return split(make, "TRIM_HORIZON")


@sound
def d040_the_parent_is_read_to_its_end(make: Make) -> Snapshot:
    return split(make, "SHARD_END")


@ill
def d041_the_checkpoint_goes_back(make: Make) -> Snapshot:
    scene, numbers = behind(make, "2")
    scene.snapshot()
    scene.advance(5)
    scene.lease(0, numbers[0], counter=60)
    return scene.snapshot()


@sound
def d041_it_goes_forward(make: Make) -> Snapshot:
    return behind(make, "2")[0].snapshot()


def cut(make: Make, at: int) -> Snapshot:
    scene = make(shards=1)
    scene.ask("SplitShard", StreamName=scene.name, ShardToSplit=shard_id(0), NewStartingHashKey=str(at))
    return scene.snapshot(application=False)


@ill
def d042_a_small_shard_beside_a_large_one(make: Make) -> Snapshot:
    return cut(make, HASH_KEY_MAX // 10)


@sound
def d042_two_halves(make: Make) -> Snapshot:
    return cut(make, HASH_KEY_MAX // 2)


@ill
def d043_a_row_from_the_future(make: Make) -> Snapshot:
    return led(make, "w0", 600)


@sound
def d043_a_row_of_now(make: Make) -> Snapshot:
    return led(make, "w0")


@ill
def d044_the_table_counts_refused_writes(make: Make) -> Snapshot:
    return counted(make, "AWS/DynamoDB", "WriteThrottleEvents", 9, TableName="NAME")


@ill
def d044_scans_are_refused_meanwhile(make: Make) -> Snapshot:
    scene = make()
    scene.at_tip()
    scene.local.faults.add(Fault(how="throttle", operation="Scan", count=1))
    return scene.snapshot()


@sound
def d044_another_table_counts_them(make: Make) -> Snapshot:
    return counted(make, "AWS/DynamoDB", "WriteThrottleEvents", 9, TableName="another")


@ill
def d045_two_versions(make: Make) -> Snapshot:
    return with_workers(make, worker("w0"), worker("w1", version="0.1"))


@sound
def d045_one_version(make: Make) -> Snapshot:
    return with_workers(make, worker("w0"), worker("w1"))


def with_old_leases(make: Make, count: int) -> Snapshot:
    scene = make()
    scene.at_tip()
    for number in range(100, 100 + count):
        scene.lease(number, "SHARD_END", owner=None)
    return scene.snapshot()


@ill
def d046_twenty_leases_of_shards_that_are_gone(make: Make) -> Snapshot:
    return with_old_leases(make, 20)


@sound
def d046_a_few(make: Make) -> Snapshot:
    return with_old_leases(make, 3)


@ill
def d047_ten_minutes_behind_in_one_look(make: Make) -> Snapshot:
    scene = make()
    numbers = [scene.put(0), scene.put(1)]
    scene.put(0)
    scene.leases(*numbers)
    scene.advance(600)
    return scene.snapshot()


@sound
def d047_ten_minutes_behind_and_its_worker_settles(make: Make) -> Snapshot:
    scene = make(kind="shardway")
    numbers = [scene.put(0), scene.put(1)]
    scene.put(0)
    scene.leases(*numbers)
    scene.advance(600)
    scene.table("-Workers", key="workerId")
    scene.row(worker("w0", written_ms=int(scene.local.clock.now() * 1000)).attributes(), "-Workers")
    return scene.snapshot()


def beginning_at(make: Make, ahead_s: float) -> Snapshot:
    scene = make(kind="shardway")
    scene.leases("LATEST", "LATEST", read_until_ms=int((scene.local.clock.now() + ahead_s) * 1000))
    return scene.snapshot()


@ill
def d048_a_start_two_hours_ahead(make: Make) -> Snapshot:
    return beginning_at(make, 7200.0)


@sound
def d048_a_start_two_minutes_ahead(make: Make) -> Snapshot:
    return beginning_at(make, 120.0)


# --- the tests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*ILL])
def test_what_is_provoked_is_seen(name: str, make: Make) -> None:
    report = examine(ILL[name](make))
    found = {one.id: one for one in report.findings}
    assert id_of(name) in found
    assert found[id_of(name)].evidence
    assert report.looked_for == [one for one in SYMPTOMS if one not in {left.id for left in report.not_looked_for}]


@pytest.mark.parametrize("name", [*SOUND])
def test_what_is_not_there_is_not_seen(name: str, make: Make) -> None:
    report = examine(SOUND[name](make))
    assert [one for one in report.findings if one.id == id_of(name)] == []


def test_each_symptom_has_a_scene_with_it_and_one_without() -> None:
    assert {id_of(name) for name in ILL} == {id_of(name) for name in SOUND} == {*SYMPTOMS}
    assert len(SYMPTOMS) >= 30
