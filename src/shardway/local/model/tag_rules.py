"""Say which tags the service takes."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING

from shardway.local.model.errors import invalid

if TYPE_CHECKING:
    from shardway.local.model.service import KinesisModel


TAGS_MAX = 50
"""The tags of one resource."""
_ALLOWED_SIGNS = frozenset("_.:/=+-@")


def _is_plain(text: str) -> bool:
    """Return True for a text of letters, digits, separators (no tab, no line end) and a few signs."""
    return all(char in _ALLOWED_SIGNS or unicodedata.category(char)[0] in "LNZ" for char in text)


def require_plain(model: KinesisModel, action: str, tags: Iterable[str] | dict[str, str]) -> None:
    """Raise InvalidArgumentException for a key or value with characters that tags may not have.

    The service checks twice: only its second check, which has another text, knows that ``%`` is not allowed.
    """
    texts = [*tags, *tags.values()] if isinstance(tags, dict) else list(tags)
    if not all(_is_plain(text.replace("%", "")) for text in texts):
        raise invalid(
            "Some tags contain invalid characters. Valid characters: "
            "Unicode letters, digits, white space, _ . / = + - % @."
        )
    if not all(_is_plain(text) for text in texts):
        raise invalid(
            f"Failed to {action} under account {model.account_id} because some tags contained illegal characters. "
            "The allowed characters are Unicode letters, white-spaces, '_',',','/','=','+','-','@'."
        )
