"""The code in the guides runs, or at least is Python where it needs a stream or a cluster of the reader's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "docs/guides/local.md", "docs/guides/pipeline.md"]
BLOCKS = [
    pytest.param(block, id=f"{page}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_is_python(block: str) -> None:
    compile(block, "block", "exec")


@pytest.mark.parametrize("block", [param for param in BLOCKS if "LocalKinesis" in param.values[0]])
def test_a_block_over_a_local_kinesis_runs(block: str) -> None:
    exec(compile(block, "block", "exec"), {})
