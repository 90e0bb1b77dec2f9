"""The page of reports, and their JSON schema, are what the tools write."""

from __future__ import annotations

import json
import re

import msgspec
from scripts.reference_reports import PAGE, REPORTS, ROOT, SCHEMA, parts, schema_of

from scripts import reference_reports

AGAIN = "run python -m scripts.reference_reports"


def test_the_page_and_the_schema_are_made_of_the_values() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert reference_reports.renewed(page) == page, AGAIN
    assert reference_reports.json_schema() == SCHEMA.read_text(encoding="utf-8"), AGAIN


def test_each_value_that_names_a_schema_is_on_the_page() -> None:
    named = re.compile(r"^    schema: str = (\S+)$", re.MULTILINE)
    files = [*(ROOT / "src/shardway/inspect").rglob("*.py"), *(ROOT / "src/shardway/cli").rglob("*.py")]
    found = [one for file in files for one in named.findall(file.read_text(encoding="utf-8"))]
    assert len(found) == len(REPORTS)
    told = {one.strip('"') for one in found if one.startswith('"')}
    assert told <= set(map(schema_of, REPORTS))


def test_the_rows_of_a_report_are_one_of_its_fields() -> None:
    for report, (_, rows) in REPORTS.items():
        names = {one.name for one in msgspec.structs.fields(report)} | {"leases"}  # which are the application's
        assert rows is None or rows in names


def test_each_value_says_what_it_is() -> None:
    assert [one.__name__ for one in parts() if not one.__doc__] == []
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert {one.__name__ for one in REPORTS} | {"RecordLine"} <= set(schema["$defs"])
    assert schema["$defs"]["LagReport"]["properties"]["schema"] == {"const": "shardway.lag/1"}
