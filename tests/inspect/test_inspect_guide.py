"""The guide for three in the morning: the cause of each alarm is provoked, each step is run, and shows what it says."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from scripts.monitoring import ALARMS

from shardway.cli import main
from shardway.core.hashkeys import hash_key
from shardway.core.leases.worker_row import WorkerRow
from shardway.core.ledger.letter import Letter
from shardway.inspect.moments import utc
from shardway.model import Position
from shardway.testing import Fault
from tests.docs.doc_pages import DOCS, Block, blocks, section
from tests.inspect.scenes import Scene, shard_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.inspect.scenes import Clients

    Cli = Callable[..., str]
    Play = Callable[[Scene, Cli], None]

pytestmark = pytest.mark.xdist_group("inspected-tables")
PAGE = DOCS / "guides" / "three-in-the-morning.md"
POSITION = "49680422878816985956712234883511993830675535596124897330"
"""Stands on the page for the checkpoint that the doctor names."""
HASH_KEY = "198498047653748767683103801294586186342"
"""Stands there for the hash key at which ``shardway stream heat`` proposes to split."""
LAG = ("app", "lag", "billing", "--stream", "orders", "--history", "looks")


@pytest.fixture
def scene(clients: Clients, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Scene]:
    """The stream ``orders`` and the application ``billing``, to which all commands are led, in a folder alone."""
    for name, value in clients.local.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)

    async def at_once(*_: Any) -> None:
        """Pacing is tested elsewhere."""

    monkeypatch.setattr("shardway.inspect.reads.paces.ShardPaces.wait_turn", at_once)
    found = Scene(clients, "orders", 2, application="billing")
    yield found
    clients.local.faults.clear()
    found.ask("DeleteStream", StreamName="orders")
    for name in clients.dynamodb.list_tables()["TableNames"]:
        clients.dynamodb.delete_table(TableName=name)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs one of our commands, and returns what it writes."""

    def call(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["shardway", *words])
        status = main()
        shown = capsys.readouterr()
        assert status != 2 or "Usage: " not in shown.err, shown.err
        return shown.out + shown.err

    return call


PLAYS: dict[str, Play] = {}


def tell(scene: Scene, *names: str, **unsettled: dict[str, float]) -> None:
    """Write the rows of workers that live, by default of two; ``unsettled`` has more of them, and what they tell."""
    scene.table("-Workers", key="workerId")
    now_ms = int(scene.local.clock.now() * 1000)
    quiet: dict[str, dict[str, float]] = {name: {} for name in names or (() if unsettled else ("w0", "w1"))}
    for name, told in (quiet | unsettled).items():
        row = WorkerRow(worker_id=name, failover_s=10.0, written_ms=now_ms, unsettled=told)
        scene.row(row.attributes(), "-Workers")


def of(heading: str) -> Callable[[Play], Play]:
    """What is wrong where this part of the page is read."""

    def kept(play: Play) -> Play:
        PLAYS[heading] = play
        return play

    return kept


@of("Before anything else")
def behind(scene: Scene, _: Cli) -> None:
    numbers = [scene.put(0), scene.put(1)]
    scene.put(0)
    scene.leases(*numbers)
    scene.advance(600)


@of("ShardwayNoNumbers, ShardwayProcessGone")
def stopped(scene: Scene, _: Cli) -> None:
    scene.kind = "shardway"
    scene.at_tip()
    tell(scene)
    scene.advance(30)


@of("ShardwayLagUsesRetention, ShardwayLagUsesHalfOfRetention, ShardwayLossForeseen")
def falling_behind(scene: Scene, cli: Cli) -> None:
    numbers, tip = [scene.put(0) for _ in range(3)], scene.put(1)
    scene.leases(numbers[0], tip)
    scene.advance(7 * 3600)
    cli(*LAG)
    scene.advance(200)
    scene.lease(0, numbers[1], counter=9)
    scene.lease(1, tip, counter=9)


@of("ShardwayNothingSettled, ShardwayRecordsHeldUp, ShardwayHandlersFail")
def in_the_way(scene: Scene, _: Cli) -> None:
    scene.kind = "shardway"
    numbers = [scene.put(0), scene.put(0, b"the record in the way")]
    scene.leases(numbers[0], scene.put(1))
    scene.advance(450)
    scene.lease(0, numbers[0], counter=50, switches=3, owner="w2")
    tell(scene, "w1", w2={shard_id(0): 450.0})


@of("ShardwayLeasesWithoutOwner")
def without_owner(scene: Scene, _: Cli) -> None:
    scene.kind = "shardway"
    numbers = scene.at_tip()
    scene.lease(0, numbers[0], owner=None)
    tell(scene, "w1")


@of("ShardwayReadsFail")
def key_refused(scene: Scene, _: Cli) -> None:
    scene.at_tip()
    scene.ask("StartStreamEncryption", StreamName="orders", EncryptionType="KMS", KeyId="alias/orders")
    scene.local.faults.add(Fault(how="error", operation="GetRecords", code="KMSDisabledException", message="no"))


@of("ShardwayLeaseTableFails")
def small_table(scene: Scene, _: Cli) -> None:
    scene.table(units=(5, 1))
    for shard in range(4):
        scene.lease(shard)
    scene.metric("AWS/DynamoDB", "WriteThrottleEvents", 40, TableName="billing")


@of("ShardwayReadsRefused")
def reads_refused(scene: Scene, _: Cli) -> None:
    scene.at_tip()
    scene.of_stream("ReadProvisionedThroughputExceeded", 40)


@of("ShardwayPutsRefused")
def hot_shard(scene: Scene, _: Cli) -> None:
    scene.ask("DeleteStream", StreamName="orders")
    scene.__init__(scene.clients, "orders", 3, application="billing")  # type: ignore[misc]
    scene.advance(60)
    first, last = scene.ranges[1]
    keys = [key for key in map("customer-{}".format, range(100)) if first <= hash_key(key) <= last]
    for key in keys[:8]:
        scene.put(1, b"x" * 900_000, key)


@of("ShardwayDeadLetters")
def dead_letter(scene: Scene, _: Cli) -> None:
    number = scene.put(0, b"an order")
    letter = Letter(
        stream="orders",
        shard_id=shard_id(0),
        position=Position(int(number), 0),
        attempts=3,
        error_type="ValueError",
        error_message="no such customer",
        written_at=utc(scene.local.clock.now()),
    )
    Path("letters.jsonl").write_bytes(letter.to_json() + b"\n")


@of("ShardwayRecordsLost")
def trimmed(scene: Scene, _: Cli) -> None:
    scene.at_tip()
    scene.advance(30 * 3600)


@of("Is it over?")
def sound(scene: Scene, _: Cli) -> None:
    scene.kind = "shardway"
    scene.at_tip()
    tell(scene)


def parts() -> dict[str, list[Block]]:
    """The blocks of each part of the page that has any, by its heading."""
    found: dict[str, list[Block]] = {}
    text = PAGE.read_text(encoding="utf-8")
    heads = [(match.start(), match[1]) for match in re.finditer(r"^##+ (.*)$", text, re.MULTILINE)]
    for block in blocks(PAGE):
        place = [head for start, head in heads if text.count("\n", 0, start) + 1 < block.line]
        found.setdefault(place[-1].replace("`", ""), []).append(block)
    return found


PARTS = parts()


def test_each_alarm_has_its_part_and_each_part_its_cause() -> None:
    assert {name for head in PARTS for name in re.findall(r"\bShardway\w+", head)} == {one.name for one in ALARMS}
    assert PARTS.keys() == PLAYS.keys()


@pytest.mark.parametrize("heading", [*PARTS])
def test_each_step_shows_what_the_page_says(heading: str, scene: Scene, cli: Cli) -> None:
    PLAYS[heading](scene, cli)
    shown = told = ""
    for block in PARTS[heading]:
        if block.language == "console":
            shown = "".join(step(real(command, told), scene, cli) for command in block.commands)
            told += shown
        else:
            assert block.language == "text"
            there = "\n".join(map(alike, shown.splitlines()))
            assert [one for one in map(alike, real(block.text, told).splitlines()) if one not in there] == [], shown


def alike(line: str) -> str:
    """A line without what differs from night to night: the numbers, and the widths of columns. Ten minutes are `10 m`,
    and a moment later `10 m 4 s`.
    """
    numberless = " ".join(re.sub(r"\d+(\.\d+)?", "0", line).split())
    return re.sub(r"\b0 ([dhm]) 0 [hms]\b", r"0 \1", numberless)


def real(text: str, told: str) -> str:
    """With what the tools have told in the place of what the page has: as its reader does it."""
    for stands, pattern in ((POSITION, r"the checkpoint is (\d+)"), (HASH_KEY, r"split at hash key (\d+)")):
        if stands in text:
            (found,) = set(re.findall(pattern, told))
            text = text.replace(stands, found)
    return text


def step(command: str, scene: Scene, cli: Cli) -> str:
    """Run one command of the page."""
    command, _, file = command.partition(" > ")
    name, *words = shlex.split(command.replace("\\\n", ""))
    if name == "aws":
        call_aws(words, scene)
        return ""
    assert name == "shardway"
    shown = cli(*words)
    if file:
        Path(file).write_text(shown, encoding="utf-8")
    return shown


def call_aws(words: list[str], scene: Scene) -> None:
    """The call that AWS's command line makes."""
    service, operation, *options = words
    client: Any = boto3.client(service, endpoint_url=scene.local.endpoint_url, region_name=scene.local.region)
    pairs = dict(zip(options[::2], options[1::2], strict=True))
    named = {option.removeprefix("--").title().replace("-", ""): value for option, value in pairs.items()}
    members = client.meta.service_model.operation_model(operation.title().replace("-", "")).input_shape.members
    given = {name: int(value) if members[name].type_name == "integer" else value for name, value in named.items()}
    getattr(client, operation.replace("-", "_"))(**given)
    client.close()
    while (
        scene.ask("DescribeStreamSummary", StreamName="orders")["StreamDescriptionSummary"]["StreamStatus"] != "ACTIVE"
    ):
        scene.advance(1)


def test_the_page_is_found_from_the_others() -> None:
    for page in ("README.md", "guides/inspect.md", "guides/watching.md", "guides/consumer.md"):
        assert "three-in-the-morning.md" in (DOCS / page).read_text(encoding="utf-8")
    assert section(PAGE, "Is it over?")
