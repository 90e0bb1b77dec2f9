"""The public names are a short list, which stubs repeat for type checkers. And importing stays cheap."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from scripts.stubs import LAZY, stub_of

ROOT = Path(__file__).resolve().parents[1]

OWN = (
    "shardway.aws_lambda", "shardway.deserializers", "shardway.fences", "pyspark_shardway",
)  # fmt: skip
"""The public modules that have their names themselves, or import these at once. The others are `LAZY`."""
PUBLIC = (*LAZY, *OWN)

GROUPS = [
    *("shardway", "shardway.leases", "shardway.checkpoints", "shardway.dead_letters", "shardway.statistics"),
    "shardway.telemetry",
]
REFERENCE = "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "reference").glob("*.md")))
OF_A_TABLE = (
    *("any_loop", "create", "delete_worker", "ensure", "get", "leave_loop", "name", "of", "put_worker", "rows", "scan"),
    *("workers", "write", "close"),
)
NOT_TOLD = {
    **dict.fromkeys(("MemoryLeaseTable", "PostgresLeaseTable", "SqliteLeaseTable"), OF_A_TABLE),  # `shardway.ports` has
    "LeaseOptions": ("assignment",),  # what follows from others, for the worker
}
"""Public members that are not for programs, and what they are for."""


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names(module: str) -> None:
    found = importlib.import_module(module)
    assert len(found.__all__) == len(set(found.__all__))
    assert [name for name in found.__all__ if not hasattr(found, name)] == []


@pytest.mark.parametrize("module", LAZY)
def test_the_stub_of_a_module_is_made_from_its_list(module: str) -> None:
    path, text = stub_of(module)
    assert path.read_text(encoding="utf-8") == text, "python -m scripts.stubs"


@pytest.mark.parametrize("module", LAZY)
def test_a_list_is_in_order(module: str) -> None:
    names = [*vars(importlib.import_module(module))["_HOMES"]]
    assert names == sorted(names)


@pytest.mark.parametrize("module", LAZY)
def test_no_public_name_is_that_of_a_module(module: str) -> None:
    """Once any part imports such a module, it takes the place of the name in its package."""
    found = importlib.import_module(module)
    modules = {one.name for one in pkgutil.iter_modules(getattr(found, "__path__", []))}
    own = {name for name, home in vars(found)["_HOMES"].items() if home == module}
    assert modules & {*found.__all__} - own == set()


def test_dir_lists_the_public_names() -> None:
    import shardway

    assert dir(shardway) == sorted(shardway.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    import shardway

    with pytest.raises(AttributeError, match="no attribute 'Recrod'"):
        shardway.Recrod  # type: ignore[attr-defined]  # noqa: B018 - looking it up is the test


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_have_docstrings(module: str) -> None:
    found = importlib.import_module(module)
    assert [name for name in found.__all__ if name[0] != "_" and not getattr(found, name).__doc__] == []


def modules_after(statement: str) -> set[str]:
    """The modules that a fresh interpreter holds after one statement."""
    code = f"{statement}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_importing_shardway_imports_nothing_heavy() -> None:
    loaded = modules_after("import shardway")
    assert "shardway" in loaded
    assert loaded.isdisjoint({"pyspark", "botocore", "aiohttp", "msgspec", "pandas", "pyarrow", "asyncio"})


def test_the_package_names_what_most_programs_need() -> None:
    assert len(importlib.import_module("shardway").__all__) <= 60
    listed = [name for module in GROUPS for name in importlib.import_module(module).__all__]
    assert len(listed) == len(set(listed)), "a name has one place"


@pytest.mark.parametrize("module", GROUPS)
def test_each_name_is_of_the_module_that_is_loaded_for_it(module: str) -> None:
    found = importlib.import_module(module)
    for name, home in vars(found)["_HOMES"].items():
        made_in = getattr(getattr(found, name), "__module__", home)
        assert made_in == home or (home == "shardway.wiring" and made_in == "shardway.aws.options"), name


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("shardway", "Record"), ("shardway", "OptionError"), ("shardway", "Retry"), ("shardway", "Batch"),
        ("shardway.leases", "MemoryLeaseTable"), ("shardway.leases", "EqualCounts"), ("shardway.checkpoints", "Prompt"),
    ],
)  # fmt: skip
def test_a_name_loads_its_own_module_and_no_other(module: str, name: str) -> None:
    home = vars(importlib.import_module(module))["_HOMES"][name]
    loaded = modules_after(f"from {module} import {name}") - {module, "shardway.public"}
    assert loaded <= modules_after(f"import {home}")


@pytest.mark.parametrize("module", GROUPS)
def test_the_public_members_of_public_classes_stand_in_the_reference(module: str) -> None:
    found = importlib.import_module(module)
    missing = {}
    for name in found.__all__:
        kind = getattr(found, name)
        if inspect.isclass(kind) and not issubclass(kind, Exception):
            not_told = {one for one in members(kind) if not re.search(rf"`(?:\w+\.)?{one}(?:\([^`]*\))?`", REFERENCE)}
            if not_told := not_told - set(NOT_TOLD.get(name, ())):
                missing[name] = sorted(not_told)
    assert missing == {}


def members(kind: type) -> set[str]:
    """What has no underscore, of the class and of those of the package that it derives from."""
    return {
        name for one in kind.__mro__ if one.__module__.startswith("shardway")
        for name in vars(one) if not name.startswith("_")
    }  # fmt: skip


def test_using_a_record_imports_no_client_and_no_spark() -> None:
    loaded = modules_after("from shardway import Record, DataLossError")
    assert "shardway.model" in loaded
    assert loaded.isdisjoint({"pyspark", "botocore", "aiohttp", "pandas", "pyarrow"})


def test_importing_the_test_kit_imports_no_server() -> None:
    loaded = modules_after("import shardway.testing, shardway.testing.pytest_plugin")
    assert "shardway.testing" in loaded
    assert loaded.isdisjoint({"pyspark", "botocore", "aiohttp", "httptools", "shardway.local"})


def test_commands_that_look_at_nothing_load_no_reader() -> None:
    loaded = modules_after("import shardway.cli.app")
    assert loaded.isdisjoint({"shardway.inspect.inspector", "shardway.aws.wire", "botocore", "backports.zstd"})


def test_one_version() -> None:
    import shardway

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == shardway.__version__
