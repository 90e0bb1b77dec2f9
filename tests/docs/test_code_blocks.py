"""The code in the guides runs, or at least is Python where it needs a stream or a cluster of the reader's."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    "README.md",
    "docs/guides/local.md",
    "docs/guides/pipeline.md",
    "docs/guides/producer.md",
    "docs/reference/producer.md",
]
BLOCKS = [
    pytest.param(block, id=f"{page}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_is_python(block: str) -> None:
    compile(block, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize(
    "block",
    [param for param in BLOCKS if "LocalKinesis" in param.values[0] and "producer" not in str(param.id)],
)
def test_a_block_over_a_local_kinesis_runs(block: str) -> None:
    exec(compile(block, "block", "exec"), {})
