"""GOAWAY frames are taken out of what is received, wherever the reads are cut."""

from __future__ import annotations

import pytest
from hyperframe.frame import DataFrame, GoAwayFrame, PingFrame
from hypothesis import given
from hypothesis import strategies as st

from shardway.aws.http.http2.frames import FRAME_BYTES_MAX, BadFrameError, FrameSplitter, GoAway

FRAMES = st.one_of(
    st.builds(lambda size: DataFrame(1, data=b"\x07" * size), st.integers(0, 60)),
    st.just(PingFrame(0, opaque_data=b"\x07" * 8)),
    st.builds(
        lambda last, code, text: GoAwayFrame(0, last_stream_id=last, error_code=code, additional_data=text),
        st.integers(0, 2**31 - 1),
        st.integers(0, 20),
        st.binary(max_size=40),
    ),
)


@given(st.lists(FRAMES, max_size=12), st.lists(st.integers(1, 30), min_size=1))
def test_however_it_is_cut(frames: list[DataFrame | PingFrame | GoAwayFrame], sizes: list[int]) -> None:
    """What is passed on is the same bytes without them, and each comes where it stood."""
    received = b"".join([frame.serialize() for frame in frames])
    expected: list[bytes | GoAway] = []
    for frame in frames:
        if isinstance(frame, GoAwayFrame):
            expected.append(GoAway(frame.last_stream_id, frame.error_code))
        else:
            expected.append(frame.serialize())
    splitter, found, at, turn = FrameSplitter(), list[bytes | GoAway](), 0, 0
    while at < len(received):
        size = sizes[turn % len(sizes)]
        found += splitter.feed(received[at : at + size])
        at, turn = at + size, turn + 1
    assert joined(found) == joined(expected)


def joined(pieces: list[bytes | GoAway]) -> list[bytes | GoAway]:
    """Neighbouring bytes as one."""
    whole: list[bytes | GoAway] = []
    for piece in pieces:
        if whole and isinstance(piece, bytes) and isinstance(last := whole[-1], bytes):
            whole[-1] = last + piece
        elif piece:
            whole.append(piece)
    return whole


def test_a_frame_that_is_too_long_is_refused_by_its_head() -> None:
    splitter = FrameSplitter()
    assert splitter.feed(FRAME_BYTES_MAX.to_bytes(3, "big")) == []
    assert splitter.feed(b"\0\0\0\0\0\1" + bytes(FRAME_BYTES_MAX)) != []
    with pytest.raises(BadFrameError, match="a frame of 65537 bytes"):
        splitter.feed((FRAME_BYTES_MAX + 1).to_bytes(3, "big") + b"\0\0\0\0\0\1")
