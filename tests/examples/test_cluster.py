"""The parts of the cluster for trying jobs that need no Spark: the packages that are sent, and the guard."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from examples.cluster.guard import kill_sessions, sessions
from examples.cluster.packages import collect
from examples.cluster.standalone import bare_python

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 60.0
LEAVES = """
import os, subprocess, sys
from examples.cluster.guard import Guard

guard = Guard()
node = subprocess.Popen(["sh", "-c", "sleep 600 & exec sleep 600"], start_new_session=True)
guard.watch(node.pid)
print(node.pid, flush=True)
sys.stdin.readline()
os._exit(1)
"""


def test_a_bare_python_imports_what_is_sent(tmp_path: Path) -> None:
    packages = collect(tmp_path)
    with zipfile.ZipFile(packages.archive) as archive:
        sent = archive.namelist()
        assert archive.testzip() is None
    assert {"shardway/__init__.py", "pyspark_shardway/__init__.py", "pyarrow/__init__.py"} <= set(sent)
    assert [name for name in sent if name.startswith(("pyspark/", "py4j/"))] == []
    assert [name for name in sent if name.startswith("msgspec/_core") and not name.endswith((".py", ".pyi"))]
    python = bare_python(tmp_path / "python")
    program = (
        "import shardway.core, shardway.aws.wire, shardway.runtime.producer.sync_producer, "
        "pyarrow, numpy, pandas, botocore"
    )
    for folder, code in ((packages.folder, 0), (tmp_path, 1)):
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder)}
        done = subprocess.run([python, "-c", program], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
def test_nothing_outlives_a_program_that_is_killed() -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", LEAVES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert program.stdout is not None
    session = int(program.stdout.readline())
    try:
        deadline_s = time.monotonic() + WAIT_S
        while len(sessions([session])) < 2:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        program.communicate("go\n", timeout=WAIT_S)
        assert program.returncode == 1
        while sessions([session]):
            assert time.monotonic() < deadline_s, "still there"
            time.sleep(0.02)
    finally:
        kill_sessions([session])
        program.kill()
        program.wait()
