"""The committed JSON schema is that of the code, and agrees with the check on good files and bad ones."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from job_files import GOOD

from penstock.pipeline.job import job_schema, model
from penstock.pipeline.job.main import schema_json

ROOT = Path(__file__).resolve().parents[3]


def test_the_committed_schema_is_that_of_the_code() -> None:
    assert (ROOT / "docs" / "reference" / "job.schema.json").read_text(encoding="utf-8") == schema_json()


def test_it_knows_every_field_of_the_file() -> None:
    schema = json.loads(schema_json())
    parts = {"Decode", "DeadLetters", "Deduplicate", "Transform", "Sink", "Trigger"}
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
