"""Registered consumers: RegisterStreamConsumer, and the other operations on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardway.local.model import tokens
from shardway.local.model.errors import (
    in_use,
    invalid,
    limit_exceeded,
    not_found,
)
from shardway.local.model.shard_lists import open_token, require_creation_time
from shardway.local.model.stream import Consumer, consumer_of_arn
from shardway.local.model.tag_rules import TAGS_MAX, require_plain

if TYPE_CHECKING:
    from shardway.local.model.service import KinesisModel
    from shardway.local.model.stream import Stream


CONSUMERS_MAX = 20
"""The registered consumers of one stream."""
ADVANTAGE_CONSUMERS_MAX = 50
"""The registered consumers of an on-demand stream, in an account with a throughput commitment (On-demand Advantage)."""
CREATING_MAX = 5
LIST_MAX = 100


def register_stream_consumer(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """Answer RegisterStreamConsumer."""
    stream = model.stream_of(request)
    name = request["ConsumerName"]
    if not stream.writable:
        raise in_use(
            f"Stream {stream.name} under account {model.account_id} not ACTIVE, instead in state {stream.status}"
        )
    now_ms = model.now_ms()
    existing = [consumer for consumer in stream.consumers.values() if consumer.exists(now_ms)]
    if any(consumer.name == name for consumer in existing):
        raise in_use(f"Consumer {name} under stream {stream.name} already exists for account {model.account_id}.")
    most = CONSUMERS_MAX
    if stream.mode == "ON_DEMAND" and model.state.commitment["Status"] != "DISABLED":
        most = ADVANTAGE_CONSUMERS_MAX
    if len(existing) >= most:
        raise limit_exceeded(
            f"Stream {stream.name} under account {model.account_id} has {len(existing)} registered consumers; "
            f"the limit is {most}."
        )
    if sum(1 for consumer in existing if consumer.status(now_ms) == "CREATING") >= CREATING_MAX:
        raise limit_exceeded(
            f"Stream {stream.name} under account {model.account_id} has {CREATING_MAX} consumers in CREATING status."
        )
    tags = request.get("Tags", {})
    if len(tags) > TAGS_MAX:
        raise invalid(f"A consumer cannot have more than {TAGS_MAX} tags associated with it.")
    require_plain(model, f"register consumer {name}", tags)
    before_s = model.state.last_created_s.get(f"{stream.name}/{name}", 0)
    created_s = max(now_ms // 1000, before_s + 1)
    model.commit("consumer", stream.uid, name, created_s, model.due_ms(now_ms), tags)
    return {"Consumer": stream.consumers[name].describe(now_ms)}


def describe_stream_consumer(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """Answer DescribeStreamConsumer, for a consumer's ARN, or for a stream's ARN and a name."""
    stream, consumer = _named_consumer(model, request)
    model.meters.stream_call("DescribeStreamConsumer", stream.name, model.account_id)
    return {"ConsumerDescription": consumer.describe(model.now_ms()) | {"StreamARN": stream.arn}}


def deregister_stream_consumer(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer DeregisterStreamConsumer: the consumer's subscriptions end."""
    stream, consumer = _named_consumer(model, request)
    model.meters.stream_call("DeregisterStreamConsumer", stream.name, model.account_id)
    if consumer.gone_ms is None:
        model.commit("consumer_update", stream.uid, consumer.name, {"gone_ms": model.due_ms(model.now_ms())})
        model.subscriptions.wake(consumer.arn)


def list_stream_consumers(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """Answer ListStreamConsumers, in the order of the names."""
    stream = model.stream_of(request)
    require_creation_time(model, stream, request)
    model.meters.stream_call("ListStreamConsumers", stream.name, model.account_id)
    now_ms = model.now_ms()
    after = ""
    if "NextToken" in request:
        uid, after = open_token(model, "ListStreamConsumers", request["NextToken"])
        if uid != stream.uid:
            raise invalid("Invalid NextToken: it was given for another stream.")
    names = sorted(name for name, c in stream.consumers.items() if name > after and c.exists(now_ms))
    limit = min(LIST_MAX, request.get("MaxResults", LIST_MAX))
    page = names[:limit]
    answer: dict[str, Any] = {"Consumers": [stream.consumers[name].describe(now_ms) for name in page]}
    if len(names) > limit:
        answer["NextToken"] = tokens.write_token("ListStreamConsumers", now_ms, [stream.uid, page[-1]])
    return answer


def _named_consumer(model: KinesisModel, request: dict[str, Any]) -> tuple[Stream, Consumer]:
    """Return the stream and the consumer that a request names by ARN, by stream and name, or in both ways."""
    name, arn = request.get("ConsumerName"), request.get("ConsumerARN")
    if arn is not None:
        stream, consumer = consumer_of_arn(model, arn)
        if request.get("StreamARN", stream.arn) != stream.arn or (name is not None and name != consumer.name):
            raise invalid("ConsumerARN does not agree with StreamARN and ConsumerName.")
        return stream, consumer
    if "StreamARN" not in request or name is None:
        raise invalid("Either ConsumerARN, or both StreamARN and ConsumerName, should be provided.")
    stream = model.stream_of(request)
    found = stream.consumers.get(name)
    if found is None or not found.exists(model.now_ms()):
        raise not_found(f"Consumer {name} under stream {stream.name} not found for account {model.account_id}.")
    return stream, found
