"""What is given of a wrong type is told by its name, and shown only where it cannot be a secret."""

from __future__ import annotations

import pytest

from shardway.core.given import lacks, not_callable, not_numbers, not_of, shown


@pytest.mark.parametrize(
    ("value", "says"),
    [(None, "None"), (True, "True"), (2.5, "2.5"), (str, "the class str"), ("secret", "a str"), ([1], "a list")],
)
def test_only_what_holds_no_secret_is_shown(value: object, says: str) -> None:
    assert shown(value) == says


def test_numbers() -> None:
    given = {"a": 1, "b": 1.5, "c": None, "d": "4", "e": True, "f": 2.5}
    assert not_numbers(given, optional=("c",), whole=("f",)) == [
        "d is a number, not a str",
        "e is a number, not True",
        "f is a whole number, not 2.5",
    ]


def test_kinds() -> None:
    given = {"a": 1, "b": None, "c": dict, "d": "x", "e": 5}
    kinds: dict[str, tuple[type | str, ...]] = {
        "a": (int,), "b": (int,), "c": (dict, list), "d": (str, int), "e": ("a Strategy", str),
    }  # fmt: skip
    assert not_of(given, kinds, optional=("b",)) == [
        "c is dict or list, not the class dict: call it, dict()",
        "e is a Strategy or str, not 5",
    ]
    assert not_of({"b": None}, {"b": (int,)}) == ["b is a whole number, not None"]


def test_functions_and_attributes() -> None:
    assert not_callable({"f": print, "g": None, "h": 3}, ["f", "g", "h"]) == ["h is a function, not 3"]
    assert lacks("text", ["upper", "close"]) == ["close"]
