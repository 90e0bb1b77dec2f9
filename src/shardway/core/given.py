"""Options as people give them: a value of a wrong type is a fault of its own, and never an error from the depths."""

from __future__ import annotations

import difflib
import inspect
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec

from shardway.core.signatures import Annotation, SignedMeta, help_of
from shardway.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

F = TypeVar("F")


class _Named(SignedMeta):
    """Makes options by their names. The class shows its fields in its docstring."""

    if not TYPE_CHECKING:
        # A type checker takes a metaclass's `__call__` for the constructor: each option would be unknown to it.

        def __call__(self, *values: Any, **given: Any) -> Any:
            if values:
                raise TypeError(self._by_name(values))
            known_names(self.__name__, given, self.__struct_fields__)
            return super().__call__(**given)

        @property
        def __doc__(self) -> str | None:
            summary = vars(self).get("__doc__")
            return help_of(self, inspect.cleandoc(summary)) if isinstance(summary, str) else None

        def _by_name(self, values: tuple[object, ...]) -> str:
            """Return what an error says of values that were given by their places."""
            names = [f"{name}=..." for name in self.__struct_fields__ if not name.startswith("_")]
            given = ", ".join(shown(value) for value in values)
            form = f"{self.__name__}({', '.join(names)})"
            return f"{self.__name__} takes its options by name, and was given {given}: {form}"


class Options(msgspec.Struct, frozen=True, kw_only=True, metaclass=_Named):
    """A group of options: a frozen value with names, checked here, all faults at once. Raises OptionError. Its `repr`
    has what is not the default.

    An option has the type of its default: a flag, a number (of whole ones, if the default is one), a text. A number is
    more than 0, where `_at_least` does not say otherwise. `_kinds` has the types of those whose default tells none.
    """

    _at_least: ClassVar[Mapping[str, float]] = {}
    """The bounds of numbers that may be 0, or that have another bound."""
    _functions: ClassVar[tuple[str, ...]] = ()
    """Options that are functions."""
    _hidden: ClassVar[tuple[str, ...]] = ()
    """Options that `repr` leaves out, as they may be secret."""

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        kinds = self._kinds()
        faults = not_of(given, kinds, optional=self._optional()) + not_callable(given, self._functions)
        faults += _not_as_default(given, self._by_default(kinds))
        if not faults:
            faults = self._out_of_bounds(given) + self._faults()
        if faults:
            raise OptionError(faults)

    def __repr__(self) -> str:
        defaults = self._defaults()
        chosen = {name: getattr(self, name) for name in self.__struct_fields__ if name not in self._hidden}
        told = [f"{name}={value!r}" for name, value in chosen.items() if value != defaults.get(name, msgspec.NODEFAULT)]
        return f"{type(self).__name__}({', '.join(told)})"

    @classmethod
    def _kinds(cls) -> Mapping[str, tuple[type | str, ...]]:
        """Return the types of options whose default shows none. ``float`` takes whole numbers, too."""
        return {}

    def _faults(self) -> list[str]:
        """Return what else is wrong, when all types are right."""
        return []

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        fields = cls.__struct_fields__
        defaults = [one.factory() if hasattr(one, "factory") else one for one in cls.__struct_defaults__]
        return dict(zip(fields[len(fields) - len(defaults) :], defaults, strict=True))

    @classmethod
    def _optional(cls) -> list[str]:
        return [name for name, default in cls._defaults().items() if default is None]

    @classmethod
    def _by_default(cls, kinds: Mapping[str, object]) -> dict[str, type]:
        simple = (bool, int, float, str)
        return {
            name: type(default)
            for name, default in cls._defaults().items()
            if isinstance(default, simple) and name not in kinds
        }

    def _out_of_bounds(self, given: Mapping[str, Any]) -> list[str]:
        faults = []
        for name, value in given.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            least = self._at_least.get(name)
            if least is None and not value > 0:
                faults.append(f"{name} must be more than 0, not {value}")
            elif least is not None and not value >= least:
                faults.append(f"{name} must be at least {least:g}, not {value}")
        return faults


def shows_arguments(typed: type, defaults: Mapping[str, Any]) -> Callable[[F], F]:
    """Return a decorator for a constructor that takes ``**arguments`` of the TypedDict ``typed``. `help`, editors and
    `inspect.signature` then show each argument with its type and its default: None where ``defaults`` has no other.
    """

    def shows(constructor: F) -> F:
        made: Any = constructor
        written = inspect.signature(made)
        own = [
            one.replace(annotation=Annotation(one.annotation)) if isinstance(one.annotation, str) else one
            for one in written.parameters.values()
            if one.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        named = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults.get(name),
                annotation=Annotation(getattr(kind, "__forward_arg__", kind)),
            )
            for name, kind in typed.__annotations__.items()
        ]
        made.__signature__ = written.replace(parameters=[*own, *named], return_annotation=None)
        return constructor

    return shows


def known_names(place: str, given: Iterable[str], names: Iterable[str]) -> None:
    """Raise TypeError for a name that a place does not have; the error says which one is near."""
    if not (odd := sorted(set(given) - set(names))):
        return
    near = difflib.get_close_matches(odd[0], list(names), n=1)
    place = "Consumer" if place == "ConsumerOptions" else place  # These are a consumer's arguments.
    raise TypeError(f"{place} has no argument {odd[0]!r}" + (f": is {near[0]!r} meant?" if near else ""))


def _not_as_default(given: Mapping[str, object], kinds: Mapping[str, type]) -> list[str]:
    """Return a fault for each value that is of another type than its default."""
    numbers = {name: given[name] for name, kind in kinds.items() if kind in (int, float)}
    faults = not_numbers(numbers, whole=[name for name, kind in kinds.items() if kind is int])
    for name, kind in kinds.items():
        value = given[name]
        if kind is bool and not isinstance(value, bool):
            faults.append(f"{name} is True or False, not {shown(value)}")
        elif kind is str and not isinstance(value, str):
            faults.append(f"{name} is a text, not {shown(value)}")
    return faults


def shown(value: object) -> str:
    """Return a wrong value for a message: short ones that hold no secret as they are, others by their type."""
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}"


def not_numbers(values: Mapping[str, object], *, optional: Iterable[str] = (), whole: Iterable[str] = ()) -> list[str]:
    """Return a fault for each value that is no number; ``optional``: names that may be None, ``whole``: names of whole
    numbers.
    """
    faults = []
    for name, value in values.items():
        if value is None and name in optional:
            continue
        if isinstance(value, bool) or not isinstance(value, int if name in whole else int | float):
            kind = "a whole number" if name in whole else "a number"
            faults.append(f"{name} is {kind}, not {shown(value)}")
    return faults


_KIND_NAMES: dict[object, str] = {int: "a whole number", float: "a number", NoneType: "None"}


def not_of(
    values: Mapping[str, object], kinds: Mapping[str, tuple[type | str, ...]], *, optional: Iterable[str] = ()
) -> list[str]:
    """Return a fault for each value that is of none of the kinds by its name. A kind that is a text is a type that is
    not looked at: only its name is shown. ``optional``: names that may be None.
    """
    faults = []
    for name, allowed in kinds.items():
        value = values[name]
        types = tuple(kind for kind in allowed if isinstance(kind, type))
        types += (int,) if float in types else ()
        is_flag = isinstance(value, bool) and bool not in types and object not in types
        if (value is None and name in optional) or (isinstance(value, types) and not is_flag):
            continue
        names = " or ".join(_KIND_NAMES.get(one) or (one if isinstance(one, str) else one.__name__) for one in allowed)
        hint = f": call it, {value.__name__}()" if isinstance(value, type) and issubclass(value, types) else ""
        faults.append(f"{name} is {names}, not {shown(value)}{hint}")
    return faults


def not_callable(values: Mapping[str, object], names: Iterable[str]) -> list[str]:
    """Return a fault for each value that is no function, and not None."""
    return [
        f"{name} is a function, not {shown(value)}"
        for name in names
        if (value := values[name]) is not None and not callable(value)
    ]


def lacks(value: Any, names: Iterable[str]) -> list[str]:
    """Return the attributes that a value lacks."""
    return [name for name in names if not hasattr(value, name)]
