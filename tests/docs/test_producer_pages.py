"""The producer's pages say what the code does: the guide's code runs, the tables are those of the code."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import botocore.session
import pytest

from scripts import reference
from shardway import OutRecord, Producer, ProducerOptions, PutError, SyncProducer, errors
from shardway.core.aggregation.aggregate import DEFAULT_LIMITS
from shardway.core.aggregation.reader import open_aggregate
from shardway.core.aggregation.writer import Aggregator
from shardway.core.histogram import RELATIVE_ERROR_MAX
from shardway.runtime.producer.handles import PutHandle, Puts, SyncPutHandle, SyncPuts
from shardway.testing import Fault, LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "reference" / "producer.md").read_text(encoding="utf-8")
GUIDE = (DOCS / "guides" / "producer.md").read_text(encoding="utf-8")


@pytest.fixture
def local() -> Iterator[LocalKinesis]:
    """A local Kinesis that every client of this process finds, and the environment as it was afterwards."""
    with LocalKinesis(streams={"orders": 4}) as local, mock.patch.dict(os.environ, local.environment()):
        yield local


def sections() -> dict[str, list[str]]:
    """The code of the guide, by heading."""
    parts = re.split(r"^## (.*)\n", GUIDE, flags=re.MULTILINE)[1:]
    return {
        head: re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        for head, text in zip(parts[::2], parts[1::2], strict=True)
    }


def run(block: str) -> dict[str, Any]:
    """Run a block as a program of its own; its names afterwards."""
    names: dict[str, Any] = {"__name__": "guide"}
    exec(compile(block, "block", "exec"), names)
    return names


def client(local: LocalKinesis) -> Any:
    return botocore.session.get_session().create_client(
        "kinesis", endpoint_url=local.endpoint_url, region_name=local.region
    )


def user_records(kinesis: Any) -> list[bytes]:
    """The data of all user records of the stream."""
    found: list[bytes] = []
    for shard in kinesis.list_shards(StreamName="orders")["Shards"]:
        iterator = kinesis.get_shard_iterator(
            StreamName="orders", ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while iterator:
            page = kinesis.get_records(ShardIterator=iterator)
            for record in page["Records"]:
                aggregate = open_aggregate(record["Data"])
                found += [record["Data"]] if aggregate is None else [user.data for user in aggregate]
            iterator = page["NextShardIterator"] if page["MillisBehindLatest"] else None
    return found


# --- the guide --------------------------------------------------------------------------------------


def test_the_guide_writes_what_it_says_and_no_record_twice(
    local: LocalKinesis, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = {}
    for head, blocks in sections().items():
        seen[head] = [run(block) for block in blocks if head != "In tests"]
    printed = capsys.readouterr().out

    assert len(re.findall(r"^shardId-00000000000\d \d{50,}$", printed, re.MULTILINE)) == 2
    assert printed.count("in 4 shards") == 2
    assert "not known to be written" not in printed
    counts = re.search(r"^10000 orders in (\d+) Kinesis records$", printed, re.MULTILINE)
    assert counts is not None
    assert int(counts[1]) < 100
    assert "1 put, 0 refused, p99 0." in printed

    assert seen["When it is more than the stream takes"][0]["turned_away"] == 0
    assert seen["When something fails"][0]["again"] == []
    assert seen["When something fails"][1]["kept"] == []
    assert seen["Watching it"][1]["gauges"].keys() == {"lost", "records_per_s", "pending"}

    written = user_records(client(local))
    assert len(written) == 1 + 1 + 10_000 + 1000 + 200 + 10_000 + 3 + 1000 + 1000 + 1 + 1 + 1


def test_the_block_for_tests_needs_nothing_else() -> None:
    with mock.patch.dict(os.environ):
        (block,) = sections()["In tests"]
        run(block)


def test_the_commands_of_the_guide_run(local: LocalKinesis, tmp_path: Path) -> None:
    lines = [json.dumps({"customer": f"customer-{number % 7}", "order": number}) for number in range(100)]
    (tmp_path / "orders.jsonl").write_text("\n".join(lines))
    commands = re.findall(r"^\$ shardway (.*)$", GUIDE.split("## From the command line")[1], re.MULTILINE)
    for command in commands:
        arguments = [sys.executable, "-c", "import shardway.cli; raise SystemExit(shardway.cli.main())"]
        done = subprocess.run([*arguments, *shlex.split(command)], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "records written" in done.stdout
    assert len(commands) == 2
    assert len(user_records(client(local))) == 100 + 2000


def test_a_full_buffer_turns_records_away(local: LocalKinesis) -> None:
    local.faults.add(Fault(how="delay", operation="PutRecords", delay_s=0.2, count=1))
    (block,) = sections()["When it is more than the stream takes"]
    small = block.replace("buffer_bytes_max=32 * 1024 * 1024", "buffer_bytes_max=10_000, record_bytes_max=9_000")
    assert small != block
    turned_away = run(small)["turned_away"]
    assert turned_away > 0
    assert len(user_records(client(local))) == 1000 - turned_away


def test_what_the_service_refuses_is_kept_for_another_time(local: LocalKinesis) -> None:
    local.faults.add(Fault(how="access_denied", operation="PutRecords"))
    names = run(sections()["When something fails"][0])
    assert names["again"] == names["orders"]
    assert names["perhaps_written"] == 0
    local.faults.clear()
    assert user_records(client(local)) == []


def test_what_a_deadline_leaves_unwritten_is_kept(local: LocalKinesis) -> None:
    local.faults.add(Fault(how="delay", operation="PutRecords", delay_s=1, count=1))
    block = sections()["When something fails"][1]
    names = run(block.replace("deadline_s=5", "deadline_s=0.1"))
    assert names["kept"] == [OutRecord(b"the last click", "visitor-3")]


def test_the_numbers_of_the_guide_are_those_of_the_code() -> None:
    aggregator, number = Aggregator(), 0
    while aggregator.add(f"customer-{number % 100}", bytes(100)):
        number += 1
    assert f"holds {number} of" in GUIDE.replace("\n", " ")
    assert f"holds at most {DEFAULT_LIMITS.records_max:,}" in GUIDE
    assert RELATIVE_ERROR_MAX < 0.011
    assert "within 1.1 %" in PAGE


def test_the_defaults_beside_the_kpls_are_those_of_the_code() -> None:
    shown = dict(re.findall(r"^\| `(\w+)` \| [^|]* \| ([^|]*) \|", reference.options_table(), re.MULTILINE))
    rows = re.findall(r"^\|[^|]*\| (.*) \|$", GUIDE.split("## Coming from the KPL")[1], re.MULTILINE)
    compared = [pair for row in rows for pair in re.findall(r"`([a-z_]+)` \(([^)]+)\)", row)]
    assert len(compared) == 10
    assert {name: default for name, default in compared if shown[name] != default} == {}


# --- the reference ----------------------------------------------------------------------------------


def test_the_tables_are_those_of_the_code() -> None:
    assert reference.renewed(PAGE) == PAGE, "run python -m scripts.reference docs/reference/producer.md"
    assert set(re.findall(r"<!-- table: (.*) -->", PAGE)) == set(reference.TABLES)


def test_every_field_that_is_shown_says_what_it_means() -> None:
    for table in reference.TABLES.values():
        assert [line for line in table().splitlines() if "|  |" in line] == []
    rows = [line for line in reference.options_table().splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(ProducerOptions.__struct_fields__)


def shown_signature(method: Any) -> str:
    """``put(record, *, record_ttl_s=None)``."""
    parameters = [
        parameter.replace(annotation=parameter.empty)
        for name, parameter in inspect.signature(method).parameters.items()
        if name != "self"
    ]
    return f"{method.__name__}{inspect.Signature(parameters)}"


def test_the_methods_are_those_of_the_code() -> None:
    section = PAGE.split("## Methods")[1].split("\n## ")[0]
    named = re.findall(r"^\| `(\w+\(.*?\))` \|", section, re.MULTILINE)
    assert named == [shown_signature(getattr(Producer, text.partition("(")[0])) for text in named]
    assert named == [
        shown_signature(getattr(SyncProducer, text.partition("(")[0])).replace(", timeout_s=None", "") for text in named
    ]
    assert shown_signature(SyncPutHandle.result) in section
    assert shown_signature(SyncPuts.wait) in section
    for kind in (PutHandle, Puts):
        public = {name for name, member in vars(kind).items() if inspect.isfunction(member) and name[0] != "_"}
        assert {name for name in public if f"{name}()`" not in section} == set()


def test_every_error_of_a_put_is_described() -> None:
    section = PAGE.split("## Errors")[1].split("\n## ")[0]
    kinds = {kind.__name__ for kind in PutError.__subclasses__()}
    named = set(re.findall(r"`(\w+Error)`", section))
    assert kinds | {"InvalidRecordError", "BufferFullError", "ProducerClosedError", "FlushTimeoutError"} <= named
    assert {name for name in named if not hasattr(errors, name)} == {"RuntimeError"} & named


def test_a_producer_makes_the_calls_of_the_policy(local: LocalKinesis) -> None:
    kinesis = client(local)
    orders = [(f"customer-{number}", b"an order") for number in range(500)]
    with SyncProducer("orders", options=ProducerOptions(aggregation=True)) as producer:
        producer.put_many(orders).wait().raise_failure()
        kinesis.split_shard(StreamName="orders", ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**125))
        local.reset_stats()
        producer.put_many(orders).wait().raise_failure()
        called = {f"kinesis:{operation}" for operation in local.stats().operations}
    policy = json.loads((DOCS / "iam" / "producer.json").read_text(encoding="utf-8"))
    assert called == set(policy["Statement"][0]["Action"])
