"""The programs of the guide run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.doc_pages import part, programs

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "testing.md"
PROGRAMS = programs(part(GUIDE, "Your program under faults, in virtual time"))


@pytest.mark.parametrize("program", PROGRAMS, ids=["simulator", "loop"])
def test_a_program_of_the_guide_runs(program: str) -> None:
    exec(compile(program, str(GUIDE), "exec"), {})
