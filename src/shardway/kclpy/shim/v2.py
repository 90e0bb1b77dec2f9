"""``amazon_kclpy.v2.processor`` has processors of the second shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardway.kclpy.shim.messages import missing

if TYPE_CHECKING:
    from shardway.kclpy.shim import messages


class RecordProcessorBase:
    """A processor of the second shape."""

    version = 2

    def initialize(self, initialize_input: messages.InitializeInput) -> None:
        """Begin with a shard."""
        raise missing(self, "initialize")

    def process_records(self, process_records_input: messages.ProcessRecordsInput) -> None:
        """Take records, in the shard's order."""
        raise missing(self, "process_records")

    def shutdown(self, shutdown_input: messages.ShutdownInput) -> None:
        """End: ``TERMINATE``, the shard has ended and wants a checkpoint; ``ZOMBIE``, the lease is lost."""
        raise missing(self, "shutdown")

    def shutdown_requested(self, shutdown_requested_input: messages.ShutdownRequestedInput) -> None:
        """Take note that the shard will be let go of: a checkpoint may be put before."""


class V1toV2Processor(RecordProcessorBase):
    """A processor of the first shape in the second one."""

    def __init__(self, delegate: Any) -> None:
        self.delegate = delegate

    def initialize(self, initialize_input: messages.InitializeInput) -> None:
        """See the base."""
        self.delegate.initialize(initialize_input.shard_id)

    def process_records(self, process_records_input: messages.ProcessRecordsInput) -> None:
        """See the base."""
        self.delegate.process_records(process_records_input.records, process_records_input.checkpointer)

    def shutdown(self, shutdown_input: messages.ShutdownInput) -> None:
        """See the base."""
        self.delegate.shutdown(shutdown_input.checkpointer, shutdown_input.reason)

    def shutdown_requested(self, shutdown_requested_input: messages.ShutdownRequestedInput) -> None:
        """See the base."""
        self.delegate.shutdown_requested(shutdown_requested_input.checkpointer)
