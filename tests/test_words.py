"""One word for each thing: the words that were withdrawn do not come back. `docs/DESIGN.md` says what each is called.

The list stands here in one place. Where a withdrawn word is right, the exception names the file and the reason.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
import typer

from shardway.cli.app import app
from shardway.options import ProducerOptions
from shardway.pipeline.job import job_schema
from shardway.spark.options.parsing import READ_OPTIONS, SINK_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parents[1]
DESIGN = ROOT / "docs" / "DESIGN.md"


class Word(NamedTuple):
    """A word that was withdrawn."""

    now: str
    """What is written in its place."""
    pattern: str
    may: Mapping[str, str] = {}
    """Where it stays: a file, and why."""


A_FIXTURE = "the name of a file that holds what was stored"
WORDS = (
    Word("deliver", r"\bhand(s|ed|ing)?[ _-]out\b|\bHandOut\b|\bHandsOut\b"),
    Word("handoff", r"\bhandovers?\b|\bHandover(?=[A-Z]|s?\b)"),
    Word("dead letter", r"\bbur(y|ies|ied|ying)\b"),
    Word(
        "duplicate",
        r"\b(the|a|no|any|without|removes?|drops?) repeats?\b(?! of)|(drop|without|exact)_repeats\b|\bRepeats\b",
        {"tests/stored_kit.py": A_FIXTURE, "tests/test_stored.py": A_FIXTURE},
    ),
    Word("time to live", r"\btimes?-to-live\b|time_to_live_s\b"),
    Word("in flight", r"\brecords_out\b|\boldest_out_s\b|[wW]hat is out\b(?! of)|\brecords are out\b"),
    Word("emit", r"\btake_told\b|\bTeller\b|\bself\._tell\(\w*[eE]vent"),
    Word("failures_max", r"\b(batch_)?tries_max\b"),
    Word("aggregates outside the range", r"\b[aA]ggregates_?[oO]utside\b"),
    Word("starting position", r"\bstart_at\b|\bStartAt\b"),
    Word("options", r"\bPollTimes\b|\bFanOutTimes\b|\bWireSettings\b"),
    Word(
        "options, or the connection",
        r"^class (?!Console)\w+Settings\b|\b_?settings: (?!Console)\w*(Options|Settings|Policy)\b",
    ),
    Word("connection", r"\bwire="),
    Word("shard map", r"\bpicture of the\b.{0,12}\bshards\b"),
    Word("lag_s", r"metrics\.lag_ms\b"),
)
PLACES_THAT_MAY = {
    "tests/fixtures": "what 0.1 has stored, and how it was made",
    "tests/test_words.py": "the list itself",
}
EXEMPT_PARTS = {
    DESIGN: r"(?ms)^## The words\n.*?^### ",
}
"""Of these files this part is exempt, and nothing else: the glossary."""
SUFFIXES = (".py", ".md", ".toml", ".yml", ".json")
FOLDERS = ("src", "docs", "tests", "bench", "examples", "interop", "scripts")


def texts() -> Iterator[Path]:
    """All that a reader meets."""
    yield from (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md")
    for name in FOLDERS:
        yield from (path for path in sorted((ROOT / name).rglob("*")) if path.suffix in SUFFIXES and path.is_file())


def may(path: str, word: Word) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in (*PLACES_THAT_MAY, *word.may))


def lines_with(pattern: re.Pattern[str], path: Path) -> list[int]:
    text = path.read_text(encoding="utf-8")
    if path in EXEMPT_PARTS:
        text = re.sub(EXEMPT_PARTS[path], lambda found: "\n" * found[0].count("\n"), text)
    if not pattern.search(text):
        return []
    return [number for number, line in enumerate(text.splitlines(), start=1) if pattern.search(line)]


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.now)
def test_a_withdrawn_word_does_not_come_back(word: Word) -> None:
    pattern = re.compile(word.pattern, re.MULTILINE)
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in texts()
        if not may(str(path.relative_to(ROOT)), word)
        for line in lines_with(pattern, path)
    ]
    assert found == [], f"write {word.now}"


def test_each_exception_is_needed() -> None:
    patterns = [re.compile(word.pattern, re.MULTILINE) for word in WORDS]
    for place in PLACES_THAT_MAY:
        files = [path for path in texts() if str(path.relative_to(ROOT)).startswith(place)]
        assert any(pattern.search(path.read_text(encoding="utf-8")) for path in files for pattern in patterns), place
    for word in WORDS:
        for place in word.may:
            assert lines_with(re.compile(word.pattern, re.MULTILINE), ROOT / place), place


# --- the glossary ---------------------------------------------------------------------------------


def table_below(heading: str) -> list[list[str]]:
    """The rows of the table below a heading of the page, as cells."""
    part = DESIGN.read_text(encoding="utf-8").partition(f"\n{heading}\n")[2]
    rows = []
    for line in part.splitlines():
        if line.startswith("#"):
            break
        if line.startswith("| "):
            rows.append([cell.strip() for cell in line.strip("| ").split(" | ")])
    return rows[2:]


def test_the_glossary_has_a_row_for_each_withdrawn_word() -> None:
    rows = table_below("## The words")
    assert len({row[0] for row in rows}) == len(rows)
    withdrawn = "\n".join(row[-1] for row in rows)
    for word in WORDS:
        assert re.search(word.pattern, withdrawn, re.MULTILINE), f"the glossary withdraws nothing like {word.pattern}"


def options_of(command: object) -> Iterator[str]:
    for parameter in getattr(command, "params", ()):
        yield from (one for one in parameter.opts if one.startswith("--"))
    for inner in getattr(command, "commands", {}).values():
        yield from options_of(inner)


def test_the_names_in_the_table_of_places_are_those_that_are_taken() -> None:
    spark = {option.name for option in (*READ_OPTIONS, *SINK_OPTIONS)}
    flags = set(options_of(typer.main.get_command(app)))
    schema = job_schema()
    jobs = set(schema["properties"]) | {name for one in schema["$defs"].values() for name in one["properties"]} | spark
    rows = table_below("### The same thing in each place")
    assert len(rows) >= 10
    for concept, _, *places, _ in rows:
        names = [set(re.findall(r"`([^`]+)`", cell)) for cell in places]
        for taken, known in zip(names, (set(ProducerOptions.__struct_fields__), spark, jobs, flags), strict=True):
            assert taken <= known, concept
