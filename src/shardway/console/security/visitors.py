"""Values of a visitor: what a request says of its user, and what that user may do."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Role(StrEnum):
    """What a visitor may do."""

    VIEWER = "viewer"
    WRITER = "writer"


class Visitor(msgspec.Struct, frozen=True, kw_only=True):
    """The user behind a request."""

    name: str
    role: Role
    peer: str
    """The address that the request came from."""
    csrf: str
    """The value that a form must carry, which shows that the form is on one of our own pages."""
    may_write: bool
    by_proxy: bool = False
    """True: a proxy has signed the user in, and will not vouch for another browser's session."""
    by_program: bool = False
    """True: the request brought the token. No browser sends it by itself, so no other page can have made the request.
    """


class Refused(Exception):  # noqa: N818 - an answer, not a failure
    """The request goes no further."""

    def __init__(self, status: int, why: str, *, location: str | None = None) -> None:
        self.status = status
        self.why = why
        self.location = location
        super().__init__(why)
