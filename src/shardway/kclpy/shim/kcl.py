"""``amazon_kclpy.kcl`` has processors of the first shape, and the loop that serves a processor of any shape."""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any, TextIO

from shardway.kclpy.shim import dispatch, messages, v2, v3
from shardway.kclpy.shim.checkpoint_error import CheckpointError
from shardway.kclpy.shim.messages import missing

__all__ = ["CheckpointError", "Checkpointer", "KCLProcess", "RecordProcessorBase"]


class _Lines:
    """Reads and writes messages as lines of JSON."""

    def __init__(self, input_file: TextIO, output_file: TextIO) -> None:
        self._input = input_file
        self._output = output_file

    def read(self) -> Any:
        """Return the next message; None at the end."""
        line = self._input.readline()
        return json.loads(line, object_hook=dispatch.message_decode) if line else None

    def write(self, **fields: Any) -> None:
        """Write an object, on a line of its own whatever else was written."""
        self._output.write(f"\n{json.dumps(fields)}\n")
        self._output.flush()


class Checkpointer:
    """Puts checkpoints: all records up to one are done, and are not given again."""

    def __init__(self, lines: _Lines) -> None:
        self._lines = lines

    def checkpoint(self, sequence_number: str | None = None, sub_sequence_number: int | None = None) -> None:
        """Say that all up to this record is done; without arguments, all that was given so far. The checkpoint is
        stored when this returns.

        Raises CheckpointError where it is not stored.
        """
        self._lines.write(action="checkpoint", sequenceNumber=sequence_number, subSequenceNumber=sub_sequence_number)
        answer = self._lines.read()
        if not isinstance(answer, messages.CheckpointInput):
            raise CheckpointError("InvalidStateException")
        if answer.error is not None:
            raise CheckpointError(answer.error)


class RecordProcessorBase:
    """A processor of the first shape."""

    version = 1

    def initialize(self, shard_id: str) -> None:
        """Begin with a shard."""
        raise missing(self, "initialize")

    def process_records(self, records: list[messages.Record], checkpointer: Checkpointer) -> None:
        """Take records, in the shard's order."""
        raise missing(self, "process_records")

    def shutdown(self, checkpointer: Checkpointer, reason: str) -> None:
        """End: ``TERMINATE``, the shard has ended and wants a checkpoint; ``ZOMBIE``, the lease is lost."""
        raise missing(self, "shutdown")

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        """Take note that the shard will be let go of: a checkpoint may be put before."""


class KCLProcess:
    """Serves one processor until its input ends. What the processor raises is shown, and passed over."""

    def __init__(
        self,
        record_processor: Any,
        input_file: TextIO | None = None,
        output_file: TextIO | None = None,
        error_file: TextIO | None = None,
    ) -> None:
        self._lines = _Lines(input_file or sys.stdin, output_file or sys.stdout)
        self._errors = error_file or sys.stderr
        self.checkpointer = Checkpointer(self._lines)
        if record_processor.version == 1:
            record_processor = v2.V1toV2Processor(record_processor)
        self.processor = v3.V2toV3Processor(record_processor) if record_processor.version == 2 else record_processor

    def run(self) -> None:
        """Take messages, and say of each that it is done."""
        while (message := self._lines.read()) is not None:
            try:
                message.dispatch(self.checkpointer, self.processor)
            except Exception:
                print(f"the processor raised in {message.action}:", file=self._errors)
                traceback.print_exc(file=self._errors)
                self._errors.flush()
            self._lines.write(action="status", responseFor=message.action)
