"""The page on Spark Connect: its code runs in a thin client, against a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

from tests.docs.doc_pages import part, programs

if TYPE_CHECKING:
    from tests.connect.conftest import Scene

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "connect-and-declarative.md"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(660)
def test_the_code_runs_as_one_program(scene: Scene, thin: Path) -> None:
    blocks = programs(part(PAGE, "From a thin client"))
    program = "\n".join(blocks).replace('"sc://localhost:15002"', repr(scene.server.address))
    assert program.count(scene.server.address) == 1
    printed = scene.client(thin, f"{program}\nspark.stop()\n")
    assert printed.splitlines() == ["100 orders", "['not exactly one JSON object']"]
    # The server's folder is where it was started.
    assert rows(scene.folder / "lake" / "orders") == 100
    assert rows(scene.folder / "lake" / "good") == 101
    assert rows(scene.folder / "lake" / "dead") == 1
    copied = scene.records("good-orders")
    assert len(copied) == 100


def rows(folder: Path) -> int:
    files = [str(path) for path in folder.rglob("*.parquet")]
    return int(ds.dataset(files, format="parquet").count_rows())
