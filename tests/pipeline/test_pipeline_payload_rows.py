"""What a task makes of rows' data: pieces of a bounded size, and one row for each, whatever the data is."""

from __future__ import annotations

import gzip
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.pipeline import payload_rows
from shardway.pipeline.job.file.ddl import field_names
from shardway.pipeline.payload_rows import NO_DATA, OpenedData, PayloadRows, ServiceData
from shardway.pipeline.service_schemas import SERVICE_SCHEMAS

SERVICES = [ServiceData(name, "auto", 100_000) for name in SERVICE_SCHEMAS]
TEXTS = (
    b'{"messageType":"DATA_MESSAGE","owner":"","logGroup":"","logStream":"","logEvents":[{"id":"","timestamp":0,'
    b'"message":"HERE"}]}',
    b'{"metadata":{"record-type":"data","operation":"load","transaction-id":1},"data":{"a":"HERE"}}',
    b'{"eventID":"","eventName":"HERE","tableName":"","dynamodb":{"Keys":{"a":{"S":"HERE"}}}}',
)


def rows(*datas: bytes | None) -> pa.RecordBatch:
    positions = pa.array(range(len(datas)), pa.int64())
    return pa.RecordBatch.from_arrays([positions, pa.array(datas, pa.binary())], ["position", "data"])


def added(made: Any, *batches: pa.RecordBatch) -> list[pa.RecordBatch]:
    return list(PayloadRows(made, "value", "reason").added(iter(batches)))


def test_each_row_has_what_is_inside_or_a_reason() -> None:
    packed = gzip.compress(b"a")
    (found,) = added(OpenedData("gzip", 100), rows(packed, None, b"plain"))
    assert found.to_pylist() == [
        {"position": 0, "data": packed, "value": b"a", "reason": None},
        {"position": 1, "data": None, "value": None, "reason": NO_DATA},
        {"position": 2, "data": b"plain", "value": None, "reason": "it is no gzip, or broken"},
    ]


@pytest.mark.parametrize("made", [OpenedData("auto", 100), *SERVICES], ids=str)
def test_a_batch_without_rows_has_the_columns(made: Any) -> None:
    (found,) = added(made, rows())
    assert (found.num_rows, found.schema.names) == (0, ["position", "data", "value", "reason"])


def test_what_opens_to_much_goes_on_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_rows, "PIECE_BYTES", 10)
    datas = [gzip.compress(bytes(size)) for size in (4, 4, 4, 100, 0, 3)]
    pieces = added(OpenedData("gzip", 1_000), rows(*datas), rows(*datas[:1]))
    assert [one.num_rows for one in pieces] == [3, 1, 2, 1]
    assert [row["position"] for one in pieces for row in one.to_pylist()] == [0, 1, 2, 3, 4, 5, 0]
    assert [len(row["value"]) for one in pieces for row in one.to_pylist()] == [4, 4, 4, 100, 0, 3, 4]


@pytest.mark.parametrize("made", SERVICES, ids=lambda made: made.format)
def test_the_fields_are_those_of_the_schema(made: ServiceData) -> None:
    assert [field.name for field in made.kind] == field_names(SERVICE_SCHEMAS[made.format])


@given(st.binary(max_size=60) | st.text(max_size=20).map(str.encode), st.sampled_from(TEXTS), st.booleans())
def test_any_data_gives_a_row(inside: bytes, text: bytes, packed: bool) -> None:
    """A task that fails would fail again and again: the job would read no further."""
    for data in (
        inside,
        text.replace(b"HERE", inside),
        text.replace(b"HERE", rb"\ud83d"),
        text.replace(b"1", b"9" * 30),
    ):
        data = gzip.compress(data) if packed else data
        for made in (*SERVICES, OpenedData("auto", 1_000), OpenedData("zstd", 1_000)):
            (found,) = added(made, rows(data))
            ((value, reason),) = zip(found["value"].to_pylist(), found["reason"].to_pylist(), strict=True)
            assert (value is None) == (reason is not None)
