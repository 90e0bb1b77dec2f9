"""``amazon_kclpy.dispatch``: from objects on the wire to messages."""

from __future__ import annotations

from typing import Any

from penstock.kclpy.shim import messages


class MalformedAction(Exception):  # noqa: N818 - amazon_kclpy's name
    """A line that is no message."""


_ACTIONS: dict[str, Any] = {
    "checkpoint": messages.CheckpointInput,
    "initialize": messages.InitializeInput,
    "leaseLost": messages.LeaseLostInput,
    "processRecords": messages.ProcessRecordsInput,
    "record": messages.Record,
    "shardEnded": messages.ShardEndedInput,
    "shutdownRequested": messages.ShutdownRequestedInput,
}


def message_decode(json_dict: dict[str, Any]) -> Any:
    """The message that an object says. Raises MalformedAction."""
    action = json_dict.get("action")
    try:
        return _ACTIONS[action](json_dict)  # type: ignore[index]
    except KeyError as fault:
        what = f"no field {fault}" if action in _ACTIONS else f"no action that is known: {', '.join(_ACTIONS)}"
        raise MalformedAction(f"a message has {what}") from fault
