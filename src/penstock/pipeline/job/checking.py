"""From a parsed file to the structs of ``model``, with every fault found and not only the first."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from penstock.pipeline.job import model
from penstock.pipeline.job.faults import Fault, nearest

if TYPE_CHECKING:
    from penstock.pipeline.job.lines import Path

_BAD = object()
_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", dict: "a table"}


def converted(tree: Any, kind: type[msgspec.Struct], faults: list[Fault], path: Path = ()) -> Any:
    """The struct; every fault goes to ``faults``.

    Where a field is wrong the struct is made without it, or with an empty text or array in its place, so that the rest
    of it can be looked at too. None where that cannot be.
    """
    if not isinstance(tree, dict):
        faults.append(Fault(path, f"must be a table, not {_named(tree)}"))
        return None
    values = good_values(tree, kind, faults, path)
    hints = get_type_hints(kind)
    for field in msgspec.structs.fields(kind):
        if field.required and field.name not in values and field.encode_name in tree:
            empty = {str: "", tuple: ()}.get(get_origin(hints[field.name]) or hints[field.name])
            values |= {} if empty is None else {field.name: empty}
    required = (field.name for field in msgspec.structs.fields(kind) if field.required)
    return kind(**values) if all(name in values for name in required) else None


def good_values(tree: dict[str, Any], kind: type[msgspec.Struct], faults: list[Fault], path: Path) -> dict[str, Any]:
    """The fields of a struct that are right; every fault goes to ``faults``."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    hints = get_type_hints(kind, include_extras=True)
    values: dict[str, Any] = {}
    for name, value in tree.items():
        if name not in fields:
            faults.append(Fault((*path, name), f"there is no {name} here{nearest(name, fields)}"))
            continue
        found = _value(value, hints[fields[name].name], faults, (*path, name))
        if found is not _BAD:
            values[fields[name].name] = found
    for name, field in fields.items():
        if field.required and name not in tree and not _misspelt(name, tree, fields):
            faults.append(Fault(path, f"{name} is missing"))
    return values


def _value(value: Any, hint: Any, faults: list[Fault], path: Path) -> Any:
    inner = _bare(hint)
    if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
        found = converted(value, inner, faults, path)
        return _BAD if found is None else found
    if get_origin(inner) is tuple and isinstance(get_args(inner)[0], type) and isinstance(value, list):
        item = get_args(inner)[0]
        if issubclass(item, msgspec.Struct):
            if not value:
                faults.append(Fault(path, "must have at least one"))
            items = [_value(one, item, faults, (*path, at)) for at, one in enumerate(value)]
            return tuple(item() if one is _BAD else one for one in items)  # the others keep their numbers
    if inner == model.Options and isinstance(value, dict):
        wrong = {name: one for name, one in value.items() if not isinstance(one, str | int | float | bool)}
        faults += [
            Fault((*path, name), f"must be text, a number, true or false, not {_named(one)}")
            for name, one in wrong.items()
        ]
        return _BAD if wrong else value
    try:
        return msgspec.convert(value, hint, strict=not isinstance(value, str))
    except msgspec.ValidationError as error:
        faults.append(Fault(path, _plain(str(error), value, hint)))
        return _BAD


def _bare(hint: Any) -> Any:
    """A type without its remarks and without None."""
    if get_origin(hint) is Annotated:
        return _bare(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        if len(kinds) == 1:
            return _bare(kinds[0])
    return hint


def _plain(error: str, value: Any, hint: Any) -> str:
    """What was wrong with a value, in our words; the value is not shown where it could be a secret."""
    bare = _bare(hint)
    if get_origin(bare) is not None and str(get_origin(bare)) == "typing.Literal":
        choices = [str(choice) for choice in get_args(bare)]
        near = nearest(value, choices) if isinstance(value, str) else ""
        near = near if "did you mean" in near else ""
        return f"must be {', '.join(choices[:-1])} or {choices[-1]}{near}"
    if "matching regex" in error:
        if "millisecond" in error:
            return f"must be a time span like {model.SPAN_EXAMPLE}: a number and seconds, minutes, hours or days"
        if r"\w.]*:" in error:
            return f"must be module:function, like {model.FUNCTION_EXAMPLE}"
        return "must be letters, digits, _, . and -, at most 100"
    if "length >= 1" in error:
        return "is empty" if isinstance(value, str | list) else error
    wanted = (
        "an array of texts"
        if get_origin(bare) is tuple
        else _WORDS.get(bare, _WORDS.get(get_origin(bare) or str, "text"))
    )
    return f"must be {wanted}, not {_named(value)}"


def _named(value: Any) -> str:
    for kind, word in ((bool, "true or false"), (str, "text"), (int, "a number"), (float, "a number")):
        if isinstance(value, kind):
            return word
    return "a table" if isinstance(value, dict) else "an array" if isinstance(value, list) else "a date"


def _misspelt(name: str, tree: dict[str, Any], fields: dict[str, Any]) -> bool:
    """True when an unknown name was told to mean this one: it is not missing too."""
    return any(f"did you mean {name}?" in nearest(given, fields) for given in tree if given not in fields)
