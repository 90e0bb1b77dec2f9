"""The programs of the guide run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.doc_pages import part, programs

pytest_plugins = ["pytester"]

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/testing.md"
BLOCKS = programs(part(GUIDE, "A consumer without a server") + part(GUIDE, "With pytest"))
ALONE = [block for block in BLOCKS if "asyncio.run(" in block]
(OF_PYTEST,) = [block for block in BLOCKS if "import pytest" in block]


@pytest.mark.parametrize("block", ALONE, ids=range(len(ALONE)))
def test_a_program_of_the_guide_runs(block: str) -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", block], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_the_tests_of_the_guide_pass(pytester: pytest.Pytester) -> None:
    (program,) = re.findall(r"^async def bill\(.*?(?=\n\n\n)", ALONE[0], re.DOTALL | re.MULTILINE)
    pytester.makeini(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\naddopts = --strict-markers"
    )
    pytester.makepyfile(f"{OF_PYTEST}\n\n{program}\n")
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)
