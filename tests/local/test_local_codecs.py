"""CBOR as the Java SDK speaks it, and frames of the event stream as botocore reads them."""

from __future__ import annotations

import base64
import json

import cbor2
import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given, settings
from hypothesis import strategies as st

from shardway.local import cbor, eventstream


@settings(deadline=None)
@given(st.binary(max_size=300), st.integers(0, 4_102_444_800_000))
def test_a_request_in_cbor_says_the_same_in_json(data: bytes, millis: int) -> None:
    """The Java SDK: blobs as byte strings, times as tag 1 around integer milliseconds."""
    body = cbor2.dumps({"Records": [{"Data": data}], "Timestamp": cbor2.CBORTag(1, millis), "Limit": 5})
    request = json.loads(cbor.request_to_json(body))
    assert base64.b64decode(request["Records"][0]["Data"]) == data
    assert request["Timestamp"] == millis / 1000
    assert request["Limit"] == 5


@settings(deadline=None)
@given(st.binary(max_size=300), st.integers(0, 4_102_444_800_000))
def test_an_answer_in_json_says_the_same_in_cbor(data: bytes, millis: int) -> None:
    record = {"Data": base64.b64encode(data).decode(), "ApproximateArrivalTimestamp": millis / 1000}
    answer = json.dumps({"Records": [record], "NextShardIterator": None, "MillisBehindLatest": 0})
    raw = cbor.answer_to_cbor(answer.encode())
    assert b"\xc1" in raw
    decoded = cbor2.loads(raw, semantic_decoders={1: lambda value, immutable: ("millis", value)})
    assert decoded == {
        "Records": [{"Data": data, "ApproximateArrivalTimestamp": ("millis", millis)}],
        "MillisBehindLatest": 0,
    }


def test_other_members_keep_their_type() -> None:
    answer = {"StreamNames": ["Data"], "HasMoreStreams": False, "Tags": [{"Key": "k", "Value": "v"}]}
    assert cbor2.loads(cbor.answer_to_cbor(json.dumps(answer).encode())) == answer
    assert cbor.answer_to_cbor(b"") == b""


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"\xa1\x61",
        cbor2.dumps({"a": cbor2.CBORTag(1, "yesterday")}),
        cbor2.dumps({(1, 2): 3}),
        b"\x81" * 100_000 + b"\x00",
        bytes.fromhex("d81c81d81d00"),  # a list that holds itself
    ],
    ids=["empty", "break", "cut off", "no time", "no text for a key", "deep", "endless"],
)
def test_what_is_no_cbor_or_has_no_json_form_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="CBOR"):
        cbor.request_to_json(body)


@settings(deadline=None)
@given(st.text(max_size=40), st.binary(max_size=2000))
def test_botocore_reads_the_frames(name: str, payload: bytes) -> None:
    buffer = EventStreamBuffer()
    buffer.add_data(eventstream.event(name, payload) + eventstream.exception("Gone", b"{}", "text/plain"))
    event, fault = list(buffer)
    assert event.headers == {
        ":event-type": name,
        ":content-type": "application/x-amz-json-1.1",
        ":message-type": "event",
    }
    assert event.payload == payload
    assert fault.headers == {
        ":exception-type": "Gone",
        ":content-type": "text/plain",
        ":message-type": "exception",
    }
