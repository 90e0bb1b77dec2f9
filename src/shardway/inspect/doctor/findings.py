"""Values of an examination: what was found, how bad it is, and what could not be looked for."""

from __future__ import annotations

import datetime as dt
from enum import StrEnum

import msgspec

from shardway.inspect.values import Missing


class Severity(StrEnum):
    """How bad a symptom is, the worst first."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class Confidence(StrEnum):
    """How sure it is that the evidence means the symptom."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A symptom that was found in a snapshot."""

    id: str
    """The symptom's id, which never changes."""
    title: str
    severity: Severity
    confidence: Confidence
    evidence: list[str]
    do: str
    verify: str
    """How to see that the symptom is gone."""


class NotLookedFor(msgspec.Struct, frozen=True, kw_only=True):
    """A symptom that the looks of a snapshot were too short for. Whether it is there is not known."""

    id: str
    title: str
    why: list[str]
    """What the looks leave open."""


class DoctorReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, the worst first."""

    schema: str = "shardway.doctor/1"
    taken_at: dt.datetime
    findings: list[Finding]
    looked_for: list[str]
    """The ids of all symptoms that were looked for."""
    missing: list[Missing]
    not_looked_for: list[NotLookedFor] = []
    """The symptoms that the looks were too short for: look for longer, or add the looks of earlier runs."""
