"""What ``make dev`` does with a ``.venv`` that is there: of another Python, or of another checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = """#!/bin/sh
# A Python of version {version}, which writes down what it is asked for.
case "$*" in
    *"-m venv"*)
        for folder; do :; done
        rm -rf "$folder"; mkdir -p "$folder/bin"
        cp "$0" "$folder/bin/python"; : >"$folder/pyvenv.cfg"
        echo "VIRTUAL_ENV=\\"$(cd "$folder" && pwd)\\"" >"$folder/bin/activate"
        echo venv >>"$ASKED" ;;
    *"-m pip --version"*) ;;
    *"-m pip"*) echo pip >>"$ASKED" ;;
    *sys.exit*) exit {too_old} ;;
    *) echo "Python {version}" ;;
esac
"""


class Checkout:
    """A checkout with the files that the script reads, and what was asked of its Pythons."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.venv, self.asked = folder, folder / ".venv", folder.parent / "asked"
        for name in ("scripts/bootstrap", "pyproject.toml", "requirements/build.txt", "requirements/dev.txt"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        self.python(folder / "scripts" / "java-home")
        self.python(folder.parent / "python")

    def python(self, path: Path, version: str = "3.12.1", *, too_old: bool = False) -> None:
        path.unlink(missing_ok=True)
        path.write_text(PYTHON.format(version=version, too_old=int(too_old)))
        path.chmod(0o755)

    def dev(self) -> tuple[int, list[str], str]:
        """Its status, what it asked of Pythons, and what it said."""
        self.asked.write_text("")
        env = {**os.environ, "PYTHON": str(self.folder.parent / "python"), "ASKED": str(self.asked)}
        env.pop("VENV", None)
        done = subprocess.run(
            [str(self.folder / "scripts" / "bootstrap"), "dev"], env=env, capture_output=True, text=True, check=False
        )
        return done.returncode, self.asked.read_text().split(), done.stderr


MADE = ["venv", "pip", "pip", "pip"]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """One that is ready."""
    made = Checkout(tmp_path / "checkout")
    status, asked, _ = made.dev()
    assert (status, asked) == (0, MADE)
    return made


def test_what_is_ready_is_left_alone(checkout: Checkout) -> None:
    assert checkout.dev() == (0, [], "")


def test_a_new_list_of_requirements_is_installed(checkout: Checkout) -> None:
    (checkout.folder / "requirements" / "dev.txt").write_text("other==1\n")
    assert checkout.dev()[:2] == (0, MADE[1:])


def test_packages_are_installed_for_the_python_that_is_there_now(checkout: Checkout) -> None:
    """A newer one was put into the environment: it has a folder of packages of its own, which is empty."""
    checkout.python(checkout.venv / "bin" / "python", "3.13.0")
    assert checkout.dev()[:2] == (0, MADE[1:])


def test_an_environment_of_a_python_that_is_too_old_is_made_anew(checkout: Checkout) -> None:
    checkout.python(checkout.venv / "bin" / "python", "3.9.2", too_old=True)
    status, asked, said = checkout.dev()
    assert (status, asked) == (0, MADE)
    assert ".venv is made anew: it is of Python 3.9.2, and 3.11 or newer is needed" in said


def test_an_environment_whose_python_has_gone_is_made_anew(checkout: Checkout) -> None:
    python = checkout.venv / "bin" / "python"
    python.unlink()
    python.symlink_to("/nothing/python3.11")
    status, asked, said = checkout.dev()
    assert (status, asked) == (0, MADE)
    assert "its Python does not start" in said


def test_an_environment_of_another_checkout_is_made_anew(checkout: Checkout, tmp_path: Path) -> None:
    """Its programs and its editable package are those of the other place."""
    other = tmp_path / "moved" / "checkout"
    shutil.copytree(checkout.folder, other)
    shutil.copy(tmp_path / "python", other.parent / "python")
    moved = Checkout(other)
    status, asked, said = moved.dev()
    assert (status, asked) == (0, MADE)
    assert "it was made in another folder" in said


def test_a_folder_that_is_no_environment_is_not_removed(checkout: Checkout) -> None:
    shutil.rmtree(checkout.venv)
    checkout.venv.mkdir()
    (checkout.venv / "notes").write_text("mine")
    status, asked, said = checkout.dev()
    assert (status, asked) == (1, [])
    assert "is no virtual environment" in said
    assert (checkout.venv / "notes").read_text() == "mine"
