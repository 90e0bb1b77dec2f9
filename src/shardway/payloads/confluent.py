"""Ask a schema registry of Confluent's protocol."""

from __future__ import annotations

import base64
import http.client
import json
import os
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from shardway.errors import OptionError, ShardwayError
from shardway.payloads.redirects import NoRedirect

SCHEMA_BYTES_MAX = 1024 * 1024
TIMEOUT_S = 10.0
AUTHORIZATION = "SHARDWAY_SCHEMA_REGISTRY_AUTH"
"""``USER:PASSWORD`` for the registry, in the environment: on a command line other users would see it."""


_UNKNOWN_SCHEMA = 40403
"""The code in a registry's own answer that it has no schema of an id. A server that is none answers 404 without it."""
_SAID_BYTES_MAX = 10_000


class UnknownSchemaError(ShardwayError):
    """A registry says that it has no schema of an id."""


def checked_url(url: str, *, option: str = "--schema-registry") -> str:
    """Return the address of a registry without a slash at its end. Raises OptionError for what is no such address.
    ``option`` is what gave it, for the message.
    """
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or parts.query or parts.fragment:
        raise OptionError(f"{option}: write its address, as in https://registry.example.com")
    if parts.username is not None or parts.password is not None:
        raise OptionError(f"{option}: leave the password out of the address, and set {AUTHORIZATION}")
    return url.rstrip("/")


def text_at(url: str) -> bytes:
    """Return the body of a GET. The call blocks: call it from a thread. Raises UnknownSchemaError, or ShardwayError."""
    request = urllib.request.Request(url, headers={"accept": "application/vnd.schemaregistry.v1+json"})  # noqa: S310 - http and https alone
    if given := os.environ.get(AUTHORIZATION):
        request.add_header("authorization", "Basic " + base64.b64encode(given.encode()).decode())
    opener = urllib.request.build_opener(NoRedirect)
    host = urlsplit(url).netloc
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            body: bytes = answer.read(2 * SCHEMA_BYTES_MAX + 1)
    except urllib.error.HTTPError as fault:
        with fault:
            kind = UnknownSchemaError if _is_unknown(fault) else ShardwayError
        raise kind(f"{host} answers {fault.code}") from None
    except (OSError, ValueError, http.client.HTTPException) as fault:
        reason = getattr(fault, "reason", fault)
        raise ShardwayError(f"{host} gives no answer: {reason}") from None
    if len(body) > 2 * SCHEMA_BYTES_MAX:
        raise ShardwayError(f"its answer has more than {2 * SCHEMA_BYTES_MAX} bytes")
    return body


def _is_unknown(fault: urllib.error.HTTPError) -> bool:
    if fault.code != http.client.NOT_FOUND:
        return False
    try:
        said = json.loads(fault.read(_SAID_BYTES_MAX))
    except (OSError, ValueError, RecursionError, http.client.HTTPException):
        return False
    return isinstance(said, dict) and said.get("error_code") == _UNKNOWN_SCHEMA
