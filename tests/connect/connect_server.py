"""A Spark Connect server in a process of its own, on loopback, and the environment of a client without Spark itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from scripts.pyspark_matrix import client_environment

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.connect.serverStacktrace.enabled": "false",
}
_STARTED = re.compile(r"Spark Connect server started at: [^\s]*:(\d+)")


class ConnectServer:
    """Started from the full PySpark of this Python; ``address`` is what a client gives to ``remote``."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._log = folder / "server.log"
        settings = {**SETTINGS, "spark.sql.warehouse.dir": str(folder / "warehouse")}
        options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        submit = Path(sys.executable).with_name("spark-submit")
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [str(submit), "--master", "local[2]", "--class", CLASS, *options, "spark-internal"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=folder,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
            )  # fmt: skip
        try:
            self.address = f"sc://127.0.0.1:{self._port()}"
        except BaseException:
            self.stop()
            raise

    def _port(self) -> int:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline_s and self._process.poll() is None:
            found = _STARTED.search(self._log.read_text(encoding="utf-8", errors="replace"))
            if found is not None:
                return int(found[1])
            time.sleep(0.1)
        raise RuntimeError(f"the Connect server did not start:\n{self._log.read_text(errors='replace')[-2000:]}")

    def stop(self) -> None:
        """SIGTERM to the server's process: its launcher has become the JVM."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def client_python() -> Path:
    """The Python of an environment with ``pyspark-client`` and without Spark itself; made once."""
    return client_environment(pyspark.__version__)


def run_client(
    python: Path, program: str, server: ConnectServer, *, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a program with this Python. It has Shardway's sources, the server's address, and nothing of AWS's."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SPARK_", "PYSPARK"))
    }
    environment |= {"PYTHONPATH": str(ROOT / "src"), "SPARK_REMOTE": server.address}
    # A file, since pyspark-client takes a program without one for its own doctests, and looks for Spark.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "program.py")
        file.write_text(program, encoding="utf-8")
        return subprocess.run(
            [str(python), str(file)], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment,
            timeout=timeout_s, check=False,
        )  # fmt: skip
