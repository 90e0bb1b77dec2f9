"""Sign requests whose body is in memory, by AWS Signature Version 4.

The rules stand in the AWS General Reference, "Create a signed AWS API request". The day's signing key is kept, so that
a signature costs one SHA-256 and one HMAC beside the hash of the body.
"""

from __future__ import annotations

import hashlib
import hmac
import time
import urllib.parse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.aws.options import Credentials

ALGORITHM = "AWS4-HMAC-SHA256"
KEYS_MAX = 64
"""The most signing keys that are kept: one per secret, day, region and service in use."""


def amz_date(epoch_s: float) -> str:
    """Return a time as AWS writes it: ``20260131T235959Z``."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(epoch_s))


def canonical_path(path: str) -> str:
    """Return the path as it is signed: encoded once more than it is sent (for every service but S3)."""
    if path in ("/", ""):
        return "/"  # all calls that are made often have this path: a thousand idle shards make a thousand a second
    return urllib.parse.quote(path, safe="/-_.~")


def canonical_query(query: str) -> str:
    """Return the query string with its (already encoded) parameters sorted by name, then by value."""
    if not query:
        return ""
    pairs = [pair.partition("=") for pair in query.split("&")]
    return "&".join(f"{name}={value}" for name, _, value in sorted(pairs))


class Signer:
    """Signs for one service and region. It is not bound to a loop or thread beyond its small cache of keys."""

    def __init__(self, service: str, region: str) -> None:
        self._service = service
        self._region = region
        self._keys: dict[tuple[str, str], bytes] = {}
        self._last_date = ("", -1)

    def sign(  # noqa: PLR0913 - a request in its parts
        self,
        headers: Mapping[str, str],
        body: bytes,
        credentials: Credentials,
        epoch_s: float,
        *,
        path: str = "/",
        query: str = "",
        method: str = "POST",
        body_hash: str | None = None,
    ) -> dict[str, str]:
        """Return the headers to add: ``X-Amz-Date``, ``Authorization`` and, with a session token, its header.

        ``headers`` must hold ``host`` and all other headers to sign, with lower-case names and trimmed
        values. ``epoch_s`` is the service's time, not this machine's: it refuses signatures more than 5
        minutes off. ``body_hash`` is `hash_of` the body, where it is known.
        """
        date = self._date(int(epoch_s))
        signed = {**headers, "x-amz-date": date}
        if credentials.session_token is not None:
            signed["x-amz-security-token"] = credentials.session_token
        names = sorted(signed)
        signed_names = ";".join(names)
        lines = "".join([f"{name}:{signed[name]}\n" for name in names])
        canonical = (
            f"{method}\n{canonical_path(path)}\n{canonical_query(query)}\n{lines}\n{signed_names}\n"
            f"{body_hash or hash_of(body)}"
        )
        scope = f"{date[:8]}/{self._region}/{self._service}/aws4_request"
        to_sign = f"{ALGORITHM}\n{date}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = self._key(credentials.secret_access_key, date[:8])
        signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
        added = {
            "X-Amz-Date": date,
            "Authorization": (
                f"{ALGORITHM} Credential={credentials.access_key_id}/{scope}, "
                f"SignedHeaders={signed_names}, Signature={signature}"
            ),
        }
        if credentials.session_token is not None:
            added["X-Amz-Security-Token"] = credentials.session_token
        return added

    def _date(self, second: int) -> str:
        date, known_second = self._last_date
        if second != known_second:
            date = amz_date(second)
            self._last_date = (date, second)
        return date

    def _key(self, secret: str, day: str) -> bytes:
        key = self._keys.get((secret, day))
        if key is None:
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, self._service, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            if len(self._keys) >= KEYS_MAX:
                self._keys.clear()
            self._keys[secret, day] = key
        return key


def hash_of(body: bytes) -> str:
    """Return the SHA-256 of a body as a signature wants it: hexadecimal, in lower case."""
    return hashlib.sha256(body).hexdigest()
