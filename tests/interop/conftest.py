"""The schema of the format stands with the tests of the core; Hypothesis runs without deadlines as it does there."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "core"))

settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")
