"""What a type hint says of a value, and what an error says of a value that is not of it."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import numpy as np
import pytest
from msgspec import Meta

from shardway.core.options.check import check
from shardway.core.options.hints import ENDLESS, WHOLE_MAX, lacks, shown
from shardway.errors import OptionError
from shardway.model import OutsidePolicy


class Table(Protocol):
    name: str

    def scan(self) -> None: ...


class Sqlite:
    name = "leases"

    def scan(self) -> None: ...


class Count(enum.IntEnum):
    THREE = 3


class Word(enum.StrEnum):
    THREE = "three"


class Kilometres(float):
    """A number of a program's own."""


def name_of(value: object) -> str:
    return value if isinstance(value, str) and value.isprintable() else type(value).__name__


Positive = Annotated[float, Meta(gt=0)]
Whole = Annotated[int, Meta(gt=0)]


def faults_of(value: object, hint: Any) -> list[str]:
    try:
        check({"it": value}, {"it": hint})
    except OptionError as error:
        return error.faults
    return []


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (1, Positive),
        (Kilometres(1.5), Positive),
        (np.float64(0.5), Positive),
        (Count.THREE, Whole),
        (None, Positive | None),
        (math.inf, Annotated[float, Meta(gt=0), ENDLESS]),
        (WHOLE_MAX, Whole),
        ("text", str),
        ("off", Literal["off", "on"]),
        (OutsidePolicy.DROP, OutsidePolicy),
        (Word.THREE, str),
        (print, Callable[[str], None]),
        (Sqlite(), Table),
        ("leases", str | Table),
        ((ValueError, OSError), tuple[type[BaseException], ...]),
        ((), tuple[type[BaseException], ...]),
        ({"team": "orders"}, dict[str, str]),
        ("folder/\udcff", Path | str),
        (object(), Any),
    ],
    ids=name_of,
)
def test_values_that_a_hint_takes(value: object, hint: Any) -> None:
    assert faults_of(value, hint) == []


@pytest.mark.parametrize(
    ("value", "hint", "says"),
    [
        ("4", Positive, "it is a number, not a str"),
        (True, Positive, "it is a number, not True"),
        (None, Positive, "it is a number, not None"),
        (1j, Positive, "it is a number, not a complex"),
        (np.int64(3), Whole, "it is a whole number, not an int64"),
        (np.float32(3), Positive, "it is a number, not a float32"),
        (2.0, Whole, "it is a whole number, not 2.0"),
        (False, Whole, "it is a whole number, not False"),
        (np.True_, bool, "it is True or False, not a numpy.bool"),
        (1, bool, "it is True or False, not 1"),
        (b"text", str, "it is a text, not a bytes"),
        (Path("x"), str, "it is a text, not a PosixPath"),
        (3, Path | str, "it is Path or a text, not 3"),
        ("drop", OutsidePolicy, "it is OutsidePolicy, not a str: write OutsidePolicy.DROP"),
        ("nothing", OutsidePolicy, "it is OutsidePolicy, not a str"),
        ("yes", Literal["off", "on"], 'it is "off" or "on", not \'yes\''),
        (np.array(["off", "on"]), Literal["off", "on"], 'it is "off" or "on", not a ndarray'),
        ("x" * 50, Literal["off", "on"], f'it is "off" or "on", not \'{"x" * 39}'),
        ("print", Callable[[str], None], "it is a function, not a str"),
        ("print", Callable | None, "it is a function, not a str"),
        (Sqlite, Sqlite, "it is Sqlite, not the class Sqlite: call it, Sqlite()"),
        (Sqlite, Table, "it is Table, not the class Sqlite"),
        (3, str | Table, "it is a text or Table, not 3"),
        ([ValueError], tuple[type[BaseException], ...], "it is a tuple, not a list"),
        (ValueError, tuple[type[BaseException], ...], "it is a tuple, not the class ValueError"),
        ((ValueError, "OSError"), tuple[type[BaseException], ...], "it[1] is a class of BaseException, not a str"),
        (
            (ValueError, Sqlite),
            tuple[type[BaseException], ...],
            "it[1] is a class of BaseException, not the class Sqlite",
        ),
        ([("team", "orders")], dict[str, str], "it is a dict, not a list"),
        ({"team": 1}, dict[str, str], "it['team'] is a text, not 1"),
        ({1: "orders"}, dict[str, str], "a key of it is a text, not 1"),
        (3, Annotated[str | Table, Meta(title="a name", description="or a table")], "it is a name, not 3: or a table"),
    ],
    ids=name_of,
)
def test_values_of_wrong_types(value: object, hint: Any, says: str) -> None:
    assert faults_of(value, hint) == [says]


@pytest.mark.parametrize(
    ("value", "hint", "says"),
    [
        (0, Positive, "it must be more than 0, not 0"),
        (-0.5, Positive | None, "it must be more than 0, not -0.5"),
        (math.nan, Positive, "it must be more than 0, not nan"),
        (math.nan, Annotated[float, ENDLESS], "it is no number"),
        (math.inf, Positive, "it must be a finite number"),
        (-math.inf, Positive, "it must be more than 0, not -inf"),
        (np.float64("inf"), Positive, "it must be a finite number"),
        (10**400, Positive, "it must be at most 9223372036854775807, not a number of 1329 bits"),
        (10**5000, Whole, "it must be at most 9223372036854775807, not a number of 16610 bits"),
        (-(10**400), Positive, "it must be more than 0, not a number of 1329 bits"),
        (-1, Annotated[int, Meta(ge=0)], "it must be at least 0, not -1"),
        (9, Annotated[int, Meta(gt=0, le=8, description="the API")], "it must be at most 8, not 9: the API"),
        (9, Annotated[int, Meta(ge=1, le=8)], "it must be from 1 to 8, not 9"),
        (0, Annotated[int, Meta(ge=1, le=8)], "it must be from 1 to 8, not 0"),
        ("an \ud83d", str, "it holds half of a character, which UTF-8 cannot write"),
        ({"team": "\ude00"}, dict[str, str], "it['team'] holds half of a character, which UTF-8 cannot write"),
    ],
    ids=name_of,
)
def test_values_of_the_right_type_that_will_not_do(value: object, hint: Any, says: str) -> None:
    assert faults_of(value, hint) == [says]


def test_all_faults_are_raised_at_once_and_rules_see_right_types_alone() -> None:
    hints = {"first": Positive, "second": str}

    def rules() -> list[str]:
        return ["first and second do not go together"]

    with pytest.raises(OptionError) as told:
        check({"first": -1, "second": 3}, hints, rules)
    assert told.value.faults == ["second is a text, not 3", "first must be more than 0, not -1"]
    with pytest.raises(OptionError) as told:
        check({"first": -1, "second": "x"}, hints, rules)
    assert told.value.faults == ["first must be more than 0, not -1", "first and second do not go together"]


def test_none_is_named_where_that_is_asked_for() -> None:
    with pytest.raises(OptionError, match=r"^it is a whole number or None, not a str$"):
        check({"it": "3"}, {"it": int | None}, names_none=("it",))


@pytest.mark.parametrize(
    ("value", "says"),
    [(None, "None"), (True, "True"), (2.5, "2.5"), (str, "the class str"), ("secret", "a str"), ([1], "a list")],
)
def test_only_what_holds_no_secret_is_shown(value: object, says: str) -> None:
    assert shown(value) == says


def test_attributes_that_a_value_lacks() -> None:
    assert lacks("text", ["upper", "close"]) == ["close"]
