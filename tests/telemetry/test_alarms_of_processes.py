"""A deployment as on Kubernetes, watched only through `/metrics` by a real Prometheus: several processes, SIGTERM,
SIGKILL, SIGSTOP, handlers that hang, block and fail, a service that fails and refuses. Each fault is named by its
alarm, and no alarm rings without a fault.

The rules are those of ``docs/monitoring``, all of whose times are made ``SHORTENED`` times as short: the windows that
they look back, the ages that they compare with, and each ``for``. What an alarm names in five minutes it names in ten
seconds here. Thresholds that are no times stay as they are.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scripts.monitoring import AS_SHIPPED, prometheus_rules

from shardway import ConnectionOptions, Credentials, OutRecord, SyncProducer
from shardway.statistics import MetricsOptions
from shardway.telemetry import PrometheusExporter
from shardway.testing import Fault, LocalKinesis
from tests.telemetry.http_kit import get

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROMETHEUS = shutil.which("prometheus")
PROGRAM = Path(__file__).with_name("watched_process.py")
STREAM = "orders"
SHORTENED = 30
TIMES = AS_SHIPPED.shortened(SHORTENED)
LATEST_S = 120.0
"""No alarm waits longer than 40 s, shortened as it is; what is more is for a machine that does much else."""
NOTHING = frozenset[str]()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not here (Debian: the package prometheus)"),
]


def until(condition: Callable[[], object], told: Callable[[], object] = lambda: "") -> None:
    """Wait for what other processes do. ``told``: what an error shows."""
    wait, end_s = threading.Event(), time.monotonic() + LATEST_S
    while not condition():
        assert time.monotonic() < end_s, told()
        wait.wait(0.2)


class Prometheus:
    """A real one, with a folder of its own, on loopback."""

    def __init__(self, folder: Path) -> None:
        assert PROMETHEUS is not None
        self._targets = folder / "targets.json"
        (folder / "rules.yml").write_text(prometheus_rules(TIMES), encoding="utf-8")
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "500ms"},
            "rule_files": [str(folder / "rules.yml")],
            "scrape_configs": [
                {
                    "job_name": "shardway",
                    "file_sd_configs": [{"files": [str(self._targets)], "refresh_interval": "1s"}],
                }
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML, too
        self.scrape(set())
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._log = (folder / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [
                PROMETHEUS, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdout=self._log, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def scrape(self, ports: set[int]) -> None:
        """From now on these."""
        targets = [{"targets": [f"127.0.0.1:{port}" for port in sorted(ports)]}] if ports else []
        new = self._targets.with_suffix(".new")
        new.write_text(json.dumps(targets), encoding="utf-8")
        new.replace(self._targets)

    def asked(self, query: str) -> list[Any]:
        """What a query of PromQL gives now; nothing before it listens."""
        try:
            _, body = get(self.port, f"/api/v1/query?query={urllib.parse.quote(query)}")
            return list(json.loads(body)["data"]["result"])
        except (OSError, ValueError):
            return []

    def value(self, query: str) -> float:
        """The same of a query that has one number."""
        found = self.asked(query)
        return float(found[0]["value"][1]) if found else 0.0

    def scraped(self) -> set[int]:
        """The ports that it scrapes."""
        return {int(one["metric"]["instance"].rpartition(":")[2]) for one in self.asked("up")}

    def firing(self) -> set[str]:
        return {one["metric"]["alertname"] for one in self.asked('ALERTS{alertstate="firing"}')}

    def fired_since(self, begun_s: float) -> set[str]:
        lasted = max(1, int(time.time() - begun_s))  # what had not cleared by then is no part of it
        return {
            one["metric"]["alertname"]
            for one in self.asked(f'count_over_time(ALERTS{{alertstate="firing"}}[{lasted}s])')
        }

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._log.close()


class Pod:
    """One process, as its deployment has it."""

    def __init__(self, endpoint: str, folder: Path, number: int) -> None:
        self.log = folder / f"pod-{number}.log"
        self._log = self.log.open("wb")
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), endpoint, str(folder / "leases.db")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline() or 0)

    def tell(self, what: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n".encode())
        self.process.stdin.flush()

    def probe(self, which: str) -> int:
        return get(self.port, f"/health/{which}")[0]

    def events(self) -> list[dict[str, Any]]:
        """Its log."""
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for one in (self.process.stdin, self.process.stdout, self._log):
            assert one is not None
            one.close()


class Deployment:
    """Pods on a stream that is written to all the time, and what Prometheus is told to scrape."""

    def __init__(self, folder: Path, ends: ExitStack) -> None:
        """``ends``: what is to be ended with it."""
        self.folder = folder
        self._closes = ends
        self.service = ends.enter_context(LocalKinesis.spawn(streams={STREAM: 6}, limits=False))
        self.prometheus = ends.enter_context(closing(Prometheus(folder)))
        self.exporter = ends.enter_context(PrometheusExporter(0))
        connection = ConnectionOptions(
            endpoint_url=self.service.endpoint_url, region="us-east-1", credentials=Credentials("local", "local")
        )
        self._producer = SyncProducer(
            STREAM, connection=connection, metrics=MetricsOptions(interval_s=0.5), on_event=self.exporter
        )
        self._ends = threading.Event()
        self._putting = threading.Thread(target=self._put)
        self._started = 0
        self.made: list[Pod] = []
        self.pods: list[Pod] = []
        """Those that the deployment wants."""

    def begin(self) -> None:
        self._putting.start()
        self._closes.callback(self._putting.join)
        self._closes.callback(self._ends.set)
        for _ in range(3):
            self.start()
        until(lambda: self.prometheus.value("count(up == 1)") == 4 and self.settled > 0)

    def _put(self) -> None:
        with self._producer as producer:
            number = 0
            while not self._ends.wait(0.05):
                producer.put_nowait(OutRecord(b"x", f"k{number}"))
                number += 1

    def start(self) -> Pod:
        """One more pod."""
        self._started += 1
        pod = Pod(self.service.endpoint_url, self.folder, self._started)
        self.made.append(self._closes.enter_context(closing(pod)))
        self.pods.append(pod)
        self._scrape()
        return pod

    def forget(self, pod: Pod) -> None:
        """Kubernetes has taken it away; Prometheus looks at its targets each five seconds."""
        self.pods.remove(pod)
        self._scrape()
        until(lambda: self.prometheus.scraped() == self._ports())

    def _ports(self) -> set[int]:
        return {*(pod.port for pod in self.pods), self.exporter.port}

    def _scrape(self) -> None:
        self.prometheus.scrape(self._ports())

    @contextmanager
    def fault(self, rings: set[str], *, may: frozenset[str] = NOTHING) -> Iterator[None]:
        """The body begins a fault; leaving it waits until these alarms ring, and sees that no others do but ``may``."""
        begun_s = time.time()
        yield
        until(lambda: self.prometheus.firing() >= rings, lambda: f"{self.prometheus.firing()} ring, and not {rings}")
        assert self.prometheus.fired_since(begun_s) - rings <= may

    def quiet(self) -> None:
        """Nothing rings any more, all is read, and it stays so for longer than the rules look back."""
        until(lambda: not self.prometheus.firing(), lambda: f"{self.prometheus.firing()} ring still")
        begun_s, settled = time.time(), self.settled
        until(lambda: self.settled > settled and time.time() - begun_s > 1.5 * TIMES.rate)
        assert self.prometheus.fired_since(begun_s) == set()

    @property
    def settled(self) -> float:
        return self.prometheus.value("sum(shardway_consumer_settled_total)")


def test_each_fault_is_named_by_its_alarm_and_none_rings_without_one(tmp_path: Path) -> None:
    with ExitStack() as ends:
        deployment = Deployment(tmp_path, ends)
        deployment.begin()
        deployment.quiet()
        rolling_deploy(deployment)
        handlers(deployment)
        signals(deployment)
        the_service(deployment)
        with deployment.fault({"ShardwayNoNumbers", "ShardwayProcessGone"}):
            for pod in deployment.pods:
                pod.process.kill()
        assert "secret" not in "".join(pod.log.read_text(encoding="utf-8") for pod in deployment.made)


def rolling_deploy(deployment: Deployment) -> None:
    """Each pod is replaced; nothing rings."""
    begun_s = time.time()
    for pod in list(deployment.pods):
        new = deployment.start()
        until(lambda new=new: new.probe("ready") == 200)  # type: ignore[misc]  # mypy knows no such default
        deployment.forget(pod)
        pod.process.send_signal(signal.SIGTERM)
        assert pod.process.wait() == 0
        assert [one["signal"] for one in pod.events() if one["event"] == "StopBegun"] == ["SIGTERM"]
    assert deployment.prometheus.fired_since(begun_s) == set()
    deployment.quiet()


def handlers(deployment: Deployment) -> None:
    """One hangs, one blocks its loop, then all of them fail."""
    pod = deployment.pods[0]
    for how in ("hangs", "blocks"):
        with deployment.fault({"ShardwayRecordsHeldUp"}):
            pod.tell(how)
        assert pod.probe("live") == 200, "the leases are renewed, and the other shards are read"
        pod.tell("works")
        deployment.quiet()
    with deployment.fault({"ShardwayHandlersFail", "ShardwayRecordsHeldUp", "ShardwayNothingSettled"}):
        for pod in deployment.pods:
            pod.tell("fails")
    for pod in deployment.pods:
        pod.tell("works")
    deployment.quiet()


def signals(deployment: Deployment) -> None:
    """A pod is killed, and one is stopped for a while: the others take its shards."""
    killed = deployment.pods[0]
    with deployment.fault({"ShardwayProcessGone"}):
        killed.process.kill()
    deployment.forget(killed)
    deployment.start()
    deployment.quiet()
    stopped = deployment.pods[0]
    with deployment.fault({"ShardwayProcessGone"}):
        stopped.process.send_signal(signal.SIGSTOP)
    stopped.process.send_signal(signal.SIGCONT)
    deployment.quiet()


def the_service(deployment: Deployment) -> None:
    """Reads fail; then it refuses what is read and what is written."""
    faults = deployment.service.faults
    failing = faults.add(Fault(how="server_error", operation="GetRecords"))
    with deployment.fault({"ShardwayReadsFail", "ShardwayNothingSettled"}):
        until(lambda: {pod.probe("ready") for pod in deployment.pods} == {503})
    assert {pod.probe("live") for pod in deployment.pods} == {200}, "a restart does not help"
    failing.clear()
    deployment.quiet()
    may = frozenset({"ShardwayNothingSettled"})
    with deployment.fault({"ShardwayReadsRefused", "ShardwayPutsRefused"}, may=may):
        faults.add(Fault(how="throttle", operation="GetRecords"))
        faults.add(Fault(how="partial", operation="PutRecords"))  # each record is refused, as shards do that are full
    faults.clear()
    deployment.quiet()
