"""The arguments of consumers and producers: `help` and editors show each of them, and mypy checks them in a program."""

from __future__ import annotations

import inspect
import pydoc
from typing import TYPE_CHECKING, Any

import pytest
from scripts.arguments import MODULE, arguments_text

from shardway import (
    ConnectionOptions,
    Consumer,
    LeaseOptions,
    Producer,
    ProducerOptions,
    Skip,
    SyncConsumer,
    SyncProducer,
)
from shardway.options.consumer import ConsumerOptions
from shardway.runtime.consumer.arguments import ConsumerArguments, SyncConsumerArguments
from shardway.runtime.producer.arguments import ProducerArguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway import AssignedShard

FACES: list[tuple[Any, Any, list[str]]] = [
    (Consumer, ConsumerArguments, ["stream", "application", "deserializer", "split"]),
    (SyncConsumer, SyncConsumerArguments, ["stream", "application", "deserializer", "split"]),
    (Producer, ProducerArguments, ["stream", "serializer"]),
    (SyncProducer, ProducerArguments, ["stream", "serializer"]),
]


@pytest.mark.parametrize(("face", "typed", "own"), FACES)
def test_each_argument_is_shown(face: Any, typed: Any, own: list[str]) -> None:
    shown = inspect.signature(face).parameters
    assert [*shown] == [*own, *typed.__annotations__]
    assert not [one for one in shown.values() if one.kind is inspect.Parameter.VAR_KEYWORD]
    assert inspect.signature(face.__init__).parameters.keys() == {"self", *shown}
    text = pydoc.plain(pydoc.render_doc(face))
    for name, kind in typed.__annotations__.items():
        assert f"{name}: {kind.__forward_arg__} = " in text


@pytest.mark.parametrize("face", [Consumer, SyncConsumer])
def test_the_defaults_of_a_consumer_are_those_that_it_has(face: Any) -> None:
    shown = inspect.signature(face).parameters
    for name, default in ConsumerOptions().arguments().items():
        assert name[0] == "_" or shown[name].default == default
    assert "leases: LeaseOptions | LeaseTable = LeaseOptions(), " in str(inspect.signature(face))
    assert "ConsumerOptions" not in str(inspect.signature(face))


def test_the_arguments_that_are_options_are_written_from_these() -> None:
    assert MODULE.read_text(encoding="utf-8") == arguments_text(), "run python -m scripts.arguments"


def test_options_show_what_was_chosen() -> None:
    assert repr(LeaseOptions()) == "LeaseOptions()"
    assert repr(LeaseOptions(failover_s=10.0, leases_max=3)) == "LeaseOptions(leases_max=3)"
    assert (
        repr(ConnectionOptions(role_arn="a role", role_external_id="secret")) == "ConnectionOptions(role_arn='a role')"
    )


async def wrong_arguments_for_mypy(letters: str) -> None:
    """Each line with a comment is a finding of mypy, or it says that the comment is not used."""

    async def awaited(shards: Sequence[AssignedShard]) -> None:
        """A callback for tasks."""

    def plain(shards: Sequence[AssignedShard]) -> None:
        """A callback for threads."""

    Consumer("orders", application="billing", leases=LeaseOptions(failover_s=5.0), on_shards_lost=awaited)
    SyncConsumer("orders", application="billing", starting_position="LATEST", on_shards_lost=plain)
    Consumer("orders", application="billing", on_shards_lost=plain)  # type: ignore[arg-type]
    Consumer("orders", application="billing", leese=1)  # type: ignore[call-overload]
    Consumer("orders", application="billing", retry=Skip())  # type: ignore[call-overload]
    SyncConsumer("orders", application="billing", dead_letters=letters)  # type: ignore[call-overload]
    Producer("orders", options=ProducerOptions(aggregation=True))
    Producer("orders", aggregation=True)  # type: ignore[call-overload]
    Producer("orders", region="eu-west-1", profile="staging")
    SyncConsumer("orders", application="billing", region="eu-west-1", endpoint_url="http://127.0.0.1:4567")
    Producer("orders", region=7)  # type: ignore[call-overload]
    SyncProducer("orders", options=LeaseOptions())  # type: ignore[call-overload]
