"""An option is a field of a struct: its type hint has all that pages, parsers and errors say of it."""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, get_type_hints

import msgspec

from shardway.core.options.hints import alternatives, bounds_text, remarks
from shardway.spark.options.texts import PARSERS


class Option(NamedTuple):
    """What a type hint says of an option beside its type and bounds: ``Annotated[int, Meta(ge=1), Option(...)]``."""

    type: str
    """The type or the unit."""
    about: str
    """What the option does, in sentences."""
    default: str | None = None
    """What is said of the default; None: the default itself, or a dash where that is None."""
    parse: Callable[[str], Any] | None = None
    """The function that makes the value of a text; None: that of the type."""
    batch: bool = True
    stream: bool = True
    """Whether batch reads and streaming reads take the option."""
    name: str | None = None
    """The name; None: that of the field in camelCase."""


class Declaration(NamedTuple):
    """An option with all that its field says."""

    field: str
    name: str
    hint: Any
    taken: str
    """The type or the unit, and the bounds."""
    default: str
    about: str
    parse: Callable[[str], Any]
    batch: bool
    stream: bool


class GivenOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options as a user gave them. A field without an `Option` in its hint is none of them."""

    def rules(self, given: Mapping[str, str]) -> Iterator[str]:  # noqa: ARG002 - the rules of each struct have one signature
        """Yield what is wrong with the options together. ``given`` has the names of those that were given, by field."""
        return iter(())


@cache
def declarations(kind: type[GivenOptions]) -> tuple[Declaration, ...]:
    """Return all options of a struct, in their order."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        _declaration(field, hints[field.name], remark)
        for field in msgspec.structs.fields(kind)
        for remark in remarks(hints[field.name])
        if isinstance(remark, Option)
    )


def _declaration(field: msgspec.structs.FieldInfo, hint: Any, option: Option) -> Declaration:
    kinds = [kind for kind in alternatives(hint) if kind is not types.NoneType]
    return Declaration(
        field.name,
        option.name or _camel(field.name),
        hint,
        ", ".join(text for text in (option.type, bounds_text(hint, _default_text)) if text),
        _default_text(field.default) if option.default is None else option.default,
        option.about,
        option.parse or PARSERS[kinds[0]],
        option.batch,
        option.stream,
    )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _default_text(default: object) -> str:
    if default is None:
        return "-"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, enum.Enum):
        return str(default.value)
    return f"{default:,}" if isinstance(default, int) else str(default)
