"""The services, one pair for all journeys; the table of what was measured, at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.stores import dynamodb_local_server

from interop.fleets.journey import Journey
from interop.fleets.processes import KCL_2, KCL_3, Services, kcl_command, services
from interop.fleets.results import table

ROOT = Path(__file__).resolve().parents[2]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RESULTS = ROOT / "artifacts" / "interop.json"
_JOURNEYS: list[Journey] = []


@pytest.fixture(scope="session")
def fleet_services() -> Iterator[Services]:
    try:
        for version in (KCL_2, KCL_3):
            kcl_command(version)
        context = services()
        running = context.__enter__()
    except dynamodb_local_server.UnavailableError as fault:
        pytest.fail(str(fault))
    try:
        yield running
    finally:
        context.__exit__(None, None, None)


@pytest.fixture
def journey(fleet_services: Services, tmp_path: Path) -> Callable[..., Journey]:
    """Makes the test's journey, whose figures come into the table whatever happens to it."""

    def make(name: str, **settings: Any) -> Journey:
        made = Journey(fleet_services, name, tmp_path, **settings)
        _JOURNEYS.append(made)
        return made

    return make


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _JOURNEYS:
        return
    results = [one.result for one in _JOURNEYS]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    terminalreporter.section("fleets")
    for line in table(results):
        terminalreporter.write_line(line)
    terminalreporter.write_line(f"all figures: {RESULTS.relative_to(ROOT)}")
