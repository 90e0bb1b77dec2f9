"""Get the credentials of a role from STS AssumeRole, by the query protocol: a form is sent, XML comes back."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from shardway.aws.calls.answers import CODE_CHARS_MAX, MESSAGE_CHARS_MAX, UNREADABLE, error_class
from shardway.aws.calls.retry import RetryPolicy
from shardway.aws.calls.signed_calls import Request, SignedCalls
from shardway.aws.options import Credentials
from shardway.errors import CredentialsError, ShardwayError, TransportError
from shardway.shown import one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from xml.etree.ElementTree import Element

    from shardway.aws.calls.signed_calls import Route
    from shardway.aws.credentials import CredentialCache
    from shardway.aws.options import ConnectionOptions
    from shardway.errors import ServiceError


API_VERSION = "2011-06-15"
DEFAULT_SESSION_NAME = "shardway"
RETRY = RetryPolicy(attempts_max=4, base_s=0.2, cap_s=2.0)


class AssumedRole:
    """Assumes ``options.role_arn`` with the credentials of ``base``. A `CredentialCache` takes its `load`."""

    def __init__(
        self,
        options: ConnectionOptions,
        calls: SignedCalls,
        base: CredentialCache,
        route: Callable[[], Awaitable[Route]],
    ) -> None:
        self._options = options
        self._calls = calls
        self._base = base
        self._route = route

    async def load(self, refresh: bool) -> Credentials:  # noqa: ARG002 - each call asks STS
        """Call AssumeRole. Each call returns new credentials, so ``refresh`` makes no difference."""
        options = self._options
        form = {
            "Action": "AssumeRole",
            "Version": API_VERSION,
            "RoleArn": options.role_arn,
            "RoleSessionName": options.role_session_name or DEFAULT_SESSION_NAME,
            "DurationSeconds": str(options.role_duration_s),
        }
        if options.role_external_id is not None:
            form["ExternalId"] = options.role_external_id
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
        except ShardwayError as error:
            failed = CredentialsError(f"the role {options.role_arn} cannot be assumed: {error}")
            failed.retryable = error.retryable
            raise failed from error


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
    """Makes calls to STS, whose error answers are XML."""

    def error_of(self, operation: str, status: int, headers: Mapping[str, str], body: bytes) -> ServiceError:
        """See `SignedCalls.error_of`."""
        return sts_error(operation, status, headers, body)


def sts_error(operation: str, status: int, headers: Mapping[str, str], body: bytes) -> ServiceError:
    """Return the error of `shardway.errors` for an XML error answer of STS."""
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


def _parse(body: bytes) -> Element | None:
    import xml.etree.ElementTree as ET  # only roles need it: most programs have none

    # Size is bounded by answer_bytes_max; a document type, the means of expansion attacks, is not accepted. STS answers
    # in UTF-8: in another encoding the words below would be other bytes, and in most of them have a NUL.
    try:
        text = body.decode("utf-8-sig")
        if "<!DOCTYPE" in text or "<!ENTITY" in text or "\0" in text:
            return None
        return ET.fromstring(text)  # noqa: S314
    except (ET.ParseError, *UNREADABLE):  # an encoding that does not exist is a LookupError
        return None


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2]
