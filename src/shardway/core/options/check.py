"""One error of all faults of values that a program gave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardway.core.options.hints import defects, misfits
from shardway.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping


def check(
    values: Mapping[str, object],
    hints: Mapping[str, Any],
    rules: Callable[[], Iterable[str]] = tuple,
    *,
    names_none: Container[str] = (),
) -> None:
    """Raise one OptionError of all faults of values, if there are any.

    ``hints`` has the type hint of each value, as `shardway.core.options.hints` reads it. ``rules`` makes the faults
    between values, and is called where each value has the right type, for it may compute with them. ``names_none``: the
    names of values for which an error says that None will do, too: for others that goes without saying.
    """
    wrong = [
        fault
        for name, hint in hints.items()
        for fault in misfits(name, values[name], hint, names_none=name in names_none)
    ]
    faults = [*wrong, *(fault for name, hint in hints.items() for fault in defects(name, values[name], hint))]
    if not wrong:
        faults += rules()
    if faults:
        raise OptionError(faults)
