"""Options as people give them: what is of a wrong type is a fault of its own, and never an error from the depths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def shown(value: object) -> str:
    """A wrong value for a message: short ones that hold no secret as they are, others by their type."""
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}"


def not_numbers(values: Mapping[str, object], *, optional: Iterable[str] = (), whole: Iterable[str] = ()) -> list[str]:
    """What is no number; ``optional``: names that may be None, ``whole``: of whole numbers."""
    faults = []
    for name, value in values.items():
        if value is None and name in optional:
            continue
        if isinstance(value, bool) or not isinstance(value, int if name in whole else int | float):
            kind = "a whole number" if name in whole else "a number"
            faults.append(f"{name} is {kind}, not {shown(value)}")
    return faults


def not_of(
    values: Mapping[str, object], kinds: Mapping[str, tuple[type | str, ...]], *, optional: Iterable[str] = ()
) -> list[str]:
    """What is of none of the kinds by its name. A kind that is a text is a type that is not looked at: only its name is
    shown. ``optional``: names that may be None.
    """
    faults = []
    for name, allowed in kinds.items():
        value = values[name]
        types = tuple(kind for kind in allowed if isinstance(kind, type))
        if (value is None and name in optional) or isinstance(value, types):
            continue
        names = " or ".join(kind if isinstance(kind, str) else kind.__name__ for kind in allowed)
        hint = f": call it, {value.__name__}()" if isinstance(value, type) and issubclass(value, types) else ""
        faults.append(f"{name} is {names}, not {shown(value)}{hint}")
    return faults


def not_callable(values: Mapping[str, object], names: Iterable[str]) -> list[str]:
    """What is no function, and not None."""
    return [
        f"{name} is a function, not {shown(value)}"
        for name in names
        if (value := values[name]) is not None and not callable(value)
    ]


def lacks(value: Any, names: Iterable[str]) -> list[str]:
    """The attributes that it has not."""
    return [name for name in names if not hasattr(value, name)]
