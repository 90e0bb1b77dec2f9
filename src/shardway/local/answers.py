"""Write the heads and error bodies of answers as AWS's front end of the JSON protocol writes them."""

from __future__ import annotations

import base64
import os
import time
from typing import TYPE_CHECKING

from shardway.local.http_messages import AfterAnswer, Answer, Request

if TYPE_CHECKING:
    from collections.abc import Callable


AMZ_JSON = b"application/x-amz-json-1.1"
AMZ_CBOR = b"application/x-amz-cbor-1.1"
EVENT_STREAM = b"application/vnd.amazon.eventstream"
_DAYS = (b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun")
_MONTHS = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")
_REASONS = {
    200: b"OK",
    400: b"Bad Request",
    403: b"Forbidden",
    404: b"Not Found",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
}
_EXPOSED_HEADERS = b"x-amzn-RequestId,x-amzn-ErrorType,x-amz-request-id,x-amz-id-2,x-amzn-ErrorMessage,Date"


def http_date(epoch_s: int) -> bytes:
    """Return an RFC 9110 date (``Sat, 21 Nov 2026 11:00:00 GMT``), whatever the process's locale is."""
    at = time.gmtime(epoch_s)
    return b"%b, %02d %b %04d %02d:%02d:%02d GMT" % (
        _DAYS[at.tm_wday],
        at.tm_mday,
        _MONTHS[at.tm_mon - 1],
        at.tm_year,
        at.tm_hour,
        at.tm_min,
        at.tm_sec,
    )


class Answers:
    """Makes the answers of one server: counts request ids and keeps the current second's ``Date``."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._date_s = -1
        self._date = b""
        self._count = 0
        seed = os.urandom(10).hex()
        self._request_id = f"{seed[:8]}-{seed[8:12]}-{seed[12:16]}-{seed[16:20]}-".encode()
        self._id_2 = base64.b64encode(os.urandom(63))  # 84 characters; a counter of 12 makes 72 bytes of it

    def common(self) -> bytes:
        """Return the header lines that every answer has: request ids and the service's date."""
        self._count += 1
        count = self._count
        second = int(self._now())
        if second != self._date_s:
            self._date_s = second
            self._date = http_date(second)
        return b"x-amzn-RequestId: %b%012x\r\nx-amz-id-2: %b%012x\r\nDate: %b\r\n" % (
            self._request_id,
            count,
            self._id_2,
            count,
            self._date,
        )

    def ok(self, body: bytes, content_type: bytes = AMZ_JSON, cors: bytes = b"") -> Answer:
        """Return a 200 with this body; an operation without output has an empty body."""
        return Answer(
            b"HTTP/1.1 200 OK\r\n%b%bContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
            % (self.common(), cors, content_type, len(body)),
            body,
        )

    def streamed(self, content_type: bytes = EVENT_STREAM) -> bytes:
        """Return the head of a 200 whose body comes in chunks."""
        return b"HTTP/1.1 200 OK\r\n%bContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n" % (
            self.common(),
            content_type,
        )

    def error(
        self,
        code: str,
        body: bytes,
        status: int = 400,
        content_type: bytes = AMZ_JSON,
        cors: bytes = b"",
    ) -> Answer:
        """Return an error answer; its code is in the body (as ``__type``) and once more in a header."""
        lines = b"%bx-amzn-ErrorType: %b\r\nContent-Type: %b\r\n" % (cors, code.encode(), content_type)
        return self.raw(status, body, lines)

    def xml_error(self, status: int, code: str, message: str | None = None, cors: bytes = b"") -> Answer:
        """Return an error in XML, for a request that does not even say that it is JSON."""
        if message is None:
            body = f"<{code}/>\n"
        else:
            body = f"<{code}>\n  <Message>{message}</Message>\n</{code}>\n"
        return self.raw(status, body.encode(), cors)

    def raw(self, status: int, body: bytes, lines: bytes = b"", ending: AfterAnswer = AfterAnswer.KEEP) -> Answer:
        """Return an answer of any status with these header lines (each ended by CR LF)."""
        return Answer(
            b"HTTP/1.1 %d %b\r\n%b%bContent-Length: %d\r\n\r\n"
            % (status, _REASONS.get(status, b"Unknown"), self.common(), lines, len(body)),
            body,
            ending,
        )

    def preflight(self, request: Request) -> Answer:
        """Return the answer to a browser's CORS preflight."""
        lines = b"Access-Control-Allow-Origin: *\r\n"
        for asked, allowed in (
            (b"access-control-request-headers", b"Access-Control-Allow-Headers"),
            (b"access-control-request-method", b"Access-Control-Allow-Methods"),
        ):
            if asked in request.headers:
                lines += b"%b: %b\r\n" % (allowed, request.headers[asked])
        answer = self.raw(200, b"", lines + b"Access-Control-Max-Age: 172800\r\n")
        head = [line for line in answer.head.split(b"\r\n") if not line.startswith(b"x-amz-id-2:")]
        answer.head = b"\r\n".join(head)
        return answer


def cors_lines(request: Request) -> bytes:
    """Return header lines for an answer to a browser ("" for all other clients)."""
    if b"origin" not in request.headers:
        return b""
    return b"Access-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: %b\r\n" % _EXPOSED_HEADERS


def content_type(request: Request) -> bytes:
    """Return the media type, without parameters and spaces."""
    return request.headers.get(b"content-type", b"").partition(b";")[0].strip()
