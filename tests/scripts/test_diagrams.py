"""The diagrams of states in the design are those of the tables that the code goes by."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

from scripts import diagrams

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "DESIGN.md").read_text(encoding="utf-8")


def test_the_diagrams_are_those_of_the_code() -> None:
    assert diagrams.renewed(PAGE) == PAGE, "run python -m scripts.diagrams docs/DESIGN.md"
    assert set(re.findall(r"<!-- diagram: (.*) -->", PAGE)) == set(diagrams.DIAGRAMS)


class Lamp(StrEnum):
    OFF = "off"
    ON = "is on"
    BROKEN = "broken"


class Hand(StrEnum):
    PRESS = "press"
    LOOK = "look"
    DROP = "drop"


def test_an_arrow_has_all_inputs_that_lead_along_it_and_a_state_that_stays_has_none() -> None:
    moves = [
        (Lamp.OFF, Hand.PRESS, Lamp.ON),
        (Lamp.ON, Hand.LOOK, Lamp.ON),
        (Lamp.ON, Hand.DROP, Lamp.BROKEN),
        (Lamp.ON, Hand.PRESS, Lamp.BROKEN),
    ]
    assert diagrams.drawn([Lamp.OFF], Lamp.BROKEN, moves).splitlines() == [
        "```mermaid",
        "stateDiagram-v2",
        '    state "off" as OFF',
        '    state "is on" as ON',
        '    state "broken" as BROKEN',
        "    [*] --> OFF",
        "    OFF --> ON: press",
        "    ON --> BROKEN: drop, press",
        "    BROKEN --> [*]",
        "```",
    ]
