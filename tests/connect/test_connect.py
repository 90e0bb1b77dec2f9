"""Source, sink and functions from a Spark Connect client, against a server of its own.

Most run with ``pyspark-client`` alone, which has no Spark, no Java and no py4j; one quick one with the full PySpark as
the client.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.connect.conftest import Scene

pytestmark = [pytest.mark.spark, pytest.mark.timeout(660)]

ROOT = Path(__file__).resolve().parents[2]
LOADED = sorted(path for part in ("pipeline", "spark") for path in (ROOT / "src" / "shardway" / part).glob("*.py"))
READ = {
    "rows": 102,
    "split": [101, 1],
    "unique": 100,
    "amount": "5000.00",
    "reasons": ["not exactly one JSON object"],
    "text": 102,
    "bytes": 102,
    "in_order": [f"o-{number}" for number in range(3, 100, 5)],
}


def test_a_batch_is_read_decoded_and_rid_of_duplicates(scene: Scene, whole: Path) -> None:
    assert scene.call(whole, "read") == {**READ, "client": "pyspark.sql.connect.dataframe"}


@pytest.mark.slow
def test_the_client_has_no_spark(thin: Path) -> None:
    for module in ("py4j", "pyspark.jars"):
        done = subprocess.run([str(thin), "-c", f"import {module}"], capture_output=True, text=True, check=False)
        assert "ModuleNotFoundError" in done.stderr


@pytest.mark.slow
def test_a_thin_client_reads_a_batch(scene: Scene, thin: Path) -> None:
    assert scene.call(thin, "read") == {**READ, "client": "pyspark.sql.connect.dataframe"}


@pytest.mark.slow
def test_a_stream_goes_into_files(scene: Scene, thin: Path) -> None:
    found = scene.call(thin, "stream_to_files")
    assert found == {"rows": 102, "late": [0] * len(found["late"]), "orders": 100, "written": 101}
    assert found["late"]


@pytest.mark.slow
def test_a_stream_is_copied_with_stamps_and_read_without_duplicates(scene: Scene, thin: Path) -> None:
    """By a query with a name and once more by a batch write: each record is there twice, and read once."""
    expected = {"written": 102, "same": True, "stamped": 204, "unique_of_stream": 102, "orders": 101}
    assert scene.call(thin, "copy") == expected


@pytest.mark.slow
def test_a_function_for_each_batch_runs_on_the_server(scene: Scene, thin: Path) -> None:
    assert scene.call(thin, "each_batch") == {"orders": 101, "dead": 1}


@pytest.mark.slow
def test_steps_that_may_not_ask_do_the_same(scene: Scene, thin: Path) -> None:
    assert scene.call(thin, "without_a_question") == {"different": [], "compared": 8, "stream": True}


@pytest.mark.slow
def test_what_cannot_be_says_so(scene: Scene, thin: Path) -> None:
    said = scene.call(thin, "refused")
    assert said["folder"].startswith("OptionError: ParquetFolder works through Spark's own JVM, which a Spark Connect")
    assert said["kind"] is True
    assert "there is no option streamnam: did you mean streamName?" in said["option"]
    assert "there is no stream none in region us-east-1" in said["stream"]
    assert "there is no column partition_key" in said["column"]
    assert "PARSE_SYNTAX_ERROR" in said["schema"]


# --- without a server ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", LOADED, ids=lambda path: path.stem)
def test_what_a_client_loads_needs_no_py4j(path: Path) -> None:
    """A Connect client has none. Inside of a function that works with Spark's JVM it may be imported."""
    imported = [
        name
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [getattr(node, "module", None), *(alias.name for alias in node.names)]
    ]
    assert [name for name in imported if str(name).partition(".")[0] == "py4j"] == []


REMOTE = {
    "environment": "",
    "remote": '[spark]\n"spark.remote" = "sc://127.0.0.1:1"\n',
    "mode": '[spark]\n"spark.api.mode" = "connect"\n',
}


@pytest.mark.parametrize("how", REMOTE)
def test_a_job_does_not_run_over_connect(tmp_path: Path, how: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(
        f'name = "orders"\ncheckpoint = "{tmp_path}/checkpoint"\n[source]\nstreamName = "orders"\n'
        '[[sinks]]\nformat = "console"\n' + REMOTE[how]
    )
    environment = {**os.environ, **({"SPARK_REMOTE": "sc://127.0.0.1:1"} if how == "environment" else {})}
    done = subprocess.run(
        [sys.executable, "-m", "shardway.pipeline.job", str(path)],
        capture_output=True, text=True, check=False, env=environment, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 3
    assert "a job runs in Spark's own process, not over Spark Connect" in done.stderr
    assert "Traceback" not in done.stderr
