"""A master, workers, and jobs that are sent to them: processes of this machine, each of which can be killed.

All of them listen on loopback only. Executors and drivers run a Python that has nothing installed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from examples.cluster.guard import Guard, kill_sessions, sessions
from examples.cluster.packages import collect
from examples.demo.processes import parents

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

WORKER_HOSTS = ("127.0.0.1", "localhost")
"""One address, two names: Spark never runs the speculative copy of a task on the host where the first one runs."""
START_TIMEOUT_S = 90.0
POLL_S = 0.05
DAEMON_MEMORY, EXECUTOR_MEMORY, DRIVER_MEMORY = "256m", "512m", "768m"
QUICK_START = "-XX:TieredStopAtLevel=1"
"""Compile little: these processes live for seconds."""
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_URL = re.compile(r"Starting Spark master at (spark://\S+)")


class Node:
    """A master, a worker or a driver, with all that it started."""

    def __init__(
        self, command: list[str], log: Path, environment: Mapping[str, str], report: Path | None = None
    ) -> None:
        self.log = log
        with log.open("ab") as errors, (report or log).open("ab") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=dict(environment), cwd=log.parent,
                start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """Of the JVM: Spark's scripts become it."""
        return self.process.pid

    def executors(self) -> list[int]:
        """Of a worker: the JVMs that run tasks."""
        children = [child for child, parent in parents().items() if parent == self.pid]
        return [child for child in children if EXECUTOR in _command_of(child)]

    def family(self) -> list[int]:
        """It and all that descend from it, also those whose parents were killed: they stay in its session."""
        return sessions([self.pid])

    def kill(self) -> None:
        """SIGKILL for the process alone."""
        self.process.kill()
        self.process.wait()

    def kill_family(self) -> None:
        """SIGKILL for it and for all that descend from it."""
        kill_sessions([self.pid])
        self.process.wait(START_TIMEOUT_S)

    def wait_for(self, pattern: re.Pattern[str] | str, at_least: int = 1) -> str:
        """Until its log has a line with this; what was found. Raises RuntimeError when it does not come."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while True:
            found = re.findall(pattern, self.log.read_text(errors="replace"))
            if len(found) >= at_least:
                return str(found[-1])
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"a part of the cluster does not start: see {self.log}")
            time.sleep(POLL_S)


class Cluster:
    """A master and a worker on each of ``WORKER_HOSTS``, within a folder. For use in a ``with`` statement.

    ``environment`` is what the machines of workers and drivers have beside what this program has, and Spark needs:
    credentials.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], *, cores: int = 2) -> None:
        self.folder = folder
        self._given = environment
        self.workers: list[Node] = []
        self.drivers: list[Node] = []
        self._cores = cores
        self._nodes: list[Node] = []
        self._guard = Guard()
        self._url = ""

    def __enter__(self) -> Cluster:
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all that was started."""
        for node in reversed(self._nodes):
            node.kill_family()
        self._guard.close()

    def family(self) -> list[int]:
        """All processes of the cluster and of its jobs."""
        return [pid for node in self._nodes for pid in node.family()]

    def executors(self) -> list[int]:
        """The processes of executors, of all workers."""
        return [pid for worker in self.workers for pid in worker.executors()]

    def start_worker(self, number: int) -> None:
        """Start a worker, or put a new one in the place of one that was killed."""
        host = WORKER_HOSTS[number]
        arguments = ["--host", host, "--cores", str(self._cores), "--memory", "1g", "--webui-port", "0"]
        worker = self._daemon("worker.Worker", *arguments, "--work-dir", str(self.folder / "work"), self._url)
        self.workers[number : number + 1] = [worker]
        worker.wait_for("Successfully registered with master")

    def submit(self, job: Path, report: Path, environment: Mapping[str, str], *options: str) -> Node:
        """Send a job file, as the guide for standalone clusters says; ``report`` gets its lines of JSON."""
        java = f"{QUICK_START} -Djava.io.tmpdir={self._scratch}"
        settings = {
            "spark.executorEnv.PYTHONPATH": "packages",
            "spark.executor.memory": EXECUTOR_MEMORY,
            "spark.executor.cores": str(self._cores),
            "spark.executor.extraJavaOptions": java,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        command = [
            str(self._spark / "bin" / "spark-submit"), "--master", self._url, "--driver-memory", DRIVER_MEMORY,
            "--driver-java-options", java, "--archives", f"{self._packages.archive}#packages",
        ]  # fmt: skip
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        program = self._packages.folder / "shardway" / "pipeline" / "job" / "submit.py"
        log = self.folder / f"driver-{len(self.drivers)}.log"
        whole = {**self._environment, "PYTHONPATH": str(self._packages.folder), **environment}
        driver = self._start([*command, *options, str(program), str(job), "-o", "jsonl"], log, whole, report)
        self.drivers.append(driver)
        return driver

    def _make(self) -> None:
        self._scratch = self.folder / "scratch"
        self._scratch.mkdir(parents=True)
        spec = find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        self._spark = Path(spec.origin).parent
        self.python = bare_python(self.folder / "python")
        self._environment = self._for_spark()
        master = self._daemon("master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self._packages = collect(self.folder)
        self._url = master.wait_for(_URL)
        master.wait_for("I have been elected leader")
        for number in range(len(WORKER_HOSTS)):
            self.start_worker(number)

    def _for_spark(self) -> dict[str, str]:
        """The environment of all its processes: Spark on loopback, and a Python without packages."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_", "PYTHON"))
        }
        kept.pop("VIRTUAL_ENV", None)
        return {
            **kept,
            **self._given,
            "SPARK_HOME": str(self._spark),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self._scratch),
            "TMPDIR": str(self._scratch),
            "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
            "SPARK_DAEMON_JAVA_OPTS": f"{QUICK_START} -Dspark.master.rest.enabled=false",
            "PYSPARK_PYTHON": str(self.python),
        }

    def _daemon(self, name: str, *arguments: str) -> Node:
        program = str(self._spark / "bin" / "spark-class")
        log = self.folder / f"{name.partition('.')[0]}-{len(self._nodes)}.log"
        return self._start([program, f"org.apache.spark.deploy.{name}", *arguments], log, self._environment)

    def _start(self, command: list[str], log: Path, environment: Mapping[str, str], report: Path | None = None) -> Node:
        self._nodes.append(Node(command, log, environment, report))
        self._guard.watch(self._nodes[-1].pid)
        return self._nodes[-1]


def bare_python(folder: Path) -> Path:
    """A Python environment without any package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=START_TIMEOUT_S)
    return folder / "bin" / "python"


def _command_of(pid: int) -> str:
    """Its command line; nothing for one that is gone."""
    file = Path(f"/proc/{pid}/cmdline")
    if Path("/proc/self/cmdline").exists():
        try:
            return file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return ""
    return subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
