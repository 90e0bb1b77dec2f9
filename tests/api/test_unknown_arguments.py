"""An argument that a class does not take: one line says which is right, and of which group it is a field."""

from __future__ import annotations

import contextlib
import datetime as dt
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardway import (
    ConnectionOptions,
    Consumer,
    Credentials,
    LeaseOptions,
    OptionError,
    Producer,
    ProducerOptions,
    Retry,
    SyncConsumer,
    SyncProducer,
)
from shardway.core.options.base import fields_of
from shardway.core.options.unknown import OTHER_NAMES, places_of, snake_case
from shardway.runtime.arguments import _faces

CONSUMERS, PRODUCERS = (Consumer, SyncConsumer), (Producer, SyncProducer)


def told(face: Any, *values: Any, **given: Any) -> str:
    with pytest.raises(TypeError) as refused:
        face(*values, **given)
    text = str(refused.value)
    assert "\n" not in text
    return text.removeprefix(f"{face.__name__} has no argument ")


@pytest.mark.parametrize("face", CONSUMERS)
@pytest.mark.parametrize(
    ("odd", "advice"),
    [
        ("retyr", "is 'retry' meant?"),
        ("region_name", 'write region="eu-west-1"'),
        ("regionName", 'write region="eu-west-1"'),
        ("profile_name", "write profile=..."),
        ("StreamName", "write the stream's name as the first argument"),
        ("ShardIteratorType", 'write starting_position="TRIM_HORIZON"'),
        ("initialPositionInStream", 'write starting_position="TRIM_HORIZON"'),
        ("failover_s", "failover_s is a field of LeaseOptions, write leases=LeaseOptions(failover_s=...)"),
        ("failoverTimeMillis", "failover_s is a field of LeaseOptions, write leases=LeaseOptions(failover_s=...)"),
        ("failover", "is 'failover_s' meant, a field of LeaseOptions: leases=LeaseOptions(failover_s=...)?"),
        ("role_arn", "role_arn is a field of ConnectionOptions, write connection=ConnectionOptions(role_arn=...)"),
        (
            "session",
            "credentials is a field of ConnectionOptions, write connection=ConnectionOptions(credentials=session)",
        ),
        (
            "seconds",
            "seconds is a field of Every, write checkpoints=CheckpointOptions(cadence=Every(seconds=...))",
        ),
        (
            "aggregation",
            "aggregation is a field of ProducerOptions, which Producer takes: options=ProducerOptions(aggregation=...)",
        ),
        (
            "request_timeout_s",
            "request_timeout_s is a field of LeaseOptions and of ConnectionOptions, write "
            "leases=LeaseOptions(request_timeout_s=...) or connection=ConnectionOptions(request_timeout_s=...)",
        ),
    ],
)  # fmt: skip
def test_what_a_consumer_does_not_take(face: Any, odd: str, advice: str) -> None:
    assert told(face, "orders", application="billing", **{odd: 1}) == f"{odd!r}: {advice}"


@pytest.mark.parametrize("face", PRODUCERS)
@pytest.mark.parametrize(
    ("odd", "advice"),
    [
        ("aggregation", "aggregation is a field of ProducerOptions, write options=ProducerOptions(aggregation=...)"),
        (
            "agregation",
            "is 'aggregation' meant, a field of ProducerOptions: options=ProducerOptions(aggregation=...)?",
        ),
        (
            "RecordMaxBufferedTime",
            "linger_s is a field of ProducerOptions, write options=ProducerOptions(linger_s=...)",
        ),
        ("starting_position", "starting_position belongs to Consumer"),
        ("application", "application belongs to Consumer"),
        (
            "failover_s",
            "failover_s is a field of LeaseOptions, which Consumer takes: leases=LeaseOptions(failover_s=...)",
        ),
        ("region_name", 'write region="eu-west-1"'),
    ],
)  # fmt: skip
def test_what_a_producer_does_not_take(face: Any, odd: str, advice: str) -> None:
    assert told(face, "orders", **{odd: 1}) == f"{odd!r}: {advice}"


def test_a_name_of_boto3s_for_the_stream_is_told_before_the_missing_stream() -> None:
    assert told(Consumer, StreamName="orders", application="billing").startswith(
        "'StreamName': write the stream's name"
    )


def test_names_with_one_answer_are_told_together_and_others_apart() -> None:
    keys = {"aws_access_key_id": "AKIA", "aws_secret_access_key": "hush", "zzzz": 1}
    with pytest.raises(TypeError) as refused:
        Producer("orders", **keys)  # type: ignore[call-overload]
    assert str(refused.value) == (
        "Producer has no arguments 'aws_access_key_id' and 'aws_secret_access_key': credentials is a field of "
        "ConnectionOptions, write connection=ConnectionOptions(credentials=Credentials(access_key_id, "
        "secret_access_key, session_token)); Producer has no argument 'zzzz': help(Producer) shows what there is"
    )


def test_a_class_of_the_programs_own_is_called_by_its_name() -> None:
    class Billing(Consumer[bytes]):
        """A consumer with a name of its own."""

    with pytest.raises(TypeError, match=r"^Billing has no argument 'retyr'"):
        Billing("orders", application="billing", retyr=1)  # type: ignore[call-overload]


def test_a_group_says_where_a_field_belongs() -> None:
    assert told(ProducerOptions, failover_s=3) == "'failover_s': failover_s belongs to LeaseOptions"
    assert told(ProducerOptions, region="x") == "'region': region belongs to ConnectionOptions"
    assert told(LeaseOptions, region="x") == (
        "'region': region is a field of ConnectionOptions, write "
        'connection=ConnectionOptions(region="eu-west-1")'
    )  # fmt: skip
    assert told(ConnectionOptions, region_name="x") == "'region_name': write region=\"eu-west-1\""
    assert told(Retry, max_attempts=3) == "'max_attempts': write failures_max=..."


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=200).filter(lambda name: name.isidentifier() and name not in ("self", "stream")))
def test_any_name_meets_one_short_line(name: str) -> None:
    for face, own in ((Consumer, {"application": "billing"}), (Producer, {})):
        with contextlib.suppress(OptionError), pytest.raises(TypeError) as refused:
            face("orders", **own, **{name: None})  # type: ignore[call-overload]
        assert "\n" not in str(refused.value)
        assert len(str(refused.value)) < 400


def test_a_very_long_name_is_cut() -> None:
    assert len(told(Producer, "orders", **{"region" * 100_000: 1})) < 400


def test_each_name_of_other_libraries_leads_to_one_that_there_is() -> None:
    hints: dict[str, Any] = {"stream": Any, **dict.fromkeys(Credentials.__struct_fields__)}
    for theirs in _faces().values():
        hints |= theirs
    for other, ours in OTHER_NAMES.items():
        assert snake_case(other) == other
        assert places_of(ours, "...", hints, fields_of), other
        assert not [place for place in places_of(other, "...", hints, fields_of) if place.group is None], other


@pytest.mark.parametrize(
    ("name", "snake"),
    [
        ("StreamName", "stream_name"),
        ("StreamARN", "stream_arn"),
        ("AWSRegion", "aws_region"),
        ("linger.ms", "linger_ms"),
    ],
)
def test_names_are_read_in_any_case(name: str, snake: str) -> None:
    assert snake_case(name) == snake


@pytest.mark.parametrize(
    ("start", "advice"),
    [
        ("latest", "write 'LATEST'"),
        ("earliest", "write 'TRIM_HORIZON'"),
        ("trim-horizon", "write 'TRIM_HORIZON'"),
        ("AT_TIMESTAMP", "give the time itself, as a datetime with a time zone"),
        ("AFTER_SEQUENCE_NUMBER", "a consumer goes on from its checkpoints, and Consumer.seek"),
    ],
)
def test_a_start_in_other_words_is_told(start: str, advice: str) -> None:
    with pytest.raises(OptionError, match=f"not '{start}': {advice}"):
        Consumer("orders", application="billing", starting_position=start)


def test_a_start_as_a_time_needs_a_zone() -> None:
    with pytest.raises(OptionError, match=r"a start: .*zone"):
        Consumer("orders", application="billing", starting_position=dt.datetime(2026, 11, 1))
