"""The extras that one error speaks for: optional packages, and the line that installs them."""

from __future__ import annotations

from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES: dict[str, tuple[str, ...]] = {
    "spark": ("pyspark", "pyarrow", "numpy", "pandas", "py4j"),
    "local": ("httptools", "h2", "cbor2", "cryptography"),
    "console": ("starlette", "jinja2", "markupsafe", "uvicorn"),
}
"""The top-level modules that an extra brings."""


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Stand around imports: raise a ModuleNotFoundError that names the extra, in place of one that names a package.
    ``what``: what needs it.
    """
    try:
        yield
    except ModuleNotFoundError as fault:
        if not brings(extra, fault.name):
            raise
        raise missing(extra, what, fault.name) from None


def brings(extra: str, name: str | None) -> bool:
    """True for a module, also a submodule, of a package that an extra brings."""
    return (name or "").partition(".")[0] in PACKAGES[extra]


def check(extra: str, what: str) -> None:
    """Raise ModuleNotFoundError where a package of an extra is missing, before anything of it is used."""
    for name in PACKAGES[extra]:
        if not is_installed(name):
            raise missing(extra, what, name)


def is_installed(name: str) -> bool:
    """True where Python finds a top-level module. The module is not imported."""
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):  # Something stands in its place, which is no module.
        return False


def missing(extra: str, what: str, name: str | None) -> ModuleNotFoundError:
    """Return the error of an extra that is missing, or of a package of it."""
    return ModuleNotFoundError(f'{what} needs its extra: pip install "shardway[{extra}]"', name=name)
