"""A query that groups looks as if it counted over time; in a job that runs on it counts within each batch. The check
says so.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.pipeline.job.errors.exit_codes import ExitCode
from shardway.pipeline.job.file.one_batch import parts_of_one_batch
from shardway.pipeline.job.run.program import run_file

if TYPE_CHECKING:
    from pathlib import Path

QUERY = "SELECT value.item, count(*) AS n FROM records GROUP BY value.item"
JOB = f"""\
name = "orders"
checkpoint = "checkpoint"
source = {{ streamName = "orders", region = "eu-west-1" }}
decode = {{ format = "json", schema = "item STRING NOT NULL, price DOUBLE" }}
dead_letters = {{ discard = true }}

[transform]
sql = "{QUERY}"

[[sinks]]
format = "console"

[[sinks]]
format = "json"
path = "lake/items"
sql = "SELECT DISTINCT item FROM rows"
"""


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT a, count(*) FROM records GROUP BY a", ["GROUP BY"]),
        ("select a, sum(b)\nfrom records\ngroup   by a", ["GROUP BY"]),
        ("SELECT DISTINCT a FROM records", ["DISTINCT"]),
        ("SELECT count(DISTINCT a) FROM records GROUP BY b", ["GROUP BY", "DISTINCT"]),
        ("SELECT row_number() OVER (PARTITION BY a ORDER BY b) FROM records", ["a window function"]),
        ("SELECT sum(a) over w FROM records WINDOW w AS (ORDER BY b)", ["a window function"]),
        ("SELECT * FROM records", []),
        ("SELECT a IS NOT DISTINCT FROM b FROM records", []),
        ("SELECT 'GROUP BY', `distinct`, \"x OVER (\" FROM records", []),
        ("SELECT a FROM records -- no GROUP BY here", []),
        ("SELECT a /* DISTINCT\n b */ FROM records", []),
        ("SELECT 'it\\'s', a FROM records GROUP BY a -- '", ["GROUP BY"]),
        ("SELECT over, group_by, distinctive FROM records ORDER BY over", []),
        ("", []),
    ],
)
def test_the_parts_of_a_query_that_see_one_batch(sql: str, found: list[str]) -> None:
    assert parts_of_one_batch(sql) == found


@given(st.text(alphabet="abc GROUPBY'\"`-/*\\\n", max_size=60))
def test_any_text_is_looked_at(sql: str) -> None:
    assert set(parts_of_one_batch(sql)) <= {"GROUP BY", "DISTINCT", "a window function"}


def write(folder: Path, text: str) -> Path:
    path = folder / "orders.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_check_names_each_query_with_its_line_and_is_content(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_file(write(tmp_path, JOB), check=True) == ExitCode.DONE
    notes = [line.strip() for line in capsys.readouterr().out.splitlines() if "one batch" in line]
    assert notes == [
        f"note: {tmp_path}/orders.toml:8: transform.sql: "
        "GROUP BY covers the rows of one batch, and this job goes on with the next",
        f"note: {tmp_path}/orders.toml:16: sinks[1].sql: "
        "DISTINCT covers the rows of one batch, and this job goes on with the next",
    ]


def test_programs_get_the_notes_with_the_event(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_file(write(tmp_path, JOB), check=True, as_json=True) == ExitCode.DONE
    (event,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [note.split(": ")[1] for note in event["notes"]] == ["transform.sql", "sinks[1].sql"]


def test_a_query_in_a_file_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "items.sql").write_text("SELECT value.item FROM records\nGROUP BY value.item", encoding="utf-8")
    text = JOB.replace(
        'sql = "SELECT value.item, count(*) AS n FROM records GROUP BY value.item"', 'sql_file = "items.sql"'
    )
    assert run_file(write(tmp_path, text), check=True) == ExitCode.DONE
    assert "transform.sql_file: GROUP BY covers the rows of one batch" in capsys.readouterr().out


def test_a_job_that_reads_what_is_there_and_ends_has_no_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_file(write(tmp_path, f"{JOB}\n[trigger]\navailable_now = true\n"), check=True) == ExitCode.DONE
    assert "one batch" not in capsys.readouterr().out
