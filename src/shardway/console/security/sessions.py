"""Keep the sessions of browsers, and the links that begin a session."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from typing import TYPE_CHECKING, NamedTuple

from shardway.console.security.visitors import Role

if TYPE_CHECKING:
    from collections.abc import Callable


SESSIONS_MAX = 128
SESSION_S = 12 * 3600.0
LAUNCHES_MAX = 8
LAUNCH_S = 600.0
USER_CHARACTERS_MAX = 128


class _Session(NamedTuple):
    role: Role
    csrf: str
    until_s: float
    name: str
    made_by: bytes | None
    """The session that made the link to this one: when that one ends, this one ends. None: there is none."""


class Launch(NamedTuple):
    """What a one-time token signs in as."""

    role: Role
    name: str
    until_s: float
    made_by: bytes | None


class Sessions:
    """Browsers that are signed in, and one-time tokens that sign a browser in. All are in memory, and bounded."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._sessions: dict[bytes, _Session] = {}
        self._launches: dict[bytes, Launch] = {}

    def open(self, role: Role, name: str, made_by: bytes | None = None) -> str:
        """Begin a session, and return its cookie. Where there are too many sessions, the oldest one ends."""
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        until_s = self._now() + SESSION_S
        if made_by in self._sessions:
            until_s = min(until_s, self._sessions[made_by].until_s)
        cookie = secrets.token_urlsafe(32)
        self._sessions[_digest(cookie)] = _Session(role, secrets.token_urlsafe(32), until_s, name, made_by)
        return cookie

    def of(self, cookie: str) -> _Session | None:
        """Return the session of a cookie, if neither it nor one that led to it has ended."""
        found = self._sessions.get(_digest(cookie))
        if found is not None and not self._goes_on(_digest(cookie)):
            self.close(cookie)
            return None
        return found

    def _goes_on(self, digest: bytes | None) -> bool:
        while digest is not None:
            session = self._sessions.get(digest)
            if session is None or session.until_s < self._now():
                return False
            digest = session.made_by
        return True

    def close(self, cookie: str) -> None:
        """End a session, and with it those of the browsers that it made links for."""
        self._sessions.pop(_digest(cookie), None)

    def launch_token(self, role: Role, name: str | None = None, cookie: str = "") -> str:
        """Return a new token that signs in once, within ten minutes, as this user. ``cookie`` is of the session that
        makes it; empty: there is none.
        """
        while len(self._launches) >= LAUNCHES_MAX:
            del self._launches[next(iter(self._launches))]
        token = secrets.token_urlsafe(32)
        made_by = _digest(cookie) if cookie else None
        self._launches[_digest(token)] = Launch(role, name or f"browser:{role}", self._now() + LAUNCH_S, made_by)
        return token

    def launched(self, token: str) -> Launch | None:
        """Return what a one-time token signs in as, and forget the token. None: it has ended, or its maker has."""
        found = self._launches.pop(_digest(token), None)
        return found if found is not None and found.until_s >= self._now() and self._goes_on(found.made_by) else None


def equal(one: str, other: str) -> bool:
    """Compare secrets in a time that says nothing of them."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
