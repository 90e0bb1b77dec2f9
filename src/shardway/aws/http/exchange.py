"""An exchange is one request and its answer, whatever carries them: what came, what is left to take, and when it is
overdue.
"""

from __future__ import annotations

import asyncio
import select
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from shardway.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

LOOP_TURNS = 2
"""The number of turns after which the event loop has handled what was waiting in a socket: one to see it, one to read
it.
"""


class Request(NamedTuple):
    """A request. ``target`` is what its first line names, a path or a proxy's whole URL; ``headers`` hold ``host`` and
    all others but the body's length.
    """

    target: str
    headers: Mapping[str, str]
    body: bytes
    method: str = "POST"


def fit_to_send(request: Request) -> Request:
    """Return the request as it is, if its first line and headers can be written. Raises OptionError if they cannot.

    This is the last look at them: a line break in a value would begin a header, or a request, of its own.
    """
    text = "".join([request.target, *request.headers.values()])
    if text.isascii() and text.isprintable() and " " not in request.target:
        return request
    odd = [name for name, value in request.headers.items() if not (value.isascii() and value.isprintable())]
    what = f"the header {odd[0]!r}" if odd else "the path of the URL"
    raise OptionError(f"{what} holds a character that cannot be sent, a line break for instance: nothing was sent")


class Answer(NamedTuple):
    """A whole answer. Header names are lower-case.

    A large body is in truth the bytearray it was received into, which reads as bytes do: a copy of 15 MB is spared.
    """

    status: int
    headers: dict[str, str]
    body: bytes


class Limits(NamedTuple):
    """The limits of one exchange: the answer's size, the longest silence, and the time of the whole (None: not
    bounded).
    """

    bytes_max: int
    silence_s: float
    whole_s: float | None = None


class BrokenError(Exception):
    """The connection ended before the answer did. ``heard`` is True if a byte of the answer had come."""

    def __init__(self, reason: str, *, heard: bool) -> None:
        super().__init__(reason)
        self.heard = heard


class NotProcessedError(Exception):
    """The other side has said that it did nothing about the request, or it was never sent: it may be sent again,
    whatever it does.
    """


class BadAnswerError(Exception):
    """What came is not HTTP as its specification has it (RFC 9112, RFC 9113)."""


class TooLongError(Exception):
    """The answer is longer than the limits allow."""


class Exchange:
    """The state of one request and its answer."""

    __slots__ = (
        "_loop", "answer", "began_s", "complete", "failed", "heard", "heard_s", "limits", "more", "parts", "streamed",
        "timer", "unsent", "waiting_bytes",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: Limits, *, streamed: bool) -> None:
        self._loop = loop
        self.answer: asyncio.Future[Answer] = loop.create_future()
        self.limits = limits
        self.began_s = self.heard_s = loop.time()
        self.streamed = streamed
        self.heard = self.complete = False
        self.failed: Exception | None = None
        self.parts: deque[bytes] = deque()
        self.waiting_bytes = 0
        self.more: asyncio.Future[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.unsent = 0

    def due_s(self) -> float:
        """Return when the exchange times out, as things stand."""
        silence_s = self.heard_s + self.limits.silence_s
        return silence_s if self.limits.whole_s is None else min(silence_s, self.began_s + self.limits.whole_s)

    def overdue(self, unsent: int, *, held_up: bool) -> TimeoutError | None:
        """Return what to fail with if it is too late; None if it is not.

        ``unsent`` are the connection's bytes that have not left yet: fewer than before count as life, so that a slow
        upload is no silence. Nor is it one while what came waits to be taken (``held_up``).
        """
        now_s = self._loop.time()
        if unsent < self.unsent or held_up:
            self.heard_s = now_s
        self.unsent = unsent
        if now_s < self.due_s():
            return None
        if self.limits.whole_s is not None and now_s >= self.began_s + self.limits.whole_s:
            return TimeoutError(f"no whole answer within {self.limits.whole_s} s")
        return TimeoutError(f"the service was silent for {self.limits.silence_s} s")

    def fail(self, error: Exception) -> None:
        """End the exchange with an error, for callers that wait and for those that will."""
        self.failed = error
        if not self.answer.done():
            self.answer.set_exception(error)
        self.wake()

    def wake(self) -> None:
        """Wake the caller that waits for the next part of a stream."""
        if self.more is not None and not self.more.done():
            self.more.set_result(None)

    async def next_part(self) -> bytes | None:
        """Return the next part of a stream; None at its end."""
        while not self.parts:
            if self.complete:
                return None
            if self.failed is not None:
                raise self.failed
            self.more = self._loop.create_future()
            await self.more
        part = self.parts.popleft()
        self.waiting_bytes -= len(part)
        return part


def close_once(transport: asyncio.Transport) -> None:
    """Close a transport in order, unless the other side's goodbye has begun that: by a second call TLS forgets what
    `abort` and questions about the transport need (Python 3.11.2 fails then).
    """
    if not transport.is_closing():
        transport.close()


async def let_in(transport: asyncio.Transport) -> None:
    """Let the event loop read what waits in a connection's socket, if anything does.

    On a connection that carries no request, that is most often its end, or TLS's own messages, which are no harm.
    """
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    if poll.poll(0):
        for _ in range(LOOP_TURNS):
            await asyncio.sleep(0)
