"""What all tests share: no AWS settings of this machine, and one Spark session on loopback."""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_NOWHERE = "/nonexistent/shardway-tests"
_AWS_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": _NOWHERE,
    "AWS_SHARED_CREDENTIALS_FILE": _NOWHERE,
}


# How fast a machine is at a given moment is no property of the code. A failure says how to run its example again.
# Where CI is set, Hypothesis takes the same examples each time: this profile is made from that one there.
settings.register_profile("shardway", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("shardway")


def pytest_configure() -> None:
    """Forget every AWS setting of this machine and of its user, in this process and in those it starts."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            del os.environ[name]
    os.environ.update(_AWS_ENVIRONMENT)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable  # also without activating it
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell makes its background jobs ignore it, and their children inherit that: a test that sends it would wait
        # until something else ends what it interrupts.
        signal.signal(signal.SIGINT, signal.default_int_handler)


_PIPELINES = Path(__file__).with_name("pipeline")
ID_MAX = 100
"""Characters of a parameter in a test's name."""
SPARK_GROUPS = ("spark", "spark-pipeline")


class _Unheard(logging.Handler):
    """Errors of tasks and futures that nothing has looked at, as asyncio finds out when they are collected."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "was never retrieved" in (line := record.getMessage()):
            self.lines.append(line)


_unheard = _Unheard()
logging.getLogger("asyncio").addHandler(_unheard)


@pytest.fixture(autouse=True)
def _no_task_dies_unheard() -> Iterator[None]:
    """In no test: of the test's own tasks, and of those before it."""
    yield
    lines, _unheard.lines = _unheard.lines, []
    assert lines == []


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Name long data by its length. Each process of a run must find the same names, or nothing runs at all: compressed
    data may hold the time at which a process made it.
    """
    if isinstance(val, str | bytes) and len(val) > ID_MAX:
        return f"{argname} of {len(val)}"
    return None


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist, which reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs Spark, and keep it in two processes of about the same length: further JVMs cost more than they
    save.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark"):
            of_pipelines = _PIPELINES in item.path.parents
            item.add_marker(pytest.mark.xdist_group(SPARK_GROUPS[of_pipelines]))


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One Spark session for the whole run: two threads, loopback, no web page, few shuffle partitions.

    Tests name their own tables, queries and checkpoint directories, and leave the session as they found it.
    """
    from pyspark.sql import SparkSession

    if request.config.getoption("loadgroup", False):  # pytest-xdist has put the group behind the name by now
        users = [item.nodeid for item in request.session.items if item.get_closest_marker("spark")]
        spread = [name for name in users if name.rpartition("@")[2] not in SPARK_GROUPS]
        assert spread == [], "tests that use Spark are spread over processes"
    session = (
        SparkSession.builder.master("local[2]")
        .appName("shardway-tests")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.default.parallelism", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.driver.memory", "1g")
        # Tests run each plan once: the JVM's second compiler and its collector's threads cost more than they save.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _session_left_as_it_was(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that leaves something behind in the shared session fails itself, not one of those that run after it."""
    if "spark" not in request.fixturenames:
        yield
        return
    session = request.getfixturevalue("spark")
    settings = session.conf.getAll
    yield
    queries = session.streams.active
    for query in queries:
        query.stop()
    cached = [str(rdd) for rdd in session.sparkContext._jsc.getPersistentRDDs().values()]
    session.catalog.clearCache()
    changed = dict(session.conf.getAll.items() ^ settings.items())
    for name in changed:
        session.conf.set(name, settings[name]) if name in settings else session.conf.unset(name)
    assert (queries, cached, changed) == ([], [], {}), "still running, still cached, set to other values"
