"""One service, several regions: each has its own streams, ARNs, consumers and iterators, also after a restart."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

import pytest

from shardway.local import LocalKinesis
from shardway.local.journal import WASTE_BYTES_MIN
from shardway.local.regions import REGIONS_MAX
from tests.local.botoclient import client_of
from tests.local.rawhttp import Wire, call_bytes, request_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Client = Callable[[str], Any]

HOME, OTHER = "us-east-1", "eu-west-1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def local(folder: Path) -> Iterator[LocalKinesis]:
    with LocalKinesis(streams={"orders": 1}, data=folder) as running:
        yield running


@pytest.fixture
def client(local: LocalKinesis) -> Iterator[Client]:
    opened = {}

    def of(region: str) -> Any:
        if region not in opened:
            opened[region] = client_of(local.endpoint_url, "kinesis", region)
        return opened[region]

    yield of
    for one in opened.values():
        one.close()


def datas(client: Any, stream: str = "orders") -> list[bytes]:
    found = []
    for shard in client.list_shards(StreamName=stream)["Shards"]:
        where = {"StreamName": stream, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        iterator = client.get_shard_iterator(**where)["ShardIterator"]
        behind_ms = 1
        while behind_ms:  # a page may be empty in front of others: each crosses a limited span of the log
            page = client.get_records(ShardIterator=iterator)
            found += [record["Data"] for record in page["Records"]]
            iterator, behind_ms = page["NextShardIterator"], page["MillisBehindLatest"]
    return found


def test_each_region_has_its_own_streams(client: Client) -> None:
    home, other = client(HOME), client(OTHER)
    assert other.list_streams()["StreamNames"] == []
    with pytest.raises(other.exceptions.ResourceNotFoundException):
        other.describe_stream_summary(StreamName="orders")
    other.create_stream(StreamName="orders", ShardCount=2)
    home.put_record(StreamName="orders", Data=b"home", PartitionKey="k")
    other.put_record(StreamName="orders", Data=b"other", PartitionKey="k")
    assert (datas(home), datas(other)) == ([b"home"], [b"other"])
    for one, region in ((home, HOME), (other, OTHER)):
        summary = one.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"]
        assert summary["StreamARN"] == f"arn:aws:kinesis:{region}:123456789012:stream/orders"
    home.delete_stream(StreamName="orders")
    assert other.list_streams()["StreamNames"] == ["orders"]


def test_what_one_region_gives_out_is_nothing_in_another(client: Client) -> None:
    home, other = client(HOME), client(OTHER)
    other.create_stream(StreamName="orders", ShardCount=1)
    where = {"StreamName": "orders", "ShardId": "shardId-000000000000", "ShardIteratorType": "TRIM_HORIZON"}
    iterator = home.get_shard_iterator(**where)["ShardIterator"]
    with pytest.raises(other.exceptions.ClientError):
        other.get_records(ShardIterator=iterator)
    arn = home.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"]["StreamARN"]
    with pytest.raises(other.exceptions.ClientError):
        other.describe_stream_summary(StreamARN=arn)


def test_all_regions_are_there_after_a_restart(folder: Path, local: LocalKinesis, client: Client) -> None:
    other = client(OTHER)
    other.create_stream(StreamName="payments", ShardCount=1)
    other.put_record(StreamName="payments", Data=b"one", PartitionKey="k")
    client(HOME).put_record(StreamName="orders", Data=b"two", PartitionKey="k")
    local.stop()
    for _ in range(2):
        with LocalKinesis(data=folder) as again:
            there, home = (client_of(again.endpoint_url, "kinesis", region) for region in (OTHER, HOME))
            assert datas(there, "payments")[0] == b"one"
            assert home.list_streams()["StreamNames"] == ["orders"]
            there.put_record(StreamName="payments", Data=b"more", PartitionKey="k")
            there.close()
            home.close()
    local.start()


def test_what_is_thrown_out_is_of_its_region(folder: Path) -> None:
    """And the file that takes the journal's place is for its owner alone, as the journal was."""
    old = os.umask(0o022)
    try:
        with LocalKinesis(streams={"orders": 1}, data=folder) as local:
            other = client_of(local.endpoint_url, "kinesis", OTHER)
            other.create_stream(StreamName="orders", ShardCount=1)
            for _ in range(WASTE_BYTES_MIN // 900_000 + 1):
                other.put_record(StreamName="orders", Data=b"x" * 900_000, PartitionKey="k")
            local.clock.advance(25 * 3600)
            other.put_record(StreamName="orders", Data=b"kept", PartitionKey="k")
            other.close()
        before = (folder / "journal").stat()
        for _ in range(2):
            with LocalKinesis(data=folder) as local:
                other = client_of(local.endpoint_url, "kinesis", OTHER)
                assert datas(other) == [b"kept"]
                other.close()
        after = (folder / "journal").stat()
    finally:
        os.umask(old)
    assert after.st_size < before.st_size // 20
    assert [stat.S_IMODE(one.st_mode) for one in (before, after)] == [0o600, 0o600]
    assert [stat.S_IMODE(path.stat().st_mode) for path in sorted(folder.iterdir())] == [0o600, 0o600]


def test_a_journal_that_others_could_read_is_closed_to_them(folder: Path) -> None:
    with LocalKinesis(streams={"orders": 1}, data=folder):
        pass
    (folder / "journal").chmod(0o644)  # as a copy may be
    with LocalKinesis(data=folder):
        assert stat.S_IMODE((folder / "journal").stat().st_mode) == 0o600


def test_a_reset_is_of_all_regions(local: LocalKinesis, client: Client) -> None:
    client(OTHER).create_stream(StreamName="payments", ShardCount=1)
    local.reset()
    assert client(OTHER).list_streams()["StreamNames"] == []
    assert client(HOME).list_streams()["StreamNames"] == ["orders"]


def test_regions_are_bounded_and_a_call_without_one_is_for_the_home_region(local: LocalKinesis) -> None:
    with Wire(int(local.endpoint_url.rpartition(":")[2])) as wire:
        for number in range(REGIONS_MAX + 5):
            scope = f"AWS4-HMAC-SHA256 Credential=k/20260101/r-{number}/kinesis/aws4_request, "
            reply = wire.call(call_bytes("ListStreams", {}, Authorization=scope + "SignedHeaders=host, Signature=0"))
            assert reply.status == 200
        assert reply.json()["StreamNames"] == ["orders"]
        health: Any = wire.call(request_bytes(method="GET", path="/_shardway/health")).json()
    assert len(health["regions"]) == REGIONS_MAX
    assert health["regions"][HOME] == 1
    assert len(list(local._running_server().regions)) == REGIONS_MAX
