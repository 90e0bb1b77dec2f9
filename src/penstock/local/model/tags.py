"""What is attached to streams and registered consumers: tags, and resource policies."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.local.model.state import consumer_of_arn
from penstock.local.model.validation import invalid, not_found, stream_not_found

if TYPE_CHECKING:
    from penstock.local.model.service import KinesisModel
    from penstock.local.model.state import Stream

# --- tags -----------------------------------------------------------------------------------------

TAGS_MAX = 50
"""Of one resource."""
LIST_DEFAULT = 50

_ALLOWED_SIGNS = frozenset("_.:/=+-@")


def _plain(text: str) -> bool:
    """Letters, digits, separators (no tab, no line end) and a few signs."""
    return all(char in _ALLOWED_SIGNS or unicodedata.category(char)[0] in "LNZ" for char in text)


def require_plain(model: KinesisModel, action: str, tags: Iterable[str] | dict[str, str]) -> None:
    """Raise InvalidArgumentException for a key or value with characters that tags may not have.

    The service checks twice: only its second check, which has another text, knows that ``%`` is not allowed.
    """
    texts = [*tags, *tags.values()] if isinstance(tags, dict) else list(tags)
    if not all(_plain(text.replace("%", "")) for text in texts):
        raise invalid(
            "Some tags contain invalid characters. Valid characters: "
            "Unicode letters, digits, white space, _ . / = + - % @."
        )
    if not all(_plain(text) for text in texts):
        raise invalid(
            f"Failed to {action} under account {model.account_id} because some tags contained illegal characters. "
            "The allowed characters are Unicode letters, white-spaces, '_',',','/','=','+','-','@'."
        )


def _merged(model: KinesisModel, name: str, old: dict[str, str], new: dict[str, str]) -> dict[str, str]:
    require_plain(model, f"add tags to stream {name}", new)
    merged = old | new
    if len(merged) > TAGS_MAX:
        raise invalid(
            f"Failed to add tags to stream {name} under account {model.account_id} "
            f"because a given stream cannot have more than {TAGS_MAX} tags associated with it."
        )
    return merged


def _without(model: KinesisModel, name: str, old: dict[str, str], keys: list[str]) -> dict[str, str]:
    require_plain(model, f"remove tags from stream {name}", keys)
    return {key: value for key, value in old.items() if key not in keys}


def add_tags_to_stream(model: KinesisModel, request: dict[str, Any]) -> None:
    """AddTagsToStream."""
    stream = model.stream_of(request)
    _set(model, stream, None, _merged(model, stream.name, stream.tags, request["Tags"]))


def remove_tags_from_stream(model: KinesisModel, request: dict[str, Any]) -> None:
    """RemoveTagsFromStream: keys that are not there do not matter."""
    stream = model.stream_of(request)
    _set(model, stream, None, _without(model, stream.name, stream.tags, request["TagKeys"]))


def list_tags_for_stream(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """ListTagsForStream, by key."""
    stream = model.stream_of(request)
    after = request.get("ExclusiveStartTagKey", "")
    limit = request.get("Limit", LIST_DEFAULT)
    keys = sorted(key for key in stream.tags if key > after)
    return {"Tags": _listed(stream.tags, keys[:limit]), "HasMoreTags": len(keys) > limit}


def tag_resource(model: KinesisModel, request: dict[str, Any]) -> None:
    """TagResource, of a stream or a consumer."""
    stream, consumer, tags = _resource(model, request["ResourceARN"])
    _set(model, stream, consumer, _merged(model, stream.name, tags, request["Tags"]))


def untag_resource(model: KinesisModel, request: dict[str, Any]) -> None:
    """UntagResource, of a stream or a consumer."""
    stream, consumer, tags = _resource(model, request["ResourceARN"])
    _set(model, stream, consumer, _without(model, stream.name, tags, request["TagKeys"]))


def list_tags_for_resource(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """ListTagsForResource, of a stream or a consumer, by key."""
    _, _, tags = _resource(model, request["ResourceARN"])
    return {"Tags": _listed(tags, sorted(tags))}


def _listed(tags: dict[str, str], keys: list[str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": tags[key]} for key in keys]


def _set(model: KinesisModel, stream: Stream, consumer: str | None, tags: dict[str, str]) -> None:
    if consumer is None:
        model.commit("update", stream.uid, None, {"tags": tags})
    else:
        model.commit("consumer_update", stream.uid, consumer, {"tags": tags})


def _resource(model: KinesisModel, arn: str) -> tuple[Stream, str | None, dict[str, str]]:
    """(stream, consumer's name or None, present tags) of an ARN. Raises ResourceNotFoundException."""
    if "/consumer/" in arn:
        stream, consumer = consumer_of_arn(model, arn)
        return stream, consumer.name, consumer.tags
    found = model.find_stream(None, arn)
    if found is None:
        raise stream_not_found(model.stream_named(None, arn), model.account_id)
    return found, None, found.tags


# --- policies -------------------------------------------------------------------------------------
# Resource policies: kept and given back, not enforced.


def put_resource_policy(model: KinesisModel, request: dict[str, Any]) -> None:
    """PutResourcePolicy, of a stream or a consumer."""
    stream, consumer, _ = _policy_of(model, request["ResourceARN"])
    try:
        document = msgspec.json.decode(request["Policy"])
    except msgspec.DecodeError as error:
        raise invalid("The policy is not JSON.") from error
    if not isinstance(document, dict):
        raise invalid("The policy is not a JSON object.")
    _set_policy(model, stream, consumer, request["Policy"])


def get_resource_policy(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """GetResourcePolicy; an empty document when there is none."""
    _, _, policy = _policy_of(model, request["ResourceARN"])
    return {"Policy": policy if policy is not None else "{}"}


def delete_resource_policy(model: KinesisModel, request: dict[str, Any]) -> None:
    """DeleteResourcePolicy; ResourceNotFoundException when there is none."""
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
    """(stream, consumer's name or None, present policy) of an ARN. Raises ResourceNotFoundException."""
    if "/consumer/" in arn:
        stream, consumer = consumer_of_arn(model, arn)
        return stream, consumer.name, consumer.policy
    found = model.find_stream(None, arn)
    if found is None:
        raise stream_not_found(arn, model.account_id)
    return found, None, found.policy
