"""A dead letter as it is written: where the record lies, what happened to it, and its data if that may be kept."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
from dataclasses import dataclass, replace
from typing import Any

from penstock.model import Position, Record

KIND = "penstock dead letter"
VERSION = 1
ERROR_CHARACTERS_MAX = 4000
"""More of an error's message is cut off: it may hold the whole record, or a page of HTML."""


class NotALetterError(ValueError):
    """A line or a record is no dead letter. The message does not show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """What is known of a record that was given up."""

    stream: str
    """Name or ARN, as the consumer was given it."""
    shard_id: str
    position: Position
    part: int | None = None
    """Which part of the record, where records are split; from 0."""
    attempts: int
    """How often it was handed out."""
    error_type: str
    """The class of the handler's error, or why there is none."""
    error_message: str = ""
    """What the error said: it may hold anything."""
    written_at: dt.datetime
    """Aware."""
    worker: str = ""
    token: int = 0
    """The fencing token of the tenure in which it was given up."""
    arrived_at: dt.datetime | None = None
    """When the record came into the stream."""
    partition_key: str | None = None
    explicit_hash_key: int | None = None
    data: bytes | None = None
    """The record's. None: this letter is not to hold it."""
    left_out_bytes: int = 0
    """Of data that did not fit into where the letter was to go."""

    def without_data(self, *, left_out: bool = False) -> Letter:
        """The same without what the record holds; ``left_out``: as it did not fit."""
        size = len(self.data or b"") if left_out else 0
        return replace(self, data=None, partition_key=None, explicit_hash_key=None, left_out_bytes=size)

    def record(self) -> Record | None:
        """The record, if the letter holds it."""
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
        """One line, without its end. What is absent has no entry."""
        values: dict[str, Any] = {
            "kind": KIND,
            "version": VERSION,
            "stream": self.stream,
            "shard_id": self.shard_id,
            # As text: a sequence number is more than JSON's readers take for a number.
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
        return json.dumps({name: value for name, value in values.items() if value is not None}).encode()

    @classmethod
    def from_json(cls, line: bytes) -> Letter:
        """Raises NotALetterError for anything else, and for a version that is not known."""
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
        except (KeyError, TypeError, ValueError, binascii.Error) as fault:
            raise NotALetterError(f"its fields cannot be read ({type(fault).__name__})") from fault


def _letter(of: dict[str, Any]) -> Letter:
    arrived, hash_key, data = of.get("arrived_at"), of.get("explicit_hash_key"), of.get("data")
    return Letter(
        stream=of["stream"],
        shard_id=of["shard_id"],
        position=Position(int(of["sequence_number"]), int(of["sub_sequence_number"])),
        part=of.get("part"),
        attempts=int(of["attempts"]),
        error_type=of["error_type"],
        error_message=of.get("error_message", ""),
        written_at=dt.datetime.fromisoformat(of["written_at"]),
        worker=of.get("worker", ""),
        token=int(of.get("token", 0)),
        arrived_at=None if arrived is None else dt.datetime.fromisoformat(arrived),
        partition_key=of.get("partition_key"),
        explicit_hash_key=None if hash_key is None else int(hash_key),
        data=None if data is None else base64.b64decode(data, validate=True),
        left_out_bytes=int(of.get("left_out_bytes", 0)),
    )
