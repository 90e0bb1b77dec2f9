"""One HTTP/2 stream on the service's side: it holds a request as it comes in, and its answer as it goes out."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from shardway.local.http_messages import AfterAnswer, Answer, Request

if TYPE_CHECKING:
    from collections.abc import Callable


class Http2Stream:
    """The state of one stream. To an answer's ``stream`` it is the `ChunkedOut`."""

    def __init__(
        self,
        number: int,
        headers: dict[bytes, bytes],
        give: Callable[[Http2Stream], None],
        end_connection: Callable[[AfterAnswer], None],
    ) -> None:
        self.number = number
        self._headers = headers
        self._give = give
        self._end_connection = end_connection
        self.body: list[bytes] = []
        self.body_bytes = 0
        """The bytes of the body so far, while the request is not whole."""
        self.ungranted_bytes = 0
        """The bytes that were taken from the stream's window and not given back."""
        self.whole = False
        """True when nothing more of the request is waited for."""
        self.ended_by_client = False
        """True when the client's half is over."""
        self.out: deque[memoryview] = deque()
        """The data that is to be sent, in order."""
        self.ending: AfterAnswer | None = None
        """How the stream ends after this data; None: more data comes."""
        self.queued = False
        """True while the stream stands among those that send."""
        self.task: asyncio.Task[None] | None = None
        self.closed = False
        """True once the client is gone, or the answer is out."""
        self._drain: asyncio.Future[None] | None = None
        self._close_callbacks: list[Callable[[], None]] = []

    def request(self, peer: str) -> Request:
        """Return the whole request; an authority counts as ``host``."""
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
        """True when something is to be sent, be it only the end."""
        return bool(self.out) or self.ending is not None

    def answer(self, answer: Answer) -> None:
        """Take over the body and the ending of an answer."""
        if answer.ending is AfterAnswer.RESET:
            self.out.clear()
        elif answer.body:
            self.out.append(memoryview(answer.body))
        if self.ending is None:
            self.ending = AfterAnswer.KEEP if answer.ending is AfterAnswer.LEAVE else answer.ending

    def take(self, bytes_max: int) -> memoryview:
        """Return the next piece to send, of at most ``bytes_max`` bytes."""
        first = self.out.popleft()
        if len(first) > bytes_max:
            self.out.appendleft(first[bytes_max:])
            first = first[:bytes_max]
        return first

    def wake(self) -> None:
        """Let the handler that waits in `drain` go on: all of its data is sent, or lost."""
        if self._drain is not None and not self._drain.done():
            self._drain.set_result(None)

    def over(self) -> None:
        """Note that the answer is out, in one way or another."""
        self.closed = True
        self._close_callbacks.clear()
        self.wake()

    def lost(self) -> None:
        """Note that the client is gone, or wants no more of the stream."""
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
        """Send the data as soon as it is this stream's turn."""
        if data and not self.closed and self.ending is None:
            self.out.append(memoryview(data))
            self._give(self)

    async def drain(self) -> None:
        """Wait until all data was sent, or the client is gone."""
        if self.out and not self.closed:
            self._drain = asyncio.get_running_loop().create_future()
            await self._drain

    def on_close(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called once when the client is gone."""
        if self.closed:
            callback()
        else:
            self._close_callbacks.append(callback)

    def break_off(self, ending: AfterAnswer) -> None:
        """End the stream (RST_STREAM) or the connection without ending the body, as ``ending`` says."""
        if self.closed:
            return
        if ending in (AfterAnswer.LEAVE, AfterAnswer.DISCONNECT):
            self._end_connection(ending)
            return
        if ending is AfterAnswer.RESET:
            self.out.clear()
        self.ending = ending
        self._give(self)
