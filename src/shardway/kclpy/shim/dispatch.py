"""``amazon_kclpy.dispatch`` makes messages of objects on the wire."""

from __future__ import annotations

from typing import Any

from shardway.kclpy.shim.messages import (
    CheckpointInput,
    InitializeInput,
    LeaseLostInput,
    ProcessRecordsInput,
    Record,
    ShardEndedInput,
    ShutdownRequestedInput,
)


class MalformedAction(Exception):  # noqa: N818 - amazon_kclpy's name
    """A line of the wire is no message."""


_ACTIONS: dict[str, Any] = {
    "checkpoint": CheckpointInput,
    "initialize": InitializeInput,
    "leaseLost": LeaseLostInput,
    "processRecords": ProcessRecordsInput,
    "record": Record,
    "shardEnded": ShardEndedInput,
    "shutdownRequested": ShutdownRequestedInput,
}


def message_decode(json_dict: dict[str, Any]) -> Any:
    """Return the message that an object describes. Raises MalformedAction where it describes none."""
    action = json_dict.get("action")
    try:
        return _ACTIONS[action](json_dict)  # type: ignore[index]
    except KeyError as fault:
        what = f"no field {fault}" if action in _ACTIONS else f"no action that is known: {', '.join(_ACTIONS)}"
        raise MalformedAction(f"a message has {what}") from fault
