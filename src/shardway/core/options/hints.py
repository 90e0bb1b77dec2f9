"""What a type hint says of a value: whether the value is of that type, within its bounds, and what an error calls it.

A hint is what a type checker reads, such as ``Annotated[float, Meta(gt=0)] | None``. Of `msgspec.Meta` these count: the
bounds ``gt``, ``ge`` and ``le``; ``title``, which an error calls the values by in place of their types; and
``description``, which an error adds.

``float`` takes whole numbers, and neither kind of number takes True. A number is finite, unless its hint has `ENDLESS`.
A text has no halves of characters, as UTF-8 cannot write these. A value of a protocol has the attributes of the
protocol. Of a function no more is known than that it can be called.
"""

from __future__ import annotations

import collections.abc
import enum
import math
import types
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class Mark(enum.Enum):
    """A remark of a hint that `msgspec.Meta` has no word for."""

    ENDLESS = enum.auto()
    """The number may be infinite."""
    SECRET = enum.auto()
    """The value is never shown."""


ENDLESS, SECRET = Mark


class Also(NamedTuple):
    """A remark of a hint: an argument may be of these types, too, and the option is made of it."""

    kinds: Any


WHOLE_MAX = 2**63 - 1
"""The largest whole number of an option. From some size on, a number has no float, and arithmetic raises."""
CHOICE_CHARACTERS_MAX = 40
"""The most characters that an error shows of a text that is no choice of an option."""

_NAMES: dict[object, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    tuple: "a tuple",
    list: "a list",
    dict: "a dict",
    types.NoneType: "None",
    collections.abc.Callable: "a function",
}


def misfits(name: str, value: object, hint: Any, *, names_none: bool = False) -> Iterator[str]:
    """Yield a fault for a value, or for each value in it, that is not of the type of its hint. ``names_none``: the
    error says that the value may be None, where it may.
    """
    kinds = list(alternatives(hint))
    fitting = [kind for kind in kinds if _fits(value, kind)]
    if not fitting:
        shown_kinds = [kind for kind in kinds if kind is not types.NoneType or names_none]
        titled = next((one for one in metas(hint) if one.title), None)
        names = titled.title if titled else " or ".join(map(_values_text, shown_kinds))
        meant = _remark_text(titled) if titled else _hint(value, kinds)
        is_choice = isinstance(value, str) and any(get_origin(kind) is Literal for kind in kinds)
        yield f"{name} is {names}, not {repr(value)[:CHOICE_CHARACTERS_MAX] if is_choice else shown(value)}{meant}"
    for kind in fitting:
        for inner in _values_in(name, value, kind):
            yield from misfits(*inner)


def defects(name: str, value: Any, hint: Any) -> Iterator[str]:
    """Yield what is wrong with a value of the right type: a number out of its bounds, or a text that is none."""
    fitting = [kind for kind in alternatives(hint) if _fits(value, kind)]
    if int in fitting or float in fitting:
        yield from (f"{name} {fault}" for fault in _out_of_bounds(value, hint))
    elif str in fitting and _is_no_text(value) and Path not in alternatives(hint):
        # The name of a file may hold such halves: they stand for bytes of it that are no UTF-8.
        yield f"{name} holds half of a character, which UTF-8 cannot write"
    for kind in fitting:
        for inner in _values_in(name, value, kind):
            yield from defects(*inner)


def alternatives(hint: Any) -> Iterator[Any]:
    """Yield the types that a hint leaves the choice of, without remarks."""
    if get_origin(hint) is Annotated:
        yield from alternatives(get_args(hint)[0])
    elif get_origin(hint) in (Union, types.UnionType):
        for one in get_args(hint):
            yield from alternatives(one)
    else:
        yield hint


def remarks(hint: Any) -> Iterator[Any]:
    """Yield the remarks of a hint, and of the types that it leaves the choice of."""
    if get_origin(hint) is Annotated:
        inner, *own = get_args(hint)
        yield from own
        yield from remarks(inner)
    elif get_origin(hint) in (Union, types.UnionType):
        for one in get_args(hint):
            yield from remarks(one)


def metas(hint: Any) -> Iterator[msgspec.Meta]:
    """Yield what a hint says of its values beside their types, in msgspec's words."""
    return (one for one in remarks(hint) if isinstance(one, msgspec.Meta))


def bounds_text(hint: Any, shown_as: Callable[[float], str] = str) -> str:
    """Return which numbers a hint takes, in the words of its errors; an empty text where it takes all."""
    return ", ".join(text for one in metas(hint) for text, _ in _bounds(one, shown_as))


def lacks(value: Any, names: Iterable[str]) -> list[str]:
    """Return the attributes that a value lacks."""
    return [name for name in names if not hasattr(value, name)]


def shown(value: object) -> str:
    """Return a wrong value for a message: short ones that hold no secret as they are, others by their type."""
    if value is None or isinstance(value, bool | int | float):
        return _number_text(value) if isinstance(value, int) else str(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    kind = type(value)
    # The name of `numpy.bool` alone would read as the type that was asked for.
    is_mistakable = kind.__module__ != "builtins" and kind.__name__ in ("bool", "int", "float", "str")
    name = f"{kind.__module__}.{kind.__name__}" if is_mistakable else kind.__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _is_no_text(value: str) -> bool:
    return any("\ud800" <= one <= "\udfff" for one in value)


def _number_text(value: int) -> str:
    # Python refuses to write a number of many digits.
    return str(value) if abs(value) <= WHOLE_MAX else f"a number of {value.bit_length()} bits"


def _fits(value: object, kind: Any) -> bool:
    """Return whether a value is of a type. What it holds is not looked at."""
    origin = get_origin(kind) or kind
    if origin in (Any, object):
        return True
    if origin is Literal:
        return any(isinstance(value, type(one)) and value == one for one in get_args(kind))
    if origin is collections.abc.Callable:
        return callable(value)
    if origin is type:
        return isinstance(value, type) and issubclass(value, get_args(kind) or object)
    if getattr(origin, "_is_protocol", False):
        return not isinstance(value, type) and not lacks(value, _members(origin))
    if origin in (int, float):
        return isinstance(value, int | origin) and not isinstance(value, bool)
    return isinstance(value, origin)


def _members(protocol: type) -> set[str]:
    """Return the names of what a protocol asks for."""
    found: set[str] = set()
    for kind in protocol.__mro__:
        if getattr(kind, "_is_protocol", False) and kind.__module__ != "typing":
            own = {*vars(kind), *vars(kind).get("__annotations__", {})}
            found |= {name for name in own if not name.startswith("_") or name == "__call__"}
    return found


def _values_in(name: str, value: Any, kind: Any) -> Iterator[tuple[str, object, Any]]:
    """Yield the name, the value and the hint of each value that a tuple, a list or a dict holds."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (tuple, list) and isinstance(value, origin):
        yield from ((f"{name}[{place}]", one, inner[0]) for place, one in enumerate(value))
    elif origin is dict and isinstance(value, dict):
        for key, one in value.items():
            yield f"a key of {name}", key, inner[0]
            yield f"{name}[{key!r}]", one, inner[1]


def _out_of_bounds(value: float, hint: Any) -> Iterator[str]:
    faults = [
        f"{fault}, not {shown(value)}{_remark_text(one)}" for one in metas(hint) if (fault := _bound_passed(value, one))
    ]
    if faults:
        yield from faults
    elif isinstance(value, int):
        if value > WHOLE_MAX:
            yield f"must be at most {WHOLE_MAX}, not {shown(value)}"
    elif math.isnan(value):
        yield "is no number"
    elif math.isinf(value) and ENDLESS not in remarks(hint):
        yield "must be a finite number"


def _bound_passed(value: float, bounds: msgspec.Meta) -> str | None:
    return next((f"must be {text}" for text, holds in _bounds(bounds) if not holds(value)), None)


def _bounds(
    bounds: msgspec.Meta, shown_as: Callable[[float], str] = str
) -> Iterator[tuple[str, Callable[[float], bool]]]:
    """Yield each bound as the rest of a sentence, and the function that says whether a number keeps it."""
    least, most, above = bounds.ge, bounds.le, bounds.gt
    if least is not None and most is not None:
        yield f"from {shown_as(least)} to {shown_as(most)}", lambda value: least <= value <= most
        return
    if above is not None:
        yield f"more than {shown_as(above)}", lambda value: value > above
    if least is not None:
        yield f"at least {shown_as(least)}", lambda value: value >= least
    if most is not None:
        yield f"at most {shown_as(most)}", lambda value: value <= most


def _values_text(kind: Any) -> str:
    """Return what an error calls the values of a type."""
    origin = get_origin(kind) or kind
    if origin is Literal:
        return " or ".join(f'"{one}"' for one in get_args(kind))
    if origin is type:
        return " or ".join(f"a class of {one.__name__}" for one in get_args(kind))
    return _NAMES.get(origin) or str(origin.__name__)


def _remark_text(remark: msgspec.Meta) -> str:
    return f": {remark.description}" if remark.description else ""


def _hint(value: object, kinds: list[Any]) -> str:
    """Return what to write in place of a value that is nearly right."""
    for kind in kinds:
        if not isinstance(kind, type):
            continue
        if isinstance(value, type) and kind in value.__mro__:
            return f": call it, {value.__name__}()"
        if issubclass(kind, enum.Enum) and isinstance(value, str) and value in [one.value for one in kind]:
            return f": write {kind.__name__}.{kind(value).name}"
    return ""
