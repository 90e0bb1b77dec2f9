"""Makes the table of the page of symptoms from `shardway.inspect.doctor`.

``python -m scripts.reference_doctor docs/reference/symptoms.md`` writes it anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.reference import renew_files, renewed_with, table

from shardway.inspect.doctor.symptoms import SYMPTOMS

if TYPE_CHECKING:
    from collections.abc import Callable


def symptoms_table() -> str:
    """Return the table of all symptoms, with what the doctor says of each."""
    rows = [
        (f"`{one.id}`", one.title, f"{one.severity.value}, {one.confidence.value}", one.seen_by, one.do, one.verify)
        for one in SYMPTOMS.values()
    ]
    return table(("id", "symptom", "severity, confidence", "seen by", "what to do", "how to verify"), rows)


TABLES: dict[str, Callable[[], str]] = {"symptoms": symptoms_table}


def renewed(page: str) -> str:
    """Return the text of the page with its table as the code has it now."""
    return renewed_with(page, TABLES)


if __name__ == "__main__":
    renew_files(renewed)
