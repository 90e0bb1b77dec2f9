"""A public module names what stands elsewhere, and loads each name from its own module when it is first used (PEP 562).

A module with public names lists them once, by the modules that have them. Type checkers cannot follow a name to a
module that is loaded later, so they read the stub beside it (``.pyi``), which ``python -m scripts.stubs`` writes from
the list.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

from shardway.extras import needing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def loaded_from(module: str, homes: Mapping[str, str], *, extra: str | None = None) -> Callable[[str], object]:
    """Return a ``__getattr__`` for a module that names what stands elsewhere: ``homes`` has the module of each name.
    ``extra``: the extra that these modules may need, which the error names where it is missing.
    """

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        with nullcontext() if extra is None else needing(extra, f"{module}.{name}"):
            found = getattr(importlib.import_module(homes[name]), name)
        return vars(sys.modules[module]).setdefault(name, found)

    return load
