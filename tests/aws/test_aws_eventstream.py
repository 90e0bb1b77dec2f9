"""Event streams: our decoder beside botocore's, however the bytes are cut, and what it refuses."""

from __future__ import annotations

import datetime as dt
import struct
import uuid
import zlib
from typing import Any

import botocore.eventstream
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.aws.event_stream import HEADERS_BYTES_MAX, EventStreamDecoder, EventStreamError, HeaderValue

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def header(name: str, value: HeaderValue, width: int = 4) -> bytes:
    """Encode one header; ``width`` is the size of an integer."""
    named = bytes([len(name.encode())]) + name.encode()
    match value:
        case bool():
            return named + bytes([0 if value else 1])
        case int():
            kind, layout = {1: (2, ">b"), 2: (3, ">h"), 4: (4, ">i"), 8: (5, ">q")}[width]
            return named + bytes([kind]) + struct.pack(layout, value)
        case bytes():
            return named + b"\x06" + struct.pack(">H", len(value)) + value
        case str():
            return named + b"\x07" + struct.pack(">H", len(value.encode())) + value.encode()
        case dt.datetime():
            return named + b"\x08" + struct.pack(">q", (value - EPOCH) // dt.timedelta(milliseconds=1))
        case uuid.UUID():
            return named + b"\x09" + value.bytes


def frame(headers: bytes, payload: bytes) -> bytes:
    lengths = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = lengths + struct.pack(">I", zlib.crc32(lengths)) + headers + payload
    return message + struct.pack(">I", zlib.crc32(message))


names = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=1, max_size=30)
headers_of_a_frame = st.dictionaries(
    names,
    st.booleans()
    | st.integers(-(2**31), 2**31 - 1)
    | st.binary(max_size=30)
    | st.text(max_size=30)
    | st.uuids()
    | st.integers(0, 4_000_000_000_000).map(lambda ms: EPOCH + dt.timedelta(milliseconds=ms)),
    max_size=5,
)


@given(
    frames=st.lists(st.tuples(headers_of_a_frame, st.binary(max_size=100)), max_size=4),
    cut_bytes=st.integers(1, 200),
)
def test_frames_are_decoded_however_they_are_cut(
    frames: list[tuple[dict[str, HeaderValue], bytes]], cut_bytes: int
) -> None:
    raw = b"".join(
        frame(b"".join(header(name, value) for name, value in headers.items()), payload) for headers, payload in frames
    )
    decoder = EventStreamDecoder()
    messages = []
    for start in range(0, len(raw), cut_bytes):
        messages += decoder.feed(raw[start : start + cut_bytes])
    assert [(message.headers, message.payload) for message in messages] == frames
    assert decoder.waiting_bytes == 0


@given(
    headers=st.dictionaries(names, st.booleans() | st.integers(-128, 127) | st.text(max_size=20), max_size=4),
    width=st.sampled_from([1, 2, 4, 8]),
    payload=st.binary(max_size=100),
)
def test_botocore_reads_the_same(headers: dict[str, HeaderValue], width: int, payload: bytes) -> None:
    raw = frame(b"".join(header(name, value, width) for name, value in headers.items()), payload)
    buffer = botocore.eventstream.EventStreamBuffer()
    buffer.add_data(raw)
    (theirs,) = list(buffer)
    (ours,) = EventStreamDecoder().feed(raw)
    assert (ours.headers, ours.payload) == (theirs.headers, theirs.payload)


@pytest.mark.parametrize(
    ("headers", "kind", "name"),
    [
        ({":message-type": "event", ":event-type": "SubscribeToShardEvent"}, "event", "SubscribeToShardEvent"),
        (
            {":message-type": "exception", ":exception-type": "ResourceInUseException"},
            "exception",
            "ResourceInUseException",
        ),
        ({":message-type": "error", ":error-code": "InternalFailure"}, "error", "InternalFailure"),
        ({}, "", ""),
    ],
)
def test_what_a_message_is(headers: dict[str, Any], kind: str, name: str) -> None:
    (message,) = EventStreamDecoder().feed(frame(b"".join(header(*pair) for pair in headers.items()), b"{}"))
    assert (message.kind, message.name) == (kind, name)


@given(data=st.data())
def test_any_damaged_byte_is_noticed(data: st.DataObject) -> None:
    raw = bytearray(frame(header("a", "b") + header("n", 5), b"payload"))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    decoder = EventStreamDecoder()
    with pytest.raises(EventStreamError):
        decoder.feed(bytes(raw))


@pytest.mark.parametrize(
    "headers",
    [
        b"\x05ab",
        b"\x01a",
        b"\x01a\x07\x00\x05ab",
        b"\x01a\x07\x00",
        b"\x01a\x04\x00\x00",
        b"\x01a\x63",
        b"\x01a\x09" + b"1" * 15,
        b"\x02\xff\xff\x00",
        header("a", "ok") + b"\x01b\x08" + b"\x7f" + b"\xff" * 7,
    ],
)
def test_malformed_headers_are_refused(headers: bytes) -> None:
    with pytest.raises(EventStreamError, match="malformed headers"):
        EventStreamDecoder().feed(frame(headers, b""))


@pytest.mark.parametrize(
    ("total", "headers_bytes"),
    [(15, 0), (0, 0), (100, 90), (16, 1), (200 * 1024, HEADERS_BYTES_MAX + 1), (2**31, 0)],
)
def test_impossible_lengths_are_refused_at_once(total: int, headers_bytes: int) -> None:
    lengths = struct.pack(">II", total, headers_bytes)
    with pytest.raises(EventStreamError, match=f"a frame of {total} bytes"):
        EventStreamDecoder().feed(lengths + struct.pack(">I", zlib.crc32(lengths)))


def test_a_stream_that_breaks_off_can_be_told() -> None:
    raw = frame(header("a", "b"), b"payload")
    decoder = EventStreamDecoder()
    assert len(decoder.feed(raw + raw[:-1])) == 1
    assert decoder.waiting_bytes == len(raw) - 1


def test_an_error_of_the_stream_may_be_repeated() -> None:
    assert EventStreamError("x").retryable
