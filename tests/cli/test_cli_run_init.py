"""``shardway run --init``: a first job file for a stream, which ``shardway run --check`` takes."""

from __future__ import annotations

import gzip
import json
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.aggregation.writer import encode_aggregate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shardway.local import LocalKinesis

    Run = Callable[..., Any]

SECRETS = ("anna@example.com", "key-of-anna", "4711")


def put(kinesis: Any, *datas: bytes, stream: str = "orders") -> None:
    for number, data in enumerate(datas):
        kinesis.put_record(StreamName=stream, PartitionKey=f"key-of-anna-{number}", Data=data)


def an_order(number: int, **more: Any) -> bytes:
    return json.dumps({"order_id": f"4711-{number}", "mail": "anna@example.com", "amount": 4711.5, **more}).encode()


def told(text: str) -> str:
    """The comments of a file without their line ends."""
    return " ".join(text.replace("\n# ", " ").split())


def checked(run: Run, file: Path) -> dict[str, Any]:
    done = run("run", str(file), "--check")
    assert (done.status, done.stderr) == (0, ""), done
    return tomllib.loads(file.read_text("utf-8"))


def test_a_stream_of_json_gets_a_job_file_that_the_check_takes(run: Run, kinesis: Any, tmp_path: Path) -> None:
    put(kinesis, *(an_order(number) for number in range(5)), an_order(5, note=None, tags=["a"]))
    aggregate = encode_aggregate([(f"k-{number}", an_order(number), None) for number in (6, 7)])
    put(kinesis, aggregate, b"no JSON", gzip.compress(an_order(8)))
    file = tmp_path / "job.toml"
    done = run("run", "--init", "orders", str(file), "--region", "us-east-1")
    assert done.status == 0
    assert done.stdout == ""
    assert f"{file} is written" in done.stderr
    job = checked(run, file)
    assert job["source"] == {"streamName": "orders", "region": "us-east-1", "startingPosition": "TRIM_HORIZON"}
    assert set(job["decode"]["schema"].strip().split(",\n")) == {
        "order_id STRING",
        "mail STRING",
        "amount DOUBLE",
        "note STRING",
        "tags ARRAY<STRING>",
    }
    text = file.read_text("utf-8")
    assert "newest 10 records, of 2 shards; 9 of them are one JSON object" in told(text)
    assert "1 text" in text
    assert 'compression = "auto"  # 1 of the 10 records are compressed' in text
    assert "tags: missing in 8 of 9" in text
    assert "Each of these objects has: order_id, mail, amount." in text
    assert not any(secret in text + done.stderr for secret in SECRETS)


def test_the_file_goes_to_standard_output_and_replaces_none(run: Run, kinesis: Any, tmp_path: Path) -> None:
    put(kinesis, an_order(1))
    done = run("run", "--init", "orders")
    assert (done.status, done.stderr) == (0, "")
    file = tmp_path / "job.toml"
    file.write_text(done.stdout, encoding="utf-8")
    assert checked(run, file)["name"] == "orders"
    again = run("run", "--init", "orders", str(file))
    assert again.status == 1
    assert "--init replaces no file" in again.stderr
    assert file.read_text("utf-8") == done.stdout


def test_at_most_a_hundred_records_are_looked_at(run: Run, kinesis: Any) -> None:
    entries = [{"Data": an_order(number), "PartitionKey": f"k-{number}"} for number in range(250)]
    assert kinesis.put_records(StreamName="orders", Records=entries)["FailedRecordCount"] == 0
    done = run("run", "--init", "orders")
    assert "newest 100 records, of " in told(done.stdout)
    assert "; 100 of them are one JSON object" in told(done.stdout)


@pytest.mark.parametrize(
    ("datas", "decode"),
    [
        ([b"a line", b"[1, 2]", b"{}"], {"format": "text"}),
        ([b"\xff\xfe", b"a line"], None),
        ([gzip.compress(b"\xff\xfe")], None),
        ([b""], {"format": "text"}),
    ],
)
def test_data_that_is_no_json_gets_a_job_without_a_schema(
    run: Run, kinesis: Any, tmp_path: Path, datas: list[bytes], decode: Any
) -> None:
    put(kinesis, *(data or b"\n" for data in datas))
    file = tmp_path / "job.toml"
    assert run("run", "--init", "orders", str(file)).status == 0
    assert checked(run, file).get("decode") == decode


def test_json_in_gzip_gets_a_job_that_opens_it(run: Run, kinesis: Any, tmp_path: Path) -> None:
    put(kinesis, gzip.compress(b'{"a": 1}'))
    file = tmp_path / "job.toml"
    assert run("run", "--init", "orders", str(file)).status == 0
    assert checked(run, file)["decode"] == {"format": "json", "compression": "auto", "schema": "a BIGINT\n"}


def test_an_empty_stream_and_a_missing_one_get_a_clear_error(run: Run, kinesis: Any, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    empty = run("run", "--init", "orders", str(file))
    assert (empty.status, empty.stdout) == (1, "")
    assert "no record to take a schema from: it is empty. Put some records" in empty.stderr
    missing = run("run", "--init", "nowhere", str(file))
    assert (missing.status, missing.stdout) == (4, "")
    assert "nowhere" in missing.stderr
    assert not file.exists()


def test_init_stands_alone(run: Run, local: LocalKinesis) -> None:
    done = run("run", "--init", "orders", "--check")
    assert done.status == 1
    assert "--init writes a job file" in done.stderr


def test_a_place_of_the_stream_is_refused_beside_a_job_file(run: Run, tmp_path: Path) -> None:
    for flag, value in (("--region", "eu-west-1"), ("--endpoint-url", "http://127.0.0.1:9"), ("--profile", "p")):
        done = run("run", str(tmp_path / "job.toml"), "--check", flag, value)
        assert (done.status, done.stdout) == (1, "")
        assert f"{flag} goes with --init" in done.stderr
