"""A job file as a program: stopped by signals, out of room, under spark-submit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow.dataset as ds
import pyspark
import pytest

from shardway.local import LocalKinesis
from shardway.local.faults import Fault
from shardway.pipeline import job
from tests.pipeline.job.job_running import HEAD, JSON, ONCE, order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SPARK = """
[spark]
"spark.master" = "local[2]"
"spark.ui.enabled" = false
"spark.driver.host" = "127.0.0.1"
"spark.driver.bindAddress" = "127.0.0.1"
"spark.sql.shuffle.partitions" = 2
"spark.driver.memory" = "1g"
"""
SINK = '[[sinks]]\nformat = "parquet"\npath = "{folder}/lake/orders"\n'
PROBE = '[[sinks]]\nfunction = "probe_orders:write"\n'
SLOW = "import time\n\ndef write(batch, batch_id):\n    time.sleep(3)\n"
ROOT = Path(__file__).resolve().parents[3]
SHARDWAY = [sys.executable, "-c", "import sys; from shardway.cli import main; sys.exit(main())", "run"]
WAIT_S = 500.0


class Scene:
    """A local stream with records that arrive all the time, and jobs in processes of their own."""

    def __init__(self, local: LocalKinesis, folder: Path) -> None:
        self.local = local
        self.folder = folder
        self.processes: list[subprocess.Popen[str]] = []
        self.count = 0
        self._client = boto3.client("kinesis", endpoint_url=local.endpoint_url, region_name=local.region)

    def close(self) -> None:
        self._client.close()
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def put(self, count: int) -> None:
        for _ in range(count):
            self._client.put_record(StreamName="orders", Data=order(self.count), PartitionKey=f"key-{self.count % 7}")
            self.count += 1

    def write(self, text: str) -> Path:
        values = {"folder": self.folder, "region": self.local.region, "endpoint": self.local.endpoint_url}
        for name, value in values.items():
            text = text.replace("{" + name + "}", str(value))
        path = self.folder / "job.toml"
        path.write_text(text, encoding="utf-8")
        return path

    def start(self, text: str, *before: str, command: list[str] = SHARDWAY) -> subprocess.Popen[str]:
        return self.begin(*before, *command, str(self.write(text)), "-o", "jsonl")

    def begin(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            cwd=self.folder, env={**os.environ, **self.local.environment(), **environment},
        )  # fmt: skip
        self.processes.append(process)
        return process

    def seen(self, probe: str, text: str, command: list[str] = SHARDWAY) -> tuple[str, list[dict[str, Any]]]:
        """What a job whose sink is a module's function ``write`` left in the file ``seen``; and its events."""
        (self.folder / "probe_orders.py").write_text(probe)
        process = self.start(text, command=command)
        events, errors = rest(process)
        assert process.returncode == 0, errors
        return (self.folder / "seen").read_text(), events

    def put_data(self, data: bytes) -> None:
        self._client.put_record(StreamName="orders", Data=data, PartitionKey="anna")

    def put_orders(self, count: int) -> None:
        for number in range(count):
            whole = {"order_id": str(number), "customer": "anna", "counter": number, "item": f"item {number % 2}"}
            data = json.dumps({**whole, "quantity": 2, "amount": "1.50"})
            self.put_data(data.encode())

    def rows(self) -> int:
        folder = self.folder / "lake" / "orders"
        return ds.dataset(folder).count_rows() if folder.exists() else 0


def until(process: subprocess.Popen[str], reached: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """The events up to one."""
    assert process.stdout is not None
    events: list[dict[str, Any]] = []
    for line in process.stdout:
        events.append(json.loads(line))
        if reached(events[-1]):
            return events
    raise AssertionError(f"it ended before that: {events}, {process.stderr and process.stderr.read()}")


def rest(process: subprocess.Popen[str]) -> tuple[list[dict[str, Any]], str]:
    """What comes up to the end, and all errors."""
    out, errors = process.communicate(timeout=WAIT_S)
    return [json.loads(line) for line in out.splitlines()], errors


def errors_of(errors: str) -> list[str]:
    """Our lines: Spark's launcher says a few of its own before it can be told not to."""
    return [line for line in errors.splitlines() if line.startswith("shardway: ")]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with LocalKinesis(streams={"orders": 2}) as local:
        made = Scene(local, tmp_path)
        yield made
        made.close()


def test_signals_end_it_after_the_batch_or_at_once(scene: Scene) -> None:
    scene.put(20)
    (scene.folder / "slow_orders.py").write_text(SLOW)
    text = HEAD + JSON + SINK + '[[sinks]]\nfunction = "slow_orders:write"\n[trigger]\nevery = "1 second"\n' + SPARK

    process = scene.start(text)
    until(process, lambda event: event["event"] == "batch")
    scene.put(10)
    deadline_s = time.monotonic() + WAIT_S
    while scene.rows() < scene.count and time.monotonic() < deadline_s:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C: to Spark's processes too; the second sink is under way
    events, errors = rest(process)
    assert process.returncode == 0, errors
    assert errors_of(errors) == []
    assert [event["event"] for event in events] == ["stopping", "batch", "summary"]
    assert events[-1]["outcome"] == "stopped by SIGINT"
    assert events[-1]["rows"] == scene.rows() == scene.count

    scene.put(10)
    process = scene.start(text)
    while scene.rows() < scene.count and time.monotonic() < deadline_s:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    until(process, lambda event: event["event"] == "stopping")
    process.send_signal(signal.SIGTERM)
    events, errors = rest(process)
    assert process.returncode == 7, errors
    assert events[-1]["outcome"] == "stopped by SIGTERM, in the middle of a batch"

    process = scene.start(text.replace('every = "1 second"', "available_now = true"))
    events, errors = rest(process)
    assert process.returncode == 0, errors
    assert scene.rows() == scene.count


def test_java_says_one_line_before_the_first_of_the_job(scene: Scene) -> None:
    process = scene.start(HEAD + JSON + SINK + ONCE, command=SHARDWAY)
    events, errors = rest(process)
    assert process.returncode == 0, errors
    assert events[-1]["event"] == "summary"
    # The virtual machine itself says so, for a module that Spark asks for; nothing switches it off.
    assert [line for line in errors.splitlines() if "Using incubator modules" not in line] == []


def test_a_stop_during_an_outage_does_not_wait_for_its_end(scene: Scene) -> None:
    scene.put(5)
    process = scene.start(HEAD + JSON + SINK + SPARK)
    until(process, lambda event: event["event"] == "batch")
    outage = scene.local.faults.add(Fault(how="reset", tag="driver"))
    while not outage.hits:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    events, errors = rest(process)
    assert process.returncode == 0, errors  # at the outage's end it would be the stream's exit code
    assert events[-1]["outcome"] == "stopped by SIGTERM"


def can_mount() -> bool:
    unshare = shutil.which("unshare")
    if unshare is None:
        return False
    probe = [unshare, "-rm", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def test_a_folder_without_room(scene: Scene) -> None:
    if not can_mount():
        pytest.skip("no small file system can be made here")
    (scene.folder / "lake").mkdir()
    scene.put(50)
    text = HEAD + JSON + SINK + ONCE + SPARK
    room = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=4k none lake && exec "$@"', "sh"]
    process = scene.start(text, *room)
    events, errors = rest(process)
    assert process.returncode == 6, errors
    (told,) = errors_of(errors)
    assert "sinks[0] parquet" in told
    assert "No space left on device" in told
    assert events[-1]["exit_code"] == 6

    process = scene.start(text)
    _, errors = rest(process)
    assert process.returncode == 0, errors
    assert scene.rows() == scene.count


def test_a_schema_that_does_not_fit_leaves_the_log_alone(scene: Scene) -> None:
    scene.put(100)
    process = scene.start(HEAD + JSON.replace("amount INT", "price INT") + SINK + ONCE + SPARK)
    events, errors = rest(process)
    assert process.returncode == 0, errors
    assert (events[-1]["rows"], events[-1]["dead_letters"]) == (100, 100)
    reasons = ds.dataset(scene.folder / "dead").to_table(columns=["reason"])["reason"].to_pylist()
    assert reasons == ["price is missing"] * 100
    assert errors_of(errors) == []
    assert len(errors.splitlines()) < 10, errors  # what Spark's launcher says
    assert len(events) < 10
    assert "price" not in errors


def test_the_same_file_under_spark_submit(scene: Scene) -> None:
    scene.put(20)
    submitted = [
        str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]",
        "--conf", "spark.sql.shuffle.partitions=3", str(Path(job.__file__).with_name("submit.py")),
    ]  # fmt: skip
    probe = "import json, pathlib\n\ndef write(batch, batch_id):\n    conf = batch.sparkSession.conf\n"
    probe += "    found = conf.get('spark.sql.shuffle.partitions')\n"
    probe += "    pathlib.Path(__file__).with_name('seen').write_text(found)\n"
    seen, events = scene.seen(probe, HEAD + JSON + SINK + PROBE + ONCE + SPARK, submitted)
    assert events[-1]["rows"] == scene.rows() == scene.count
    assert seen == "3"


def test_what_a_job_sets_where_nothing_is_said(scene: Scene) -> None:
    """In this machine's threads, with a checkpoint directory on its disk."""
    scene.put(20)
    probe = "import pathlib\n\ndef write(batch, batch_id):\n    conf = batch.sparkSession.conf\n"
    probe += "    names = ('spark.sql.shuffle.partitions', 'spark.sql.streaming.checkpointFileManagerClass')\n"
    probe += "    found = [conf.get(name).rpartition('.')[2] for name in names]\n"
    probe += "    pathlib.Path(__file__).with_name('seen').write_text(' '.join(found))\n"
    spark = SPARK.replace('"spark.sql.shuffle.partitions" = 2\n', "").replace("local[2]", "local[3]")
    unique = '[deduplicate]\nkeys = ["value.order_id"]\nwindow = "1 hour"\n'
    seen, _ = scene.seen(probe, HEAD + JSON + unique + PROBE + ONCE + spark)
    assert seen == "3 FileSystemBasedCheckpointFileManager"
    states = [path for path in (scene.folder / "checkpoint" / "state" / "0").iterdir() if path.name.isdigit()]
    assert len(states) == 3


def test_the_tasks_take_pyspark_from_the_packages_and_not_from_a_zip_file(scene: Scene) -> None:
    scene.put(20)
    probe = "import pathlib\nfrom pyspark.sql.functions import udf\n\n"
    probe += "@udf\ndef place(key):\n    import pyspark, sys\n    return f'{pyspark.__file__} {sys.executable}'\n\n"
    probe += "def write(batch, batch_id):\n    places = batch.select(place('partition_key')).distinct().collect()\n"
    probe += "    pathlib.Path(__file__).with_name('seen').write_text(' '.join(row[0] for row in places))\n"
    seen, _ = scene.seen(probe, HEAD + JSON + PROBE + ONCE + SPARK)
    assert seen.split() == [pyspark.__file__, sys.executable]


SUBMIT_ARGS = (
    "--master local[2] --driver-memory 1g --conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1"
    " --conf spark.driver.bindAddress=127.0.0.1 --conf spark.sql.shuffle.partitions=2 pyspark-shell"
)


def test_the_example_with_functions_and_three_sinks(scene: Scene) -> None:
    scene.put_orders(20)
    process = scene.begin(
        *SHARDWAY, str(ROOT / "examples" / "jobs" / "totals.toml"),
        STREAM="orders", LAKE=str(scene.folder), PYSPARK_SUBMIT_ARGS=SUBMIT_ARGS,
    )  # fmt: skip
    out, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, errors
    totals = [json.loads(file.read_text()) for file in (scene.folder / "totals").glob("*.json")]
    assert sum(float(total["total"]) for total in totals if total["total"] != "None") == 20 * 2 * 1.5
    lines = [line for file in scene.folder.glob("by-item/item=*/*.json") for line in file.read_text().splitlines()]
    assert len(lines) == 20
    assert "|item 0|    10|30.00|" in out
    assert "job totals: done" in out


def test_the_same_pipeline_in_plain_pyspark(scene: Scene) -> None:
    scene.put_orders(20)
    process = scene.begin(
        sys.executable, str(ROOT / "examples" / "orders_to_parquet.py"), "--stream=orders",
        f"--region={scene.local.region}", f"--endpoint-url={scene.local.endpoint_url}",
        f"--out={scene.folder / 'lake'}", f"--checkpoint={scene.folder / 'checkpoint'}",
        PYSPARK_SUBMIT_ARGS=SUBMIT_ARGS,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().startswith("batch 0: ")
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, errors
    assert scene.rows() == 20


PACKAGES = "4.1.1"
"""The newest version in which Spark's own packages for Avro and Protobuf are published."""


def avro(number: int) -> bytes:
    """A record {order_id: string, amount: long}: lengths and longs are zigzag varints, one byte here."""
    order_id = f"order-{number}".encode()
    return bytes([2 * len(order_id)]) + order_id + bytes([2 * number])


def protobuf(number: int) -> bytes:
    """A message with field 1, text, and field 2, a varint."""
    order_id = f"order-{number}".encode()
    return b"\x0a" + bytes([len(order_id)]) + order_id + b"\x10" + bytes([number])


def descriptor_set() -> bytes:
    """What protoc makes of ``message Order { string order_id = 1; int64 amount = 2; }`` in package shop (proto3)."""

    def text(field: int, value: bytes) -> bytes:
        return bytes([field << 3 | 2, len(value)]) + value

    def declared(name: bytes, number: int, kind: int) -> bytes:
        return text(1, name) + bytes([3 << 3, number, 4 << 3, 1, 5 << 3, kind])

    message = text(1, b"Order") + text(2, declared(b"order_id", 1, 9)) + text(2, declared(b"amount", 2, 3))
    return text(1, text(1, b"order.proto") + text(2, b"shop") + text(4, message) + text(12, b"proto3"))


@pytest.mark.parametrize(
    ("name", "encode", "decode"),
    [
        (
            "avro",
            avro,
            """schema = '{"type": "record", "name": "o", "fields": [{"name": "order_id", "type": "string"},"""
            """ {"name": "amount", "type": "long"}]}'""",
        ),
        ("protobuf", protobuf, 'schema_file = "order.desc"\nmessage = "shop.Order"'),
    ],
)
def test_formats_of_sparks_own_packages(scene: Scene, name: str, encode: Callable[[int], bytes], decode: str) -> None:
    (scene.folder / "order.desc").write_bytes(descriptor_set())
    for data in (*map(encode, range(1, 11)), b"\xff\xff\xff"):
        scene.put_data(data)
    text = HEAD + f'[decode]\nformat = "{name}"\n{decode}\n[dead_letters]\npath = "{{folder}}/dead"\n' + SINK + ONCE
    text += SPARK + f'"spark.jars.packages" = "org.apache.spark:spark-{name}_2.13:{PACKAGES}"\n'
    process = scene.start(text)
    events, errors = rest(process)
    if process.returncode == 3 and "unresolved dependency" in errors:
        pytest.skip("Spark's packages cannot be had here")
    assert process.returncode == 0, errors
    assert (events[-1]["rows"], events[-1]["dead_letters"]) == (11, 1)
    rows = ds.dataset(scene.folder / "lake" / "orders").to_table(columns=["order_id", "amount"]).to_pylist()
    assert sorted((row["amount"], row["order_id"]) for row in rows) == [(n, f"order-{n}") for n in range(1, 11)]


def test_spark_that_ends_beneath_it_is_one_message(scene: Scene) -> None:
    """As when a service manager signals all of a service's processes."""
    scene.put(5)
    process = scene.start(HEAD + JSON + SINK + SPARK)
    until(process, lambda event: event["event"] == "batch")
    children = subprocess.run(
        ["ps", "-o", "pid=,comm=", "--ppid", str(process.pid)], capture_output=True, text=True, check=True
    ).stdout
    (java,) = [int(line.split()[0]) for line in children.splitlines() if "java" in line]
    os.kill(java, signal.SIGTERM)
    events, errors = rest(process)
    assert process.returncode == 1
    assert len(errors_of(errors)) == 1
    assert "Spark's Java has ended" in errors
    assert "Traceback" not in errors
    assert events[-1]["outcome"] == "failed"


NOWHERE = """<ivysettings><settings defaultResolver="none"/><resolvers><filesystem name="none">
<artifact pattern="{folder}/none/[artifact].[ext]"/></filesystem></resolvers></ivysettings>"""


def test_a_package_that_is_not_found_is_not_taken_for_a_missing_java(scene: Scene) -> None:
    (scene.folder / "ivy.xml").write_text(NOWHERE.replace("{folder}", str(scene.folder)))
    package = "org.example:missing_2.13:1.0"
    settings = f'"spark.jars.packages" = "{package}"\n"spark.jars.ivySettings" = "{scene.folder}/ivy.xml"\n'
    process = scene.start(HEAD + JSON + SINK + SPARK + settings)
    out, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == job.ExitCode.NOT_READY
    (line,) = errors_of(errors)
    assert "needs Java" not in line
    assert f"look at the packages first: {package}. Each must exist under this name and version" in line
    assert "unresolved dependency: org.example#missing_2.13;1.0: not found" in out + errors  # Spark's own
