"""The class of all options: frozen values with names, which are checked when they are made."""

from __future__ import annotations

import inspect
from functools import cache
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from shardway.core.options.check import check
from shardway.core.options.hints import SECRET, bounds_text, remarks, shown
from shardway.core.options.unknown import unknown_names
from shardway.core.signatures import SignedMeta, field_defaults, help_of

if TYPE_CHECKING:
    from collections.abc import Iterable


HOMES = ("shardway.options.", "shardway.aws.options", "shardway.policies", "shardway.core.")
"""Where the groups are that consumers and producers take."""


class _NamedOptionsMeta(SignedMeta):
    """Makes options by their names. The class shows its fields in its docstring."""

    if not TYPE_CHECKING:
        # A type checker takes a metaclass's `__call__` for the constructor: each option would be unknown to it.

        def __call__(self, *values: Any, **given: Any) -> Any:
            if values:
                raise TypeError(self._by_name(values))
            if odd := given.keys() - {*self.__struct_fields__}:
                raise TypeError(
                    unknown_names(self.__name__, sorted(odd), hints_of(self), fields_of, elsewhere=_groups())
                )
            return super().__call__(**given)

        @property
        def __doc__(self) -> str | None:
            summary = vars(self).get("__doc__")
            if not isinstance(summary, str):
                return None
            bounds = {name: bounds_text(hint) for name, hint in hints_of(self).items()}
            return help_of(self, inspect.cleandoc(summary), bounds)

        def _by_name(self, values: tuple[object, ...]) -> str:
            """Return what an error says of values that were given by their places."""
            names = [f"{name}=..." for name in self.__struct_fields__ if not name.startswith("_")]
            given = ", ".join(shown(value) for value in values)
            form = f"{self.__name__}({', '.join(names)})"
            return f"{self.__name__} takes its options by name, and was given {given}: {form}"


class Options(msgspec.Struct, frozen=True, kw_only=True, metaclass=_NamedOptionsMeta):
    """A group of options: a frozen value with names. Raises OptionError, with all faults at once. Its `repr` has what
    is not the default.

    The type hint of an option says which values it takes: see `shardway.core.options.hints`. What hints cannot say is
    a rule. The types in the hints are needed when the program runs, so their modules are imported outside of
    ``TYPE_CHECKING``.
    """

    def __post_init__(self) -> None:
        kind = type(self)
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        check(values, hints_of(kind), self._rules, names_none=_none_is_a_choice(kind))

    def __repr__(self) -> str:
        defaults, hints = self._defaults(), hints_of(type(self))
        values = {name: getattr(self, name) for name, hint in hints.items() if SECRET not in remarks(hint)}
        chosen = [f"{name}={self._text_of(name, value)}" for name, value in values.items() if value != defaults[name]]
        return f"{type(self).__name__}({', '.join(chosen)})"

    def _text_of(self, name: str, value: object) -> str:  # noqa: ARG002 - for groups whose fields differ in this
        """Return a value as `repr` shows it. Of a function that is its name: what it is bound to may hold a secret."""
        if not callable(value) or isinstance(value, type | msgspec.Struct):
            return repr(value)
        return f"<{getattr(value, '__qualname__', type(value).__name__)}>"

    def _rules(self) -> Iterable[str]:
        """Yield what is wrong with the options together. All types are right, and numbers may be out of bounds."""
        return ()

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        """Return the default of each option; `inspect.Parameter.empty` where there is none."""
        return dict(field_defaults(cls))


@cache
def hints_of(kind: type[Options]) -> dict[str, Any]:
    """Return the type hint of each option."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hints[name] for name in kind.__struct_fields__}


@cache
def _none_is_a_choice(kind: type[Options]) -> set[str]:
    """Return the options whose default is another than None: where these may be None, errors say so."""
    return {name for name, default in field_defaults(kind) if default is not None}


def fields_of(kind: Any) -> dict[str, Any] | None:
    """Return the type hint of each field of a group of options; None for what is no group."""
    return hints_of(kind) if isinstance(kind, type) and issubclass(kind, Options) else None


def _groups() -> dict[str, dict[str, Any]]:
    """Return the hints of those groups of `HOMES` that are imported, by their names."""
    found: dict[str, dict[str, Any]] = {}
    left: list[type[Options]] = [Options]
    while left:
        below = left.pop(0).__subclasses__()
        left += below
        found |= {kind.__name__: hints_of(kind) for kind in below if kind.__module__.startswith(HOMES)}
    return found
