"""Make the structs of ``model`` from a parsed file, and find every fault of their values, not only the first one."""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import msgspec

from shardway.core.options.hints import alternatives, bounds_text, metas
from shardway.pipeline.job.file import model
from shardway.pipeline.job.file.faults import Fault, nearest

if TYPE_CHECKING:
    from shardway.pipeline.job.file.lines import KeyPath


_NO_VALUE = object()
_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", dict: "a table"}


class Conversion:
    """Makes structs of tables."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        """All that was found wrong until now."""

    def converted(self, tree: Any, kind: type[msgspec.Struct], path: KeyPath = ()) -> Any:
        """Return the struct that a table describes; every fault goes to `faults`.

        Where a field is wrong the struct is made without it, or with an empty text or array in its place, so that the
        rest of it can be looked at too. Return None where that cannot be.
        """
        if not isinstance(tree, dict):
            self.faults.append(Fault(path, f"must be a table, not {_kind_text(tree)}"))
            return None
        values = self.good_values(tree, kind, path)
        hints = get_type_hints(kind)
        for field in msgspec.structs.fields(kind):
            if field.required and field.name not in values and field.encode_name in tree:
                empty = {str: "", tuple: ()}.get(get_origin(hints[field.name]) or hints[field.name])
                values |= {} if empty is None else {field.name: empty}
        required = (field.name for field in msgspec.structs.fields(kind) if field.required)
        return kind(**values) if all(name in values for name in required) else None

    def good_values(self, tree: dict[str, Any], kind: type[msgspec.Struct], path: KeyPath) -> dict[str, Any]:
        """Return the fields of a struct that are right; every fault goes to `faults`."""
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        hints = get_type_hints(kind, include_extras=True)
        values: dict[str, Any] = {}
        for name, value in tree.items():
            if name not in fields:
                self.faults.append(Fault((*path, name), f"there is no {name} here{nearest(name, fields)}"))
                continue
            found = self._value(value, hints[fields[name].name], (*path, name))
            if found is not _NO_VALUE:
                values[fields[name].name] = found
        for name, field in fields.items():
            if field.required and name not in tree and not _is_misspelt(name, tree, fields):
                examples = [one for given in metas(hints[field.name]) for one in given.examples or ()]
                as_in = f', as in {name} = "{examples[0]}"' if examples else ""
                self.faults.append(Fault(path, f"{name} is missing{as_in}"))
        return values

    def _value(self, value: Any, hint: Any, path: KeyPath) -> Any:
        inner = _bare_type(hint)
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            found = self.converted(value, inner, path)
            return _NO_VALUE if found is None else found
        if get_origin(inner) is tuple and isinstance(get_args(inner)[0], type) and isinstance(value, list):
            item = get_args(inner)[0]
            if issubclass(item, msgspec.Struct):
                if not value:
                    self.faults.append(Fault(path, "must have at least one"))
                items = [self._value(one, item, (*path, at)) for at, one in enumerate(value)]
                return tuple(
                    _stand_in(item) if one is _NO_VALUE else one for one in items
                )  # the others keep their numbers
        if inner == model.Options and isinstance(value, dict):
            wrong = {name: one for name, one in value.items() if not isinstance(one, str | int | float | bool)}
            self.faults += [
                Fault((*path, name), f"must be text, a number, true or false, not {_kind_text(one)}")
                for name, one in wrong.items()
            ]
            return _NO_VALUE if wrong else value
        if inner == model.Expressions and isinstance(value, dict):
            wrong = {name: one for name, one in value.items() if not isinstance(one, str)}
            self.faults += [
                Fault((*path, name), f"must be an SQL expression as text, not {_kind_text(one)}")
                for name, one in wrong.items()
            ]
            return _NO_VALUE if wrong else value
        try:
            return msgspec.convert(value, hint, strict=not isinstance(value, str))
        except msgspec.ValidationError:
            self.faults.append(Fault(path, _wrong(value, hint)))
            return _NO_VALUE


def _stand_in(kind: type[msgspec.Struct]) -> msgspec.Struct:
    """Return a struct in place of one that could not be made; its required fields are texts."""
    return kind(**{field.name: "" for field in msgspec.structs.fields(kind) if field.required})


def _bare_type(hint: Any) -> Any:
    """Return a type without its remarks and without None."""
    kinds = [kind for kind in alternatives(hint) if kind is not NoneType]
    return kinds[0] if len(kinds) == 1 else hint


def _wrong(value: Any, hint: Any) -> str:
    """Return what was wrong with a value, in our words; the value is not shown where it could be a secret."""
    bare = _bare_type(hint)
    if get_origin(bare) is not None and str(get_origin(bare)) == "typing.Literal":
        choices = [str(choice) for choice in get_args(bare)]
        near = nearest(value, choices) if isinstance(value, str) else ""
        near = near if "did you mean" in near else ""
        return f"must be {', '.join(choices[:-1])} or {choices[-1]}{near}"
    patterns = [one.pattern for one in metas(hint) if one.pattern is not None]
    if patterns and isinstance(value, str):
        if patterns == [one.pattern for one in metas(model.Span)]:
            return f"must be a time span like {model.SPAN_EXAMPLE}: a number and seconds, minutes, hours or days"
        if patterns == [one.pattern for one in metas(model.Function)]:
            return f"must be module:function, like {model.FUNCTION_EXAMPLE}"
        return "must be letters, digits, _, . and -, at most 100"
    if any(one.min_length for one in metas(hint)) and isinstance(value, str | list) and not value:
        return "is empty"
    bounds = bounds_text(hint)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if bounds and is_number and (bare is float or isinstance(value, int)):
        return f"must be {bounds}"
    wanted = (
        "an array of texts"
        if get_origin(bare) is tuple
        else _WORDS.get(bare, _WORDS.get(get_origin(bare) or str, "text"))
    )
    return f"must be {wanted}, not {_kind_text(value)}"


def _kind_text(value: Any) -> str:
    for kind, word in ((bool, "true or false"), (str, "text"), (int, "a number"), (float, "a number")):
        if isinstance(value, kind):
            return word
    return "a table" if isinstance(value, dict) else "an array" if isinstance(value, list) else "a date"


def _is_misspelt(name: str, tree: dict[str, Any], fields: dict[str, Any]) -> bool:
    """True when the fault of an unknown name says that this one is meant: this one is not missing too."""
    return any(f"did you mean {name}?" in nearest(given, fields) for given in tree if given not in fields)
