"""``shardway kclpy`` as people run it: a properties file, leases in DynamoDB, SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardway.aws.dynamodb.lease_table import DynamoLeaseTable
from shardway.aws.options import ConnectionOptions, Credentials
from shardway.cli import main
from tests.kclpy.kclpy_kit import DEADLINE_S, PROGRAMS, SHARD_ID, put, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway.core.leases import LeaseRow
    from shardway.local import LocalKinesis
    from tests.kclpy.kclpy_kit import Journal

COMMAND = [sys.executable, "-c", "import sys; from shardway.cli import main; sys.exit(main())", "kclpy"]
PROPERTIES = """\
# as it is used with amazon_kclpy
executableName = {script}
streamName = orders
applicationName = Words
initialPositionInStream = TRIM_HORIZON
processingLanguage = python/3.8
regionName = us-east-1
failoverTimeMillis = 2000
kinesisEndpoint = {endpoint}
dynamoDBEndpoint = {endpoint}
"""


class Commands:
    """Starts the command; what still runs at the end is killed."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.processes.append(process)
        return process


@pytest.fixture
def commands() -> Iterator[Commands]:
    found = Commands()
    yield found
    for process in found.processes:
        process.kill()
        process.communicate()


@pytest.fixture
def properties(local: LocalKinesis, tmp_path: Path) -> Path:
    path = tmp_path / "sample.properties"
    path.write_text(PROPERTIES.format(endpoint=local.endpoint_url, script=PROGRAMS / "script.py"))
    return path


async def end(process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGTERM) -> tuple[int, bytes, str]:
    process.send_signal(how)
    out, errors = await asyncio.to_thread(process.communicate, timeout=DEADLINE_S)
    return process.returncode, out, errors.decode()


async def lease(local: LocalKinesis) -> LeaseRow:
    wire = ConnectionOptions(endpoint_url=local.endpoint_url, region=local.region, credentials=Credentials("a", "b"))
    table = DynamoLeaseTable("Words", wire)
    try:
        row = await table.get(SHARD_ID)
    finally:
        await table.close()
    assert row is not None
    return row


async def test_the_properties_of_a_daemon_and_its_script_are_all_that_is_needed(
    local: LocalKinesis, kinesis: Any, journal: Journal, commands: Commands, properties: Path
) -> None:
    numbers = put(kinesis, "0", "1")
    first = commands.start("--properties", str(properties))
    await until(lambda: len(journal.datas()) == 2 or first.poll() is not None)
    status, out, errors = await end(first)
    assert status == 0, errors
    assert out.startswith(b"this is not a message\n")
    assert "without a meaning here: processingLanguage" in errors
    assert "executableName" not in errors
    assert "reading orders as Words" in errors
    assert "Words: SIGTERM: the consumer stops, and hands its shards over" in errors
    row = await lease(local)
    assert (row.owner, row.checkpoint.text) == (None, numbers[-1])
    assert local.stats().operations["SubscribeToShard"].calls >= 1


@pytest.mark.slow
async def test_the_command_line_names_another_program_and_other_properties(
    local: LocalKinesis, kinesis: Any, journal: Journal, commands: Commands, properties: Path
) -> None:
    put(kinesis, "0")
    polling = ("--set", "retrievalMode=POLLING", "--set", "failovertimemillis=1000")
    process = commands.start("shapes:V3", "--properties", str(properties), *polling)
    await until(lambda: journal.datas() or process.poll() is not None)
    status, _, errors = await end(process, signal.SIGINT)
    assert status == 0, errors
    assert journal.datas() == ["0"]
    assert "SubscribeToShard" not in local.stats().operations
    assert "executableName is not used: the program is named on the command line" in errors
    assert journal.kinds()[-2:] == ["shutdown_requested", "lease_lost"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "say which processor is to run"),
        (["shapes:V1"], "streamName is not given"),
        (["shapes:V1", "--set", "streamName"], "--set takes NAME=VALUE"),
        (["shapes:V1", "--properties", "nowhere.properties"], "nowhere.properties cannot be read: No such file"),
        (["--set", "executableName=nowhere.py"], "executableName is nowhere.py, and there is no such file"),
    ],
)
def test_a_wrong_use_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["shardway", "kclpy", *arguments])
    assert main() == 1
    out, errors = capsys.readouterr()
    assert out == ""
    assert said in errors


@pytest.mark.slow
async def test_a_program_at_fault_is_shown_with_what_it_wrote(
    local: LocalKinesis, journal: Journal, commands: Commands, properties: Path
) -> None:
    process = commands.start("troubles:CannotBegin", "--properties", str(properties))
    out, errors = await asyncio.to_thread(process.communicate, timeout=DEADLINE_S)
    text = errors.decode()
    assert (process.returncode, out) == (1, b"")
    assert "ImportError: no such thing" in text
    assert "has ended with status 1, before it answered anything: what it wrote says why" in text


@pytest.mark.slow
async def test_a_second_signal_ends_it_at_once(
    local: LocalKinesis, kinesis: Any, journal: Journal, commands: Commands, properties: Path
) -> None:
    put(kinesis, "0")
    process = commands.start("troubles:Slow", "--properties", str(properties))
    await until(lambda: journal.lines("holds") or process.poll() is not None)
    (begun,) = journal.lines("initialize")
    async with asyncio.timeout(DEADLINE_S):
        while process.poll() is None:  # two signals at the same moment are one
            process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.1)
    assert process.returncode == 128 + signal.SIGTERM
    assert journal.kinds() == ["initialize", "holds"]
    journal.release()  # it has our standard error too
    _, errors = await asyncio.to_thread(process.communicate, timeout=DEADLINE_S)
    assert b"ended by a second SIGTERM: the shards are free after the failover time" in errors
    await until(lambda: not alive(begun["pid"]))


@pytest.mark.slow
async def test_processors_end_with_a_worker_that_is_killed(
    local: LocalKinesis, kinesis: Any, journal: Journal, commands: Commands, properties: Path
) -> None:
    put(kinesis, "0")
    process = commands.start("shapes:V1", "--properties", str(properties))
    await until(lambda: journal.datas() or process.poll() is not None)
    (begun,) = journal.lines("initialize")
    process.kill()
    process.wait(DEADLINE_S)
    await until(lambda: not alive(begun["pid"]))


def alive(pid: int) -> bool:
    """False also for one that its parent has not waited for yet."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:1]
    except FileNotFoundError:
        return False
