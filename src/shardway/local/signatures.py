"""Check signatures (SigV4) as AWS checks them, where the service is started with credentials of its own.

Without credentials any signature will do. With credentials a call must be signed with one of the known keys, for this
region and for Kinesis, within five minutes of the service's clock. (AWS: "Signature Version 4 signing process".)
"""

from __future__ import annotations

import calendar
import hashlib
import hmac
import re
import time
from typing import TYPE_CHECKING

from shardway.local.http_messages import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


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
