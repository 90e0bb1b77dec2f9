"""The committed JSON schema is that of the code, and agrees with the check on good files and bad ones."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from shardway.pipeline.job import ExitCode, JobFileError, job_schema, load_job
from shardway.pipeline.job.file import model
from shardway.pipeline.job.file.schema import schema_json
from tests.pipeline.job.job_files import GOOD

ROOT = Path(__file__).resolve().parents[3]


def test_the_committed_schema_is_that_of_the_code() -> None:
    assert (ROOT / "docs" / "reference" / "job.schema.json").read_text(encoding="utf-8") == schema_json()


def test_it_knows_every_field_of_the_file() -> None:
    schema = json.loads(schema_json())
    parts = {
        "Stamps",
        "Registry",
        "Decode",
        "DeadLetters",
        "Expectation",
        "Deduplicate",
        "Window",
        "Transform",
        "Sink",
        "Trigger",
        "Metrics",
    }
    assert set(schema["$defs"]) == parts
    for part in parts:
        definition = schema["$defs"][part]
        assert set(definition["properties"]) == set(getattr(model, part).__struct_fields__)
        assert definition["additionalProperties"] is False
    assert set(schema["properties"]) == set(model.Job.__struct_fields__)
    assert schema["required"] == ["name", "checkpoint", "source", "sinks"]
    assert set(tomllib.loads(GOOD)) <= set(schema["properties"])


def test_a_value_from_the_environment_may_stand_for_any() -> None:
    every = job_schema()["$defs"]["Trigger"]["properties"]["every"]
    assert {"type": "string", "pattern": r"\$\{"} in every["anyOf"]


PAGE = (ROOT / "docs" / "reference" / "job.md").read_text(encoding="utf-8")


def rows_of(heading: str) -> list[str]:
    section = re.split(r"\n#+ ", PAGE.split(f"{heading}\n", 1)[1])[0]
    return re.findall(r"^\| `?([\w\[\]]+)`? \|", section, flags=re.MULTILINE)[1:]


@pytest.mark.parametrize(
    "part",
    [
        "Stamps",
        "Decode",
        "DeadLetters",
        "Expectation",
        "Deduplicate",
        "Window",
        "Transform",
        "Sink",
        "Trigger",
        "Metrics",
    ],
)
def test_the_page_has_each_field(part: str) -> None:
    heading = {"DeadLetters": "dead_letters", "Expectation": "expect", "Sink": "sinks"}.get(part, part.lower())
    assert rows_of(f"### {heading}") == list(getattr(model, part).__struct_fields__)


def test_the_page_has_each_field_of_a_registry() -> None:
    fields = PAGE.split("The fields of `registry`:\n", 1)[1].split("\n- ", 1)[0]
    assert re.findall(r"^\| `(\w+)` \|", fields, flags=re.MULTILINE) == list(model.Registry.__struct_fields__)


def test_the_page_has_each_part_and_exit_code() -> None:
    assert {name.strip("[]") for name in rows_of("## The file")} == set(model.Job.__struct_fields__)
    assert rows_of("## Exit codes") == [str(int(code)) for code in ExitCode]


def test_the_pages_example_and_its_faults(tmp_path: Path) -> None:
    example, *_ = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    path = tmp_path / "job.toml"
    path.write_text(example)
    assert load_job(path, {"LAKE": "lake"}).job.name == "orders"
    path.write_text(example.replace("streamName", "streamNam").replace("DECIMAL", "DECIML"))
    with pytest.raises(JobFileError) as caught:
        load_job(path, {"LAKE": "lake"})
    told = re.findall(r"^shardway: job\.toml:\d+: (.*)$", PAGE, flags=re.MULTILINE)
    assert [fault.split(": ", 1)[1] for fault in caught.value.faults] == told


@pytest.mark.parametrize("example", ["minutes", "orders", "orders_delta", "orders_iceberg", "totals"])
def test_the_examples_are_right(example: str) -> None:
    job_file = load_job(ROOT / "examples" / "jobs" / f"{example}.toml", {"STREAM": "orders", "LAKE": "lake"})
    assert job_file.job.name == example.replace("_", "-")
