"""The end of a ``with`` block that settles records: what it means for them how the block was left."""

from __future__ import annotations

from typing import Any, Protocol


class Settled(Protocol):
    """A batch, a collection, a record."""

    def _left(self) -> Any:
        """All is done, but for what was put off or given up before."""

    def nack(self) -> Any:
        """Hand it out again."""

    def fail(self, error: BaseException) -> Any:
        """The retry policy says what follows."""


def settle_on_leaving(settled: Settled, error: BaseException | None) -> bool:
    """Done, if the block ended well; failed by an exception, which goes no further (True)."""
    if error is None:
        settled._left()
        return False
    if not isinstance(error, Exception):  # a cancellation, an interrupt: the records are not to blame
        settled.nack()
        return False
    settled.fail(error)
    return True
