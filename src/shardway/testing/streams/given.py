"""Tests give records as values of Python, or as lines of a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from shardway.core.ledger.letter import Letter, NotALetterError
from shardway.model import OutRecord, Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Given: TypeAlias = "bytes | str | Mapping[str, Any] | Sequence[Any] | OutRecord | Record"
"""A record as a test gives it: bytes as they are, a text in UTF-8, anything else as JSON; or a record with its keys."""

KEY = "key"
"""The partition key of records that are given without one."""


def out_record(given: Given, key: str | None = None) -> OutRecord:
    """Return a record to be put. ``key`` goes before the key that the record has."""
    if isinstance(given, OutRecord):
        return OutRecord(given.data, key or given.partition_key, given.explicit_hash_key)
    if isinstance(given, Record):
        return OutRecord(given.data, key or given.partition_key or KEY, given.explicit_hash_key)
    if isinstance(given, str):
        given = given.encode()
    data = given if isinstance(given, bytes) else json.dumps(given).encode()
    return OutRecord(data, key or KEY)


def records_of_file(path: Path | str, *, key: str | None = None) -> Iterator[OutRecord]:
    """Yield a record of each line: the record that a dead letter holds, or else the line itself.

    ``key`` names the field of JSON that is the partition key, as ``shardway put --format jsonl --key`` does: a path
    with dots. Raises ValueError, with the line's number, for a line that has none, and for a letter without its data.
    """
    for number, line in enumerate(Path(path).read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            letter = Letter.from_json(line)
        except NotALetterError:
            yield OutRecord(line, KEY if key is None else _field(line, key, f"{path}, line {number}"))
            continue
        record = letter.record()
        if record is None:
            raise ValueError(f"{path}, line {number}: the dead letter does not hold its record's data")
        yield out_record(record)


def _field(line: bytes, path: str, where: str) -> str:
    try:
        value = json.loads(line)
        for name in path.split("."):
            value = value[name]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{where}: it has no field {path}") from None
    return str(value)
