"""Find which place a path names, however it is spelled: two writers of one folder would take each other's files away.

``out``, ``./out``, ``file:/data/out``, ``FILE:///data//out/`` and a link to it are one folder, and ``s3a://`` and
``s3://`` are one bucket. An *identity* is what such spellings have in common. It is for comparing only: what is
written keeps the spelling that it was given.
"""

from __future__ import annotations

import os
import posixpath
import re

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
"""The pattern of a path with a scheme as Hadoop reads it: the scheme lies before the first colon, if no slash lies
before that.
"""
_SAME_SYSTEM = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "wasbs": "wasb"}
"""Schemes that name the same files as another one."""


def identity(path: str) -> str:
    """Return what all spellings of a place have in common, as far as the text and this machine's links tell.

    A path without a scheme is taken for one of this machine, relative to where the process runs.
    """
    found = _SCHEME.fullmatch(path)
    scheme, rest = (found[1].lower(), found[2]) if found else ("file", path)
    authority = ""
    if rest.startswith("//") and found:
        authority, slash, rest = rest[2:].partition("/")
        rest = slash + rest
    if scheme == "file":
        return "file:" + os.path.realpath(rest or "/")
    folder = posixpath.normpath("/" + rest.lstrip("/"))
    return f"{_SAME_SYSTEM.get(scheme, scheme)}://{authority.lower()}{folder}"


def collide(one: str, other: str) -> bool:
    """True where writers of two places, given by their identities, would take each other's files away.

    They do where both are one place, and where one is a folder of one column's value (``kind=a``) in the other, which
    may be partitioned by it.
    """
    if one == other:
        return True
    outer, inner = sorted((one.rstrip("/"), other.rstrip("/")), key=len)
    rest = inner.removeprefix(outer + "/")
    return rest != inner and all("=" in part for part in rest.split("/"))
