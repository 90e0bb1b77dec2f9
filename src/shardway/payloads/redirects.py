"""Refuse the redirects of an HTTP server: what it was given, such as a password, stays with it."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Any


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an error. The operator named one address: an answer names no other one, where the password of a
    registry would go.
    """

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Return None, so that urllib makes no other request and raises HTTPError."""
        return
