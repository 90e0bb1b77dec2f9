from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.pipeline.job.job_files import GOOD

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def write_job(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a job file."""

    def write(text: str = GOOD) -> Path:
        path = tmp_path / "job.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write
