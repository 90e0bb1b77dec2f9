"""The fixtures, used as a user's tests use them: in a pytest of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shardway import OutRecord, Producer
from shardway.core.aggregation.writer import encode_aggregate
from shardway.testing.streams.served_stream import name_of_test

if TYPE_CHECKING:
    from shardway.testing.streams.served_stream import ServedStream

pytest_plugins = ["pytester"]

CONFIG = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
addopts = --strict-markers -W error -p no:cacheprovider
"""
USERS_TESTS = '''
import json

import pytest

from shardway import Consumer, Producer, OutRecord


async def bill(consumer, billed):
    """The program that is tested."""
    async for batch in consumer:
        with batch:
            billed += [value["order"] for value in batch.values]


async def test_without_a_server(make_consumer):
    billed = []
    async with make_consumer([{"order": 1}, {"order": 2}], deserializer=json.loads) as consumer:
        await bill(consumer, billed)
    assert billed == [1, 2]
    async with make_consumer([{"order": 3}], deserializer=json.loads) as consumer:
        await bill(consumer, billed)
    assert billed == [1, 2, 3]


@pytest.mark.kinesis(shards=2)
class TestShards:
    def test_of_the_marker(self, make_consumer):
        assert len(make_consumer().stream.shards()) == 2

    @pytest.mark.kinesis(name="orders")
    def test_of_both_markers(self, kinesis_stream, monkeypatch):
        assert kinesis_stream.name == "orders"
        assert len(kinesis_stream.shards()) == 2

    def test_named_after_the_test(self, kinesis_stream, local_kinesis):
        assert kinesis_stream.name == "test_named_after_the_test"
        assert local_kinesis.stats().operations == {}


async def test_over_http(kinesis_stream):
    async with Producer(kinesis_stream.name) as producer:
        await producer.put(OutRecord(b"hello", "k"))
    assert [record.data for record in kinesis_stream.records()] == [b"hello"]


def test_that_fails(make_consumer):
    assert make_consumer() is None
'''


def test_a_users_tests_run(pytester: pytest.Pytester) -> None:
    pytester.makeini(CONFIG)
    pytester.makepyfile(USERS_TESTS)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines(["*test_that_fails*"])


@pytest.mark.slow
def test_the_fixtures_and_the_marker_are_told(pytester: pytest.Pytester) -> None:
    found = pytester.runpytest_subprocess("--fixtures", "-p", "no:cacheprovider")
    found.stdout.fnmatch_lines(
        ["local_kinesis*", "kinesis_endpoint*", "kinesis_stream*", "make_consumer*"], consecutive=False
    )
    pytester.runpytest_subprocess("--markers").stdout.fnmatch_lines(["@pytest.mark.kinesis(shards=1, name=None*"])


@pytest.mark.kinesis(shards=2, name="orders", region="eu-west-1")
async def test_a_stream_of_the_local_kinesis_is_in_the_tests_hands(kinesis_stream: ServedStream) -> None:
    assert kinesis_stream.local.region == kinesis_stream.connection.region == "eu-west-1"
    first, second = kinesis_stream.shards()
    kinesis_stream.put("a", encode_aggregate([("k", b"b", None), ("k", b"c", None)]), key="k", shard=second)
    async with Producer("orders", connection=kinesis_stream.connection) as producer:
        await producer.put(OutRecord(b"d", "k"))
    found = kinesis_stream.records()
    assert sorted(record.data for record in found) == [b"a", b"b", b"c", b"d"]
    assert [(one.shard_id, one.sub_sequence_number) for one in found if one.data in b"abc"] == [
        (second, 0),
        (second, 0),
        (second, 1),
    ]
    child = kinesis_stream.merge(first, second)
    assert kinesis_stream.shards() == [child]
    assert len(kinesis_stream.split()) == 2
    assert len(kinesis_stream.records()) == 4


@pytest.mark.parametrize(
    ("test", "name"),
    [
        ("test_it", "test_it"),
        ("test_it[a/b c-\u00e9]", "test_it-a-b-c"),
        ("x" * 200, "x" * 128),
        ("[]", "stream"),
    ],
)
def test_a_streams_name_out_of_a_tests(test: str, name: str) -> None:
    assert name_of_test(test) == name


def test_many_records_are_put_in_several_calls(kinesis_stream: ServedStream) -> None:
    found: list[Any] = kinesis_stream.put(*["x"] * 1100)
    assert len(found) == len({one.sequence_number for one in found}) == 1100
    assert len(kinesis_stream.records()) == 1100
