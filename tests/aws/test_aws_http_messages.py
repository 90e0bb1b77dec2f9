"""Heads and framings of HTTP/1.1, however the bytes are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.aws.http.exchange import BadAnswerError
from shardway.aws.http.http1.messages import (
    ChunkedBody,
    SizedBody,
    UntilClose,
    content_length,
    framing,
    parse_head,
)


def head(*lines: str, status: str = "HTTP/1.1 200 OK") -> bytes:
    return "\r\n".join([status, *lines]).encode("latin-1")


def test_a_head_is_parsed() -> None:
    parsed = parse_head(head("Date: Sat, 21 Nov 2026 11:20:50 GMT", "X-Amzn-RequestId:abc ", "content-length: 12"))
    assert parsed.status == 200
    assert parsed.headers == {
        "date": "Sat, 21 Nov 2026 11:20:50 GMT",
        "x-amzn-requestid": "abc",
        "content-length": "12",
    }
    assert parsed.keeps_alive
    assert content_length(parsed) == 12


@pytest.mark.parametrize(
    ("status", "lines", "keeps_alive"),
    [
        ("HTTP/1.1 200 OK", [], True),
        ("HTTP/1.1 200", [], True),
        ("HTTP/1.1 200 OK", ["Connection: close"], False),
        ("HTTP/1.1 200 OK", ["Connection: Keep-Alive, Close"], False),
        ("HTTP/1.0 200 OK", [], False),
        ("HTTP/1.0 200 OK", ["Connection: keep-alive"], True),
    ],
)
def test_which_connections_are_kept(status: str, lines: list[str], keeps_alive: bool) -> None:
    assert parse_head(head(*lines, status=status)).keeps_alive is keeps_alive


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.6",
        b"HTTP/2 200",
        b"HTTP/1.1 OK",
        b"HTTP/1.1 20",
        head("no colon here"),
        head(": no name"),
        head("spaced : name"),
        head(" folded: line"),
    ],
)
def test_what_is_no_head_is_refused(raw: bytes) -> None:
    with pytest.raises(BadAnswerError):
        parse_head(raw)


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (["Content-Length: 3"], SizedBody),
        (["Transfer-Encoding: chunked"], ChunkedBody),
        (["Transfer-Encoding: chunked", "Content-Length: 3"], ChunkedBody),
        ([], UntilClose),
    ],
)
def test_how_a_body_is_framed(lines: list[str], kind: type) -> None:
    assert isinstance(framing(parse_head(head(*lines))), kind)


@pytest.mark.parametrize("status", ["HTTP/1.1 204 No Content", "HTTP/1.1 304 Not Modified"])
def test_some_answers_have_no_body(status: str) -> None:
    framed = framing(parse_head(head(status=status)))
    assert framed.done


@pytest.mark.parametrize(
    "line", ["Content-Length: -1", "Content-Length: 1e3", "Content-Length: ²", "Content-Length: +3"]
)
def test_a_length_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(BadAnswerError):
        content_length(parse_head(head(line)))


def test_an_encoding_that_was_not_asked_for_is_refused() -> None:
    with pytest.raises(BadAnswerError, match="gzip"):
        framing(parse_head(head("Transfer-Encoding: gzip, chunked")))


bodies = st.lists(st.binary(min_size=1, max_size=50), max_size=6)


def chunked(parts: list[bytes], *, extension: bytes = b"", trailers: bytes = b"") -> bytes:
    chunks = [b"%X%s\r\n%s\r\n" % (len(part), extension, part) for part in parts]
    return b"".join(chunks) + b"0\r\n" + trailers + b"\r\n"


@given(
    parts=bodies,
    extension=st.sampled_from([b"", b";name=value", b" ; a"]),
    trailers=st.sampled_from([b"", b"x-amz-checksum: 1\r\n", b"a: b\r\nc: d\r\n"]),
    cut_bytes=st.integers(min_value=1, max_value=80),
)
def test_chunks_are_put_together_however_they_are_cut(
    parts: list[bytes], extension: bytes, trailers: bytes, cut_bytes: int
) -> None:
    raw = chunked(parts, extension=extension, trailers=trailers)
    framed = ChunkedBody()
    got = []
    for start in range(0, len(raw), cut_bytes):
        assert not framed.done
        got += framed.feed(raw[start : start + cut_bytes])
    assert b"".join(got) == b"".join(parts)
    assert framed.done


@pytest.mark.parametrize(
    "raw",
    [
        b"xyz\r\n",
        b"-1\r\n",
        b"\r\n",
        b"0x5\r\nhello\r\n",
        b"ffffffffffffffff\r\n",
        b"3\r\nabcde\r\n",
        b"5" + b";" * 5000,
        b"0\r\n\r\nmore",
    ],
)
def test_malformed_chunks_are_refused(raw: bytes) -> None:
    with pytest.raises(BadAnswerError):
        ChunkedBody().feed(raw)


def test_more_than_the_length_says_is_refused() -> None:
    framed = SizedBody(3)
    assert framed.feed(b"ab") == [b"ab"]
    assert not framed.done
    with pytest.raises(BadAnswerError):
        framed.feed(b"cd")
