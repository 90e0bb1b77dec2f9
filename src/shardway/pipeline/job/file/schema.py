"""Make the JSON schema of a job file: editors complete and check TOML with it."""

from __future__ import annotations

from typing import Any

import msgspec

from shardway.pipeline.job.file.model import Job
from shardway.spark.options.parsing import READ_OPTIONS

_REFERENCE = {"type": "string", "pattern": r"\$\{"}
"""The schema of a value that comes from the environment, as any value may: it is text in the file then."""


def job_schema() -> dict[str, Any]:
    """Return the JSON schema of a job file, as JSON values."""
    schema: dict[str, Any] = msgspec.json.schema(Job)
    definitions = {name: _open(definition) for name, definition in schema["$defs"].items()}
    job = definitions.pop("Job")
    job["properties"]["source"] = {
        "description": job["properties"]["source"]["description"],
        "type": "object",
        "properties": {
            option.name: {"description": f"{option.taken}; default {option.default}. {option.about}"}
            for option in READ_OPTIONS
            if option.stream
        },
        "additionalProperties": {"type": ["string", "number", "boolean"]},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A Shardway job",
        **{name: value for name, value in job.items() if name != "title"},
        "$defs": definitions,
    }


def schema_json() -> str:
    """Return the JSON schema of a job file as text, as it stands in the repository."""
    return msgspec.json.format(msgspec.json.encode(job_schema()), indent=2).decode() + "\n"


def _open(value: Any) -> Any:
    """Let ``${NAME}`` stand where text of a pattern, a choice or no text at all is wanted."""
    if isinstance(value, list):
        return [_open(one) for one in value]
    if not isinstance(value, dict):
        return value
    opened = {name: _open(one) if name != "default" else one for name, one in value.items()}
    if isinstance(opened.get("properties"), dict):
        for name, one in opened["properties"].items():
            told = {key: one.pop(key) for key in ("description", "default") if key in one}
            choices = one.get("anyOf", [one])
            narrow = any("pattern" in kind or "enum" in kind or kind.get("type") == "boolean" for kind in choices)
            opened["properties"][name] = {**told, "anyOf": [*choices, _REFERENCE]} if narrow else {**told, **one}
    return opened
