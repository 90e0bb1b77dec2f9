"""Answers that no service should give: each is one of our errors, and may be asked for again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.aws.assumed_role import parse_credentials, sts_error
from shardway.aws.calls.answers import decoded, reading, service_error
from shardway.aws.calls.retry import NEVER
from shardway.aws.dynamodb.client import DynamoClient
from shardway.aws.dynamodb.lease_table import DynamoLeaseTable
from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.kinesis.shapes import GetRecordsPage, PutEntry, decode_get_records
from shardway.aws.options import ConnectionOptions, Credentials
from shardway.aws.record_source import KinesisSource
from shardway.aws.wire import Wire
from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.log.feed_cursor import FeedCursor
from shardway.core.log.pace import PollingOptions
from shardway.core.log.user_records import ShardView
from shardway.errors import OptionError, ShardwayError, TransportError
from shardway.events import ReadFailed
from shardway.model import HASH_KEY_MAX, IteratorAt, StreamName
from shardway.runtime.feeds.polling import PollingFeed
from tests.aws.aws_servers import Received, Reply, ScriptedServer, ok

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

NAME = StreamName("orders")
FIRST = 49590338271490256608559692538361571095921575989136588898
DEEP = b"[" * 100_000
HUGE = "9" * 400
RECORD = {"SequenceNumber": str(FIRST), "ApproximateArrivalTimestamp": 1.7e9, "Data": "eA==", "PartitionKey": "k"}
SHARD = {
    "ShardId": "shardId-000000000000",
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
    "SequenceNumberRange": {"StartingSequenceNumber": str(FIRST)},
}
PAGE = {"Records": [RECORD], "NextShardIterator": "next", "MillisBehindLatest": 0}
SUMMARY = {
    "StreamDescriptionSummary": {
        "StreamName": "orders", "StreamARN": "arn:aws:kinesis:eu-west-1:123456789012:stream/orders",
        "StreamStatus": "ACTIVE", "StreamCreationTimestamp": 1.7e9, "RetentionPeriodHours": 24, "OpenShardCount": 1,
    }
}  # fmt: skip


def settings_of(server: ScriptedServer) -> ConnectionOptions:
    return ConnectionOptions(region="eu-west-1", endpoint_url=server.url, credentials=Credentials("AKID", "secret"))


def text(value: Any) -> bytes:
    """JSON in which ``HUGE`` stands for a number of 400 digits."""
    return json.dumps(value).replace(f'"{HUGE}"', HUGE).encode()


NO_TEXT = b"""{"NextToken":"\xff", "NextShardIterator":"\xff", "ShardIterator":"\xff",
    "StreamDescriptionSummary":{"StreamName":"\xff"}, "Records":[{"SequenceNumber":"\xff"}]}"""
ODD_BYTES = [b"", b"null", b"5", b"[]", b"{}x", DEEP, b'{"Records":' * 50_000, NO_TEXT, b"\xff\xfe{}", b"\x00"]
ODD_VALUES: dict[str, list[Any]] = {
    "SequenceNumber": ["", "abc", "-5", "+5", " 5", "5_0", "5" * 5000, "\u0665", "\xb2", "NaN"],
    "ApproximateArrivalTimestamp": [1e300, -1e300, HUGE, "x", True],
    "Data": ["=", "\xe9", 5],
}
ODD_PAGES = [
    PAGE | {"MillisBehindLatest": HUGE},
    *[PAGE | {"Records": [RECORD | {name: odd}, RECORD]} for name, odds in ODD_VALUES.items() for odd in odds],
    PAGE | {"NextShardIterator": 5},
    PAGE | {"ChildShards": [{"ShardId": "x"}]},
]


@pytest.mark.parametrize("body", [*ODD_BYTES, *map(text, ODD_PAGES)], ids=lambda body: repr(body[-40:]))
def test_a_page_of_records(body: bytes) -> None:
    with pytest.raises(TransportError, match="GetRecords") as caught:
        decode_get_records(body)
    assert caught.value.retryable


Call = Any  # a coroutine of the client under test
CALLS: dict[str, tuple[Callable[[KinesisClient], Call], list[Any]]] = {
    "ListShards": (
        lambda client: client.list_shards(NAME, retry=NEVER),
        [
            {"Shards": [SHARD | {"HashKeyRange": {"StartingHashKey": odd, "EndingHashKey": "9"}}]}
            for odd in ("", "x", "-1", "5" * 5000, 5)
        ]
        + [{"Shards": [SHARD | {"SequenceNumberRange": {"StartingSequenceNumber": "1e3"}}]}],
    ),
    "DescribeStreamSummary": (
        lambda client: client.describe_stream_summary(NAME, retry=NEVER),
        [
            {"StreamDescriptionSummary": SUMMARY["StreamDescriptionSummary"] | odd}
            for odd in ({"RetentionPeriodHours": HUGE}, {"StreamCreationTimestamp": 1e300}, {"StreamARN": 5})
        ],
    ),
    "GetShardIterator": (
        lambda client: client.get_shard_iterator(NAME, "s", IteratorAt.latest(), retry=NEVER),
        [{}, {"ShardIterator": 5}],
    ),
    "PutRecords": (
        lambda client: client.put_records(NAME, [PutEntry(b"x", "k")], retry=NEVER),
        [{"Records": [{"SequenceNumber": odd, "ShardId": "s"}]} for odd in ("abc", "-1", "5" * 5000)],
    ),
    "DescribeLimits": (lambda client: client.call("DescribeLimits", {}, retry=NEVER), []),
}


@pytest.mark.parametrize("operation", list(CALLS))
async def test_the_other_calls(server: ScriptedServer, operation: str) -> None:
    call, odd = CALLS[operation]
    bodies = [body for body in ODD_BYTES if body] + [text(one) for one in odd]
    async with Wire(settings_of(server)) as wire:
        client = KinesisClient(wire)
        for body in bodies:
            server.replies.append(Reply(body))
            with pytest.raises(TransportError, match=operation) as caught:
                await call(client)
            assert caught.value.retryable, body[:60]


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize("body", ODD_BYTES, ids=lambda body: repr(body[:12]))
async def test_a_refusal(server: ScriptedServer, status: int, body: bytes) -> None:
    for kind in ("application/x-amz-json-1.1", "application/cbor", "text/html"):
        server.replies.append(Reply(body, status, {"content-type": kind}))
        async with Wire(settings_of(server)) as wire:
            with pytest.raises(ShardwayError, match=f"HTTP {status}"):
                await wire.call("kinesis", "ListStreams", b"{}", retry=NEVER)


@pytest.mark.parametrize(
    "head",
    [
        "HTTP/1.1 \xb2\xb2\xb2 OK\r\nContent-Length: 2",
        "HTTP/1.1 200 OK\r\nContent-Length: " + "9" * 5000,
        "HTTP/1.1 200 OK\r\nContent-Length: \xb2",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: \x1b[2J",
    ],
    ids=range(4),
)
async def test_a_head(server: ScriptedServer, head: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is an error of the call, and not one of the event loop's."""
    server.replies.append(Reply(raw=head.encode("latin-1") + b"\r\n\r\n{}", then="close"))
    async with Wire(settings_of(server)) as wire:
        with pytest.raises(TransportError):
            await wire.call("kinesis", "ListStreams", b"{}", retry=NEVER)
    assert caplog.records == []


@pytest.mark.parametrize("date", ["", "yesterday", "Sat, 99 Nov 2026 11:20:50 GMT", "Fri, 01 Jan 9999 00:00:00 -9999"])
async def test_a_date_that_is_none_is_not_taken_for_the_time(server: ScriptedServer, date: str) -> None:
    server.replies.append(ok({}, Date=date))
    async with Wire(settings_of(server)) as wire:
        assert await wire.call("kinesis", "ListStreams", b"{}", retry=NEVER) == b"{}"
        assert abs(wire.clock.offset_s) < 86_400 * 365 * 9000


@pytest.mark.parametrize("xml", [b"", b"<a", b"<a>" * 20_000, b'<?xml version="1.0" encoding="nowhere"?><a/>', b"\xff"])
def test_what_sts_says(xml: bytes) -> None:
    with pytest.raises(TransportError):
        parse_credentials(xml)
    assert sts_error("AssumeRole", 500, {}, xml).code == "HTTP 500"


@pytest.mark.parametrize(
    "odd", [{"Item": 5}, {"Item": {"a": 5}}, {"Item": {"a": {"Q": "x"}}}, {"Item": {"a": {"N": "x"}}},
            {"Item": {"a": {}}}, {"Items": 5}, {"Items": [5]}, {"Attributes": 5}, {}]
)  # fmt: skip
async def test_what_dynamodb_says(server: ScriptedServer, odd: Any) -> None:
    server.otherwise = lambda received: ok(odd)
    async with Wire(settings_of(server)) as wire:
        client = DynamoClient(wire)
        calls: list[tuple[Callable[[], Awaitable[object]], str]] = [
            (lambda: client.get("leases", {"k": "x"}), "Item"),
            (lambda: client.scan("leases", consistent=False), "Items"),
            (lambda: client.update("leases", {"k": "x"}, [("a", 1)], [("b", 2)], retry=NEVER), "Attributes"),
        ]
        for call, member in calls:
            if member in odd or member == "Attributes":
                with pytest.raises(TransportError, match="leases: the answer is not what this call returns"):
                    await call()


@pytest.mark.parametrize("odd", [{}, {"Table": 5}, {"Table": {"TableStatus": "ACTIVE", "KeySchema": [{}]}}])
async def test_a_table_that_is_described_oddly(server: ScriptedServer, odd: Any) -> None:
    server.otherwise = lambda received: ok(odd)
    table = DynamoLeaseTable("leases", settings_of(server))
    with pytest.raises(TransportError, match=r"DescribeTable of leases"):
        await table.ensure()
    await table.close()


@given(st.binary(max_size=60), st.sampled_from([b"[", b'{"a":', b'"', b"\xff"]), st.integers(0, 3))
def test_no_bytes_at_all_raise_anything_else(noise: bytes, begin: bytes, times: int) -> None:
    for body in (begin * times + noise, noise + begin * times, text(PAGE)[: len(noise)] + noise):
        for read in (lambda body: decode_get_records(body), lambda body: decoded("Any", body, dict[str, Any])):
            with contextlib.suppress(TransportError):
                read(body)
        assert isinstance(service_error("Any", 500, {"content-type": "application/cbor"}, body), ShardwayError)


def test_errors_of_our_own_pass() -> None:
    with pytest.raises(OptionError), reading("Any"):
        raise OptionError("ours")
    assert decoded("Any", b'{"Records":null}', GetRecordsPage).records == []


async def test_a_consumer_asks_again_after_an_odd_answer(server: ScriptedServer) -> None:
    """As it does after one that broke off: nothing of this ends the reading of a shard."""
    odd = [Reply(body) for body in (DEEP, NO_TEXT, text(ODD_PAGES[0]), text(ODD_PAGES[2]))]
    served = [*odd, ok(PAGE)]

    def answer(received: Received) -> Reply:
        if received.headers["x-amz-target"].endswith("GetShardIterator"):
            return ok({"ShardIterator": "i"})
        return served.pop(0)

    server.otherwise = answer
    told: list[Any] = []
    source = KinesisSource(NAME, settings_of(server))
    cursor = FeedCursor(ShardView("orders", "shardId-000000000000", 0, HASH_KEY_MAX), Checkpoint.TRIM_HORIZON)
    times = PollingOptions(interval_s=0.001, idle_interval_s=0.001)
    feed = PollingFeed(source, cursor, rng=random.Random(1), on_event=told.append, options=times)
    async with asyncio.timeout(60):
        taken = await feed.next()
    assert taken.records.datas == [b"x"]
    failures = [event for event in told if isinstance(event, ReadFailed)]
    assert len(failures) == len(odd)
    assert "RecursionError" in failures[0].reason
    await source.close()


# --- sequence numbers with zeros in front ---------------------------------------------------------


class Padding:
    """An emulator that pads its numbers with zeros to 30 digits and compares them as text."""

    def __init__(self, server: ScriptedServer, count: int, width: int = 30) -> None:
        self.numbers = [f"{1_790_000_000_000_0000000000 + number:0{width}d}" for number in range(count)]
        self.asked: list[str] = []
        self.listed = 0
        server.otherwise = self.answer

    def answer(self, received: Received) -> Reply:
        operation, wanted = received.headers["x-amz-target"].rpartition(".")[2], received.json
        if operation == "ListShards":
            self.listed += 1
            return ok({"Shards": [SHARD | {"SequenceNumberRange": {"StartingSequenceNumber": self.numbers[0]}}]})
        if operation == "GetShardIterator":
            start = wanted.get("StartingSequenceNumber", "")
            self.asked.append(start)
            behind = wanted["ShardIteratorType"] == "AFTER_SEQUENCE_NUMBER"
            place = sum(number < start or (behind and number == start) for number in self.numbers)
            return ok({"ShardIterator": str(place)})
        place = int(wanted["ShardIterator"])
        records = [RECORD | {"SequenceNumber": number} for number in self.numbers[place : place + wanted["Limit"]]]
        return ok({"Records": records, "NextShardIterator": str(place + len(records)), "MillisBehindLatest": 0})


@pytest.mark.parametrize("listed", [False, True])
async def test_zeros_in_front_are_kept(server: ScriptedServer, listed: bool) -> None:
    """By a client that has listed the shards, and by one that goes on from what another one stored."""
    emulator = Padding(server, 10)
    async with Wire(settings_of(server)) as wire:
        client = KinesisClient(wire)
        if listed:
            await client.list_shards(NAME)
        for place in (0, 4):
            number = int(emulator.numbers[place])
            at = await client.get_shard_iterator(NAME, "s", IteratorAt.at_sequence(number))
            behind = await client.get_shard_iterator(NAME, "s", IteratorAt.after_sequence(number))
            assert (at, behind) == (str(place), str(place + 1))
    assert emulator.asked == [emulator.numbers[place] for place in (0, 0, 4, 4)]
    assert emulator.listed == 1


async def test_numbers_of_aws_s_shape_need_no_listing(server: ScriptedServer) -> None:
    emulator = Padding(server, 1)
    async with Wire(settings_of(server)) as wire:
        await KinesisClient(wire).get_shard_iterator(NAME, "s", IteratorAt.at_sequence(FIRST))
    assert (emulator.asked, emulator.listed) == ([str(FIRST)], 0)


async def test_a_reader_that_asks_anew_skips_nothing(server: ScriptedServer) -> None:
    """An iterator that expired, or a consumer that was started anew, goes on behind the record before."""
    emulator = Padding(server, 40)
    got: list[int] = []
    done = Checkpoint.TRIM_HORIZON
    for _ in range(8):
        source = KinesisSource(NAME, settings_of(server))
        cursor = FeedCursor(ShardView("orders", "shardId-000000000000", 0, HASH_KEY_MAX), done)
        times = PollingOptions(interval_s=0.001, idle_interval_s=0.001, request_records_max=5)
        feed = PollingFeed(source, cursor, rng=random.Random(1), on_event=lambda _: None, options=times)
        async with asyncio.timeout(60):
            while not (taken := await feed.next()).records:
                pass
            got += [one.sequence_number for one in taken.records]
            feed.forget_iterator()
        done = Checkpoint.at(taken.records.position(-1))
        await source.close()
    assert got == sorted(set(got))
    assert got[:25] == [int(number) for number in emulator.numbers[:25]]


async def test_two_widths_are_refused_aloud(server: ScriptedServer) -> None:
    emulator = Padding(server, 10)
    async with Wire(settings_of(server)) as wire:
        client = KinesisClient(wire)
        await client.list_shards(NAME)
        emulator.numbers = [f"0{number}" for number in emulator.numbers]
        with pytest.raises(OptionError, match="with zeros to 30 digits, and others to 31"):
            await client.get_records("0")
