from __future__ import annotations

import asyncio
import os
import random
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.cli.put_lines import READ_BYTES, RECORD_BYTES_MAX, BadLineError, Form, Lines, read_chunks, record_maker
from shardway.errors import OptionError
from shardway.model import OutRecord


def record(line: bytes, **form: str | bool) -> OutRecord | None:
    return record_maker(Form(**form), random.Random(1))(line)  # type: ignore[arg-type]


# --- bytes to lines -----------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=5).map(lambda part: part.replace(b"x", b"\n"))))
def test_lines_are_those_of_the_whole_however_it_is_cut(chunks: list[bytes]) -> None:
    lines = Lines()
    found = [line for chunk in chunks for line in lines.feed(chunk)] + lines.end()
    *expected, last = b"".join(chunks).split(b"\n")
    assert [line.text for line in found] == expected + ([last] if last else [])
    assert [line.number for line in found] == list(range(1, len(found) + 1))


@given(st.lists(st.binary(max_size=30).map(lambda part: part.replace(b"x", b"\n"))))
def test_long_lines_are_told_and_not_kept(chunks: list[bytes]) -> None:
    lines = Lines(line_bytes_max=10)
    found = []
    for chunk in chunks:
        found += lines.feed(chunk)
        assert sum(map(len, lines._parts)) <= 10
    found += lines.end()
    *expected, last = b"".join(chunks).split(b"\n")
    texts = expected + ([last] if last else [])
    assert [line.text for line in found] == [text if len(text) <= 10 else None for text in texts]


async def test_a_file_is_read_to_its_end(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "input"
    path.write_bytes(os.urandom(READ_BYTES * 2 + 5))
    with path.open("rb") as file:
        chunks = [chunk async for chunk in read_chunks(file.fileno())]
    assert [len(chunk) for chunk in chunks] == [READ_BYTES, READ_BYTES, 5]
    assert b"".join(chunks) == path.read_bytes()


async def test_a_pipe_gives_what_it_has_and_a_read_that_waits_can_be_left() -> None:
    reading, writing = os.pipe()
    try:
        chunks = read_chunks(reading)
        os.write(writing, b"first")
        assert await anext(chunks) == b"first"
        waiting = asyncio.ensure_future(anext(chunks))
        await asyncio.sleep(0)
        assert any(thread.name == "shardway-input" and thread.daemon for thread in threading.enumerate())
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    finally:
        os.write(writing, b"ends the thread")
        os.close(writing)
        for thread in threading.enumerate():
            if thread.name == "shardway-input":
                thread.join()
        os.close(reading)
    await asyncio.sleep(0)


async def test_what_cannot_be_read_is_an_error(tmp_path) -> None:  # type: ignore[no-untyped-def]
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(IsADirectoryError):
            await anext(read_chunks(folder))
    finally:
        os.close(folder)


# --- lines to records ---------------------------------------------------------------------------------


def test_a_line_is_data_as_it_is() -> None:
    for line in (b"", b"a b\r", b"\xff\x00"):
        made = record(line)
        assert made is not None
        assert (made.data, made.explicit_hash_key) == (line, None)


def test_keys_are_random_without_a_choice() -> None:
    make = record_maker(Form(), random.Random(1))
    keys = {made.partition_key for _ in range(1000) if (made := make(b"x"))}
    assert len(keys) == 1000
    assert record(b"x", key_text="all") == OutRecord(b"x", "all")
    assert record(b"{}", jsonl=True, key_text="all") == OutRecord(b"{}", "all")


def test_json_lines_give_their_fields() -> None:
    line = (
        b'{"order": {"id": 7, "to": "Anna", "ok": true, "price": 1.5}, "at": "170141183460469231731687303715884105728"}'
    )
    form: dict[str, Any] = {"jsonl": True, "explicit_hash_key": "at"}
    assert record(line, **form, key="order.to") == OutRecord(line, "Anna", 2**127)
    assert record(line, **form, key="order.id", data="order.to") == OutRecord(b"Anna", "7", 2**127)
    assert record(line, **form, key="order.ok", data="order.id") == OutRecord(b"7", "true", 2**127)
    assert record(line, jsonl=True, key="order.price", data="order") == OutRecord(
        b'{"id":7,"to":"Anna","ok":true,"price":1.5}', "1.5"
    )
    assert record(
        b'{"h": 340282366920938463463374607431768211455}', jsonl=True, key_text="k", explicit_hash_key="h"
    ) == (OutRecord(b'{"h": 340282366920938463463374607431768211455}', "k", 2**128 - 1))


def test_blank_lines_of_json_are_passed_over() -> None:
    assert [record(line, jsonl=True) for line in (b"", b"  \t\r")] == [None, None]


SECRET = "s3cret"


@pytest.mark.parametrize(
    ("line", "form", "reason"),
    [
        ('{"s3cret": ', {}, "it is not JSON: "),
        ('{"a": s3cret}', {}, "it is not JSON: JSON is malformed: invalid character"),
        (b'"s3cret\xff"', {}, "it is not JSON: no UTF-8"),
        ("[" * 100_000, {}, "it is not JSON that can be read: too many levels"),
        ('{"b": "s3cret"}', {"key": "a"}, "it has no field a"),
        ('{"a": "s3cret"}', {"key": "a.b"}, "it has no field a.b"),
        ('["s3cret"]', {"data": "a"}, "it has no field a"),
        ('{"a": null}', {"key": "a"}, "its field a is null; a partition key is"),
        ('{"a": {"s3cret": 1}}', {"key": "a"}, "its field a is an object; a partition key is"),
        ('{"a": []}', {"key": "a"}, "its field a is an array; a partition key is"),
        ('{"a": ""}', {"key": "a"}, "its partition key has 0 characters"),
        ('{"a": "%s"}' % (SECRET * 100), {"key": "a"}, "its partition key has 600 characters, not 1 to 256"),
        ('{"a": -1}', {"explicit_hash_key": "a"}, "its field a is no hash key"),
        ('{"a": 340282366920938463463374607431768211456}', {"explicit_hash_key": "a"}, "its field a is no hash key"),
        ('{"a": true}', {"explicit_hash_key": "a"}, "its field a is no hash key"),
        ('{"a": "s3cret"}', {"explicit_hash_key": "a"}, "its field a is no hash key"),
        ('{"a": "%s"}' % ("9" * 5000), {"explicit_hash_key": "a"}, "its field a is no hash key"),
        ('"%s"' % ("x" * RECORD_BYTES_MAX), {}, "bytes with its partition key; a record has at most 10485760"),
    ],
    ids=range(18),
)
def test_a_bad_line_says_why_and_shows_nothing(line: str | bytes, form: dict[str, str], reason: str) -> None:
    with pytest.raises(BadLineError) as caught:
        record(line.encode() if isinstance(line, str) else line, jsonl=True, **form)
    assert reason in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("form", "reasons"),
    [
        ({"key": "a"}, ["--key names a field of JSON: add --format jsonl"]),
        ({"data": "a", "explicit_hash_key": "b"}, ["--explicit-hash-key names a field", "--data names a field"]),
        ({"key": "a", "key_text": "x", "jsonl": True}, ["--key and --key-text contradict each other"]),
        ({"key": "a..b", "jsonl": True}, ["--key: write a field, or a path"]),
        ({"data": "", "jsonl": True}, ["--data: write a field, or a path"]),
        ({"key_text": ""}, ["1 to 256 characters"]),
    ],
    ids=str,
)
def test_choices_that_contradict_each_other_are_all_told(form: dict[str, str], reasons: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        Form(**form)  # type: ignore[arg-type]
    assert len(caught.value.faults) == len(reasons)
    assert all(reason in fault for reason, fault in zip(reasons, caught.value.faults, strict=True))
