"""Resource policies: kept and given back, not enforced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.local.model.consumer import consumer_of_arn
from penstock.local.model.errors import invalid, not_found, stream_not_found

if TYPE_CHECKING:
    from penstock.local.model.service import KinesisModel
    from penstock.local.model.stream import Stream


def put_resource_policy(model: KinesisModel, request: dict[str, Any]) -> None:
    """PutResourcePolicy, of a stream or a consumer."""
    stream, consumer, _ = _resource(model, request["ResourceARN"])
    try:
        document = msgspec.json.decode(request["Policy"])
    except msgspec.DecodeError as error:
        raise invalid("The policy is not JSON.") from error
    if not isinstance(document, dict):
        raise invalid("The policy is not a JSON object.")
    _set(model, stream, consumer, request["Policy"])


def get_resource_policy(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """GetResourcePolicy; an empty document when there is none."""
    _, _, policy = _resource(model, request["ResourceARN"])
    return {"Policy": policy if policy is not None else "{}"}


def delete_resource_policy(model: KinesisModel, request: dict[str, Any]) -> None:
    """DeleteResourcePolicy; ResourceNotFoundException when there is none."""
    arn = request["ResourceARN"]
    stream, consumer, policy = _resource(model, arn)
    if policy is None:
        raise not_found(f"No resource policy found for resource ARN {arn}.")
    _set(model, stream, consumer, None)


def _set(model: KinesisModel, stream: Stream, consumer: str | None, policy: str | None) -> None:
    if consumer is None:
        model.commit("update", stream.uid, None, {"policy": policy})
    else:
        model.commit("consumer_update", stream.uid, consumer, {"policy": policy})


def _resource(model: KinesisModel, arn: str) -> tuple[Stream, str | None, str | None]:
    """(stream, consumer's name or None, present policy) of an ARN. Raises ResourceNotFoundException."""
    if "/consumer/" in arn:
        stream, consumer = consumer_of_arn(model, arn)
        return stream, consumer.name, consumer.policy
    found = model.find_stream(None, arn)
    if found is None:
        raise stream_not_found(arn, model.account_id)
    return found, None, found.policy
