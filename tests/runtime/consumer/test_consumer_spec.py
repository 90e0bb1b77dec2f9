"""The specification of a consumer has what the program asked for, with types, and nothing that is made at the start."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from shardway import Consumer, LeaseOptions, OptionError, SyncConsumer
from shardway.policies import DeadLettersToStream
from shardway.runtime.consumer.lifecycle import ShardChange
from shardway.runtime.consumer.spec import ConsumerSpec, consumer_spec
from shardway.testing.streams.memory_stream import MemoryStream


def spec_of(stream: Any = "orders", **arguments: Any) -> ConsumerSpec:
    return consumer_spec(stream, "billing", None, None, arguments)  # type: ignore[arg-type]


def test_what_is_no_option_has_a_field_of_its_own() -> None:
    rng = random.Random(1)
    spec = spec_of(worker_id="a", rng=rng)
    assert (spec.application, spec.streams, spec.worker_id, spec.rng) == ("billing", ("orders",), "a", rng)
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.worker_id = "b"  # type: ignore[misc]


def test_what_a_fork_may_not_share_is_left_to_the_start() -> None:
    spec = spec_of()
    assert (spec.worker_id, spec.rng) == ("", None)


def test_a_list_of_one_stream_is_several() -> None:
    assert not spec_of("orders").of_several
    assert spec_of(["orders"]).of_several
    assert spec_of(["orders", MemoryStream("returns").source()]).stream_names == "orders, returns"


def test_only_changes_that_have_a_callback_are_hooks() -> None:
    async def lost(shards: Any) -> None:
        raise AssertionError(shards)

    assert spec_of(on_shards_lost=lost, on_shards_ended=None).hooks.callbacks == {ShardChange.LOST: lost}


@pytest.mark.parametrize(
    ("stream", "arguments", "allowed"),
    [
        ("orders", {}, True),
        ("orders", {"own_thread": False}, False),
        (MemoryStream("orders").source(), {}, False),
        ("orders", {"leases": LeaseOptions(table="billing-leases")}, True),
        ("orders", {"dead_letters": DeadLettersToStream(stream="letters")}, True),
    ],
    ids=["names", "unwanted", "a stream of the program", "a table by name", "letters by name"],
)
def test_the_work_may_leave_the_loop_where_nothing_is_of_the_programs_own_making(
    stream: Any, arguments: dict[str, Any], allowed: bool
) -> None:
    assert spec_of(stream, **arguments).allows_own_thread is allowed


@pytest.mark.parametrize("face", [Consumer, SyncConsumer])
def test_all_faults_of_types_are_raised_together(face: Any) -> None:
    with pytest.raises(OptionError, match="deserializer is a function, not 3; on_shards_lost is a function, not 4"):
        face("orders", application="billing", deserializer=3, on_shards_lost=4)
