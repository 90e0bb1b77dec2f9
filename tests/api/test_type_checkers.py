"""What an editor makes of the package: pyright, which VS Code's Pylance is made of, reads a user's program and every
public name. (`make check` has mypy read the same program.)
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.test_exports import PUBLIC

HERE = Path(__file__).parent
PROGRAM = HERE / "typed_program.py"


def pyright(*arguments: str, cwd: Path | None = None) -> dict[str, Any]:
    """Return what pyright tells as JSON. It runs on the Node.js that its package brings."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    assert done.stdout.startswith("{"), done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def errors_of(program: str, folder: Path) -> list[str]:
    """Return the errors of a program under pyright's strict rules for comments that are not used."""
    (folder / "program.py").write_text(program, encoding="utf-8")
    rules = {"reportUnnecessaryTypeIgnoreComment": "error", "reportMissingTypeArgument": "error"}
    (folder / "pyrightconfig.json").write_text(json.dumps({"include": ["program.py"], **rules}), encoding="utf-8")
    told = pyright("--project", str(folder), cwd=folder)["generalDiagnostics"]
    return [f"{one['range']['start']['line'] + 1}: {one['message']}" for one in told]


def test_a_users_program_has_the_types_and_the_errors_that_it_says(tmp_path: Path) -> None:
    assert errors_of(PROGRAM.read_text(encoding="utf-8"), tmp_path) == []


def test_a_wrong_option_is_found_where_no_comment_expects_it(tmp_path: Path) -> None:
    source = PROGRAM.read_text(encoding="utf-8")
    expected = [at for at, line in enumerate(source.splitlines(), 1) if "# type: ignore" in line]
    assert len(expected) >= 5
    found = errors_of(source.replace("# type: ignore", "# expected"), tmp_path)
    assert sorted({int(one.partition(":")[0]) for one in found}) == expected


@pytest.mark.timeout(600)
def test_no_public_name_has_a_type_that_pyright_cannot_tell() -> None:
    told = pyright("--verifytypes", "shardway", "--ignoreexternal")["typeCompleteness"]
    assert Path(told["pyTypedPath"]).name == "py.typed"
    public = [
        f"{getattr(getattr(importlib.import_module(module), name), '__module__', module)}.{name}"
        for module in PUBLIC
        for name in importlib.import_module(module).__all__
    ]
    known = {one["name"] for one in told["symbols"]}
    assert len(known & set(public)) > 150
    unknown = [
        one["name"]
        for one in told["symbols"]
        if not one["isTypeKnown"] and not one["isTypeAmbiguous"]
        if any(one["name"] == name or one["name"].startswith(f"{name}.") for name in public)
    ]
    assert unknown == []
