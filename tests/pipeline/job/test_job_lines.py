"""Where things stand in a TOML text."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.pipeline.job.file.lines import KeyPath, line_of, lines_of

TEXT = '''\
# a comment with [brackets] and = signs
name = "a # b"
"quoted key" = 'it = [x]'
dotted.inner."third one" = 1

[source]  # behind a header
many = [
    "one", # ]
    { a = 1, b = [2, 3] },
]
long = """
[not.a.header]
key = "value" \\""" still
"""
raw = \'\'\'
x = 1\'\'\'
when = 2026-11-21T10:00:00Z

[[sinks]]
format = "parquet"
[sinks.options]
a = true
[[sinks]]
format = "json"
options = { b = """
x""", c = 1 }
[[sinks.inner]]
z = 1
["a.b".c]
last = 1
'''


def paths(tree: Any, path: KeyPath = ()) -> set[KeyPath]:
    """Every path in a parsed document."""
    found = {path} if path else set()
    if isinstance(tree, dict):
        return found.union(*(paths(value, (*path, name)) for name, value in tree.items()))
    if isinstance(tree, list):
        return found.union(*(paths(value, (*path, at)) for at, value in enumerate(tree)))
    return found


def test_each_path_has_its_line() -> None:
    lines = lines_of(TEXT)
    assert set(lines) == paths(tomllib.loads(TEXT))
    by_text = {
        ("name",): "name =",
        ("quoted key",): '"quoted key"',
        ("dotted", "inner", "third one"): "dotted.inner",
        ("source",): "[source]",
        ("source", "many", 0): '"one"',
        ("source", "many", 1, "b"): "{ a = 1",
        ("source", "many", 1, "b", 1): "{ a = 1",
        ("source", "long"): 'long = """',
        ("source", "raw"): "raw =",
        ("source", "when"): "when =",
        ("sinks", 0, "options", "a"): "a = true",
        ("sinks", 1, "format"): 'format = "json"',
        ("sinks", 1, "options", "c"): 'x""", c',
        ("sinks", 1, "inner", 0, "z"): "z = 1",
        ("a.b", "c", "last"): "last = 1",
    }
    texts = TEXT.splitlines()
    assert {path: text for path, text in by_text.items() if text not in texts[lines[path] - 1]} == {}


def test_what_is_missing_stands_where_it_should_be() -> None:
    lines = lines_of(TEXT)
    assert line_of(lines, ("source", "nothing")) == lines["source",]
    assert line_of(lines, ("sinks", 1, "path")) == lines["sinks", 1]
    assert line_of(lines, ("nothing", "at all")) == 1


KEYS = st.sampled_from(["a", "b-1", '"x.y"', "'[q]'", r'"é\u00e9\t"'])
STRINGS = st.sampled_from(
    ['"plain"', '"# = [ ] { } , \\" "', "'raw \\'", '"""a\n\\"""\n[x]\n"""', "'''\n= '' '''", '""']
)
VALUES = st.recursive(
    st.one_of(STRINGS, st.sampled_from(["1", "true", "1.5e3", "2026-11-21 10:00:00", "-inf"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[\n" + ", # note ]\n".join(items) + "\n]"),
        st.lists(inner, max_size=2).map(
            lambda items: "{ " + ", ".join(f"k{at} = {item}" for at, item in enumerate(items)) + " }"
        ),
    ),
    max_leaves=6,
)


@given(st.lists(st.tuples(KEYS, VALUES), max_size=5), st.lists(st.tuples(KEYS, VALUES), max_size=3), st.booleans())
def test_it_finds_what_the_parser_finds(
    top: list[tuple[str, str]], inner: list[tuple[str, str]], windows: bool
) -> None:
    pairs = [f"{key} = {value}" for key, value in dict(top).items()]
    table = [f"{key} = {value}" for key, value in dict(inner).items()]
    text = "\n".join([*pairs, "[[t]]", *table, "[[t]]", "[t.u]", *table]) + "\n"
    text = text.replace("\n", "\r\n") if windows else text
    tree = tomllib.loads(text)
    lines = lines_of(text)
    assert set(lines) == paths(tree)
    starts = {key: text.splitlines()[lines[key,] - 1] for key in tree if key != "t"}
    assert all("=" in start for start in starts.values())


@pytest.mark.parametrize("text", ["", "\n\n# only this", "a=1", "\ufeff"[1:] + "[a]"])
def test_small_documents(text: str) -> None:
    assert set(lines_of(text)) == paths(tomllib.loads(text))
