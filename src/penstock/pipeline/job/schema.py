"""The JSON schema of a job file, for editors that complete and check TOML by one."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.pipeline.job.model import Job
from penstock.spark.options import READ_OPTIONS

_REFERENCE = {"type": "string", "pattern": r"\$\{"}
"""Any value may come from the environment: then it is text in the file."""


def job_schema() -> dict[str, Any]:
    """The schema, as JSON values."""
    schema: dict[str, Any] = msgspec.json.schema(Job)
    definitions = {name: _open(definition) for name, definition in schema["$defs"].items()}
    job = definitions.pop("Job")
    job["properties"]["source"] = {
        "description": job["properties"]["source"]["description"],
        "type": "object",
        "properties": {
            option.name: {"description": f"{option.type}; default {option.default}. {option.about}"}
            for option in READ_OPTIONS
            if option.stream
        },
        "additionalProperties": {"type": ["string", "number", "boolean"]},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A Penstock job",
        **{name: value for name, value in job.items() if name != "title"},
        "$defs": definitions,
    }


def _open(value: Any) -> Any:
    """Lets ``${NAME}`` stand where text of a pattern, a choice or no text at all is wanted."""
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
