"""The code in the guides runs, or at least is Python where it needs a stream or a cluster of the reader's."""

from __future__ import annotations

import ast

import pytest

from tests.docs.doc_pages import all_blocks

BLOCKS = [pytest.param(block.text, id=block.name) for block in all_blocks("python")]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_is_python(block: str) -> None:
    compile(block, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize(
    "block",
    [
        param
        for param in BLOCKS
        if "LocalKinesis" in str(param.values[0])
        and not any(elsewhere in str(param.id) for elsewhere in ("producer", "guides/exporters.md"))
    ],
)
def test_a_block_over_a_local_kinesis_runs(block: str) -> None:
    exec(compile(block, "block", "exec"), {})
