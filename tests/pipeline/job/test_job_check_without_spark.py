"""A job file is checked, and its schema printed, where PySpark is not installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardway.local import LocalKinesis
from shardway.pipeline.job.file.schema import schema_json

ROOT = Path(__file__).resolve().parents[3]
HIDING = """
import importlib.abc, sys

class Hiding(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "pyarrow", "numpy", "pandas", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hiding())
from shardway.cli import main
sys.exit(main())
"""
SHOWING = """
import sys
from shardway.cli import main
status = main()
print([name for name in ("pyspark", "pyarrow", "pandas") if name in sys.modules], file=sys.stderr)
sys.exit(status)
"""
JOB = """\
name = "orders"
checkpoint = "checkpoint"
source = {streamName = "orders", region = "eu-west-1"}
transform.function = "cleaning:clean"
[[sinks]]
format = "parquet"
path = "orders"
"""


def shardway(
    *arguments: str, folder: Path, code: str = HIDING, lines: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder; by default where none of Spark's packages are."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=folder, env={**os.environ, **environment},
        input=lines, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("job", sorted((ROOT / "examples" / "jobs").glob("*.toml")), ids=lambda path: path.stem)
def test_the_examples_are_checked(job: Path) -> None:
    done = shardway("run", "--check", job.name, folder=job.parent, LAKE="lake", STREAM="orders", AWS_REGION="us-east-1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "from stream orders" in done.stdout
    assert ("none is installed here" in done.stdout) == (job.stem in ("orders_delta", "orders_iceberg"))


def test_the_schema_is_printed(tmp_path: Path) -> None:
    assert shardway("run", "--schema", folder=tmp_path).stdout == schema_json()


def test_a_fault_is_told_as_with_spark(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB.replace("parquet", "parket"))
    (tmp_path / "cleaning.py").write_text("def clean(rows): return rows\n")
    without = shardway("run", "--check", "job.toml", folder=tmp_path)
    assert without.returncode == 2
    assert "did you mean parquet" in without.stderr
    assert shardway("run", "--check", "job.toml", folder=tmp_path, code=SHOWING).stderr == f"{without.stderr}[]\n"


@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("def clean(rows): return rows", None),
        (
            "import pyspark.sql.functions",
            "was not looked at: module cleaning cannot be imported: there is no module py",
        ),
        ("import shardway.pipeline\ndef clean(rows): return rows", None),
        ("from shardway.pipeline import split", "was not looked at: module cleaning cannot be imported: there is no "),
    ],
)
def test_a_function_is_looked_at_as_far_as_its_module_goes(module: str, told: str | None, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "cleaning.py").write_text(f"{module}\n")
    done = shardway("run", "--check", "-o", "jsonl", "job.toml", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    notes = json.loads(done.stdout)["notes"]
    assert [told in note for note in notes] == ([] if told is None else [True]), notes


@pytest.mark.parametrize("module", ["import pysparkling", "import numbers.nothing", "clean = 1"])
def test_a_fault_of_a_function_stays_one(module: str, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "cleaning.py").write_text(f"{module}\n")
    done = shardway("run", "--check", "job.toml", folder=tmp_path)
    assert done.returncode == 2
    assert "job.toml:4: transform.function: module cleaning " in done.stderr


def test_the_service_is_asked_for_the_stream_and_a_first_job_is_drafted(tmp_path: Path) -> None:
    with LocalKinesis(streams={"orders": 2}) as local:
        place = {**local.environment(), "AWS_REGION": local.region}
        line = '{"key": "a", "data": {"order_id": "a", "amount": 3}}\n'
        assert shardway("put", "orders", folder=tmp_path, lines=line, **place).returncode == 0
        drafted = shardway("run", "--init", "orders", "job.toml", folder=tmp_path, **place)
        assert drafted.returncode == 0, drafted.stderr
        done = shardway("run", "--check", "--online", "job.toml", folder=tmp_path, **place)
        assert done.returncode == 0, done.stderr
        assert "2 open shards" in done.stdout
