"""What earlier versions have stored is read, with the same values, and what is stored today is the same byte for byte.

``tests/fixtures/stored`` has a folder for each version; its README says which code wrote it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from shardway.aws.dynamodb.values import plain_item
from shardway.core.leases import Checkpoint, lease_row
from shardway.core.leases.worker_row import worker_row
from shardway.core.ledger.letter import Letter
from shardway.local.journal import Journal
from shardway.pipeline import exact_deduplication
from shardway.pipeline.job.run.window_note import differences
from shardway.pipeline.tables import delta, iceberg
from shardway.pipeline.tables.table_sink import Commit
from shardway.spark.leases.lease_position import checkpoint_of, position_in_note
from shardway.spark.offsets import StreamOffset
from shardway.spark.stamps import open_sealed
from tests import stored_kit
from tests.stored_kit import (
    ARN,
    BATCHES,
    CREATED_S,
    KEYS,
    LETTERS,
    OFFSETS,
    POSITIONS,
    STAMPS,
    VERSIONS,
    WINDOW,
    WITHIN,
    WORKERS,
    WRITERS,
    fixture,
    leases,
    lines_of,
    model,
    shard,
    told,
    use,
    written,
)

each_version = pytest.mark.parametrize("version", VERSIONS)


@each_version
@pytest.mark.parametrize("name", WRITERS)
def test_it_is_written_byte_for_byte_as_before(version: str, name: str) -> None:
    assert written(name) == fixture(version, name)


def test_every_file_of_every_version_is_compared() -> None:
    assert {path.name for path in stored_kit.FOLDER.iterdir()} == {*VERSIONS, "README.md"}
    for version in VERSIONS:
        assert {path.name for path in (stored_kit.FOLDER / version).iterdir()} == set(WRITERS)


@each_version
def test_leases_and_workers_in_dynamodb(version: str) -> None:
    rows = [lease_row(plain_item(item)) for item in lines_of(version, "leases_dynamodb.jsonl")]
    assert rows == leases()
    padded = next(row for row in rows if row.key == shard(5))
    assert padded.checkpoint.text == "000049680422878816"
    workers = [worker_row(plain_item(item)) for item in lines_of(version, "workers_dynamodb.jsonl")]
    assert workers == WORKERS


@each_version
def test_offsets_of_a_query(version: str) -> None:
    assert [StreamOffset.from_dict(value) for value in lines_of(version, "spark_offsets.jsonl")] == OFFSETS


@each_version
def test_leases_that_follow_a_query(version: str) -> None:
    rows = [lease_row(plain_item(item)) for item in lines_of(version, "spark_leases_dynamodb.jsonl")]
    assert {row.key: position_in_note(row, CREATED_S) for row in rows} == POSITIONS
    assert {row.key: row.checkpoint for row in rows} == {
        key: checkpoint_of(position, Checkpoint.TRIM_HORIZON) for key, position in POSITIONS.items()
    }
    assert {row.of_stream for row in rows} == {f"{ARN} {CREATED_S}"}
    assert {row.key: row.children for row in rows if row.children} == {shard(0): {shard(3), shard(4)}}


@each_version
def test_stamps(version: str) -> None:
    opened = [open_sealed(bytes.fromhex(line)) for line in fixture(version, "stamps.txt").decode().splitlines()]
    assert [None if one is None else (one.stamp, one.data) for one in opened] == STAMPS


@each_version
def test_dead_letters(version: str) -> None:
    assert [Letter.from_json(line) for line in fixture(version, "dead_letters.jsonl").splitlines()] == LETTERS


@each_version
def test_the_journal_of_the_local_kinesis(version: str, tmp_path: object) -> None:
    folder = Path(str(tmp_path))
    (folder / "journal").write_bytes(fixture(version, "journal.bin"))
    found, elsewhere, moves = model(), model(), list[float]()
    journal = Journal(folder)
    journal.load(found, moves.append, lambda region: {"eu-west-1": elsewhere}[region])
    journal.close()
    assert moves == [3_600.0]
    expected = model()
    use(expected)
    assert told(found) == told(expected)
    assert told(elsewhere) == told(expected)
    records = told(found)["orders"]["records"]
    assert sorted(one["PartitionKey"] for several in records.values() for one in several) == [*"abcdefgh"]
    assert (folder / "journal").read_bytes() == fixture(version, "journal.bin")


COMMITS = [Commit(*one) for one in BATCHES]


@each_version
def test_what_a_commit_in_a_delta_table_says_of_itself(version: str) -> None:
    options = lines_of(version, "delta_commits.jsonl")
    assert [delta._commit_info(one["userMetadata"]) for one in options] == COMMITS
    assert [(one["txnAppId"], int(one["txnVersion"])) for one in options] == [
        (one.writer, one.batch_id) for one in BATCHES
    ]


@each_version
def test_what_a_snapshot_of_an_iceberg_table_says_of_itself(version: str) -> None:
    for options, batch in zip(lines_of(version, "iceberg_commits.jsonl"), BATCHES, strict=True):
        summary = {name.removeprefix("snapshot-property."): value for name, value in options.items()}
        snapshots = {7: {"parent_id": None, "at_ms": 1_000, "ours": summary}}
        assert iceberg._descent(snapshots, 7, batch.writer).commits == {batch.batch_id: Commit(*batch)}


@each_version
def test_the_state_of_an_exact_deduplication(version: str) -> None:
    (stored,) = lines_of(version, "exact_repeats.jsonl")
    kept = exact_deduplication.BucketKeys.read(bytes.fromhex(stored["state"]))
    assert kept.write().hex() == stored["state"]
    rows = [(2**63, 5, 2_000), (7, 9, WITHIN), (7, 8, 2 * WITHIN + 1), (1, 1, 5)]
    assert kept.choose(rows, WITHIN) == [False, False, True, True]
    assert stored["buckets"] == exact_deduplication.BUCKETS == 128
    assert [exact_deduplication._digest(key).hex() for key in KEYS] == stored["digests"]


@each_version
def test_the_windows_of_a_job(version: str) -> None:
    assert differences(fixture(version, "windows.json"), WINDOW) == []
