"""Ask a schema registry of Confluent's protocol."""

from __future__ import annotations

import base64
import http.client
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


def checked_url(url: str) -> str:
    """Return the address of a registry without a slash at its end. Raises OptionError for what is no such address."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise OptionError("--schema-registry: write its address, as in https://registry.example.com")
    if parts.username is not None or parts.password is not None:
        raise OptionError(f"--schema-registry: leave the password out of the address, and set {AUTHORIZATION}")
    return url.rstrip("/")


def text_at(url: str) -> bytes:
    """Return the body of a GET. The call blocks: call it from a thread. Raises ShardwayError."""
    request = urllib.request.Request(url, headers={"accept": "application/vnd.schemaregistry.v1+json"})  # noqa: S310 - http and https alone
    if given := os.environ.get(AUTHORIZATION):
        request.add_header("authorization", "Basic " + base64.b64encode(given.encode()).decode())
    opener = urllib.request.build_opener(NoRedirect)
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            body: bytes = answer.read(2 * SCHEMA_BYTES_MAX + 1)
    except urllib.error.HTTPError as fault:
        raise ShardwayError(f"{urlsplit(url).netloc} answers {fault.code}") from None
    except (OSError, ValueError, http.client.HTTPException) as fault:
        reason = getattr(fault, "reason", fault)
        raise ShardwayError(f"{urlsplit(url).netloc} gives no answer: {reason}") from None
    if len(body) > 2 * SCHEMA_BYTES_MAX:
        raise ShardwayError(f"its answer has more than {2 * SCHEMA_BYTES_MAX} bytes")
    return body
