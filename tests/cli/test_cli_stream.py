"""``shardway stream``: on the local Kinesis, in every shape, and with permissions that lack."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from shardway.core.hashkeys import HASH_KEY_MAX, hash_key
from shardway.testing import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.local import LocalKinesis

    Run = Callable[..., Any]


def test_ls(run: Run, kinesis: Any) -> None:
    kinesis.create_stream(StreamName="clicks", StreamModeDetails={"StreamMode": "ON_DEMAND"})
    done = run("stream", "ls")
    assert (done.status, done.stderr) == (0, "")
    head, *rows = [line.split() for line in done.stdout.splitlines()]
    assert head == ["STREAM", "STATUS", "MODE", "CREATED"]
    assert [row[:3] for row in rows] == [["clicks", "ACTIVE", "ON_DEMAND"], ["orders", "ACTIVE", "PROVISIONED"]]
    found = json.loads(run("stream", "ls", "-o", "json").stdout)
    assert (found["schema"], [one["name"] for one in found["streams"]]) == ("shardway.streams/1", ["clicks", "orders"])
    assert found["calls"] == {"ListStreams": 1}


def test_describe(run: Run, kinesis: Any) -> None:
    arn = kinesis.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"]["StreamARN"]
    kinesis.register_stream_consumer(StreamARN=arn, ConsumerName="reader")
    kinesis.enable_enhanced_monitoring(StreamName="orders", ShardLevelMetrics=["IncomingBytes"])
    done = run("stream", "describe", "orders")
    assert (done.status, done.stderr) == (0, "")
    told = dict(line.split("  ", 1) for line in done.stdout.splitlines())
    assert told["arn"].strip() == arn
    assert told["retention"].strip() == "1 d"
    assert told["open shards"].strip() == "2"
    assert told["shard metrics"].strip() == "IncomingBytes"
    assert told["consumer"].strip().startswith("reader, ACTIVE, registered 2")
    by_arn = json.loads(run("stream", "describe", arn, "-o", "json").stdout)
    assert by_arn["stream"]["shard_metrics"] == ["IncomingBytes"]
    assert by_arn["stream"]["limits"]["read_calls_per_s"] == 5


@pytest.mark.usefixtures("local")
def test_yaml_is_what_json_is(run: Run) -> None:
    as_json = json.loads(run("stream", "describe", "orders", "-o", "json").stdout)
    loaded = yaml.load(run("stream", "describe", "orders", "-o", "yaml").stdout, yaml.SafeLoader)
    assert {**loaded, "stream": None} == {**as_json, "stream": None}
    as_yaml, as_json = loaded["stream"], as_json["stream"]
    assert as_yaml.pop("created_at") == as_json.pop("created_at")
    assert as_yaml == as_json


def test_shards_show_their_lineage(run: Run, kinesis: Any) -> None:
    kinesis.split_shard(StreamName="orders", ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**126))
    assert "shardId-000000000000  open" not in run("stream", "shards", "orders").stdout
    done = run("stream", "shards", "orders", "--all", "-o", "jsonl")
    shards = {one["shard_id"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert [one["open"] for one in shards.values()] == [False, True, True, True]
    assert shards["shardId-000000000000"]["children"] == ["shardId-000000000002", "shardId-000000000003"]
    assert shards["shardId-000000000003"]["parents"] == ["shardId-000000000000"]
    assert shards["shardId-000000000003"]["generation"] == 1
    assert shards["shardId-000000000001"]["last_hash_key"] == str(HASH_KEY_MAX)
    assert sum(one["hash_share"] for one in shards.values() if one["open"]) == 1


def test_heat_shows_the_hot_key_and_where_to_split(run: Run, kinesis: Any) -> None:
    kinesis.create_stream(StreamName="hot", ShardCount=4)
    keys = [key for key in map(str, range(400)) if hash_key(key) < 2**126][:80]  # of the first shard
    kinesis.put_records(StreamName="hot", Records=[{"Data": b"x" * 30_000, "PartitionKey": key} for key in keys])
    kinesis.put_record(StreamName="hot", Data=b"x" * 400_000, PartitionKey="\x1b[31mred", ExplicitHashKey="0")
    words = ("stream", "heat", "hot", "--since", "20s", "--rate", "5")
    done = run(*words, "-o", "json")
    assert (done.status, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    report = json.loads(done.stdout)
    assert report["schema"] == "shardway.heat/1"
    hottest, *others = report["shards"]
    assert (hottest["shard_id"], hottest["hot"], [one["hot"] for one in others]) == (
        "shardId-000000000000",
        True,
        [False] * 3,
    )
    assert hottest["hot_keys"][0]["partition_key"] == "\x1b[31mred"
    assert 0 < int(hottest["split_at"]) < 2**126
    assert 0.4 < hottest["split_share"] < 0.6
    text = run(*words, "--no-keys").stdout
    assert "(hidden)" in text
    assert f"split at hash key {hottest['split_at']}" in text


def test_what_a_permission_hides_is_named_and_the_rest_is_shown(run: Run, local: LocalKinesis) -> None:
    local.faults.add(Fault(how="access_denied", operation="ListStreamConsumers", count=1))
    done = run("stream", "describe", "orders")
    assert done.status == 0
    assert done.stderr.startswith(
        "shardway: not shown: the consumers of orders. The credentials lack kinesis:ListStreamConsumers"
    )
    assert "open shards" in done.stdout
    local.faults.add(Fault(how="access_denied", operation="DescribeStreamSummary", count=1))
    report = json.loads(run("stream", "describe", "orders", "-o", "json").stdout)
    assert (report["stream"], len(report["shards"])) == (None, 2)
    assert [one["action"] for one in report["missing"]] == ["kinesis:DescribeStreamSummary"]


def test_a_stream_that_is_not_there(run: Run, local: LocalKinesis) -> None:
    done = run("stream", "describe", "nothing")
    assert (done.status, done.stdout) == (1, "")
    assert "ResourceNotFoundException" in done.stderr


def test_heat_begins_at_a_time_too(run: Run, kinesis: Any) -> None:
    words = ("stream", "heat", "orders", "-o", "json", "--rate", "5")
    assert json.loads(run(*words, "--since", "30s ago").stdout)["schema"] == "shardway.heat/1"
    assert "is no time" in run(*words, "--since", "latest").stderr
    assert "still to come" in run(*words, "--since", "2099-01-01T00:00Z").stderr
