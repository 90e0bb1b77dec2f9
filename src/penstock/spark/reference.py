"""The reference page of the source, made from the tables that the code itself uses."""

from __future__ import annotations

from penstock.spark.options import ALIASES, READ_OPTIONS


def options_table() -> str:
    """The options as a Markdown table."""
    lines = ["| option | type, unit | default | what it does |", "| --- | --- | --- | --- |"]
    for option in READ_OPTIONS:
        only = "" if option.batch and option.stream else " Batch reads only." if option.batch else " Streaming only."
        lines.append(f"| `{option.name}` | {option.type} | {option.default} | {option.about}{only} |")
    aliases = ", ".join(f"`{alias}` for `{name}`" for alias, name in sorted(ALIASES.items()))
    return "\n".join([*lines, "", f"Names are taken in any case. Also taken: {aliases}."]) + "\n"
