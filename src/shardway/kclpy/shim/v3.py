"""``amazon_kclpy.v3.processor`` has processors of the third shape."""

from __future__ import annotations

from typing import Any

from shardway.kclpy.shim import messages
from shardway.kclpy.shim.messages import missing


class RecordProcessorBase:
    """A processor of the third shape."""

    version = 3

    def initialize(self, initialize_input: messages.InitializeInput) -> None:
        """Begin with a shard."""
        raise missing(self, "initialize")

    def process_records(self, process_records_input: messages.ProcessRecordsInput) -> None:
        """Take records, in the shard's order."""
        raise missing(self, "process_records")

    def lease_lost(self, lease_lost_input: messages.LeaseLostInput) -> None:
        """Take note that another worker has the shard, or will."""
        raise missing(self, "lease_lost")

    def shard_ended(self, shard_ended_input: messages.ShardEndedInput) -> None:
        """Put a checkpoint, as all records were given."""
        raise missing(self, "shard_ended")

    def shutdown_requested(self, shutdown_requested_input: messages.ShutdownRequestedInput) -> None:
        """Take note that the shard will be let go of: a checkpoint may be put before."""
        raise missing(self, "shutdown_requested")


class V2toV3Processor(RecordProcessorBase):
    """A processor of the second shape in the third one."""

    def __init__(self, delegate: Any) -> None:
        self.delegate = delegate

    def initialize(self, initialize_input: messages.InitializeInput) -> None:
        """See the base."""
        self.delegate.initialize(initialize_input)

    def process_records(self, process_records_input: messages.ProcessRecordsInput) -> None:
        """See the base."""
        self.delegate.process_records(process_records_input)

    def lease_lost(self, lease_lost_input: messages.LeaseLostInput) -> None:
        """See the base."""
        self.delegate.shutdown(messages.ShutdownInput.zombie())

    def shard_ended(self, shard_ended_input: messages.ShardEndedInput) -> None:
        """See the base."""
        assert shard_ended_input.checkpointer is not None
        self.delegate.shutdown(messages.ShutdownInput.terminate(shard_ended_input.checkpointer))

    def shutdown_requested(self, shutdown_requested_input: messages.ShutdownRequestedInput) -> None:
        """See the base."""
        self.delegate.shutdown_requested(shutdown_requested_input)
