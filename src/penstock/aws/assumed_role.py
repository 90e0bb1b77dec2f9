"""Credentials of an assumed role (STS AssumeRole, the query protocol: a form is sent, XML comes back)."""

from __future__ import annotations

import datetime as dt
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from penstock.aws.answers import CODE_CHARS_MAX, MESSAGE_CHARS_MAX, UNREADABLE, error_class
from penstock.aws.calls import Request, Route, SignedCalls
from penstock.aws.retry import RetryPolicy
from penstock.aws.settings import Credentials
from penstock.errors import CredentialsError, PenstockError, ServiceError, TransportError
from penstock.shown import one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from penstock.aws.credentials import CredentialCache
    from penstock.aws.settings import WireSettings

API_VERSION = "2011-06-15"
DEFAULT_SESSION_NAME = "penstock"
RETRY = RetryPolicy(attempts_max=4, base_s=0.2, cap_s=2.0)


class AssumedRole:
    """Assumes ``settings.role_arn`` with the credentials of ``base``. `load` suits a `CredentialCache`."""

    def __init__(
        self,
        settings: WireSettings,
        calls: SignedCalls,
        base: CredentialCache,
        route: Callable[[], Awaitable[Route]],
    ) -> None:
        self._settings = settings
        self._calls = calls
        self._base = base
        self._route = route

    async def load(self, anew: bool) -> Credentials:  # noqa: ARG002 - each call is anew
        """Call AssumeRole. Each call returns new credentials, so ``anew`` makes no difference."""
        settings = self._settings
        form = {
            "Action": "AssumeRole",
            "Version": API_VERSION,
            "RoleArn": settings.role_arn,
            "RoleSessionName": settings.role_session_name or DEFAULT_SESSION_NAME,
            "DurationSeconds": str(settings.role_duration_s),
        }
        if settings.role_external_id is not None:
            form["ExternalId"] = settings.role_external_id
        try:
            route = await self._route()
            headers = {
                "content-type": "application/x-www-form-urlencoded; charset=utf-8",
                "host": route.endpoint.host,
            }
            request = Request("AssumeRole", route, headers, urlencode(form).encode())
            answer = await self._calls.call(request, self._base, RETRY)
            return parse_credentials(answer.body)
        except CredentialsError:
            raise
        except PenstockError as error:
            raise CredentialsError(f"the role {settings.role_arn} cannot be assumed: {error}") from error


def parse_credentials(body: bytes) -> Credentials:
    """Read the answer of AssumeRole."""
    root = _parse(body)
    found = {_tag(element): (element.text or "").strip() for element in root.iter()} if root is not None else {}
    try:
        expiry = dt.datetime.fromisoformat(found["Expiration"])
        return Credentials(
            access_key_id=found["AccessKeyId"],
            secret_access_key=found["SecretAccessKey"],
            session_token=found["SessionToken"],
            expires_at_s=expiry.timestamp(),
        )
    except UNREADABLE as error:
        raise TransportError("AssumeRole: the answer is not STS's XML with credentials") from error


class StsCalls(SignedCalls):
    """Calls to STS, whose error answers are XML."""

    def error_of(self, operation: str, status: int, headers: Mapping[str, str], body: bytes) -> ServiceError:
        """See `SignedCalls.error_of`."""
        return sts_error(operation, status, headers, body)


def sts_error(operation: str, status: int, headers: Mapping[str, str], body: bytes) -> ServiceError:
    """From STS's XML error answers to `penstock.errors`."""
    root = _parse(body)
    found = {_tag(element): (element.text or "").strip() for element in root.iter()} if root is not None else {}
    code = one_line(found.get("Code") or f"HTTP {status}")[:CODE_CHARS_MAX]
    return error_class(code, status)(
        code,
        one_line((found.get("Message") or "no message")[:MESSAGE_CHARS_MAX]),
        operation=operation,
        status=status,
        request_id=found.get("RequestId") or headers.get("x-amzn-requestid"),
    )


def _parse(body: bytes) -> ET.Element | None:
    # Size is bounded by answer_bytes_max; a document type, the means of expansion attacks, is not accepted.
    if b"<!DOCTYPE" in body or b"<!ENTITY" in body:
        return None
    try:
        return ET.fromstring(body)  # noqa: S314
    except (ET.ParseError, *UNREADABLE):  # an encoding that does not exist is a LookupError
        return None


def _tag(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]
