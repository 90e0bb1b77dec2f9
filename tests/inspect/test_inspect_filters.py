"""The small language that chooses records."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.errors import OptionError
from shardway.inspect import SeenRecord
from shardway.inspect.filters import parse, pattern
from shardway.model import Record

ORDER = {
    "id": 7,
    "amount": 12.5,
    "test": False,
    "gone": None,
    "none": 0,
    "customer": {"id": "c-1"},
    "items": [{"sku": "a"}],
}


def seen(value: Any, key: str = "k1") -> SeenRecord:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return SeenRecord(
        Record(
            stream="orders", shard_id="shardId-000000000000", partition_key=key, data=data, sequence_number=1,
            approximate_arrival_timestamp=dt.datetime(2026, 11, 23, tzinfo=dt.UTC),
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        (".amount >= 12.5", True),
        (".amount > 12.5", False),
        ('.customer.id == "c-1"', True),
        ('.items[0].sku startswith "a"', True),
        (".items[1].sku", False),
        (".customer", True),
        (".test", False),
        (".gone", False),
        (".none", True),
        (".gone == null", True),
        (".absent == null", False),
        (".absent != 3", True),
        ("not .test", True),
        ("not not .test", False),
        (".id == true", False),
        (".id == 7 and .amount < 1", False),
        (".id == 7 or .amount < 1 and .id == 8", True),
        ("(.id == 7 or .id == 8) and .amount < 1", False),
        ('key == "k1" and shard contains "0000"', True),
        ("size > 10", True),
        ('text contains "c-1"', True),
        ('.id contains "7"', False),
        ('.id < "8"', False),
        ('.amount =~ "1"', None),
    ],
)
def test_filters(text: str, holds: bool | None) -> None:
    if holds is None:
        pytest.importorskip("re2")
        holds = False
    assert parse(text)(seen(ORDER)) is holds


def test_a_record_that_is_no_json_has_no_paths() -> None:
    assert not parse(".id")(seen(b"\xff"))
    assert parse('text == ""')(seen(b"\xff"))


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("", 1, "a path like"),
        (".a ==", 6, "a value is wanted"),
        (".a == b", 7, "a value is wanted"),
        ("(.a", 4, "a ) is wanted"),
        (".a .b", 4, "should end here"),
        ("name == 1", 1, "one of key, shard, size, text"),
        (".a == 'b'", 7, "is wanted"),
        ("(" * 60 + ".a", 52, "more than 50 levels"),
    ],
)
def test_what_is_no_filter_is_shown_with_its_place(text: str, place: int, why: str) -> None:
    with pytest.raises(OptionError, match="cannot be read at character") as caught:
        parse(text)
    assert f"character {place}: " in str(caught.value)
    assert why in str(caught.value)


def test_a_filter_is_bounded() -> None:
    with pytest.raises(OptionError, match="at most 4096"):
        parse(".a and " * 1000 + ".a")
    assert parse("not " * 900 + ".id")(seen(ORDER))


@given(st.text(alphabet='.ab01 ()"=<>!andornt[]\\', max_size=40))
def test_every_text_is_a_filter_or_an_error_of_options(text: str) -> None:
    try:
        test = parse(text)
    except OptionError:
        return
    assert test(seen(ORDER)) in (True, False)


def test_a_pattern_that_would_run_for_ever_elsewhere_takes_linear_time() -> None:
    pytest.importorskip("re2")
    assert not pattern("(a+)+$")("a" * 100_000 + "b")
    with pytest.raises(OptionError, match="is no pattern"):
        pattern("(")


def test_without_the_package_a_pattern_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(OptionError, match=r"pip install 'shardway\[inspect\]'"):
        pattern("a")


@pytest.mark.parametrize("text", ["\x1b]0;owned\x07\n2026-11-24 alice POST /letters/replay 200 (", "\ud800("])
def test_a_bad_pattern_writes_nothing_to_the_terminal(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    """RE2 writes such a pattern as it is to the process's standard error, unless it is told not to."""
    for make in (lambda: pattern(text), lambda: parse(f".name =~ {json.dumps(text)}")):
        with pytest.raises(OptionError, match="is no pattern") as raised:
            make()
        assert str(raised.value).isprintable()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("test", ['.name =~ "\\ud83d"', '.name == "\\ud83d"', 'key startswith "\\ud83d"', '"\\ud83d"'])
def test_half_an_emoji_in_a_filter_is_a_text_like_others(test: str) -> None:
    record = SeenRecord(msgspec.structs.replace(seen({}).record, data=b'{"name": "\\ud83d"}'))
    try:
        found = parse(test)(record)
    except OptionError:
        assert test.startswith('"')  # a value alone is no filter
    else:
        assert found is (not test.startswith("key"))


def test_a_number_of_any_length_is_a_number_or_an_error_of_options() -> None:
    with pytest.raises(OptionError, match="characters"):
        parse(f".n == {'9' * 5_000}")
    record = SeenRecord(msgspec.structs.replace(seen({}).record, data=b'{"n": %s}' % (b"9" * 4_000)))
    assert parse(".n > 1e300")(record)
    assert parse(f".n == {'9' * 4_000}")(record)
    assert not parse(f".n[{'9' * 4_000}]")(record)
