"""AWS's front end: what it checks before a request reaches the service, and what its answers look like.

The gate checks method, type, target, body and signature.

The order of the checks and their texts are those that emulator suites recorded from the real service: a body
that cannot be parsed is refused before a missing signature, and a request that does not say it is JSON gets XML.
Without a verifier signatures are looked for, not verified: any credentials will do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import msgspec

from shardway.local.answers import AMZ_CBOR, AMZ_JSON, content_type, cors_lines
from shardway.local.http_messages import Answer, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.local.answers import Answers
    from shardway.local.signatures import Verifier


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
