"""Writes the arguments of consumers that are options: ``python -m scripts.arguments``.

Type checkers and editors want the arguments of `Consumer` as the text of a TypedDict, and cannot make it of the fields
of `ConsumerOptions`, where each is declared with its bounds and its meaning. So this script writes it. A test compares
the two.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import TYPE_CHECKING

from shardway.options import consumer

if TYPE_CHECKING:
    from collections.abc import Iterator

MODULE = Path(consumer.__file__).parents[1] / "runtime/consumer/option_arguments.py"
OVERLOADED = "split"
"""The option whose type says which values the consumer delivers: each overload of a consumer names it."""
LINE_CHARACTERS = 120

HEAD = '''"""The options of a consumer as arguments. scripts/arguments.py writes them from `ConsumerOptions`."""

from __future__ import annotations

'''
CLASS = '''

class OptionArguments(TypedDict, total=False):
    """The arguments of both consumers that are options, but for ``split``, which their overloads name."""

'''


def arguments_text() -> str:
    """Return the text of the module with the arguments."""
    source = ast.parse(inspect.getsource(consumer))
    fields = dict(_fields(source))
    used = {node.id for kind in fields.values() for node in ast.walk(kind) if isinstance(node, ast.Name)}
    lines = [f"    {name}: {ast.unparse(kind)}" for name, kind in fields.items()]
    return HEAD + "\n".join(_imports(source, used)) + "\n" + CLASS + "\n".join(lines) + "\n"


def _fields(source: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield the name and the type of each argument."""
    options = next(one for one in source.body if isinstance(one, ast.ClassDef) and one.name == "ConsumerOptions")
    for line in options.body:
        match line:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=kind) if name[0] != "_" and name != OVERLOADED:
                yield name, _Widened().visit(kind)


class _Widened(ast.NodeTransformer):
    """Makes ``A | B`` of ``Annotated[A, Also(B)]``, and ``A`` of ``Annotated[A, ...]`` with other remarks."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        match node:
            case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[kind, *remarks])):
                widened: ast.expr = self.visit(kind)
                for remark in remarks:
                    match remark:
                        case ast.Call(func=ast.Name(id="Also"), args=[others]):
                            for other in _alternatives(others):
                                widened = ast.BinOp(widened, ast.BitOr(), other)
                return widened
        return self.generic_visit(node)


def _alternatives(kinds: ast.expr) -> Iterator[ast.expr]:
    match kinds:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            yield from _alternatives(left)
            yield right
        case _:
            yield kinds


def _imports(source: ast.Module, used: set[str]) -> Iterator[str]:
    """Yield the imports of what the types name, in ruff's order: those of the library, an empty line, our own."""
    groups = [one.name for one in source.body if isinstance(one, ast.ClassDef)]
    names: dict[str, set[str]] = {"typing": {"TypedDict"}, consumer.__name__: used & {*groups}}
    for line in source.body:
        match line:
            case ast.Import(names=[ast.alias(name=name, asname=str() as short)]) if short in used:
                yield f"import {name} as {short}"
            case ast.ImportFrom(module=str() as module, names=imported):
                names[module] = names.get(module, set()) | (used & {one.name for one in imported})
    lines = [_import(module, sorted(names[module])) for module in sorted(names) if names[module]]
    yield from (line for line in lines if not line.startswith("from shardway"))
    yield ""
    yield from (line for line in lines if line.startswith("from shardway"))


def _import(module: str, names: list[str]) -> str:
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= LINE_CHARACTERS:
        return line
    return "\n".join([f"from {module} import (", *(f"    {name}," for name in names), ")"])


if __name__ == "__main__":
    MODULE.write_text(arguments_text(), encoding="utf-8")
