"""The design names its sections and the files that there are."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from tests.docs.doc_pages import DOCS, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = (DOCS / "DESIGN.md").read_text(encoding="utf-8")
FOLDERS = ("src/shardway", "tests", "scripts", "bench", "interop", "examples")
STOPS = re.findall(r"^\| \d+ \| `([\w/]+\.py)` `([\w.]+)` \|", PAGE, re.MULTILINE)
"""The functions that the tables of the trips name."""
FILES = [f"/{path.relative_to(ROOT)}" for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def test_the_contents_are_the_sections() -> None:
    contents = PAGE.split("## Contents", 1)[1].split("\n## ", 1)[0]
    sections = [name for name in re.findall(r"^## (.*)$", PAGE, re.MULTILINE) if name != "Contents"]
    assert re.findall(r"^- \[(.*)\]\(#.*\)$", contents, re.MULTILINE) == sections


@pytest.mark.parametrize("name", sorted(set(re.findall(r"[\w/]+\.py\b", PAGE))))
def test_a_file_that_is_named_is_there(name: str) -> None:
    assert any(file.endswith(f"/{name}") for file in FILES), "it has moved, or is gone"


@pytest.mark.parametrize(
    "package",
    [init.parent for init in sorted((ROOT / "src" / "shardway").rglob("*/__init__.py"))],
    ids=lambda path: path.name,
)
def test_a_package_says_what_is_in_it(package: Path) -> None:
    page = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    modules = [path.stem for path in package.glob("*.py") if not path.stem.startswith("__")]
    packages = [path.parent.name for path in package.glob("*/__init__.py")]
    assert [name for name in sorted(modules + packages) if not re.search(rf"\b{name}\b", page)] == []


@pytest.mark.parametrize(
    "package", sorted({path.parent.name for path in (ROOT / "src" / "shardway").glob("*/__init__.py")})
)
def test_the_table_of_the_parts_has_each_package(package: str) -> None:
    parts = PAGE.split("## The parts", 1)[1].split("\n## ", 1)[0]
    assert f"`{package}/`" in parts


def members_of(node: ast.AST) -> Iterator[str]:
    """Yield the names that a class's or a module's own statements define, and what its methods set on ``self``."""
    for part in ast.walk(node):
        match part:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield part.name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def definitions() -> dict[str, set[str]]:
    """Return the members of each class and of each module, by their names."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "src" / "shardway").rglob("*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        found.setdefault(path.stem, set()).update(members_of(module))
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).update(members_of(node))
    return found


def test_a_member_that_is_named_is_there() -> None:
    """The page writes `Class.member`, and `module.Name` for what is no method."""
    known = definitions()
    named = re.findall(r"`([A-Z]\w*)\.(\w+)`|`([a-z_]+)\.([A-Z]\w*)`", PAGE)
    pairs = sorted({(part or module, member or name) for part, member, module, name in named})
    assert len(pairs) > 60
    assert [f"{whole}.{name}" for whole, name in pairs if name not in known.get(whole, ())] == []


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`((?:tests|scripts)/[\w/]+)`", PAGE))))
def test_a_folder_that_is_named_is_there(name: str) -> None:
    assert (ROOT / name).exists()


def test_each_of_the_five_trips_has_its_stops() -> None:
    trips = PAGE.split("## Five trips\n", 1)[1].split("\n## ", 1)[0].split("\n### ")[1:]
    assert len(trips) == 5
    assert [trip for trip in trips if len(re.findall(r"^\| \d+ \|", trip, re.MULTILINE)) < 8] == []
    assert len(STOPS) == len(re.findall(r"^\| \d+ \|", PAGE, re.MULTILINE))


@pytest.mark.parametrize(("file", "name"), STOPS, ids=[f"{file}:{name}" for file, name in STOPS])
def test_a_function_that_a_trip_stops_at_is_there(file: str, name: str) -> None:
    within: ast.AST = ast.parse((ROOT / "src" / "shardway" / file).read_text(encoding="utf-8"))
    for part in name.split("."):
        found = [
            node
            for node in ast.iter_child_nodes(within)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == part
        ]
        assert found, f"{file} has no {name}"
        within = found[0]
