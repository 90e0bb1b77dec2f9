"""What can go wrong between a worker and a processor."""

from __future__ import annotations

from penstock.errors import PenstockError


class ProcessorGoneError(PenstockError):
    """The process of a processor has ended, or does not answer as it must."""

    retryable = True

    def __init__(self, message: str, *, killed: bool = False) -> None:
        self.killed = killed
        """By a signal: that says nothing of the program."""
        super().__init__(message)


class ProcessorRaisedError(PenstockError):
    """A processor raised; it has shown its traceback itself."""
