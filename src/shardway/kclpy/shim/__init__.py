"""The shim has the names that a record processor imports from ``amazon_kclpy``, for where that is not installed.

`kcl` has processors of the first shape, `v2` and `v3` those of the others, with `messages`, `dispatch` and
`checkpoint_error` beside them. The shim takes its place in `sys.modules`. The names, their arguments and their errors
are those of ``amazon_kclpy`` 3.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

PACKAGE = "amazon_kclpy"


def install(*, always: bool = False) -> bool:
    """Provide ``amazon_kclpy`` where it is not installed, or in its place. Return True when that was done."""
    if not always and (PACKAGE in sys.modules or importlib.util.find_spec(PACKAGE) is not None):
        return False
    from shardway.kclpy.shim import checkpoint_error, dispatch, kcl, messages, v2, v3

    for name in [name for name in sys.modules if name == PACKAGE or name.startswith(PACKAGE + ".")]:
        del sys.modules[name]
    package = _package(PACKAGE, checkpoint_error=checkpoint_error, dispatch=dispatch, kcl=kcl, messages=messages)
    for name, processor in (("v2", v2), ("v3", v3)):
        setattr(package, name, _package(f"{PACKAGE}.{name}", processor=processor))
    return True


def _package(package_name: str, **modules: ModuleType) -> ModuleType:
    package = ModuleType(package_name, __doc__)
    package.__path__ = []  # so that "import amazon_kclpy.kcl" looks for it in sys.modules
    sys.modules[package_name] = package
    for name, module in modules.items():
        setattr(package, name, module)
        sys.modules[f"{package_name}.{name}"] = module
    return package
