"""Look at a schema's DDL without Spark: at the names and types of its fields, to find misspellings.

Spark parses the text when the job starts. This module finds the usual faults before that, and knows the fields' names.
"""

from __future__ import annotations

import re

from shardway.pipeline.job.file.faults import nearest

_TYPES = (
    "BOOLEAN", "TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG", "FLOAT", "REAL", "DOUBLE",
    "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "TIME", "STRING", "CHAR", "CHARACTER", "VARCHAR", "BINARY",
    "DECIMAL", "DEC", "NUMERIC", "INTERVAL", "ARRAY", "STRUCT", "MAP", "VARIANT", "GEOGRAPHY", "GEOMETRY",
)  # fmt: skip
_FIELD = re.compile(r"\s*(`(?:[^`]|``)+`|[^\s:`]+)\s*:?\s*(.*)", re.DOTALL)
_TYPE = re.compile(r"[A-Za-z_]+")
_NAME = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")


def ddl_faults(ddl: str) -> list[str]:
    """Return what is certainly wrong with a DDL text; an empty list says little."""
    if ddl.strip().startswith("{"):
        return ["must be DDL, like order_id STRING NOT NULL, amount DECIMAL(10,2)"]
    if not _is_balanced(ddl):
        return ["has brackets that do not match"]
    faults = []
    seen: set[str] = set()
    for text in _parts(ddl):
        found = _FIELD.fullmatch(text)
        if found is None or not text.strip():
            faults.append("has a field without a name (a comma too many?)")
            continue
        name, rest = _unquote(found[1]), found[2].strip()
        kind = _TYPE.match(rest)
        if kind is None:
            faults.append(f"gives field {name} no type")
        elif kind[0].upper() not in _TYPES:
            near = nearest(kind[0], _TYPES)
            faults.append(f"gives field {name} the type {kind[0]}, which Spark has not{near}")
        if name.lower() in seen:
            faults.append(f"has two fields {name}")
        seen.add(name.lower())
    return faults


def field_names(ddl: str) -> list[str]:
    """Return the names of the fields, in order."""
    matches = (_FIELD.fullmatch(text) for text in _parts(ddl))
    return [_unquote(found[1]) for found in matches if found is not None]


def name_parts(column: str) -> list[str]:
    """Return the names that a column or a field of it is made of: ``value.`a.b``` has ``value`` and ``a.b``."""
    return [found[1].replace("``", "`") if found[2] is None else found[2] for found in _NAME.finditer(column)]


def _unquote(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _parts(ddl: str) -> list[str]:
    """Return the texts between the commas that are in no bracket, no quotes and no backquotes."""
    parts, depth, quote, start = [], 0, "", 0
    for at, char in enumerate(ddl):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"`":
            quote = char
        elif char in "(<":
            depth += 1
        elif char in ")>":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(ddl[start:at])
            start = at + 1
    return [*parts, ddl[start:]]


def _is_balanced(ddl: str) -> bool:
    bare = re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "", ddl)
    depth: list[str] = []
    for char in bare:
        if char in "(<":
            depth.append(char)
        elif char in ")>" and (not depth or depth.pop() != {")": "(", ">": "<"}[char]):
            return False
    return not depth
