"""The design names its sections and the files that there are."""

from __future__ import annotations

import re

import pytest

from tests.docs.doc_pages import DOCS, ROOT

PAGE = (DOCS / "DESIGN.md").read_text(encoding="utf-8")
FOLDERS = ("src/penstock", "tests", "scripts", "bench", "interop", "examples")
FILES = [f"/{path.relative_to(ROOT)}" for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def test_the_contents_are_the_sections() -> None:
    contents = PAGE.split("## Contents", 1)[1].split("\n## ", 1)[0]
    sections = [name for name in re.findall(r"^## (.*)$", PAGE, re.MULTILINE) if name != "Contents"]
    assert re.findall(r"^- \[(.*)\]\(#.*\)$", contents, re.MULTILINE) == sections


@pytest.mark.parametrize("name", sorted(set(re.findall(r"[\w/]+\.py\b", PAGE))))
def test_a_file_that_is_named_is_there(name: str) -> None:
    assert any(file.endswith(f"/{name}") for file in FILES), "it has moved, or is gone"


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`((?:tests|scripts)/[\w/]+)`", PAGE))))
def test_a_folder_that_is_named_is_there(name: str) -> None:
    assert (ROOT / name).exists()
