"""Makes the page and the JSON schema of what the tools that look write with ``-o json``, from the values themselves.

``python -m scripts.reference_reports`` writes both anew.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec
from scripts.reference import attribute_docs, plain, renewed_with, table

from shardway.cli.contexts_file import Contexts
from shardway.inspect import (
    ApplicationReport,
    ApplicationsReport,
    Applied,
    Checked,
    CostReport,
    CountReport,
    DoctorReport,
    HeatReport,
    LagReport,
    Plan,
    PositionsReport,
    RecordLine,
    Snapshot,
    StreamReport,
    StreamsReport,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REPORTS: dict[type[msgspec.Struct], tuple[str, str | None]] = {
    StreamsReport: ("stream ls", "streams"),
    StreamReport: ("stream describe, stream shards", "shards"),
    HeatReport: ("stream heat", "shards"),
    CountReport: ("records count", "shards"),
    ApplicationsReport: ("app ls", "applications"),
    ApplicationReport: ("app describe", "leases"),
    LagReport: ("app lag, top", "shards"),
    PositionsReport: ("app export, --save", None),
    Plan: ("app seek, app import, --plan", "moves"),
    Applied: ("app seek, app import and app apply, once written", None),
    Checked: ("check lag, check leases, check stream", None),
    Snapshot: ("doctor --collect", None),
    DoctorReport: ("doctor", "findings"),
    CostReport: ("cost", "modes"),
    Contexts: ("context ls", "contexts"),
}
"""The commands that write each report, and the field of the report that has the rows of ``-o jsonl``. None stands for
a report that is one line.
"""
ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "reports.md"
SCHEMA = ROOT / "docs" / "reference" / "reports.schema.json"


def schema_of(report: type[msgspec.Struct]) -> str:
    """Return the name of a report's schema, such as ``shardway.lag/1``."""
    return next(str(one.default) for one in msgspec.structs.fields(report) if one.name == "schema")


def parts() -> list[type[msgspec.Struct]]:
    """Return the classes of all values that are in a report or in a line of records, each behind the first one that
    holds it.
    """
    found: list[type[msgspec.Struct]] = []

    def walk(kind: Any) -> None:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            if kind not in found:
                found.append(kind)
                for field in msgspec.structs.fields(kind):
                    walk(field.type)
            return
        for inner in get_args(kind):
            walk(inner)

    for report in (*REPORTS, RecordLine):
        walk(report)
    return found


def reports_table() -> str:
    """Return the table of all reports."""
    rows = [
        (f"`{schema_of(report)}`", f"[{report.__name__}](#{report.__name__.lower()})", by, f"`{of}`" if of else "")
        for report, (by, of) in REPORTS.items()
    ]
    return table(("schema", "value", "written by", "rows of `jsonl`"), rows)


def fields_tables() -> str:
    """Return a section for each value in a report, with the table of its fields."""
    return "\n".join(_section(kind) for kind in parts())


def _section(kind: type[msgspec.Struct]) -> str:
    docs = attribute_docs(kind)
    rows = [(f"`{name}`", f"`{text}`", docs.get(name, "")) for name, text in _annotations(kind)]
    return f"### {kind.__name__}\n\n{plain(inspect.getdoc(kind) or '')}\n\n" + table(("field", "type", "meaning"), rows)


def _annotations(kind: type[msgspec.Struct]) -> Iterator[tuple[str, str]]:
    for name, text in vars(kind).get("__annotations__", {}).items():
        told = str(text).replace("dt.datetime", "time").replace("dt.date", "date")
        yield name, told.replace(" | msgspec.UnsetType", ", or absent")


def json_schema() -> str:
    """Return all reports as one JSON schema, each under its name in ``$defs``."""
    kinds = [*REPORTS, RecordLine]
    references, definitions = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    for report in REPORTS:
        definitions[report.__name__]["properties"]["schema"] = {"const": schema_of(report)}
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What Shardway's tools write with -o json, and lines of records",
        "oneOf": list(references),
        "$defs": dict(sorted(definitions.items())),
    }
    return json.dumps(whole, indent=2) + "\n"


TABLES: dict[str, Callable[[], str]] = {"reports": reports_table, "values": fields_tables}


def renewed(page: str) -> str:
    """Return the text of the page with its tables as the code has them now."""
    return renewed_with(page, TABLES)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    SCHEMA.write_text(json_schema(), encoding="utf-8")
