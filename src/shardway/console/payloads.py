"""Decide what the console shows of records: all, all but what is masked, or no payload at all.

A filter sees what the page shows, no more: else its answers would reveal what a mask hides, one after the other.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec

from shardway.errors import OptionError
from shardway.inspect.moments import time_text
from shardway.inspect.records.decoding import Decoded, Step
from shardway.inspect.records.seen_records import SeenRecord

if TYPE_CHECKING:
    from shardway.console.settings import ConsoleSettings

HIDDEN = "(hidden)"
MASKED = "***"
TEXT_CHARACTERS_MAX = 600
"""The characters that a list shows of a record."""
WHOLE_CHARACTERS_MAX = 512 * 1024
"""The characters that a record's own page shows of it."""
HEX_BYTES_MAX = 4096
_STEP = re.compile(r"\.([A-Za-z_*][\w-]*)|\[(\*)\]")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A record in a list."""

    shard_id: str
    sequence_number: str
    sub_sequence_number: int | None
    arrived_at: str
    key: str
    kind: str
    """The innermost kind of the data."""
    via: str
    """The layers around the data, the outermost first."""
    size: int
    text: str
    cut: bool
    """True: the record's text is longer than what is shown."""


class Payloads:
    """Turns records into what may be shown of them."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.shown = settings.show_payloads
        self.key_shown = settings.show_payloads and "key" not in settings.masks
        self._paths = [_steps(one) for one in settings.masks if one != "key"]

    @property
    def whole(self) -> bool:
        """True when nothing is hidden."""
        return self.shown and self.key_shown and not self._paths

    def checked(self, *, where: str | None, key: str | None) -> None:
        """Raise OptionError for a search in what is hidden."""
        if where and not self.shown:
            raise OptionError("this console shows no payloads, so none can be searched (it was started --no-payloads)")
        if key and not self.key_shown:
            raise OptionError("this console shows no partition keys, so none can be searched for")

    def masked(self, record: SeenRecord) -> SeenRecord:
        """Return the record as filters and pages may see it. `data` stays, for its size alone."""
        if self.whole:
            return record
        return _MaskedRecord(record, self)

    def decoded(self, record: SeenRecord) -> Decoded:
        """Return what is inside of a record, without what is hidden."""
        if not self.shown:
            return Decoded(steps=[Step(kind="hidden", why="this console shows no payloads")], data=b"", text=HIDDEN)
        found = record.decoded
        if not self._paths:
            return found
        if not found.is_json:
            why = "masks are set, and only of JSON is it known what they hide"
            return Decoded(steps=[*found.steps, Step(kind="hidden", why=why)], data=b"", text=HIDDEN)
        value = found.value
        for path in self._paths:
            try:
                value = _mask(value, path)
            except _UnmetError:
                shown = "".join(one if one == "[*]" else f".{one}" for one in path)
                why = f"the mask {shown} does not fit this record, so it is not known what the mask hides"
                return Decoded(steps=[*found.steps, Step(kind="hidden", why=why)], data=b"", text=HIDDEN)
        text = json.dumps(value, ensure_ascii=False)
        return Decoded(steps=found.steps, data=text.encode(), text=text, value=value)

    def row(self, record: SeenRecord) -> Row:
        """Return a line of a list. ``record`` comes from `masked`."""
        found, raw = record.decoded, record.record
        text = found.shown if self.shown else HIDDEN
        kinds = [step.kind for step in found.steps]
        return Row(
            shard_id=record.shard_id,
            sequence_number=str(raw.sequence_number),
            sub_sequence_number=raw.sub_sequence_number if raw.aggregated else None,
            arrived_at=time_text(record.arrived_at),
            key=record.partition_key,
            kind=kinds[-1],
            via=" > ".join(["kpl"] * raw.aggregated + kinds[:-1]),
            size=len(record.data),
            text=text[:TEXT_CHARACTERS_MAX],
            cut=len(text) > TEXT_CHARACTERS_MAX,
        )

    def whole_text(self, record: SeenRecord) -> tuple[str, bool]:
        """Return the text of a record's own page, with JSON indented, and whether the text was cut."""
        found = record.decoded
        if not self.shown:
            return HIDDEN, False
        if found.is_json:
            text = _indent(found.value)
        elif found.text is not None:
            text = found.text
        else:
            text = _hex_dump(found.data[:HEX_BYTES_MAX])
            return text, len(found.data) > HEX_BYTES_MAX
        return text[:WHOLE_CHARACTERS_MAX], len(text) > WHOLE_CHARACTERS_MAX


class _MaskedRecord(SeenRecord):
    """A record as filters and pages may see it."""

    def __init__(self, record: SeenRecord, payloads: Payloads) -> None:
        super().__init__(record.record)
        self._key = record.partition_key if payloads.key_shown else HIDDEN
        self.__dict__["decoded"] = payloads.decoded(record)  # what its cached property would find out

    @property
    def partition_key(self) -> str:
        """The key, where keys are shown."""
        return self._key


def _steps(path: str) -> list[str]:
    return [name or "[*]" for name, _ in _STEP.findall(path)]


class _UnmetError(Exception):
    """The value does not have what a path names."""


def _mask(value: Any, path: list[str]) -> Any:
    """Return a copy of the value in which what the path names is masked. A name is met in small and capital letters,
    and in each value of an array. Null, what is empty and what is masked hold nothing that could be hidden. Raises
    _UnmetError where a value does not have what the path names: it may have it elsewhere.

    The recursion is as deep as the value, which the decoder bounds, and the path.
    """
    if not path:
        return MASKED
    first, rest = path[0], path[1:]
    if value is None or value in ([], {}, MASKED):
        return value
    if first == "[*]":
        return [_mask(one, rest) for one in value] if isinstance(value, list) else _mask(value, rest)
    if isinstance(value, list):
        return [_mask(one, path) for one in value]
    if not isinstance(value, dict):
        raise _UnmetError
    met = [name for name in value if first == "*" or name.casefold() == first.casefold()]
    if not met:
        raise _UnmetError
    return {**value, **{name: _mask(value[name], rest) for name in met}}


def _indent(value: Any) -> str:
    """Return the value as indented JSON, up to a little more than what is shown of it."""
    parts, characters = [], 0
    for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(value):
        parts.append(part)
        characters += len(part)
        if characters > WHOLE_CHARACTERS_MAX:
            break
    return "".join(parts)


def _hex_dump(data: bytes) -> str:
    """Return the data as lines of sixteen bytes: their place, the bytes in hexadecimal, and the ASCII among them."""
    lines = []
    for at in range(0, len(data), 16):
        part = data[at : at + 16]
        shown = "".join(chr(one) if 32 <= one < 127 else "." for one in part)
        lines.append(f"{at:08x}  {part.hex(' '):<47}  {shown}")
    return "\n".join(lines)
