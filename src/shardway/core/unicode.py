"""Make text that UTF-8 can write of any text.

JSON may hold half of a surrogate pair (``"\\ud83d"``): JavaScript's ``slice`` and Java's ``substring`` cut a text in
the middle of a character. Python reads it without a word, and then nothing can write it: neither UTF-8, nor a terminal,
nor a JSON encoder. Arguments of a command and names of files bring such halves as well, in place of bytes that are
not UTF-8 (PEP 383).
"""

from __future__ import annotations

import re
from typing import Any

_HALVES = re.compile("[\ud800-\udfff]")


def writable(text: str) -> str:
    """Return the text with each half of a surrogate pair replaced by U+FFFD; two halves that belong together become
    their character.
    """
    if not _HALVES.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def message_of(error: BaseException) -> str:
    """Return the message of an error that other code raised: text that can be written, also where the error cannot say
    its message.
    """
    try:
        return writable(str(error))
    except Exception:  # `__str__` is the other code's, and may fail
        return ""


def writable_value(value: Any) -> Any:
    """Return a value of JSON with all texts in it made `writable`, and names of members too. The caller bounds its
    depth.
    """
    if isinstance(value, str):
        return writable(value)
    if isinstance(value, list):
        return [writable_value(one) for one in value]
    if isinstance(value, dict):
        return {writable(name): writable_value(one) for name, one in value.items()}
    return value
