"""Look for all symptoms in a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.inspect.doctor import facts
from shardway.inspect.doctor.findings import DoctorReport, Finding, NotLookedFor, Severity
from shardway.inspect.doctor.symptoms import SYMPTOMS

if TYPE_CHECKING:
    from shardway.inspect.doctor.snapshots import Snapshot


def examine(snapshot: Snapshot) -> DoctorReport:
    """Look for all symptoms in a snapshot, and return what was found."""
    found, open_questions = [], []
    for symptom in SYMPTOMS.values():
        seen = list(symptom.evidence(snapshot))
        if not seen:
            left_open = [] if symptom.too_short is None else list(symptom.too_short(snapshot))
            if left_open:
                why = facts.named(left_open)
                open_questions.append(NotLookedFor(id=symptom.id, title=symptom.title, why=why))
            continue
        is_worse = symptom.is_worse is not None and symptom.is_worse(snapshot)
        found.append(
            Finding(
                id=symptom.id,
                title=symptom.title,
                severity=Severity.CRITICAL if is_worse else symptom.severity,
                confidence=symptom.confidence,
                evidence=facts.named(seen),
                do=symptom.do,
                verify=symptom.verify,
            )
        )
    found.sort(key=lambda one: (list(Severity).index(one.severity), one.id))
    return DoctorReport(
        taken_at=snapshot.taken_at,
        findings=found,
        looked_for=[one for one in SYMPTOMS if one not in {left.id for left in open_questions}],
        missing=snapshot.missing,
        not_looked_for=open_questions,
    )
