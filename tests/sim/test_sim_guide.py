"""The programs of the guide run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "simulation.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS, ids=["simulator", "loop"])
def test_a_program_of_the_guide_runs(program: str) -> None:
    exec(compile(program, str(GUIDE), "exec"), {})
