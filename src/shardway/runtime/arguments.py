"""The constructors of consumers and producers: which arguments they take by name, and what an unknown name meets."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_type_hints

from shardway.core.options.base import fields_of
from shardway.core.options.unknown import unknown_names
from shardway.core.signatures import shows_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

F = TypeVar("F", bound="Callable[..., None]")


def takes_arguments(typed: type, defaults: Mapping[str, Any]) -> Callable[[F], F]:
    """Return a decorator for a constructor that takes ``**arguments`` of the TypedDict ``typed``. They are shown as
    `shows_arguments` shows them. A name that is none of them raises TypeError, and the error says what to write.
    """

    def decorate(constructor: F) -> F:
        shown = shows_arguments(typed, defaults)(constructor)
        names = [*inspect.signature(shown).parameters][1:]
        taken = {*names, *defaults}  # Tests set what is shown to no program.

        @functools.wraps(shown)
        def construct(self: Any, *values: Any, **given: Any) -> None:
            if odd := given.keys() - taken:
                hints = dict.fromkeys(names, Any) | get_type_hints(typed, include_extras=True)
                place = type(self).__name__
                raise TypeError(unknown_names(place, sorted(odd), hints, fields_of, elsewhere=_faces()))
            shown(self, *values, **given)

        return cast("F", construct)

    return decorate


def _faces() -> dict[str, dict[str, Any]]:
    """Return what consumers and producers take by name."""
    from shardway.runtime.consumer.arguments import ConsumerArguments
    from shardway.runtime.producer.arguments import ProducerArguments

    own = {"Consumer": ("application", "deserializer", "split"), "Producer": ("serializer",)}
    return {
        face: dict.fromkeys(own[face], Any) | get_type_hints(typed, include_extras=True)
        for face, typed in (("Consumer", ConsumerArguments), ("Producer", ProducerArguments))
    }
