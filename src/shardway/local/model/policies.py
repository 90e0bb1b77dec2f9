"""Answer the operations on resource policies, which are kept and given back, and not enforced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from shardway.local.model.errors import invalid, not_found, stream_not_found
from shardway.local.model.stream import consumer_of_arn

if TYPE_CHECKING:
    from shardway.local.model.service import KinesisModel
    from shardway.local.model.stream import Stream


def put_resource_policy(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer PutResourcePolicy, for a stream or a consumer."""
    stream, consumer, _ = _policy_of(model, request["ResourceARN"])
    try:
        document = msgspec.json.decode(request["Policy"])
    except msgspec.DecodeError as error:
        raise invalid("The policy is not JSON.") from error
    if not isinstance(document, dict):
        raise invalid("The policy is not a JSON object.")
    _set_policy(model, stream, consumer, request["Policy"])


def get_resource_policy(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """Answer GetResourcePolicy: an empty document when there is no policy."""
    _, _, policy = _policy_of(model, request["ResourceARN"])
    return {"Policy": policy if policy is not None else "{}"}


def delete_resource_policy(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer DeleteResourcePolicy. Raises ResourceNotFoundException when there is no policy."""
    arn = request["ResourceARN"]
    stream, consumer, policy = _policy_of(model, arn)
    if policy is None:
        raise not_found(f"No resource policy found for resource ARN {arn}.")
    _set_policy(model, stream, consumer, None)


def _set_policy(model: KinesisModel, stream: Stream, consumer: str | None, policy: str | None) -> None:
    if consumer is None:
        model.commit("update", stream.uid, None, {"policy": policy})
    else:
        model.commit("consumer_update", stream.uid, consumer, {"policy": policy})


def _policy_of(model: KinesisModel, arn: str) -> tuple[Stream, str | None, str | None]:
    """Return (stream, consumer's name or None, present policy) of an ARN. Raises ResourceNotFoundException."""
    if "/consumer/" in arn:
        stream, consumer = consumer_of_arn(model, arn)
        return stream, consumer.name, consumer.policy
    found = model.find_stream(None, arn)
    if found is None:
        raise stream_not_found(arn, model.account_id)
    return found, None, found.policy
