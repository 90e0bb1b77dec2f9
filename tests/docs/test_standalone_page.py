"""The commands of the page on Spark's own cluster: a master, a worker, and the job sent to them in both ways.

Executors run a Python that has nothing of ours: what they import is in the archive.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pyarrow.dataset as ds
import pyspark
import pytest
from packaging.requirements import Requirement

from shardway.testing import LocalKinesis
from tests.docs.doc_pages import DOCS, ROOT, blocks, rows, section
from tests.docs.terminals import Terminal, until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]

PAGE = DOCS / "guides" / "deploy" / "standalone.md"
NAMED = f"python3.{sys.version_info.minor}"


def commands(part: str) -> list[str]:
    return [
        command.replace("python3.11", NAMED)
        for block in blocks(PAGE, "console")
        for command in block.commands
        if part in command
    ]


def closure(names: list[str]) -> set[str]:
    """The packages that these need, themselves included."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        wanted = [Requirement(text) for text in distribution(name).requires or ()]
        left += [one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


def install(folder: Path, packages: list[str]) -> None:
    """As ``pip install --target`` does it, from the packages of this environment, as links to them."""
    folder.mkdir()
    for name in closure(packages):
        if name == "shardway":
            places = {ROOT / "src" / "shardway", ROOT / "src" / "pyspark_shardway"}
        else:
            found = distribution(name)
            tops = {Path(str(file)).parts[0] for file in found.files or ()} - {"..", "__pycache__"}
            places = {Path(str(found.locate_file(top))) for top in tops}
        for place in places:
            (folder / place.name).symlink_to(place)


class Cluster:
    """A local stream, a folder, and shells on one machine."""

    def __init__(self, local: LocalKinesis, folder: Path) -> None:
        self.local = local
        self.folder = folder
        self.lake = folder / "lake"
        (folder / "bin").mkdir()
        (folder / "bin" / NAMED).symlink_to(sys._base_executable)  # type: ignore[attr-defined]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._environment = {
            **local.environment(),
            "PATH": f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "MASTER_HOST": "127.0.0.1",
            "LAKE": str(self.lake),
            "EVERY": "1 second",
            "ZIPOPT": "-0",
            "SPARK_WORKER_DIR": str(folder / "work"),
            "SPARK_LOCAL_DIRS": str(folder / "local"),
        }
        self._client = boto3.client("kinesis", endpoint_url=local.endpoint_url, region_name=local.region)
        self.terminals: list[Terminal] = []
        self.count = 0

    def terminal(self) -> Terminal:
        self.terminals.append(Terminal(self.folder, self._environment))
        return self.terminals[-1]

    def here(self, command: str) -> str:
        """A command for this cluster's port."""
        return command.replace("7077", str(self.port))

    def put(self, count: int) -> None:
        for number in range(self.count, self.count + count):
            data = f'{{"order_id": "{number}", "customer": "anna", "amount": "1.50"}}'
            self._client.put_record(StreamName="orders", Data=data.encode(), PartitionKey=f"key-{number % 7}")
        self.count += count

    def rows(self) -> int:
        folder = self.lake / "orders"
        return int(ds.dataset(folder).count_rows()) if folder.exists() else 0

    def close(self) -> None:
        self._client.close()
        for terminal in reversed(self.terminals):
            terminal.close()
        for large in ("work", "local", "deps.zip"):  # Arrow, in several copies
            subprocess.run(["rm", "-rf", self.folder / large], check=True)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    with LocalKinesis(streams={"orders": 2}) as local:
        made = Cluster(local, tmp_path)
        yield made
        made.close()


def test_the_job_runs_on_a_cluster_that_has_nothing_but_python(cluster: Cluster) -> None:
    bare = subprocess.run([cluster.folder / "bin" / NAMED, "-c", "import shardway"], capture_output=True, check=False)
    assert bare.returncode != 0
    (master,) = commands("master.Master")
    (worker,) = commands("worker.Worker")
    cluster.terminal().first_lines(cluster.here(f"{master} 2>&1"), lambda line: "I have been elected" in line)
    cluster.terminal().first_lines(cluster.here(f"{worker} 2>&1"), lambda line: "Successfully registered" in line)

    shell = cluster.terminal()
    (pip,) = commands("pip install")
    install(cluster.folder / "deps", re.findall(r"'?\b([a-z]+)(?:>=[\w.,<]+')?(?= |$)", pip.split(" deps ")[1]))
    (pack,) = commands("zip -qr")
    shell.type(pack)
    (job,) = blocks(PAGE, "toml")
    (cluster.folder / "job").mkdir()
    (cluster.folder / "job" / "job.toml").write_text(job.text, encoding="utf-8")
    exports = [command for command in commands("export") if "PYSPARK_PYTHON" in command]
    exports_of_a_program = [command for command in commands("export") if command not in exports]
    (submit,) = commands("submit.py")
    (program,) = commands("-m shardway.pipeline.job")
    for export in exports:
        shell.type(export)

    cluster.put(30)
    shell.type(f"{cluster.here(submit)} -o jsonl > submitted.log 2>&1 &")
    until(lambda: cluster.rows() == cluster.count, "rows of the job that was submitted")
    shell.type("kill -TERM $!; wait $! || true")  # it removes what it unpacked

    cluster.put(1)
    without = cluster.here(submit).replace("#deps", "#elsewhere")
    code = shell.type(f"{without} -o jsonl > without.log 2>&1; echo $?").strip()
    told = [line for line in (cluster.folder / "without.log").read_text().splitlines() if line.startswith("shardway: ")]
    assert re.search(r"No module named '(shardway|pyarrow)'", told[-1])  # what Python looks for first
    (row,) = [row for row in rows(section(PAGE, "When it goes wrong")) if "ModuleNotFoundError" in row[0]]
    assert row[1] == code

    for export in exports_of_a_program:
        shell.type(cluster.here(export))
    cluster.put(30)
    shell.type(f"{program} -o jsonl > program.log 2>&1 &")
    until(lambda: cluster.rows() == cluster.count, "rows of the program")
    shell.type("kill -TERM $!; wait $!")
    assert '"stopped by SIGTERM"' in (cluster.folder / "program.log").read_text()
