"""Infer a schema, as Spark's DDL, from some JSON objects: one that ``decode_json`` takes each of them with.

The types follow what ``decode_json`` accepts. A number is never taken from a text, nor a text from a number, so a place
where types are mixed gets VARIANT, which takes any value. No value of an object is kept or shown, only names of fields,
types, and counts. Names that a schema cannot have are left out: ``decode_json`` ignores fields that are not named.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


PLACES_MAX = 500
"""The fields, of all objects together, that a schema may have: each costs an expression of Spark's for each record."""
DEPTH_MAX = 8
"""The levels of objects and arrays that a schema spells out. What lies deeper is VARIANT."""
NAME_CHARACTERS_MAX = 100
NUMBER_CHARACTERS_MAX = 1_000
"""Spark's JSON reader refuses longer numbers (the bound of Jackson's StreamReadConstraints)."""
MAP_NAMES_MIN = 30
"""An object with at least as many names, none of which is in half of such objects, has names that are data."""
MOST_TENTHS = 9
"""Tenths of the texts that look like a time, or a number, for this to be said: some may be faults."""
BIGINT_MAX = 2**63
DECIMAL_DIGITS_MAX = 38
DECIMAL_MAX: int = 10**DECIMAL_DIGITS_MAX
EXACT_MAX = 2**53
"""DOUBLE has each whole number up to this one."""
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HALVES = re.compile("[\ud800-\udfff]")
_ISO_8601 = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_DECIMAL = re.compile(r"-?\d{1,20}(\.(\d{1,18}))?", re.ASCII)


class ObjectMembers(list[tuple[str, Any]]):
    """The members of a JSON object in their order. A name that the object has twice is there twice."""


def members_of(text: str) -> ObjectMembers | None:
    """Return the members of a text that is one JSON object, as Spark's JSON reader reads it; None: it is none. The
    caller bounds how long and how deep the text is.
    """
    try:
        found = json.loads(
            text,
            object_pairs_hook=ObjectMembers,
            parse_int=_parse_whole,
            parse_float=_parse_fraction,
            parse_constant=_refuse,
        )
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, ObjectMembers) else None


def _parse_whole(text: str) -> int:
    return int(text) if len(text) <= NUMBER_CHARACTERS_MAX else _refuse(text)


def _parse_fraction(text: str) -> float:
    return float(text) if len(text) <= NUMBER_CHARACTERS_MAX else _refuse(text)


def _refuse(_: str) -> Any:
    raise ValueError("Spark's JSON reader takes no such number")


class Field(NamedTuple):
    """A field at the top of the objects."""

    name: str
    type: str
    """Its type as DDL."""
    is_in_all: bool
    """True where each object has it, with another value than null."""

    @property
    def ddl(self) -> str:
        """The field as a line of DDL."""
        return f"{quoted(self.name)} {self.type}"


class InferredSchema:
    """What is known of the objects so far. It grows with each object and is bounded by `PLACES_MAX`."""

    def __init__(self) -> None:
        self._room = _Room(PLACES_MAX)
        self._top = _Place()
        self._refused_count = 0
        """The objects that VARIANT refuses, or a part of them."""

    @property
    def objects(self) -> int:
        """The number of objects that were seen."""
        return self._top.objects

    def see(self, value: ObjectMembers | dict[str, Any]) -> None:
        """Take one JSON object into account."""
        self._top.see(value, self._room, 0)
        self._refused_count += _is_refused(value)

    @property
    def fields(self) -> list[Field]:
        """The fields of the objects, in the order in which they were seen."""
        found = self._top.usable()
        return [Field(name, place.ddl(), place.is_in_all(self.objects)) for name, place in found.items()]

    @property
    def ddl(self) -> str:
        """The schema as DDL, a line a field; empty where no object has a field that can be named."""
        return ",\n".join(field.ddl for field in self.fields)

    @property
    def notes(self) -> list[str]:
        """What a reader of the schema should know, a line each. It names fields and counts, and shows no value."""
        found = list(self._top.notes(()))
        if self._refused_count and "VARIANT" in self.ddl:
            found.append(
                f"{self._refused_count} of {self.objects} objects have a name twice, or half of a surrogate pair: with "
                "such a value in a VARIANT the record becomes a dead letter"
            )
        return found


def quoted(name: str) -> str:
    """Return the name of a field as DDL and SQL want it."""
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def shown(name: str) -> str:
    """Return the name of a field for a comment: in one line, without signs that cannot be seen."""
    return "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in quoted(name))


def same_column(name: str) -> str:
    """Return what names have in common that Spark takes for one column: it does not tell capital letters."""
    return name.upper().casefold()


class _Room:
    """The places that a schema may still have."""

    def __init__(self, left: int) -> None:
        self.left = left


class _Place:
    """What was seen at one place of the objects: kinds of values, and what is inside of them."""

    def __init__(self) -> None:
        self.seen = 0
        self.nulls = 0
        self.objects = 0
        self._kinds: set[str] = set()
        self._whole_max = 0
        self._texts = self._iso = self._decimals = self._scale = 0
        self._fields: dict[str, _Place] = {}
        self._element: _Place | None = None
        self._has_more = False
        """True where something was left out for want of room, or lies too deep."""

    # --- what is seen ---

    def see(self, value: Any, room: _Room, depth: int) -> None:
        """Take one value at this place into account, and what is inside of it."""
        self.seen += 1
        if value is None:
            self.nulls += 1
        elif isinstance(value, bool):
            self._kinds.add("true or false")
        elif isinstance(value, int):
            self._kinds.add("whole numbers")
            self._whole_max = max(self._whole_max, -value - 1 if value < 0 else value)
        elif isinstance(value, float):
            self._kinds.add("fractions")
        elif isinstance(value, str):
            self._see_text(value)
        elif isinstance(value, dict | ObjectMembers):
            self._kinds.add("objects")
            self._see_object(value, room, depth)
        else:
            self._kinds.add("arrays")
            self._see_array(value, room, depth)

    def _see_text(self, text: str) -> None:
        self._kinds.add("texts")
        self._texts += 1
        self._iso += _ISO_8601.fullmatch(text) is not None
        if (number := _DECIMAL.fullmatch(text)) is not None:
            self._decimals += 1
            self._scale = max(self._scale, len(number[2] or ""))

    def _see_object(self, value: ObjectMembers | dict[str, Any], room: _Room, depth: int) -> None:
        self.objects += 1
        members = list(value.items()) if isinstance(value, dict) else value
        counted: set[str] = set()
        for name, inner in members:
            if depth >= DEPTH_MAX:
                self._has_more = True
                return
            place = self._fields.get(name)
            if place is None:
                if room.left == 0:
                    self._has_more = True
                    continue
                room.left -= 1
                place = self._fields[name] = _Place()
            place.see(inner, room, depth + 1)
            if name in counted:
                place.seen -= 1  # it is one field of this object, however often it stands there
            counted.add(name)

    def _see_array(self, values: Iterable[Any], room: _Room, depth: int) -> None:
        if depth >= DEPTH_MAX:
            self._has_more = True
            return
        if self._element is None:
            self._element = _Place()
        for inner in values:
            self._element.see(inner, room, depth + 1)

    # --- what follows ---

    def is_in_all(self, objects: int) -> bool:
        return self.nulls == 0 and self.seen == objects

    def usable(self) -> dict[str, _Place]:
        """The fields that a schema can name, by their names."""
        taken: set[str] = set()
        found = {}
        for name, place in self._fields.items():
            if _why_unnamed(name) is None and same_column(name) not in taken:
                taken.add(same_column(name))
                found[name] = place
        return found

    def ddl(self) -> str:
        """The type that takes each value that was seen here."""
        kinds = self._kinds
        if kinds == {"objects"} and not self._is_open:
            return "STRUCT<" + ", ".join(f"{quoted(name)}: {one.ddl()}" for name, one in self.usable().items()) + ">"
        if kinds == {"arrays"} and not self._has_more:
            return "VARIANT" if self._element is None else f"ARRAY<{self._element.ddl()}>"
        if kinds == {"whole numbers"}:
            return self._whole_ddl()
        if kinds and kinds <= {"whole numbers", "fractions"}:
            return "DOUBLE"
        one = next(iter(kinds)) if len(kinds) == 1 else ""
        return {"true or false": "BOOLEAN", "texts": "STRING"}.get(one, "VARIANT" if kinds else "STRING")

    def _whole_ddl(self) -> str:
        if self._whole_max < BIGINT_MAX:
            return "BIGINT"
        return f"DECIMAL({DECIMAL_DIGITS_MAX},0)" if self._is_decimal else "DOUBLE"

    @property
    def _is_decimal(self) -> bool:
        return self._whole_max < DECIMAL_MAX - 1

    @property
    def _is_open(self) -> bool:
        """True for objects that a STRUCT does not describe."""
        return self._has_more or self._has_data_as_names or not self.usable()

    @property
    def _has_data_as_names(self) -> bool:
        most = max((one.seen for one in self._fields.values()), default=0)
        return len(self._fields) >= MAP_NAMES_MIN and most * 2 <= self.objects

    def notes(self, path: tuple[str, ...]) -> Iterator[str]:
        """Yield what a reader should know of this place and of those inside of it."""
        if path:
            told = self._remark()
            if told:
                yield f"{'.'.join(path)}: {told}"
        elif self._has_more:
            yield f"the objects have more than {PLACES_MAX} fields: those seen last are left out"
        if path and self._kinds != {"objects"}:
            if self._kinds == {"arrays"} and self._element is not None:
                yield from self._element.notes((*path[:-1], f"{path[-1]}[]"))
            return
        if path and self._is_open:
            return
        usable = self.usable()
        for name, place in self._fields.items():
            if name not in usable:
                why = _why_unnamed(name) or "Spark takes it for the same as another, as they differ in capitals only"
                yield f"{'.'.join((*path, shown(name[:NAME_CHARACTERS_MAX])))}: left out: {why}"
                continue
            inside = (*path, shown(name))
            if (lacking := self.objects - place.seen) > 0:
                yield f"{'.'.join(inside)}: missing in {lacking} of {self.objects}"
            yield from place.notes(inside)

    def _remark(self) -> str:
        told = [f"null in {self.nulls}"] if self.nulls and self._kinds else []
        if not self._kinds:
            told.append("only null was seen: its type is a guess" if self.nulls else "empty: its type is a guess")
        elif self._kinds == {"objects"}:
            told += self._told_objects()
        elif self._kinds == {"arrays"}:
            told += ["it lies too deep for a schema that is spelled out"] if self._has_more else []
        elif self._kinds <= {"whole numbers", "fractions"}:
            told += self._told_numbers()
        elif self._kinds == {"texts"}:
            told += self._told_texts()
        else:
            told.append(f"mixed, {', '.join(sorted(self._kinds))}: VARIANT takes any value")
        return "; ".join(told)

    def _told_objects(self) -> list[str]:
        if self._has_data_as_names:
            return ["its names look like data: MAP<STRING, ...> may fit"]
        if self._has_more:
            return ["it lies too deep, or has too many fields, for a schema that is spelled out"]
        return [] if self.usable() else ["no object had a field that can be named"]

    def _told_numbers(self) -> list[str]:
        told = []
        if self._whole_max >= BIGINT_MAX:
            told.append("numbers beyond BIGINT")
        if self.ddl() == "DOUBLE" and self._whole_max > EXACT_MAX:
            told.append("DOUBLE rounds whole numbers as large as these")
        return told

    def _told_texts(self) -> list[str]:
        if self._iso * 10 >= self._texts * MOST_TENTHS:
            return [f"{self._iso} of {self._texts} texts look like ISO 8601: TIMESTAMP takes such texts"]
        if self._decimals * 10 >= self._texts * MOST_TENTHS:
            of = f"DECIMAL({DECIMAL_DIGITS_MAX},{self._scale})"
            return [f"{self._decimals} of {self._texts} texts are numbers: {of} takes such texts"]
        return []


def _is_refused(value: Any) -> bool:
    """True where VARIANT does not take a value: an object in it has a name twice, or a text has half of a character."""
    if isinstance(value, str):
        return _HALVES.search(value) is not None
    if isinstance(value, dict):
        return any(_is_refused(name) or _is_refused(inner) for name, inner in value.items())
    if isinstance(value, ObjectMembers):
        names = [name for name, _ in value]
        return len(set(names)) < len(names) or any(_is_refused(name) or _is_refused(inner) for name, inner in value)
    return isinstance(value, list) and any(map(_is_refused, value))


def _why_unnamed(name: str) -> str | None:
    """Return why a schema cannot have a field of this name; None: it can."""
    if not name:
        return "it has no name"
    if len(name) > NAME_CHARACTERS_MAX:
        return f"its name has more than {NAME_CHARACTERS_MAX} characters"
    if _HALVES.search(name):
        return "its name has half of a surrogate pair, which no file can hold"
    if "${" in name:
        return "Spark's SQL takes ${ in its name for a variable"
    return None
