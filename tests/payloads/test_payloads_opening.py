"""Compressed records are opened whole, within bounds, or refused with a reason that shows nothing of them."""

from __future__ import annotations

import gzip
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway import deserializers
from shardway.errors import PayloadError
from shardway.payloads import opening
from shardway.payloads.opening import OPENED_BYTES_MAX, unpacked

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SECRET = b'{"card": "4111"}'
EITHER = pytest.mark.parametrize(("name", "pack"), [("gzip", gzip.compress), ("zstd", zstd.compress)])


def reader_of(name: str, *given: Any, **more: Any) -> Any:
    return getattr(deserializers, name)(*given, **more)


@EITHER
def test_what_is_inside_is_the_value_or_goes_to_the_next_deserializer(name: str, pack: Any) -> None:
    assert reader_of(name)(pack(b"\xff\x00")) == b"\xff\x00"
    assert reader_of(name, deserializers.json())(pack(SECRET)) == {"card": "4111"}
    assert reader_of(name, reader_of(name))(pack(pack(b"twice"))) == b"twice"
    assert reader_of(name)(pack(b"")) == b""


@EITHER
def test_members_stand_one_behind_the_other(name: str, pack: Any) -> None:
    assert reader_of(name)(pack(b"one,") + pack(b"") + pack(b"two")) == b"one,two"


@EITHER
@pytest.mark.parametrize("data", [b"", b"\x1f", b"{}", b"\x00" * 40, SECRET])
def test_what_is_no_such_data_is_refused(name: str, pack: Any, data: bytes) -> None:
    with pytest.raises(PayloadError, match=f"it is (no )?{name}") as told:
        reader_of(name)(data)
    assert "4111" not in str(told.value)


@EITHER
def test_data_that_is_cut_off_anywhere_is_refused(name: str, pack: Any) -> None:
    whole = pack(SECRET * 3)
    for end in range(len(whole)):
        with pytest.raises(PayloadError):
            reader_of(name)(whole[:end])


@EITHER
def test_data_behind_the_end_is_refused(name: str, pack: Any) -> None:
    with pytest.raises(PayloadError):
        reader_of(name)(pack(SECRET) + b"and more")


@EITHER
def test_a_bomb_is_refused(name: str, pack: Any) -> None:
    with pytest.raises(PayloadError, match=f"opens to more than {OPENED_BYTES_MAX} bytes"):
        reader_of(name)(pack(bytes(OPENED_BYTES_MAX + 1)))
    assert len(reader_of(name)(pack(bytes(OPENED_BYTES_MAX)))) == OPENED_BYTES_MAX
    with pytest.raises(PayloadError, match="opens to more than 10 bytes"):
        reader_of(name, opened_bytes_max=10)(pack(bytes(11)))


@EITHER
def test_empty_members_are_counted(name: str, pack: Any) -> None:
    assert reader_of(name)(pack(b"") * opening.MEMBERS_MAX) == b""
    with pytest.raises(PayloadError, match="more than 1000 members"):
        reader_of(name)(pack(b"") * (opening.MEMBERS_MAX + 1))


@pytest.mark.parametrize("data", [b"", b"plain", b"\x1f", b"\x28\xb5", SECRET])
def test_auto_leaves_other_data_as_it_is(data: bytes) -> None:
    assert unpacked(data, "auto") == data
    assert unpacked(gzip.compress(data), "auto") == unpacked(zstd.compress(data), "auto") == data


@pytest.mark.parametrize("begins", [b"\x1f\x8b", b"\x28\xb5\x2f\xfd"])
def test_auto_refuses_what_only_begins_like_it(begins: bytes) -> None:
    with pytest.raises(PayloadError):
        unpacked(begins + SECRET, "auto")


@given(st.binary(max_size=200), st.sampled_from(["gzip", "zstd", "auto"]))
def test_any_bytes_are_read_or_refused(data: bytes, compression: Any) -> None:
    for one in (data, b"\x1f\x8b\x08" + data, b"\x28\xb5\x2f\xfd" + data):
        try:
            assert isinstance(unpacked(one, compression), bytes)
        except PayloadError:
            continue


def test_a_library_for_zstd_that_is_missing_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Any:
        raise ImportError

    monkeypatch.setattr(opening, "zstd_library", none)
    with pytest.raises(ModuleNotFoundError, match=r"deserializers\.zstd needs its extra: pip install"):
        deserializers.zstd()
