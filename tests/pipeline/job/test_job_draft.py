"""The first job file for a stream: whatever its records are, the file is a good job file, and Spark runs it."""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardway.local import LocalKinesis
from shardway.pipeline.job import ExitCode, load_job
from shardway.pipeline.job.draft.draft import Place, Sample, job_text
from shardway.pipeline.job.draft.toml import toml_lines, toml_text
from shardway.spark.stamps import key_labels, seal
from tests.payloads.lying_registry import VERSION
from tests.pipeline.job.job_running import World
from tests.pipeline.job.test_job_inferred_schema import OBJECTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from shardway.pipeline.job import Job

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

HOSTILE: dict[str, Any] = {
    "value": 1,
    "reason": "x",
    "data": "x",
    "end": 1.5,
    "hour": 7,
    "Stream": "s",
    "value_hour": 2,
    "a.b": "dots",
    "tick`tick": {"it's": 1, "`": [True]},
    "select": 1,
    "${HOME}": "no reference",
    'quote"""': 1,
    "line\nbreak": 1,
    "\u202eturned": 1,
    "café \U0001f600": 1,
    "\ud83d": "half",
    "": "no name",
    "deep": {"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {"i": 1}}}}}}}}},
    "big": 10**30,
    "bigger": 10**50,
    "huge": 1e308,
    "none": None,
    "empty": {},
    "list": [],
    "half_text": "\ud83d",
}


def sample_of(*datas: bytes) -> Sample:
    sample = Sample()
    for data in datas:
        sample.see("shardId-000000000000", data)
    return sample


def loaded(text: str) -> Job:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "job.toml"
        file.write_text(text, encoding="utf-8")
        return load_job(file, {}).job


def as_json(objects: Sequence[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(one).encode() for one in objects]


@example(objects=[HOSTILE])
@given(objects=st.lists(OBJECTS, min_size=1, max_size=5))
def test_any_objects_get_a_file_that_the_check_takes(objects: list[dict[str, Any]]) -> None:
    sample = sample_of(*as_json(objects))
    job = loaded(job_text(Place("orders", "eu-west-1"), sample))
    assert (job.decode.format == "json") == bool(sample.schema.fields)
    if job.decode.format == "json":
        assert job.decode.schema == sample.schema.ddl + "\n"


@given(datas=st.lists(st.binary(max_size=60), min_size=1, max_size=5))
def test_any_bytes_get_a_file_that_the_check_takes(datas: list[bytes]) -> None:
    assert loaded(job_text(Place("orders"), sample_of(*datas))).sinks


@given(text=st.text())
def test_any_text_is_read_back_from_toml(text: str) -> None:
    if not any("\ud800" <= one <= "\udfff" for one in text):
        for written in (toml_text(f"x{text}x"), toml_lines(f"x{text}x")):
            rest = 'name = "a"\ncheckpoint = "c"\nsource.streamName = "a"\nsinks = [{ format = "console" }]'
            read = loaded(f"{rest}\nspark.setting = {written}\n").spark["setting"]
            assert str(read).removesuffix("\n") == f"x{text}x"


@pytest.mark.parametrize(
    ("stream", "name"),
    [
        ("arn:aws:kinesis:eu-west-1:123456789012:stream/orders", "orders"),
        ("_.-", "job"),
        ("..orders", "orders"),
        ("o" * 128, "o" * 100),
    ],
)
def test_a_job_is_named_after_its_stream(stream: str, name: str) -> None:
    job = loaded(job_text(Place(stream), sample_of(b'{"a": 1}')))
    assert job.name == name
    assert stream in job.source.values()


def test_a_password_of_an_endpoint_is_not_copied() -> None:
    text = job_text(Place("orders", None, "https://anna:secret@example.com"), sample_of(b'{"a": 1}'))
    assert "secret" not in text
    assert "endpointUrl" not in loaded(text).source


def test_what_an_object_lacks_is_told_and_a_key_is_proposed() -> None:
    sample = sample_of(b'{"order_id": "a", "note": null}', b'{"order_id": "b"}')
    text = job_text(Place("orders"), sample, ["A remark."])
    for told in ("# note: missing in 1 of 2", "Each of these objects has: order_id.", "# A remark."):
        assert told in text
    lines = [one.removeprefix("# ") for one in text.splitlines()]
    begin = lines.index("[deduplicate]")
    assert loaded(text + "\n".join(lines[begin : begin + 3])).deduplicate is not None


def test_envelopes_with_stamps_are_opened() -> None:
    (data,) = seal(key_labels(["k"]), [b'{"a": 1}'])
    job = loaded(job_text(Place("orders"), sample_of(data)))
    assert job.stamps is not None
    assert job.decode.schema == "a BIGINT\n"


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: gzip.compress(b"\0" * 50_000_000), id="zeros"),
        pytest.param(lambda: b"[" * 100_000, id="arrays"),
        pytest.param(lambda: b'{"a":' * 5_000, id="objects"),
        pytest.param(lambda: b"\x1f\x8b", id="a head alone"),
    ],
)
def test_data_that_is_made_to_cost_much_is_told_as_what_it_is(make: Callable[[], bytes]) -> None:
    data = make()
    assert loaded(job_text(Place("orders"), sample_of(data))).decode.schema is None


# --- with Spark -----------------------------------------------------------------------------------


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    with LocalKinesis(streams={"orders": 2}) as local:
        yield World(spark, local, tmp_path)


def test_a_file_that_was_written_runs_and_takes_each_record_that_was_seen(world: World) -> None:
    mixed = {
        **HOSTILE,
        "value": 2.5,
        "reason": {"a": 1},
        "data": None,
        "hour": "8",
        "big": 1,
        "bigger": 0.5,
        "list": [{}],
    }
    datas = as_json([HOSTILE, mixed, {}, {"value": 3, "deep": 1, "empty": {"a": {"b": 1}}}])
    datas += [b'{"twice": 1, "twice": 2, "huge": 1e400}', b"no JSON"]
    world.put(*datas)
    text = job_text(Place("orders", "{region}", "{endpoint}"), sample_of(*datas))
    for folder in ("checkpoints/", "lake/"):
        text = text.replace(f'"{folder}', '"{folder}/' + folder)
    ended = world.run(text.replace('every = "10 seconds"', "available_now = true"))
    assert ended.code == ExitCode.DONE, ended
    assert ended.summary["rows"] == len(datas)
    assert ended.summary["dead_letters"] == 1
    rows = world.rows("lake/orders", "value", "value_Stream", "value_hour", "a.b", "hour")
    assert len(rows) == len(datas) - 1


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress], ids=["gzip", "zstd"])
def test_compressed_records_are_opened(pack: Callable[[bytes], bytes]) -> None:
    job = loaded(job_text(Place("orders"), sample_of(pack(b'{"id": "a"}'), b'{"id": "b", "n": 1}')))
    assert (job.decode.format, job.decode.compression) == ("json", "auto")
    assert job.decode.schema is not None
    assert job.decode.schema.split() == ["id", "STRING,", "n", "BIGINT"]
    job = loaded(job_text(Place("orders"), sample_of(pack(b"a line"), b"a line")))
    assert (job.decode.format, job.decode.compression) == ("text", "auto")
    text = job_text(Place("orders"), sample_of(pack(b"\xff\0")))
    assert 'compression = "auto" opens them' in text
    assert loaded(text).decode.takes_all


def test_log_events_have_their_format() -> None:
    logs = b'{"messageType": "DATA_MESSAGE", "owner": "1", "logGroup": "g", "logStream": "s", "logEvents": []}'
    job = loaded(job_text(Place("logs"), sample_of(gzip.compress(logs), logs)))
    assert (job.decode.format, job.decode.compression) == ("cloudwatch-logs", None)
    mixed = loaded(job_text(Place("logs"), sample_of(gzip.compress(logs), b'{"id": 1}')))
    assert (mixed.decode.format, mixed.decode.compression) == ("json", "auto")


@pytest.mark.parametrize(("format", "head"), [("confluent", b"\0\0\0\0\1"), ("glue", b"\3\0" + VERSION.bytes)])
def test_records_in_a_frame_of_a_registry_are_told_their_format(format: str, head: bytes) -> None:
    text = job_text(Place("orders"), sample_of(*[head + bytes([2, number]) for number in range(2)]))
    assert f'[decode] with format = "{format}" reads them' in " ".join(text.replace("\n# ", " ").split())
    assert loaded(text).decode.format == "bytes"
