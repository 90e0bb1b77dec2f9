"""Positions that other consumers keep, in the shapes in which their sources write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardway.errors import OptionError
from shardway.inspect.moments import utc
from shardway.inspect.moves.documents import kcl_items, positions_from
from shardway.inspect.moves.positions import PositionsReport

SHARDS = ["shardId-000000000000", "shardId-000000000001", "shardId-000000000002", "shardId-000000000003"]
NUMBER = "49680422878816985956712234883511993830675535596124897330"


def read(path: Path, form: str, **more: Any) -> PositionsReport:
    return positions_from(path, form, taken_at=utc(0), **more)


def scan(path: Path, *items: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"Items": list(items), "Count": len(items)}))
    return path


@pytest.mark.parametrize(
    ("form", "item"),
    [
        ("kinsumer", {"Shard": {"S": SHARDS[0]}, "SequenceNumber": {"S": NUMBER}, "LastUpdate": {"N": "17"}}),
        ("harlow", {"namespace": {"S": "app-s"}, "shard_id": {"S": SHARDS[0]}, "sequence_number": {"S": NUMBER}}),
        ("vmware-go-kcl", {"ShardID": {"S": SHARDS[0]}, "Checkpoint": {"S": NUMBER}, "AssignedTo": {"S": "w"}}),
        ("redpanda-connect", {"StreamID": {"S": "s"}, "ShardID": {"S": SHARDS[0]}, "SequenceNumber": {"S": NUMBER}}),
        ("spring", {"metadataKey": {"S": f"group:stream:{SHARDS[0]}"}, "metadataValue": {"S": NUMBER}}),
        ("kinesumer", {"pk": {"S": "check_point#a#s"}, "sk": {"S": SHARDS[0]}, "sequence_number": {"S": NUMBER}}),
        ("ruby-kcl", {"shard_id": {"S": SHARDS[0]}, "checkpoint": {"S": NUMBER}}),
    ],
)  # fmt: skip
def test_tables_of_other_libraries(tmp_path: Path, form: str, item: dict[str, Any]) -> None:
    found = read(scan(tmp_path / "scan.json", item, {"other": {"S": "row"}}), form)
    (position,) = found.shards.values()
    assert (list(found.shards), position.at, position.sequence_number) == ([SHARDS[0]], "after", NUMBER)
    assert (position.exact, found.source.kind) == (True, form)


def test_a_shared_table_is_read_for_one_of_its_groups(tmp_path: Path) -> None:
    rows = [
        {"namespace": {"S": f"{app}-s"}, "shard_id": {"S": SHARDS[0]}, "sequence_number": {"S": number}}
        for app, number in (("a", "1"), ("b", "2"))
    ]
    path = scan(tmp_path / "scan.json", *rows)
    with pytest.raises(OptionError, match="choose one with --scope: a-s, b-s"):
        read(path, "harlow")
    assert read(path, "harlow", scope="b-s").shards[SHARDS[0]].sequence_number == "2"


def test_the_end_of_a_shard_and_what_is_no_number(tmp_path: Path) -> None:
    path = scan(
        tmp_path / "scan.json",
        {"ShardID": {"S": SHARDS[0]}, "Checkpoint": {"S": "SHARD_END"}},
        {"ShardID": {"S": SHARDS[1]}, "Checkpoint": {"S": "TRIM_HORIZON"}},
    )
    ended, word = read(path, "vmware-go-kcl").shards.values()
    assert (ended.at, word.at, word.exact) == ("ended", "none", False)


def test_a_table_of_the_kcl_there_and_back(tmp_path: Path) -> None:
    from shardway.core.leases.listing import listing_of
    from shardway.inspect.applications.views import ApplicationRows, application_view

    row = {
        "leaseKey": SHARDS[0],
        "leaseOwner": "w1",
        "leaseCounter": 4,
        "checkpoint": NUMBER,
        "checkpointSubSequenceNumber": 2,
        "parentShardId": frozenset({"shardId-000000000009"}),
    }
    view = application_view("billing", "dynamodb", ApplicationRows(listing_of([row])))
    path = tmp_path / "items.json"
    path.write_bytes(kcl_items(view))
    (item,) = json.loads(path.read_text())["Items"]
    assert item["leaseCounter"] == {"N": "4"}
    assert "leaseOwner" not in item
    (position,) = read(path, "kcl").shards.values()
    assert (position.sequence_number, position.sub_sequence_number) == (NUMBER, 2)


def spark(tmp_path: Path, offset: Any, commits: dict[str, Any] | None = None, batch: str = "5") -> Path:
    """Spark's checkpoint directory: batch 7 is committed, 8 is planned and not committed."""
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    for number in ("6", "7", "8"):
        (tmp_path / "offsets" / number).write_text("v1\n{}\n" + json.dumps(offset if number == "7" else {}))
    for number in ("6", "7"):
        (tmp_path / "commits" / number).write_text('v1\n{"nextBatchWatermarkMs":0}')
    for shard_id, text in (commits or {}).items():
        commit = tmp_path / "sources" / "0" / "shard-commit" / batch
        commit.mkdir(parents=True, exist_ok=True)
        (commit / shard_id).write_text(json.dumps(text))
    return tmp_path


def test_the_connector_of_awslabs_tells_the_end_of_a_batch_beside_its_begin(tmp_path: Path) -> None:
    began = {"iteratorPosition": "1", "subSequenceNumber": "-1", "isLast": "true"}
    offset = {
        "metadata": {"batchId": "5", "streamName": "orders"},
        SHARDS[0]: {"iteratorType": "AFTER_SEQUENCE_NUMBER", **began},
        SHARDS[1]: {"iteratorType": "AT_SEQUENCE_NUMBER", **began},
        SHARDS[2]: {"iteratorType": "AT_TIMESTAMP", **began, "iteratorPosition": "1795000000000"},
        SHARDS[3]: {"iteratorType": "LATEST", "iteratorPosition": ""},  # as kinesis-sql writes it, too
    }
    committed = {"shardId": SHARDS[0], "iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": NUMBER}
    path = spark(tmp_path, offset, {SHARDS[0]: {**committed, "subSequenceNumber": 3, "isLast": True}})
    found = read(path, "spark-awslabs")
    first, second, third, fourth = found.shards.values()
    assert (first.at, first.sequence_number, first.sub_sequence_number) == ("after", NUMBER, 3)
    assert (second.at, second.sequence_number, second.exact) == ("at", "1", True)
    assert (third.at, third.exact, third.timestamp) == ("timestamp", False, utc(1795000000))
    assert (fourth.at, fourth.exact) == ("none", False)
    assert found.streams == ["orders"]


def test_databricks(tmp_path: Path) -> None:
    shard = {"stream": "orders", "shardId": SHARDS[0]}
    path = spark(
        tmp_path,
        [
            {"shard": shard, "firstSeqNum": "1", "lastSeqNum": NUMBER, "closed": False, "msBehindLatest": "0"},
            {"shard": {**shard, "shardId": SHARDS[1]}, "firstSeqNum": None, "lastSeqNum": None, "closed": True},
        ],
    )
    read_one, unread = read(path, "databricks").shards.values()
    assert (read_one.at, read_one.sequence_number, unread.at) == ("after", NUMBER, "none")


@pytest.mark.parametrize("form", ["positions", "kcl", "spark-awslabs", "databricks", "kinsumer"])
@pytest.mark.parametrize("text", ["", "[]", '{"Items": 5}', '{"schema": "other/1"}', '{"Items": [{"Shard": 1}]}'])
def test_what_is_no_document_is_told(tmp_path: Path, form: str, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(OptionError):
        read(path, form)
    with pytest.raises(OptionError):
        read(tmp_path / "none", form)


def test_an_unknown_format() -> None:
    with pytest.raises(OptionError, match="'excel' is no format of positions"):
        read(Path("x"), "excel")
