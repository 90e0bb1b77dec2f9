"""A dead letter as it is written: where the record lies, what happened to it, and its data if that may be kept."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
from dataclasses import dataclass, replace
from typing import Any

from shardway.core.unicode import writable, writable_value
from shardway.model import Position, Record

KIND = "shardway dead letter"
VERSION = 1
ERROR_CHARACTERS_MAX = 4000
"""The most characters of an error's message: it may hold the whole record, or a page of HTML."""
VALUES_MAX = 100_000
"""The most values that the JSON of a letter may have, by the signs before them: the message of an error may hold such
signs, too. Any program can put a record into the stream of the letters, and 10 MiB of empty lists take seconds.
"""
DIGITS_MAX = 128
"""The most digits of a number. AWS's API reference allows a sequence number this many."""


class NotALetterError(ValueError):
    """A line or a record is no dead letter. The message does not show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """The facts about a record that was given up."""

    stream: str
    """The name or ARN of the stream, as the consumer was given it."""
    shard_id: str
    position: Position
    part: int | None = None
    """The number of the part in its record, from 0, where records are split."""
    attempts: int
    """The number of times that the record was delivered."""
    error_type: str
    """The class of the handler's error, or the reason why there is none."""
    error_message: str = ""
    """The message of the error: it may hold anything."""
    written_at: dt.datetime
    """The time at which the letter was written, with its zone."""
    worker: str = ""
    token: int = 0
    """The fencing token of the tenure in which it was given up."""
    arrived_at: dt.datetime | None = None
    """The time at which the record came into the stream."""
    partition_key: str | None = None
    explicit_hash_key: int | None = None
    data: bytes | None = None
    """The record's data. None: this letter does not hold it."""
    left_out_bytes: int = 0
    """The size of data that is too large for the place where dead letters go, and was left out."""

    def without_data(self, *, left_out: bool = False) -> Letter:
        """Return the letter without what the record holds; ``left_out``: because it did not fit."""
        size = len(self.data or b"") if left_out else 0
        return replace(self, data=None, partition_key=None, explicit_hash_key=None, left_out_bytes=size)

    def record(self) -> Record | None:
        """Return the record, if the letter holds it."""
        if self.data is None:
            return None
        return Record(
            stream=self.stream,
            shard_id=self.shard_id,
            partition_key=self.partition_key,
            data=self.data,
            sequence_number=self.position.sequence_number,
            sub_sequence_number=self.position.sub_sequence_number,
            approximate_arrival_timestamp=self.arrived_at or self.written_at,
            explicit_hash_key=self.explicit_hash_key,
        )

    def to_json(self) -> bytes:
        """Return one line, without its end. What is absent has no entry. Half of a surrogate pair, which a message may
        quote from a record, is replaced.
        """
        values: dict[str, Any] = {
            "kind": KIND,
            "version": VERSION,
            "stream": self.stream,
            "shard_id": self.shard_id,
            # A sequence number is written as text: it is more than JSON's readers take for a number.
            "sequence_number": str(self.position.sequence_number),
            "sub_sequence_number": self.position.sub_sequence_number,
            "part": self.part,
            "attempts": self.attempts,
            "error_type": self.error_type,
            "error_message": self.error_message[:ERROR_CHARACTERS_MAX],
            "written_at": self.written_at.isoformat(),
            "worker": self.worker,
            "token": self.token,
            "arrived_at": None if self.arrived_at is None else self.arrived_at.isoformat(),
            "partition_key": self.partition_key,
            "explicit_hash_key": None if self.explicit_hash_key is None else str(self.explicit_hash_key),
            "data": None if self.data is None else base64.b64encode(self.data).decode(),
            "left_out_bytes": self.left_out_bytes or None,
        }
        return json.dumps({name: writable_value(one) for name, one in values.items() if one is not None}).encode()

    @classmethod
    def from_json(cls, line: bytes) -> Letter:
        """Read a letter. Raises NotALetterError for anything else, and for a version that is not known."""
        if sum(map(line.count, (b",", b"[", b"{"))) > VALUES_MAX:
            raise NotALetterError(f"it may have more than {VALUES_MAX} values")
        try:
            of = json.loads(line)
        except (ValueError, RecursionError) as fault:
            raise NotALetterError("it is not JSON") from fault
        if not isinstance(of, dict) or of.get("kind") != KIND:
            raise NotALetterError(f"it is not marked as a {KIND}")
        if of.get("version") != VERSION:
            raise NotALetterError(f"it is a {KIND} of another version than {VERSION}")
        try:
            return _letter(of)
        except KeyError as fault:
            raise NotALetterError(f"its fields cannot be read ({fault} is missing)") from fault
        except (TypeError, ValueError, OverflowError, binascii.Error) as fault:
            # Only the texts of `_OddFieldError` are ours: the others hold what stands in the letter.
            what = str(fault) if isinstance(fault, _OddFieldError) else type(fault).__name__
            raise NotALetterError(f"its fields cannot be read ({what})") from fault


class _OddFieldError(ValueError):
    """A field is of another type, or out of its range. The message names the field, and does not show its value."""


def _letter(of: dict[str, Any]) -> Letter:
    data = None if of.get("data") is None else _text(of, "data")
    return Letter(
        stream=_text(of, "stream", least=1),
        shard_id=_text(of, "shard_id", least=1),
        position=Position(_whole_number(of, "sequence_number"), _whole_number(of, "sub_sequence_number")),
        part=None if of.get("part") is None else _whole_number(of, "part"),
        attempts=_whole_number(of, "attempts"),
        error_type=_text(of, "error_type"),
        error_message=_text(of, "error_message") if "error_message" in of else "",
        written_at=_time(of, "written_at"),
        worker=_text(of, "worker") if "worker" in of else "",
        token=_whole_number(of, "token") if "token" in of else 0,
        arrived_at=None if of.get("arrived_at") is None else _time(of, "arrived_at"),
        partition_key=None if of.get("partition_key") is None else _text(of, "partition_key"),
        explicit_hash_key=None if of.get("explicit_hash_key") is None else _whole_number(of, "explicit_hash_key"),
        data=None if data is None else base64.b64decode(data, validate=True),
        left_out_bytes=_whole_number(of, "left_out_bytes") if "left_out_bytes" in of else 0,
    )


def _text(of: dict[str, Any], name: str, *, least: int = 0) -> str:
    """Return a text that UTF-8 can write. Half of a surrogate pair is replaced, and makes it no odd letter: other
    programs may write such letters, and the record counts as settled.
    """
    value = of[name]
    if not isinstance(value, str) or len(value) < least:
        raise _OddFieldError(f"{name} is no text")
    return writable(value)


def _whole_number(of: dict[str, Any], name: str) -> int:
    """Return a number from 0 on, which may stand as text; it has no more digits than a sequence number has."""
    value = of[name]
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX):
        raise _OddFieldError(f"{name} is no whole number")
    return int(text)


def _time(of: dict[str, Any], name: str) -> dt.datetime:
    """Return a moment; without a zone it is UTC."""
    moment = dt.datetime.fromisoformat(_text(of, name))
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
