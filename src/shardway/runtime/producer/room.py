"""The room of a producer's buffer: a bound in bytes, and the claims that wait for some of it.

A signal handler may raise in the middle of each function: see `intake`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from shardway.reply import Reply

    AnyFuture = asyncio.Future[None] | Reply[None]


F = TypeVar("F", bound="AnyFuture")


class Claim:
    """The room that one caller wants. The caller releases it in the end, whatever became of it."""

    __slots__ = ("future", "held", "wanted")

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.held = 0
        """The bytes that the claim has. A chunk that is queued takes them over."""
        self.future: AnyFuture | None = None
        """A future that is done when the claim got what it waited for."""


class Room:
    """Room for ``bytes_max`` bytes. The claim that asks first gets room first: a large record is not overtaken for
    ever.
    """

    __slots__ = ("bytes_max", "claimed", "free", "waiting")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.free = bytes_max
        self.claimed = 0
        """The bytes that claims have."""
        self.waiting: deque[Claim] = deque()

    def take(self, claim: Claim) -> bool:
        """Take what the claim wants, if it is free and no other claim waits. True if it was taken."""
        if self.waiting or claim.wanted > self.free:
            return False
        self._grant_to(claim)
        return True

    def ask(self, claim: Claim, make_future: Callable[[], F]) -> F | None:
        """Take what the claim wants if it is free, and return None; else let it stand in line, and return a future that
        is done when it was taken.
        """
        if self.take(claim):
            return None
        claim.future = future = make_future()
        self.waiting.append(claim)
        return future

    def release(self, claim: Claim) -> None:
        """Release a claim: its caller waits no longer, and the bytes that it did not use are free again."""
        if claim in self.waiting:
            self.waiting.remove(claim)
        elif not claim.held:
            return
        self.free += claim.held
        self.claimed -= claim.held
        claim.held = 0
        self._grant()

    def give_back(self, count: int) -> None:
        """Make ``count`` bytes free again."""
        self.free += count
        if self.waiting:
            self._grant()

    def fail_waiting(self, make_error: Callable[[], Exception]) -> None:
        """Fail all claims that wait: none gets room any more."""
        while self.waiting:
            future = self.waiting[0].future
            if future is not None and not future.done():
                future.set_exception(make_error())
            self.waiting.popleft()

    def _grant(self) -> None:
        while self.waiting and self.waiting[0].wanted <= self.free + self.waiting[0].held:
            claim = self.waiting[0]
            future = claim.future
            if future is not None and not future.done():
                if not claim.held:  # Otherwise this was interrupted here.
                    self._grant_to(claim)
                future.set_result(None)
            self.waiting.popleft()

    def _grant_to(self, claim: Claim) -> None:
        self.free -= claim.wanted
        self.claimed += claim.wanted
        claim.held = claim.wanted
