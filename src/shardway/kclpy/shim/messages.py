"""``amazon_kclpy.messages`` has what a processor's methods are called with."""

from __future__ import annotations

import base64
import datetime as dt
from typing import Any, Protocol

from shardway.kclpy.shim.checkpoint_error import CheckpointError


class Checkpoints(Protocol):
    """An object that can put checkpoints."""

    def checkpoint(self, sequence_number: str | None = None, sub_sequence_number: int | None = None) -> None:
        """See `shardway.kclpy.shim.kcl.Checkpointer`."""


class Record:
    """One record of a shard, or of an aggregate in it."""

    def __init__(self, json_dict: dict[str, Any]) -> None:
        self._json_dict = json_dict
        self._data: str = json_dict["data"]
        self._timestamp_millis = int(json_dict["approximateArrivalTimestamp"])

    @property
    def binary_data(self) -> bytes:
        """The data that was put."""
        return base64.b64decode(self._data)

    @property
    def data(self) -> str:
        """The data in base64."""
        return self._data

    @property
    def sequence_number(self) -> str:
        """The sequence number in decimal; records of one aggregate have the same."""
        return str(self._json_dict["sequenceNumber"])

    @property
    def sub_sequence_number(self) -> int:
        """The place inside of an aggregate, from 0."""
        return int(self._json_dict["subSequenceNumber"])

    @property
    def partition_key(self) -> str:
        """The partition key with which the record was put."""
        return self._json_dict["partitionKey"]  # type: ignore[no-any-return]

    @property
    def timestamp_millis(self) -> int:
        """The time at which the record arrived, in milliseconds since the epoch."""
        return self._timestamp_millis

    @property
    def approximate_arrival_timestamp(self) -> dt.datetime:
        """The time at which the record arrived, in local time, without a zone."""
        return dt.datetime.fromtimestamp(self._timestamp_millis / 1000)

    def get(self, field: str) -> Any:
        """Return a field by its name on the wire: ``data``, ``partitionKey``, ``sequenceNumber``, ..."""
        return self._json_dict[field]

    def __getitem__(self, field: str) -> Any:
        return self._json_dict[field]


class MessageDispatcher:
    """A message that calls a method of a processor (of the third shape)."""

    action = ""
    """The message's name on the wire."""

    def __init__(self, json_dict: dict[str, Any]) -> None:
        self._checkpointer: Checkpoints | None = None

    @property
    def checkpointer(self) -> Checkpoints | None:
        """The checkpointer for use while the message is being handled."""
        return self._checkpointer

    def dispatch(self, checkpointer: Checkpoints, record_processor: Any) -> None:
        """Call the processor's method."""
        self._checkpointer = checkpointer
        self._call(record_processor)

    def _call(self, processor: Any) -> None:
        raise TypeError(f"{type(self).__name__} calls nothing")


class InitializeInput(MessageDispatcher):
    """The message that says which shard it is, and where it goes on."""

    action = "initialize"

    def __init__(self, json_dict: dict[str, Any]) -> None:
        super().__init__(json_dict)
        self.shard_id: str = json_dict["shardId"]
        self.sequence_number: str = json_dict["sequenceNumber"]
        self.sub_sequence_number: int = json_dict["subSequenceNumber"]

    def _call(self, processor: Any) -> None:
        processor.initialize(self)


class ProcessRecordsInput(MessageDispatcher):
    """The message with records, in the shard's order."""

    action = "processRecords"

    def __init__(self, json_dict: dict[str, Any]) -> None:
        super().__init__(json_dict)
        self.records: list[Record] = json_dict["records"]
        self.millis_behind_latest: int | None = json_dict["millisBehindLatest"]

    def _call(self, processor: Any) -> None:
        processor.process_records(self)


class LeaseLostInput(MessageDispatcher):
    """The message that another worker has the shard, or will: there is nothing left to do."""

    action = "leaseLost"

    def _call(self, processor: Any) -> None:
        self._checkpointer = None
        processor.lease_lost(self)


class ShardEndedInput(MessageDispatcher):
    """The message that all records of the shard were given: put a checkpoint."""

    action = "shardEnded"

    def _call(self, processor: Any) -> None:
        processor.shard_ended(self)


class ShutdownRequestedInput(MessageDispatcher):
    """The message that the shard will be let go of: a checkpoint may be put before."""

    action = "shutdownRequested"

    def _call(self, processor: Any) -> None:
        processor.shutdown_requested(self)


class LeaseLostCheckpointer:
    """A checkpointer for when no checkpoint can be put any more."""

    def checkpoint(self, sequence_number: str | None = None, sub_sequence_number: int | None = None) -> None:
        """Raises CheckpointError."""
        raise CheckpointError("ShutdownException")


class ShutdownInput:
    """The message of a shard's end, for processors of the second shape."""

    action = "shutdown"

    def __init__(self, reason: str, checkpointer: Checkpoints) -> None:
        self.reason = reason
        """The reason of the end. ``TERMINATE``: the shard has ended, put a checkpoint. ``ZOMBIE``: the lease is lost.
        """
        self.checkpointer = checkpointer

    @staticmethod
    def zombie() -> ShutdownInput:
        """Return the message for a lease that is lost."""
        return ShutdownInput("ZOMBIE", LeaseLostCheckpointer())

    @staticmethod
    def terminate(checkpointer: Checkpoints) -> ShutdownInput:
        """Return the message for a shard that has ended."""
        return ShutdownInput("TERMINATE", checkpointer)


class CheckpointInput:
    """The answer to a checkpoint."""

    def __init__(self, json_dict: dict[str, Any]) -> None:
        self.sequence_number: str | None = json_dict["sequenceNumber"]
        self.sub_sequence_number: int | None = json_dict["subSequenceNumber"]
        self.error: str | None = json_dict.get("error")


def missing(processor: object, method: str) -> TypeError:
    """Return the error for a call of a method that a processor lacks: bases name all methods, and enforce none."""
    return TypeError(f"{type(processor).__name__} has no method {method}, which a processor of its shape needs")
