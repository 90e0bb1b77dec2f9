"""The runs on other Pythons and with other packages: what is chosen for them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from scripts import python_matrix

if TYPE_CHECKING:
    from pathlib import Path

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without interpreters: no pyenv, no uv, and a PATH with one empty folder."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setattr(python_matrix, "uv", lambda: None)
    return tmp_path


def test_an_interpreter_on_path_is_found(bare: Path) -> None:
    program(bare / "bin" / "python3.12", '#!/bin/sh\necho "3.12"\n')
    assert python_matrix.interpreter("3.12") == bare / "bin" / "python3.12"
    assert python_matrix.interpreter("3.13") is None


def test_a_shim_that_does_not_start_is_passed_over(bare: Path) -> None:
    program(bare / "bin" / "python3.12", "#!/bin/sh\nexit 127\n")
    program(bare / "pyenv" / "versions" / "3.12.1" / "bin" / "python3", '#!/bin/sh\necho "3.12"\n')
    assert python_matrix.interpreter("3.12") == bare / "pyenv" / "versions" / "3.12.1" / "bin" / "python3"


def test_a_link_to_another_python_is_passed_over(bare: Path) -> None:
    (bare / "bin").mkdir()
    (bare / "bin" / "python3.9").symlink_to(sys.executable)
    assert python_matrix.interpreter("3.9") is None


def test_uv_is_asked_for_what_is_not_here(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(bare / "brought" / "python", '#!/bin/sh\necho "3.14"\n')
    brings = f"[ $2 = install ] && : > {bare}/installed\n[ -e {bare}/installed ] && echo {bare}/brought/python\n"
    program(bare / "uv", f"#!/bin/sh\n{brings}")
    monkeypatch.setattr(python_matrix, "uv", lambda: str(bare / "uv"))
    assert python_matrix.interpreter("3.14") == bare / "brought" / "python"


def test_a_python_that_cannot_be_had_fails_only_where_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(python_matrix, "interpreter", lambda version: None)
    monkeypatch.setattr(sys, "argv", ["python_matrix.py"])
    assert python_matrix.main() == 0
    assert capsys.readouterr().out.count("not run: no interpreter is here") == len(python_matrix.PYTHONS)
    monkeypatch.setattr(sys, "argv", ["python_matrix.py", "--only", "3.14"])
    assert python_matrix.main() == 1
    assert "FAILED: no interpreter is here" in capsys.readouterr().out


def test_the_lowest_packages_are_what_ours_asks_for() -> None:
    chosen = python_matrix.requirements("lowest")
    assert "msgspec>=0.21" in chosen
    assert "boto3>=1.37" in chosen, "a tool that has to fit botocore's oldest"
    assert [one for one in chosen if one.startswith("pytest==")], "a tool has its locked version"
    assert not [one for one in chosen if one.startswith("shardway")]


def test_the_newest_packages_have_no_version_but_the_ranges() -> None:
    assert not [one for one in python_matrix.requirements("newest") if "==" in one]


@pytest.mark.skipif(os.name != "posix", reason="the interpreter's name is that of POSIX")
def test_this_python_is_found() -> None:
    found = python_matrix.interpreter(HERE)
    assert found is not None
    assert found.exists()
