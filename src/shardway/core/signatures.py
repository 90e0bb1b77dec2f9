"""The signatures and the help of public classes: what `inspect.signature`, `help` and a notebook show of them.

Annotations are texts that name what type checkers alone import, so they are shown as they are written, and never
evaluated. The meaning of a field is the docstring below it: it stands in the source alone, and is read from there.
"""

from __future__ import annotations

import ast
import enum
import inspect
import textwrap
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from msgspec import StructMeta
else:
    StructMeta = type(msgspec.Struct)

F = TypeVar("F")

UNITS = {
    "_records_per_s": "records/s",
    "_bytes_per_s": "bytes/s",
    "_per_s": "per second",
    "_s": "seconds",
    "_bytes_max": "bytes",
    "_records_max": "records",
    "_in_flight_max": "requests",
}
"""The unit of a field, by the end of the field's name. The first end that fits counts."""

MIB = 1024 * 1024
WIDTH = 88
"""The most characters that a line of help has, before `help` indents it."""


class Annotation(str):
    """The text of a type, which a signature shows without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class SignedMeta(StructMeta):
    """Makes Structs whose signature shows the types as they are written. msgspec's own signature evaluates them, and
    raises NameError for what only type checkers import.
    """

    if not TYPE_CHECKING:

        @property
        def __signature__(self) -> inspect.Signature:
            return signature_of(self)


def signature_of(described: type[msgspec.Struct]) -> inspect.Signature:
    """Return the signature of a Struct's constructor."""
    kinds, by_place = field_kinds(described), described.__match_args__
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD if name in by_place else inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotation(kinds[name]),
        )
        for name, default in field_defaults(described)
    ]
    return inspect.Signature(parameters)


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


def field_kinds(described: type[msgspec.Struct]) -> dict[str, str]:
    """Return the type of each field as it is written, by the field's name."""
    kinds: dict[str, str] = {}
    for kind in reversed(described.__mro__):
        kinds.update(vars(kind).get("__annotations__", {}))
    return {name: _without_remarks(kind) for name, kind in kinds.items()}


def _without_remarks(annotation: str) -> str:
    """Return the text of a type without what is said of its values: ``Annotated[float, Meta(gt=0)] | None`` is
    ``float | None``.
    """
    if "Annotated[" not in annotation:
        return annotation
    return ast.unparse(_RemarksRemover().visit(ast.parse(annotation, mode="eval")))


class _RemarksRemover(ast.NodeTransformer):
    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        match node:
            case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[kind, *_])):
                return self.visit(kind)  # type: ignore[no-any-return]
        return self.generic_visit(node)


def field_defaults(described: type[msgspec.Struct]) -> Iterator[tuple[str, Any]]:
    """Yield the name and the default of each field; the default is `inspect.Parameter.empty` where one must be
    given.
    """
    names, defaults = described.__struct_fields__, described.__struct_defaults__
    lacking = len(names) - len(defaults)
    for name, default in zip(names, (*(msgspec.NODEFAULT for _ in range(lacking)), *defaults), strict=True):
        if hasattr(default, "factory"):
            yield name, default.factory()
        else:
            yield name, inspect.Parameter.empty if default is msgspec.NODEFAULT else default


def field_docs(described: type) -> dict[str, str]:
    """Return the docstrings that stand below a class's attributes, by the attribute's name; none where there is no
    source, as in a program that was packed.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(described))).body[0]
    except (OSError, TypeError, SyntaxError):
        return {}
    found: dict[str, str] = {}
    if isinstance(tree, ast.ClassDef):
        for before, here in zip(tree.body, tree.body[1:], strict=False):
            match before, here:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as text)):
                    found[name] = text
    return found


def help_of(described: type[msgspec.Struct], summary: str, bounds: Mapping[str, str]) -> str:
    """Return the docstring of a class of options: ``summary``, then each field with its type, default, unit, bounds and
    meaning. Fields that share one docstring stand together above it. ``bounds`` has them by the field's name.
    """
    names = described.__struct_fields__
    if all(name.startswith("_") for name in names):
        return summary
    about: dict[str, str] = {}
    for kind in reversed(described.__mro__):
        if kind.__module__.startswith("shardway"):
            about |= field_docs(kind)
    kinds, told = field_kinds(described), [summary, "", "Options:", ""]
    for name, default in field_defaults(described):
        if name.startswith("_"):
            continue
        given = "" if default is inspect.Parameter.empty else f" = {default_text(default)}"
        remarks = ", ".join(one for one in (_unit(name, default), bounds.get(name, "")) if one)
        told.append(f"{name}: {kinds[name]}{given}" + (f" ({remarks})" if remarks else ""))
        if name in about:
            text = " ".join(about[name].split())
            told += textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(told)


def default_text(value: object) -> str:
    """Return a default as a program would write it."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if type(value).__repr__ is object.__repr__:
        return f"{type(value).__name__}()"
    return repr(value)


def _unit(name: str, default: object) -> str:
    unit = next((unit for end, unit in UNITS.items() if name.endswith(end)), "")
    if unit == "bytes" and isinstance(default, int) and default >= MIB and default % MIB == 0:
        unit = f"bytes: {default // MIB} MiB"
    return unit
