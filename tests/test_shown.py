"""What is shown of others' text: no orders to a terminal, no forged lines, no passwords."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.core.unicode import message_of, writable, writable_value
from shardway.shown import json_line, json_lines, lines, one_line, url_without_password, without_password

CLEARED = "\x1b[2J\x1b]0;title\x07"


def test_escape_sequences_are_shown_and_not_sent() -> None:
    assert one_line(f"a{CLEARED}b\nc\td\x9b") == r"a\x1b[2J\x1b]0;title\x07b\nc\td\x9b"
    assert lines("a\n\tb\x1bc\rd") == "a\n\tb\\x1bc\\rd"
    assert one_line("\u202eabc\ud800") == r"\u202eabc\ud800"  # the other direction, and half of a pair


@pytest.mark.parametrize("text", ["", "plain", "größer 東京 🙂", r"a\x1b"])
def test_what_is_printable_stays(text: str) -> None:
    assert one_line(text) == lines(text) == text


def test_json_says_the_same_thing_in_escapes() -> None:
    value = {"a": f"{CLEARED}\x7f\x9b\u202e 東京"}
    assert json_line(value).isprintable()
    assert json.loads(json_line(value)) == value


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:hush@host/x", "https://***@host/x"),
        ("proxy 'http://:p@ss/w@h:1' refused", "proxy 'http://***@h:1' refused"),
        ("https://host/@x", "https://***@x"),
        ("https://host:1/x", "https://host:1/x"),
    ],
)
def test_a_url_without_its_password(text: str, shown: str) -> None:
    assert without_password(text) == shown


@given(password=st.text().map("{}hunter2 '\"/#?\n".format))
def test_a_url_alone_is_shown_without_any_password(password: str) -> None:
    assert url_without_password(f"https://ada:{password}@host:1/x") == "https://***@host:1/x"
    assert "hunter2" not in url_without_password(f"https://{password}@a@host")


@given(st.lists(st.text(), max_size=5))
def test_lines_of_json_are_what_each_line_is_alone(texts: list[str]) -> None:
    assert json_lines([{"a": one} for one in texts]) == "".join(f"{json_line({'a': one})}\n" for one in texts)


@pytest.mark.parametrize("value", ["\ud83d", {"\udfff": ["\ud83d", {"a": "\ud83d"}]}, ["\ud83d\ude00", 1, None]])
def test_half_an_emoji_makes_no_line_fail(value: object) -> None:
    for line in (json_line(value), *json_lines([value, "other"]).splitlines()):
        line.encode()
        assert json.loads(line) in (json.loads(json.dumps(writable_value(value))), "other")
    for text in (one_line(str(value)), lines(str(value))):
        text.encode()
        assert text.encode("latin-1", "backslashreplace")


@given(st.text(st.characters(categories=["Cs", "L", "So"]), max_size=20))
def test_any_text_can_be_written_and_what_is_whole_stays(text: str) -> None:
    found = writable(text)
    found.encode()
    whole = not any("\ud800" <= one <= "\udfff" for one in text)
    assert found == text if whole else "\ufffd" in found or len(found) < len(text)
    assert writable(found) == found


def test_an_error_that_cannot_say_its_message_has_none() -> None:
    class BrokenError(Exception):
        def __str__(self) -> str:
            raise UnicodeEncodeError("utf-8", "\ud83d", 0, 1, "no")

    assert message_of(BrokenError()) == ""
    assert message_of(ValueError("cut \ud83d")) == "cut \ufffd"
