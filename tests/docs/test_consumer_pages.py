"""The consumer's pages say what the code does: the guide's programs run, the tables are those of the code."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import botocore.session
import pytest
import yaml

from scripts import reference_consumer
from shardway import (
    Batch,
    ConnectionOptions,
    Consumer,
    Credentials,
    FanOutOptions,
    PollingOptions,
    StartingPosition,
    SyncConsumer,
    errors,
)
from shardway.aws.dynamodb.client import DynamoClient
from shardway.aws.dynamodb.lease_table import DynamoLeaseTable
from shardway.core.assignment.kcl.fleet import Place
from shardway.core.leases import LeaseRow, writes
from shardway.core.leases.worker_row import WorkerRow
from shardway.options import ConsumerOptions, LeaseOptions
from shardway.telemetry.log import LINES
from shardway.testing import LocalKinesis
from tests.docs.doc_pages import DOCS, blocks, rows, section
from tests.options_kit import arguments_of, options_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = (DOCS / "reference" / "consumer.md").read_text(encoding="utf-8")
GUIDE = (DOCS / "guides" / "consumer.md").read_text(encoding="utf-8")
OPERATIONS = DOCS / "guides" / "consumer-operations.md"
PROGRAMS = [block for block in blocks(DOCS / "guides" / "consumer.md", "python") if block.file_name]
OTHERS = [
    block
    for page in (DOCS / "guides" / "consumer.md", OPERATIONS)
    for block in blocks(page, "python")
    if not block.file_name
]


@pytest.fixture
def local() -> Iterator[LocalKinesis]:
    with LocalKinesis(streams={"orders": 2}) as service:
        yield service


def client(local: LocalKinesis) -> Any:
    session = botocore.session.get_session()
    return session.create_client("kinesis", endpoint_url=local.endpoint_url, region_name=local.region)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_programs_of_the_guide_run(local: LocalKinesis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in local.environment().items():
        monkeypatch.setenv(name, value)
    entries = [{"Data": b"order %d" % number, "PartitionKey": f"c-{number}"} for number in range(20)]
    client(local).put_records(StreamName="orders", Records=entries)
    assert [block.file_name for block in PROGRAMS] == ["first_consumer.py", "threads_consumer.py"]
    started = []
    for block in PROGRAMS:
        path = tmp_path / str(block.file_name)
        path.write_text(block.text, encoding="utf-8")
        started.append(
            subprocess.Popen(
                [sys.executable, str(path)], env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
    try:
        for process in started:
            assert process.stdout is not None
            lines = {process.stdout.readline() for _ in entries}
            assert {line.partition(" ")[2].strip() for line in lines} == {f"order {number}" for number in range(20)}
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            _, told = process.communicate()
            assert process.returncode == 0, told
    finally:
        for process in started:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("block", OTHERS, ids=lambda block: block.name)
def test_the_other_blocks_run(block: Any, local: LocalKinesis, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in local.environment().items():
        monkeypatch.setenv(name, value)
    names: dict[str, Any] = {"__name__": __name__}  # a dataclass looks for its module
    exec(compile(block.text, "block", "exec"), names)
    if "orders" in names:
        assert isinstance(names["orders"](), Consumer)


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_what_the_other_blocks_define_reads_records(local: LocalKinesis, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in local.environment().items():
        monkeypatch.setenv(name, value)
    mains = [block for block in OTHERS if "async def main(" in block.text]
    assert len(mains) == 3
    for block in mains:
        reached = asyncio.Event()

        async def handle(_: object, reached: asyncio.Event = reached) -> None:
            reached.set()

        names: dict[str, Any] = {"__name__": __name__, "print": lambda *_, reached=reached: reached.set()}
        exec(compile(block.text, "block", "exec"), names)
        main = names["main"]
        running = asyncio.create_task(main(handle) if inspect.signature(main).parameters else main())
        while not reached.is_set() and not running.done():
            entries = [{"Data": b"%d,17" % time.monotonic_ns(), "PartitionKey": "c-1"}] * 50
            client(local).put_records(StreamName="orders", Records=entries)
            await asyncio.sleep(0.2)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert reached.is_set(), block.name


def test_the_lines_that_the_guide_looks_for_are_those_of_the_log() -> None:
    told = " ".join(line.text for line in LINES.values())
    rows = re.findall(r"^\| `([^`]+)` \|", GUIDE.split("## Three in the morning")[1], re.MULTILINE)
    quoted = [row for row in rows if " " in row]
    assert len(quoted) == 9
    for row in quoted:
        for part in re.split(r"…|: ", row):
            assert part.strip() in told or part.strip() == "the lease was lost", row


def test_the_readme_shows_the_first_program_of_the_guide() -> None:
    (shown,) = [block for block in blocks(DOCS.parent / "README.md", "python") if "async for batch" in block.text]
    assert ast.dump(ast.parse(shown.text)) == ast.dump(ast.parse(PROGRAMS[0].text.replace(", flush=True", "")))


def test_what_an_operator_is_to_look_for_is_what_is_said() -> None:
    told = " ".join(line.text for line in LINES.values())
    said = "".join(path.read_text(encoding="utf-8") for path in (DOCS.parent / "src" / "shardway").rglob("*.py"))
    quoted = [quote for row in rows(section(OPERATIONS, "What it says")) for quote in re.findall(r"`([^`]+)`", row[1])]
    sentences = [quote for quote in quoted if " " in quote and not quote.startswith("is read here from now on")]
    assert len(sentences) >= 7
    assert [quote for quote in sentences if quote not in told and quote not in said] == []
    names = [quote for quote in quoted if quote.endswith("Error")]
    assert [name for name in names if not hasattr(errors, name)] == []


def test_the_grace_of_the_platform_is_longer_than_a_close() -> None:
    (block,) = blocks(OPERATIONS, "yaml")
    spec = yaml.safe_load(block.text)["spec"]["template"]["spec"]
    assert (
        spec["terminationGracePeriodSeconds"] > options_of().handoff.drain_deadline_s + 3 * 5
    )  # writes, tasks, callbacks


# --- the reference ----------------------------------------------------------------------------------


def test_the_tables_are_those_of_the_code() -> None:
    renewed = reference_consumer.renewed(PAGE)
    assert renewed == PAGE, "run python -m scripts.reference_consumer docs/reference/consumer.md"
    assert set(re.findall(r"<!-- table: (.*) -->", PAGE)) == set(reference_consumer.TABLES)


@pytest.mark.parametrize("name", sorted(set(reference_consumer.TABLES) - {"events"}))
def test_every_row_says_what_it_means(name: str) -> None:
    lines = reference_consumer.TABLES[name]().splitlines()
    assert len(lines) > 3
    assert [line for line in lines if "|  |" in line] == []


def test_every_setting_is_there() -> None:
    for described, name in ((ConsumerOptions, "options"), (LeaseOptions, "leases"), (PollingOptions, "polling")):
        table = reference_consumer.TABLES[name]()
        names = [one for one in described.__struct_fields__ if one[0] != "_"]
        assert [one for one in names if f"`{one}`" not in table] == []


def shown_signature(method: Any) -> str:
    """``nack(*indices, delay_s=0.0)``."""
    parameters = [
        parameter.replace(annotation=parameter.empty)
        for name, parameter in inspect.signature(method).parameters.items()
        if name != "self"
    ]
    return f"{method.__name__}{inspect.Signature(parameters)}"


@pytest.mark.parametrize(
    ("head", "kinds"),
    [("Reading", (Consumer, Batch)), ("Checkpoints in two phases", (Consumer,)), ("Steering", (Consumer,))],
    ids=["reading", "two phases", "steering"],
)
def test_the_methods_are_those_of_the_code(head: str, kinds: tuple[type, ...]) -> None:
    section = PAGE.split(f"## {head}\n")[1].split("\n## ")[0]
    named = re.findall(r"^\| `(\w+\(.*?\))` \|", section, re.MULTILINE)
    for text in named:
        name = text.partition("(")[0]
        (kind,) = [kind for kind in kinds if inspect.isfunction(getattr(kind, name, None))]
        assert shown_signature(getattr(kind, name)) == text


def test_both_faces_have_the_same_methods_with_the_same_arguments() -> None:
    public = {name for name, member in vars(Consumer).items() if inspect.isfunction(member) and name[0] != "_"}
    assert {name for name in public if not hasattr(SyncConsumer, name)} == set()
    for name in public:
        ours = shown_signature(getattr(Consumer, name)).replace("handlers_max=None", "handlers_max=32")
        assert shown_signature(getattr(SyncConsumer, name)) == ours
    assert inspect.signature(SyncConsumer).parameters.keys() == inspect.signature(Consumer).parameters.keys()
    arguments = {*inspect.signature(Consumer).parameters} - {"rng", *ConsumerOptions.__struct_fields__}
    shown = set(re.findall(r"^\| `(\w+)`", PAGE.split("## Reading")[0], re.MULTILINE))
    assert {name for name in arguments if not name.startswith("on_shards")} == {
        name for name in shown if not name.startswith("on_shards") and name not in ConsumerOptions.__struct_fields__
    }


def test_every_error_that_is_named_is_one() -> None:
    section = PAGE.split("## Errors")[1].split("\n## ")[0]
    named = set(re.findall(r"`(\w+Error)`", section))
    assert named >= {"ShardReadError", "UnreadableRecordError", "OptionError"}
    assert {name for name in named if not hasattr(errors, name)} == set()


@pytest.mark.parametrize(
    "fan_out",
    [
        pytest.param(None, id="polling"),
        pytest.param(FanOutOptions(), id="fan-out", marks=pytest.mark.slow),
    ],
)
@pytest.mark.timeout(60)
def test_a_consumer_makes_the_calls_of_the_policy(
    local: LocalKinesis, monkeypatch: pytest.MonkeyPatch, fan_out: FanOutOptions | None
) -> None:
    for name, value in local.environment().items():
        monkeypatch.setenv(name, value)
    client(local).put_record(StreamName="orders", Data=b"an order", PartitionKey="c-1")
    local.reset_stats()
    settings = dict[str, Any](starting_position=StartingPosition.TRIM_HORIZON, fan_out=fan_out)
    with SyncConsumer("orders", application="billing", **arguments_of(**settings)) as consumer:
        for batch in consumer:
            batch.ack()
            break
    called = set(local.stats().operations)
    statements = json.loads((DOCS / "iam" / "consumer.json").read_text(encoding="utf-8"))["Statement"]
    allowed = {
        statement["Sid"]: {action.partition(":")[2] for action in _listed(statement["Action"])}
        for statement in statements
    }
    fan_out_calls = allowed["OnlyForFanOut"] | allowed["OnlyToRegisterForFanOut"]
    leases = allowed["KeepTheLeases"] | allowed["ShowTheWorkers"]
    assert called <= allowed["ReadTheStream"] | leases | (fan_out_calls if fan_out else set())
    assert called >= (fan_out_calls - {"DescribeStreamConsumer"} if fan_out else allowed["ReadTheStream"])


def test_each_statement_of_the_policy_is_explained() -> None:
    explained = [sid for row in rows(section(OPERATIONS, "Permissions")) for sid in re.findall(r"`(\w+)`", row[0])]
    statements = json.loads((DOCS / "iam" / "consumer.json").read_text(encoding="utf-8"))["Statement"]
    assert sorted(explained) == sorted(statement["Sid"] for statement in statements)


@pytest.mark.slow
@pytest.mark.timeout(60)
async def test_a_lease_table_makes_the_calls_of_the_policy(
    local: LocalKinesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: set[tuple[str, str]] = set()
    call = DynamoClient.call

    async def noted(self: DynamoClient, operation: str, parameters: Any, **given: Any) -> Any:
        index = f"/index/{parameters['IndexName']}" if "IndexName" in parameters else ""
        called.add((f"dynamodb:{operation}", f"table/{parameters['TableName']}{index}"))
        called.update({("dynamodb:TagResource", f"table/{parameters['TableName']}")} if "Tags" in parameters else ())
        return await call(self, operation, parameters, **given)

    monkeypatch.setattr(DynamoClient, "call", noted)
    wire = ConnectionOptions(
        endpoint_url=local.endpoint_url, region=local.region, credentials=Credentials("local", "local")
    )
    table = DynamoLeaseTable("APPLICATION", wire, LeaseOptions(tags={"team": "billing"}, owner_index=True))
    await DynamoLeaseTable._make(table, "APPLICATION", "leaseKey", index=False)
    await DynamoLeaseTable._make(table, "APPLICATION-WorkerMetricStats", "wid", index=False)
    called.clear()
    await table.ensure()
    await table.create(LeaseRow(key="shardId-000000000000"))
    row = await table.get("shardId-000000000000")
    assert row is not None
    await table.write(writes.take(row, "one"))
    await table.scan()
    await table.write(writes.delete(row))
    await table.owned_keys("one")
    await table.coordination()
    await table.show_metrics(Place.OWN_TABLES, {"wid": "one"})
    await table.withdraw_metrics(Place.OWN_TABLES, "one")
    await table.put_worker(WorkerRow(worker_id="one", failover_s=10.0))
    await table.workers()
    await table.delete_worker("one", counter=99)
    await table.close()
    statements = json.loads((DOCS / "iam" / "consumer.json").read_text(encoding="utf-8"))["Statement"]
    allowed = {
        (action, statement["Resource"].rpartition("ACCOUNT:")[2])
        for statement in statements
        for action in _listed(statement["Action"])
        if action.startswith("dynamodb:")
    }
    makes = {("dynamodb:CreateTable", "table/APPLICATION"), ("dynamodb:TagResource", "table/APPLICATION")}
    assert called | makes == allowed


def _listed(given: str | list[str]) -> list[str]:
    return [given] if isinstance(given, str) else given
