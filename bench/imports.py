"""Measures what `import shardway` costs a fresh interpreter; a test bounds what it brings in.

``import_s`` is the time of the import alone, without the interpreter's own start. The figure of a round is the least
of several interpreters, as other work of the machine only adds to it.
"""

from __future__ import annotations

import subprocess
import sys

from bench._form import Case, main

INTERPRETERS = 5
TIMED = "import time; began = time.perf_counter(); import shardway; print(time.perf_counter() - began)"


def import_s() -> float:
    """Return the seconds of the import in the fastest of a few fresh interpreters."""
    return min(float(subprocess.check_output([sys.executable, "-c", TIMED])) for _ in range(INTERPRETERS))


CASES = [Case(name="import_s", unit="s", goal=0.15, sense="at_most", ours=import_s)]

if __name__ == "__main__":
    main("imports", __doc__ or "", CASES)
