"""``amazon_kclpy.checkpoint_error`` has the error of a checkpoint."""

from __future__ import annotations


class CheckpointError(Exception):
    """A checkpoint was not stored. ``value`` is the name of the KCL's exception.

    ShutdownException: the lease is gone, another worker goes on. ThrottlingException: try again later.
    InvalidStateException: the lease's row is gone. IllegalArgumentException: no checkpoint can be put there.
    """

    def __init__(self, value: str) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        return repr(self.value)
