"""Region, endpoint and profile are plain arguments of consumers and producers, beside the rest in ConnectionOptions."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any

import pytest

from shardway import (
    ConnectionOptions,
    Consumer,
    Credentials,
    OptionError,
    OutRecord,
    Producer,
    SyncConsumer,
    SyncProducer,
)
from shardway.errors import CredentialsError
from shardway.leases import MemoryLeaseTable
from shardway.testing import LocalKinesis
from shardway.testing.streams.memory_stream import MemoryStream
from shardway.wiring import connection_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEYS = Credentials("local", "local")
FACES = [Consumer, SyncConsumer, Producer, SyncProducer]


def made(face: Any, stream: Any = "orders", **given: Any) -> Any:
    own = {"application": "billing"} if face in (Consumer, SyncConsumer) else {}
    return face(stream, **own, **given)


@pytest.mark.parametrize("face", FACES)
def test_an_argument_that_contradicts_the_connection_is_an_error_that_names_both(face: Any) -> None:
    with pytest.raises(OptionError) as refused:
        made(
            face,
            region="eu-west-1",
            profile="staging",
            connection=ConnectionOptions(region="us-east-1", profile="live"),
        )
    assert refused.value.faults == [
        "region is given twice: 'eu-west-1' as an argument, and 'us-east-1' in connection: leave one of them out",
        "profile is given twice: 'staging' as an argument, and 'live' in connection: leave one of them out",
    ]


@pytest.mark.parametrize("face", FACES)
def test_what_is_no_region_endpoint_or_profile_is_refused_when_it_is_given(face: Any) -> None:
    for wrong, told in (
        ({"region": "Ireland (Dublin)"}, "is no AWS region"),
        ({"region": 7}, "region is a text, not 7"),
        ({"endpoint_url": "localhost:4567"}, "endpoint_url must begin with http:// or https://"),
        ({"profile": b"staging"}, "profile is a text, not a bytes"),
    ):
        with pytest.raises(OptionError, match=told):
            made(face, **wrong)


def test_arguments_fill_what_the_connection_leaves_open() -> None:
    both = connection_of({"region": "eu-west-1", "profile": None, "connection": ConnectionOptions(credentials=KEYS)})
    assert both == ConnectionOptions(region="eu-west-1", credentials=KEYS)
    same = ConnectionOptions(region="eu-west-1")
    assert connection_of({"region": "eu-west-1", "connection": same}) == same
    assert connection_of({"region": "eu-west-1"}) == same
    assert connection_of({"connection": None, "endpoint_url": None}) is None


def test_a_contradiction_between_the_two_is_found_together_as_in_one() -> None:
    """Together they are checked as one: FIPS names an endpoint of AWS's."""
    with pytest.raises(OptionError, match="use_fips and endpoint_url contradict each other"):
        connection_of({"endpoint_url": "http://127.0.0.1:1", "connection": ConnectionOptions(use_fips=True)})


def test_a_password_in_an_endpoint_is_not_repeated() -> None:
    with pytest.raises(OptionError) as refused:
        connection_of(
            {
                "endpoint_url": "http://me:hush@one:1",
                "connection": ConnectionOptions(endpoint_url="http://two:1"),
            }
        )
    assert "hush" not in str(refused.value)


def test_a_stream_of_the_programs_own_making_has_no_region() -> None:
    stream: Any = MemoryStream()
    with pytest.raises(OptionError, match=r"region, endpoint_url and profile say how to reach a stream .* not a sink"):
        Producer(stream, region="eu-west-1")


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalKinesis]:
    """A service that the environment leads away from: in region and in endpoint."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "local")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "local")
    monkeypatch.setenv("AWS_REGION", "mars-north-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with LocalKinesis(streams={"orders": 1}) as running:
        yield running


async def test_producers_and_consumers_reach_the_stream_by_plain_arguments(local: LocalKinesis) -> None:
    where: dict[str, Any] = {"region": local.region, "endpoint_url": local.endpoint_url}
    async with Producer("orders", **where) as producer:
        await producer.put(OutRecord(b"one", "a"))
    start: dict[str, Any] = {"application": "billing", "starting_position": "TRIM_HORIZON", **where}
    async with Consumer("orders", **start, leases=MemoryLeaseTable()) as consumer:
        (batch,) = await consumer.getmany(1)
        assert [record.data for record in batch] == [b"one"]


def test_the_faces_for_threads_reach_it_by_them_too(local: LocalKinesis) -> None:
    where: dict[str, Any] = {"region": local.region, "endpoint_url": local.endpoint_url}
    with SyncProducer("orders", **where) as producer:
        producer.put(OutRecord(b"one", "a"))
    start: dict[str, Any] = {"application": "billing", "starting_position": "TRIM_HORIZON", **where}
    with SyncConsumer("orders", **start, leases=MemoryLeaseTable()) as consumer:
        (batch,) = consumer.getmany(1)
        assert [record.data for record in batch] == [b"one"]


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ({}, OptionError, "no AWS region: give the region option, set AWS_REGION"),
        ({"region": "eu-west-1"}, CredentialsError, "no AWS credentials were found. .* Set the two variables"),
        ({"region": "eu-west-1", "profile": "staging"}, CredentialsError, r"profile \(staging\) could not be found"),
        ({"region": "eu-west1", "connection": ConnectionOptions(credentials=KEYS)}, OptionError, "is 'eu-west-1'"),
    ],
    ids=["no region", "no credentials", "no such profile", "misspelt region"],
)  # fmt: skip
def test_the_first_mistakes_end_in_one_line_that_says_what_to_do(
    face: Any, given: dict[str, Any], error: type[Exception], told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))

    async def started() -> None:
        async with contextlib.AsyncExitStack() as stack:
            if face in (Consumer, Producer):
                await stack.enter_async_context(made(face, **given))
            else:
                await asyncio.to_thread(stack.enter_context, made(face, **given))

    with pytest.raises(error, match=told) as refused:
        asyncio.run(started())
    assert "\n" not in str(refused.value)
