"""One HTTP/2 stream on the service's side: a request as it comes in, and its answer as it goes out."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from penstock.local.http import Answer, Ending, Request

if TYPE_CHECKING:
    from collections.abc import Callable


class Http2Stream:
    """What one stream holds. To an answer's ``stream`` it is the :class:`~penstock.local.http.ChunkedOut`."""

    def __init__(
        self,
        number: int,
        headers: dict[bytes, bytes],
        give: Callable[[Http2Stream], None],
        end_connection: Callable[[Ending], None],
    ) -> None:
        self.number = number
        self._headers = headers
        self._give = give
        self._end_connection = end_connection
        self.body: list[bytes] = []
        self.body_bytes = 0
        """Of a request that is not whole."""
        self.ungranted_bytes = 0
        """Taken from the stream's window and not given back."""
        self.whole = False
        """Nothing more of the request is waited for."""
        self.ended_by_client = False
        """True when the client's half is over."""
        self.out: deque[memoryview] = deque()
        """What is to be sent, in order."""
        self.ending: Ending | None = None
        """What comes after it; None: more."""
        self.queued = False
        """It stands among the streams that send."""
        self.streaming = False
        """The answer comes bit by bit and may have no end."""
        self.task: asyncio.Task[None] | None = None
        self.closed = False
        """True once the client is gone, or the answer is out."""
        self._drained: asyncio.Future[None] | None = None
        self._close_callbacks: list[Callable[[], None]] = []

    def request(self, peer: str) -> Request:
        """The whole request; an authority counts as ``host``."""
        headers, body = self._headers, self.body
        method, target = headers.pop(b":method", b""), headers.pop(b":path", b"/")
        authority = headers.pop(b":authority", b"")
        headers.pop(b":scheme", None)
        if authority:
            headers[b"host"] = authority
        self.body, self._headers = [], {}
        return Request(method, target, headers, body[0] if len(body) == 1 else b"".join(body), True, peer)

    # --- the answer -------------------------------------------------------------------------------

    @property
    def has_something(self) -> bool:
        """Something is to be sent, be it only the end."""
        return bool(self.out) or self.ending is not None

    def answer(self, answer: Answer) -> None:
        """Take over the body and the ending of an answer."""
        if answer.ending is Ending.RESET:
            self.out.clear()
        elif answer.body:
            self.out.append(memoryview(answer.body))
        if self.ending is None:
            self.ending = Ending.KEEP if answer.ending is Ending.LEAVE else answer.ending

    def take(self, bytes_max: int) -> memoryview:
        """The next piece to send, at most so long."""
        first = self.out.popleft()
        if len(first) > bytes_max:
            self.out.appendleft(first[bytes_max:])
            first = first[:bytes_max]
        return first

    def wake(self) -> None:
        """All that was given is sent (or lost): the handler that waits for it goes on."""
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def over(self) -> None:
        """The answer is out, in one way or another."""
        self.closed = True
        self._close_callbacks.clear()
        self.wake()

    def lost(self) -> None:
        """The client is gone, or wants no more of it."""
        self.closed = True
        self.out.clear()
        self.wake()
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            callback()

    # --- the face to a streamed answer ------------------------------------------------------------

    @property
    def full(self) -> bool:
        """True while something waits for the client's window, or for the socket."""
        return bool(self.out)

    def send(self, data: bytes) -> None:
        """Send this as soon as it is this stream's turn."""
        if data and not self.closed and self.ending is None:
            self.out.append(memoryview(data))
            self._give(self)

    async def drain(self) -> None:
        """Wait until all of it was sent, or the client is gone."""
        if self.out and not self.closed:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    def on_close(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called once when the client is gone."""
        if self.closed:
            callback()
        else:
            self._close_callbacks.append(callback)

    def break_off(self, ending: Ending) -> None:
        """End the stream (RST_STREAM) or the connection without ending the body, as ``ending`` says."""
        if self.closed:
            return
        if ending in (Ending.LEAVE, Ending.DISCONNECT):
            self._end_connection(ending)
            return
        if ending is Ending.RESET:
            self.out.clear()
        self.ending = ending
        self._give(self)
