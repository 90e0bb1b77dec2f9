"""AWS's front end: what it checks before a request reaches the service, and what its answers look like.

The gate checks method, type, target, body and signature.

The order of the checks and their texts are those that emulator suites recorded from the real service: a body
that cannot be parsed is refused before a missing signature, and a request that does not say it is JSON gets XML.
Without a verifier signatures are looked for, not verified: any credentials will do.
"""

from __future__ import annotations

import base64
import calendar
import hashlib
import hmac
import os
import re
import time
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import msgspec

from shardway.local.http import AfterAnswer, Answer, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# --- what it answers ------------------------------------------------------------------------------
# The heads and error bodies of answers are as AWS's front end of the JSON protocol writes them.

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
_EXPOSED = b"x-amzn-RequestId,x-amzn-ErrorType,x-amz-request-id,x-amz-id-2,x-amzn-ErrorMessage,Date"


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
    return b"Access-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: %b\r\n" % _EXPOSED


# --- signatures -----------------------------------------------------------------------------------
# Signatures (SigV4) are checked as AWS checks them, where the service is started with credentials of its own.
#
# Without credentials any signature will do. With credentials a call must be signed with one of the known keys, for this
# region and for Kinesis, within five minutes of the service's clock. (AWS: "Signature Version 4 signing process".)

SKEW_S_MAX = 300
SERVICE = "kinesis"

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/,\s]+)/(\d{8})/([^/,\s]+)/([^/,\s]+)/aws4_request,\s*"
    r"SignedHeaders=([^,\s]+),\s*Signature=([0-9a-f]+)"
)
_STAMP = "%Y%m%dT%H%M%SZ"
_MISMATCH = (
    "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access "
    "Key and signing method. Consult the service documentation for details."
)

Fault = tuple[str, str]
"""An error's code and text."""


class Verifier:
    """Checks calls against known credentials (access key to secret key)."""

    def __init__(self, credentials: Mapping[str, str], region: str, now: Callable[[], float]) -> None:
        self._credentials = dict(credentials)
        self._region = region
        self._now = now

    def fault(self, request: Request) -> Fault | None:
        """Return what is wrong with a call whose signature is whole in form; None when the signature holds."""
        found = _AUTHORIZATION.fullmatch(request.headers.get(b"authorization", b"").decode("latin-1"))
        if found is None:
            return "IncompleteSignatureException", "The Authorization header is not a SigV4 header."
        access_key, day, region, service, names, signature = found.groups()
        secret = self._credentials.get(access_key)
        if secret is None:
            return "UnrecognizedClientException", "The security token included in the request is invalid."
        if region != self._region:
            return (
                "InvalidSignatureException",
                f"Credential should be scoped to a valid region, not '{region}'. ",
            )
        if service != SERVICE:
            return (
                "InvalidSignatureException",
                f"Credential should be scoped to correct service: '{SERVICE}'. ",
            )
        stamp = request.headers.get(b"x-amz-date", b"").decode("latin-1")
        fault = self._date_fault(stamp, day)
        if fault is not None:
            return fault
        scope = f"{day}/{region}/{service}/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{_sha256(_canonical(request, names).encode('latin-1'))}"
        key = f"AWS4{secret}".encode()
        for part in (day, region, service, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        if not hmac.compare_digest(hmac.digest(key, text.encode(), "sha256").hex(), signature):
            return "InvalidSignatureException", _MISMATCH
        return None

    def _date_fault(self, stamp: str, day: str) -> Fault | None:
        try:
            signed_s = calendar.timegm(time.strptime(stamp, _STAMP))
        except ValueError:
            return "IncompleteSignatureException", "Date must be in ISO-8601 'basic format'."
        if not stamp.startswith(day):
            return (
                "InvalidSignatureException",
                "Date in Credential scope does not match YYYYMMDD from ISO-8601 version.",
            )
        now_s = int(self._now())
        now = time.strftime(_STAMP, time.gmtime(now_s))
        if signed_s < now_s - SKEW_S_MAX:
            limit = time.strftime(_STAMP, time.gmtime(now_s - SKEW_S_MAX))
            text = f"Signature expired: {stamp} is now earlier than {limit} ({now} - 5 min.)"
            return "InvalidSignatureException", text
        if signed_s > now_s + SKEW_S_MAX:
            limit = time.strftime(_STAMP, time.gmtime(now_s + SKEW_S_MAX))
            text = f"Signature not yet current: {stamp} is still later than {limit} ({now} + 5 min.)"
            return "InvalidSignatureException", text
        return None


def _canonical(request: Request, names: str) -> str:
    """Return the canonical request over the headers that the client says it signed."""
    path, _, query = request.target.decode("latin-1").partition("?")
    pairs = sorted(part.partition("=")[::2] for part in query.split("&") if part)
    parameters = [f"{name}={value}" for name, value in pairs]
    lines = [
        f"{name}:{' '.join(request.headers.get(name.encode(), b'').decode('latin-1').split())}\n"
        for name in names.split(";")
    ]
    payload = request.headers.get(b"x-amz-content-sha256", b"").decode("latin-1") or _sha256(request.body)
    return "\n".join((request.method.decode(), path, "&".join(parameters), "".join(lines), names, payload))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --- the gate -------------------------------------------------------------------------------------

TARGET_PREFIX = b"Kinesis_20131202."

_PLAIN_JSON = b"application/json"
_HEADER_PARTS = ("Credential", "Signature", "SignedHeaders")
_QUERY_PARTS = (
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Signature",
    "X-Amz-SignedHeaders",
    "X-Amz-Date",
)
_NO_OPERATION = "Unable to determine service/operation name to be authorized"


def looks_signed(headers: dict[bytes, bytes]) -> bool:
    """Return True in the usual case: a whole SigV4 header with a date. False: the full check has to look."""
    authorization = headers.get(b"authorization", b"")
    return (
        authorization.startswith(b"AWS4-HMAC-SHA256 ")
        and b"Credential=" in authorization
        and b"SignedHeaders=" in authorization
        and b"Signature=" in authorization
        and (b"x-amz-date" in headers or b"date" in headers)
    )


def content_type(request: Request) -> bytes:
    """Return the media type, without parameters and spaces."""
    return request.headers.get(b"content-type", b"").partition(b";")[0].strip()


def operation_of(request: Request, known: frozenset[str]) -> str | None:
    """Return the operation that the target names, if the service has it."""
    target = request.headers.get(b"x-amz-target", b"")
    if not target.startswith(TARGET_PREFIX):
        return None
    name = target[len(TARGET_PREFIX) :].decode("latin-1")
    return name if name in known else None


class Gate:
    """Turns away what AWS's front end turns away."""

    def __init__(
        self,
        answers: Answers,
        operations: frozenset[str],
        decode_cbor: Callable[[bytes], object],
        verifier: Verifier | None = None,
    ) -> None:
        self._answers = answers
        self._operations = operations
        self._decode_cbor = decode_cbor
        self._verifier = verifier

    def refuse(self, request: Request) -> Answer | None:
        """Return the answer to a request that does not pass, or None when the request may go on to the service."""
        answers, headers = self._answers, request.headers
        if request.method == b"OPTIONS" and b"origin" in headers:
            return answers.preflight(request)
        cors = cors_lines(request)
        if request.method != b"POST":
            return answers.xml_error(403, "AccessDeniedException", _NO_OPERATION, cors)
        media = content_type(request)
        known = operation_of(request, self._operations) is not None
        if not request.body:
            code = "SerializationException" if known else "UnknownOperationException"
            return self._error(code, media if media == AMZ_JSON else AMZ_CBOR, cors)
        if media not in (AMZ_JSON, AMZ_CBOR, _PLAIN_JSON):
            service, _, operation = headers.get(b"x-amz-target", b"").partition(b".")
            if not service or not operation:
                return answers.xml_error(403, "AccessDeniedException", _NO_OPERATION, cors)
            return answers.xml_error(404, "UnknownOperationException", None, cors)
        if not self._is_object(request.body, media):
            return self._error("SerializationException", media, cors)
        if media == _PLAIN_JSON:
            return self._error("UnknownOperationException", media, cors)
        if not known:
            return self._error("UnknownOperationException", media, cors)
        fault = _signature_fault(request)
        if fault is None and self._verifier is not None:
            fault = self._verifier.fault(request)
        return None if fault is None else self._error(fault[0], media, cors, fault[1])

    def _is_object(self, body: bytes, media: bytes) -> bool:
        try:
            decoded = self._decode_cbor(body) if media == AMZ_CBOR else msgspec.json.decode(body)
        except (ValueError, RecursionError):
            return False
        return isinstance(decoded, dict | list)

    def _error(self, code: str, media: bytes, cors: bytes, message: str | None = None) -> Answer:
        if media == _PLAIN_JSON:  # the oldest form, which AWS still answers to this content type
            status = 404 if code == "UnknownOperationException" else 400
            body = {"Output": {"__type": f"com.amazon.coral.service#{code}"}, "Version": "1.0"}
            lines = cors + b"Content-Type: application/json\r\n"
            return self._answers.raw(status, msgspec.json.encode(body), lines)
        fields = {"__type": code} if message is None else {"__type": code, "message": message}
        if media == AMZ_CBOR:
            from shardway.local.cbor import encode

            return self._answers.error(code, encode(fields), 400, AMZ_CBOR, cors)
        return self._answers.error(code, msgspec.json.encode(fields), 400, AMZ_JSON, cors)


def _signature_fault(request: Request) -> tuple[str, str] | None:
    """Return the code and text of what is wrong with the signature's form, in the header or in the query."""
    header = request.headers.get(b"authorization", b"").decode("latin-1")
    raw_query = request.target.partition(b"?")[2].decode("latin-1")
    query = parse_qs(raw_query, keep_blank_values=True, max_num_fields=100)
    in_query = "X-Amz-Algorithm" in query
    if header and in_query:
        return "InvalidSignatureException", (
            "Found both 'X-Amz-Algorithm' as a query-string param and 'Authorization' as HTTP header."
        )
    if not header and not in_query:
        return "MissingAuthenticationTokenException", "Missing Authentication Token"
    if header:
        faults = _header_faults(header, request.headers)
        text = f"{faults}Authorization={header}"
    else:
        faults = "".join(
            f"AWS query-string parameters must include '{part}'. "
            for part in _QUERY_PARTS
            if not query.get(part, [""])[0]
        )
        text = f"{faults}Re-examine the query-string parameters."
    return ("IncompleteSignatureException", text) if faults else None


def _header_faults(header: str, headers: dict[bytes, bytes]) -> str:
    words = header.replace(",", " ").split(" ")[1:]
    given = {name: value for name, _, value in (word.strip().partition("=") for word in words if word)}
    faults = "".join(
        f"Authorization header requires '{part}' parameter. " for part in _HEADER_PARTS if not given.get(part)
    )
    if b"x-amz-date" not in headers and b"date" not in headers:
        faults += "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header. "
    return faults
