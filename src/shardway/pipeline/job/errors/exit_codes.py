"""Say how a run ended: the exit codes of a job's process, and the error of a step."""

from __future__ import annotations

from enum import IntEnum

from shardway.errors import ShardwayError


class ExitCode(IntEnum):
    """The exit codes of a job's process."""

    DONE = 0
    """All that was to be read is read, or the job was stopped and the batch was finished."""
    FAILED = 1
    """The job failed by something else than what the other codes name."""
    WRONG_JOB = 2
    """The job file is wrong, or does not fit the data's columns. Nothing was read."""
    NOT_READY = 3
    """Spark cannot start, or lacks a package. Nothing was read."""
    SOURCE = 4
    """The stream cannot be read: it is not there, may not be read, or has lost records."""
    TRANSFORM = 5
    """The transform failed."""
    SINK = 6
    """A sink, or the dead letters, cannot be written."""
    CUT_SHORT = 7
    """The job was stopped a second time, in the middle of a batch, which the next start does again."""
    EXPECTATION = 8
    """Rows did not meet an expectation whose action is *stop*. Nothing of their batch was written."""


class StepError(ShardwayError):
    """A step of the job failed. ``step`` is its name, ``code`` the exit code that the process ends with."""

    def __init__(self, message: str, *, step: str, code: ExitCode, batch_id: int | None = None) -> None:
        self.step = step
        self.code = code
        self.batch_id = batch_id
        super().__init__(message)
