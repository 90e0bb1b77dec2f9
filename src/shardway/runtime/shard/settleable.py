"""What a ``with`` block settles, and the part of a shard's reader that settling needs."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Self

    from shardway.events import LedgerEvent
    from shardway.ports import BatchSpan, Tracer


class Reader(Protocol):
    """The part of the shard's reader that a batch knows."""

    @property
    def stream(self) -> str:
        """The stream's name or ARN, as it was given."""

    @property
    def shard_id(self) -> str:
        """The shard's id."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """The lock that is held while the ledger is asked or changed: the ledger may be another loop's."""

    @property
    def now_s(self) -> float:
        """The time of the ledger, in seconds."""

    @property
    def tracer(self) -> Tracer | None:
        """The tracer that makes spans; None: the program does not trace."""

    @property
    def writes_letters(self) -> bool:
        """True when an option says where dead letters go."""

    def may_deliver(self) -> bool:
        """True while no other worker can have the shard."""

    def emit(self, events: Sequence[LedgerEvent]) -> None:
        """Emit these events to the program. The caller does not hold the lock: this runs functions of the program."""

    def handled(self, duration_s: float) -> None:
        """Note that the program has had a batch for ``duration_s`` seconds, and is done with it. The caller does not
        hold the lock.
        """

    def touched(self) -> bool:
        """Note that something was settled. The caller does not hold the lock. False: the loop that would look at it is
        over.
        """


_NO_SPAN = nullcontext()


def processed(span: BatchSpan | None, error: BaseException | None) -> AbstractContextManager[object]:
    """Return a context around the settling of a block that is left. ``span``: the block's, if the program traces."""
    if span is None:
        return _NO_SPAN
    span.processed(error)
    return _SpanEnd(span)


class _SpanEnd:
    """Ends a span after the settling, whatever that raises."""

    __slots__ = ("_span",)

    def __init__(self, span: BatchSpan) -> None:
        self._span = span

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self._span.settled()


class Settleable:
    """The records that a ``with`` block settles: done, if the block ends well; failed by an exception of it, which goes
    no further. Where an error is raised through it that is no `Exception` (a cancellation, an interrupt), they are
    delivered again.
    """

    __slots__ = ()

    @abstractmethod
    def nack(self) -> bool:
        """Deliver the records again."""

    @abstractmethod
    def fail(self, error: BaseException) -> bool:
        """Fail the records: the retry policy says what follows."""

    @abstractmethod
    def _settle_rest(self) -> bool:
        """Settle what the block that has ended well did not put off or give up before."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None:
            self._settle_rest()
            return False
        if not isinstance(error, Exception):  # The records are not to blame for it.
            self.nack()
            return False
        self.fail(error)
        return True

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self.__exit__(kind, error, trace)
