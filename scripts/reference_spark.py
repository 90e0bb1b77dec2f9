"""Make the tables of the source's and the sink's options for their reference pages, from the options in the code.

python -m scripts.reference_spark docs/reference/spark-source.md docs/reference/spark-sink.md
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from scripts.reference import renew_files, renewed_with, rules_list

from shardway.spark.options.parsing import ALIASES, READ_OPTIONS, SINK_OPTIONS
from shardway.spark.options.read_options import ReadOptions
from shardway.spark.options.sink_options import SinkOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway.spark.options.option import Declaration, GivenOptions

PROSE_LINE_CHARACTERS = 118


def options_table() -> str:
    """Return the options for reading as a Markdown table, and the other names that are accepted for them."""
    return _table(READ_OPTIONS, ReadOptions)


def sink_options_table() -> str:
    """Return the options for writing as a Markdown table, and the other names that are accepted for them."""
    return _table(SINK_OPTIONS, SinkOptions)


def _table(options: Sequence[Declaration], kind: type[GivenOptions]) -> str:
    lines = ["| option | takes | default | what it does |", "| --- | --- | --- | --- |"]
    for option in options:
        only = "" if option.batch and option.stream else " Batch reads only." if option.batch else " Streaming only."
        lines.append(f"| `{option.name}` | {option.taken} | {option.default} | {option.about}{only} |")
    names = {option.name for option in options}
    aliases = ", ".join(f"`{alias}` for `{name}`" for alias, name in sorted(ALIASES.items()) if name in names)
    about_names = f"The case of names does not matter. These names are accepted too: {aliases}."
    rules = rules_list(kind, [option.name for option in options])
    return "\n".join([*lines, rules, *textwrap.wrap(about_names, PROSE_LINE_CHARACTERS)])


TABLES = {"reading": options_table, "writing": sink_options_table}


def renewed(page: str) -> str:
    """Return the text of the page with its tables as the options have them now."""
    return renewed_with(page, TABLES)


if __name__ == "__main__":
    renew_files(renewed)
