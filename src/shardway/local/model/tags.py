"""Answer the operations on the tags of a stream or of a registered consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardway.local.model.errors import invalid, stream_not_found
from shardway.local.model.stream import consumer_of_arn
from shardway.local.model.tag_rules import TAGS_MAX, require_plain

if TYPE_CHECKING:
    from shardway.local.model.service import KinesisModel
    from shardway.local.model.stream import Stream


LIST_DEFAULT = 50


def _add(model: KinesisModel, name: str, old: dict[str, str], new: dict[str, str]) -> dict[str, str]:
    require_plain(model, f"add tags to stream {name}", new)
    merged = old | new
    if len(merged) > TAGS_MAX:
        raise invalid(
            f"Failed to add tags to stream {name} under account {model.account_id} "
            f"because a given stream cannot have more than {TAGS_MAX} tags associated with it."
        )
    return merged


def _remove(model: KinesisModel, name: str, old: dict[str, str], keys: list[str]) -> dict[str, str]:
    require_plain(model, f"remove tags from stream {name}", keys)
    return {key: value for key, value in old.items() if key not in keys}


def add_tags_to_stream(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer AddTagsToStream."""
    stream = model.stream_of(request)
    _set(model, stream, None, _add(model, stream.name, stream.tags, request["Tags"]))


def remove_tags_from_stream(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer RemoveTagsFromStream: keys that are not there do not matter."""
    stream = model.stream_of(request)
    _set(model, stream, None, _remove(model, stream.name, stream.tags, request["TagKeys"]))


def list_tags_for_stream(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """Answer ListTagsForStream, in the order of the keys."""
    stream = model.stream_of(request)
    after = request.get("ExclusiveStartTagKey", "")
    limit = request.get("Limit", LIST_DEFAULT)
    keys = sorted(key for key in stream.tags if key > after)
    return {"Tags": _tag_list(stream.tags, keys[:limit]), "HasMoreTags": len(keys) > limit}


def tag_resource(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer TagResource, for a stream or a consumer."""
    stream, consumer, tags = _resource(model, request["ResourceARN"])
    _set(model, stream, consumer, _add(model, stream.name, tags, request["Tags"]))


def untag_resource(model: KinesisModel, request: dict[str, Any]) -> None:
    """Answer UntagResource, for a stream or a consumer."""
    stream, consumer, tags = _resource(model, request["ResourceARN"])
    _set(model, stream, consumer, _remove(model, stream.name, tags, request["TagKeys"]))


def list_tags_for_resource(model: KinesisModel, request: dict[str, Any]) -> dict[str, Any]:
    """Answer ListTagsForResource, for a stream or a consumer, in the order of the keys."""
    _, _, tags = _resource(model, request["ResourceARN"])
    return {"Tags": _tag_list(tags, sorted(tags))}


def _tag_list(tags: dict[str, str], keys: list[str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": tags[key]} for key in keys]


def _set(model: KinesisModel, stream: Stream, consumer: str | None, tags: dict[str, str]) -> None:
    if consumer is None:
        model.commit("update", stream.uid, None, {"tags": tags})
    else:
        model.commit("consumer_update", stream.uid, consumer, {"tags": tags})


def _resource(model: KinesisModel, arn: str) -> tuple[Stream, str | None, dict[str, str]]:
    """Return (stream, consumer's name or None, present tags) of an ARN. Raises ResourceNotFoundException."""
    if "/consumer/" in arn:
        stream, consumer = consumer_of_arn(model, arn)
        return stream, consumer.name, consumer.tags
    found = model.find_stream(None, arn)
    if found is None:
        raise stream_not_found(model.stream_named(None, arn), model.account_id)
    return found, None, found.tags
