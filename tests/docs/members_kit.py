"""What a reference page says that a class has, held against what the class has.

A table of members stands behind a comment: ``<!-- members: Producer SyncProducer -->`` where each row is of these
classes, ``<!-- members -->`` where the first column names the class (an empty cell: the class of the row above). A
member is written as code: ``name`` for an attribute, ``name(arguments)`` as it is called. ``SyncProducer.put(...)`` is
of that class alone. What a class inherits need not stand there again.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import textwrap
from pathlib import Path

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
TABLE = re.compile(r"<!-- members:?([\w ]*) -->\n+(?:<!-- table: .*-->\n+)?((?:\|.*\n)+)")
MEMBER = re.compile(r"`(?:([A-Z]\w*)\.)?([a-z]\w*)(\(.*?\))?`(?=[,;] |$| and )")


def documented(page: str) -> dict[str, dict[str, str]]:
    """The members of each class of a page, by name, as they are written there."""
    found: dict[str, dict[str, str]] = {}
    for named, table in TABLE.findall((REFERENCE / page).read_text(encoding="utf-8")):
        owners = named.split()
        for row in table.splitlines()[2:]:
            cells = [cell.strip() for cell in row.strip("|").split(" | ")]
            if not named:
                owners = re.findall(r"\w+", cells.pop(0)) or owners
            for owner, name, arguments in MEMBER.findall(cells[0]):
                if not hasattr(builtins, name):  # such as len(puts)
                    for one in [owner] if owner else owners:
                        found.setdefault(one, {})[name] = name + arguments
    return found


def written_members(described: type, documented: dict[str, dict[str, str]]) -> set[str]:
    """What a page says of a class, with what it inherits. A member of its own takes the place of one of that name."""
    found: dict[str, str] = {}
    for one in reversed(described.__mro__):
        found |= documented.get(one.__name__, {})
    return set(found.values())


def public_members(described: type) -> set[str]:
    """Each public attribute of a class or of its objects; a method with its arguments, as it is called."""
    found: set[str] = set()
    for one in described.__mro__:
        if one.__module__.partition(".")[0] == "shardway":
            found.update(name for name in vars(one) if not name.startswith("_"))
            found.update(name for name in _set_by_init(one) if not name.startswith("_"))
    return {_as_called(described, name) for name in found}


def _as_called(described: type, name: str) -> str:
    member = inspect.getattr_static(described, name, None)
    if isinstance(member, staticmethod | classmethod):
        member = member.__func__
    if not inspect.isfunction(member):
        return name
    given = [one.replace(annotation=inspect.Parameter.empty) for one in inspect.signature(member).parameters.values()]
    return f"{name}{inspect.Signature(given[1:])}"


def _set_by_init(described: type) -> set[str]:
    made = vars(described).get("__init__")
    if not inspect.isfunction(made):
        return set()
    tree = ast.parse(textwrap.dedent(inspect.getsource(made)))
    targets = [
        target
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    named = [part for one in targets for part in (one.elts if isinstance(one, ast.Tuple) else [one])]
    return {
        one.attr
        for one in named
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "self"
    }
