"""Each block of each page is what it says it is: shell, TOML, JSON, YAML, a Dockerfile; and each link leads somewhere.

Blocks in Python are in ``test_code_blocks``; the commands of AWS, Spark and Shardway in ``test_page_commands``.
"""

from __future__ import annotations

import configparser
import json
import re
import subprocess
import tomllib
from typing import TYPE_CHECKING

import pytest
import yaml
from scripts.diagrams import DIAGRAMS

from shardway.pipeline.job import load_job
from shardway.pipeline.job.errors.exit_codes import ExitCode
from shardway.pipeline.job.file.model import Job
from tests.docs.doc_pages import DOCS, PAGES, ROOT, Block, all_blocks, blocks, prose

if TYPE_CHECKING:
    from pathlib import Path

LANGUAGES = {"", "console", "dockerfile", "go", "ini", "java", "json", "mermaid", "python", "text", "toml", "yaml"}
INSTRUCTIONS = {"FROM", "RUN", "COPY", "ENV", "WORKDIR", "USER", "ENTRYPOINT"}
ENVIRONMENT = {"LAKE": "lake"}
"""What the job files on the pages take from the environment."""
PROSE_LINE_MAX = 120
CLIENTS = ROOT / "interop" / "clients"


def each(*languages: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("block", [pytest.param(one, id=one.name) for one in all_blocks(*languages)])


def bash_takes(text: str) -> None:
    checked = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_fence_is_closed_and_of_a_language_that_is_checked(page: Path) -> None:
    assert page.read_text(encoding="utf-8").count("\n```") == 2 * len(blocks(page))
    assert {block.language for block in blocks(page)} <= LANGUAGES


@each("mermaid")
def test_diagrams_of_states_are_drawn_by_the_script_and_those_of_sequences_name_their_parts(block: Block) -> None:
    kind, *lines = block.text.splitlines()
    if kind == "stateDiagram-v2":
        assert block.text.removesuffix("\n") in {
            drawn().split("\n", 1)[1].removesuffix("\n```\n") for drawn in DIAGRAMS.values()
        }
        return
    assert kind == "sequenceDiagram"
    parts = re.findall(r"^    participant (\w+) as .+$", block.text, re.MULTILINE)
    arrows = re.findall(r"^    (\w+)--?>>(\w+): .+$", block.text, re.MULTILINE)
    notes = re.findall(r"^    Note over (\w+): .+$", block.text, re.MULTILINE)
    assert len(parts) + len(arrows) + len(notes) == len(lines)
    assert {part for arrow in arrows for part in arrow} | set(notes) == set(parts)


@each("console")
def test_commands_are_shell(block: Block) -> None:
    assert block.commands
    for command in block.commands:
        bash_takes(command)


def test_programs_with_testcontainers_are_those_that_run() -> None:
    """No engine and no compiler is asked here: `interop` compiles and runs the same files."""
    shown = all_blocks("go", "java", "python")
    shown = [block for block in shown if block.language != "python" or "testcontainers" in block.text]
    assert {block.language for block in shown} == {"go", "java", "python"}
    files = [path for path in (CLIENTS / "containers").rglob("*") if path.suffix in (".go", ".java", ".py")]
    assert {block.text for block in shown} <= {path.read_text(encoding="utf-8") for path in files}


def test_the_versions_of_sdks_on_the_page_are_those_that_run() -> None:
    node = json.loads((CLIENTS / "node" / "package.json").read_text(encoding="utf-8"))["dependencies"]
    modules = (CLIENTS / "go" / "go.mod").read_text(encoding="utf-8")
    poms = (CLIENTS / "containers" / "java" / "pom.xml").read_text(encoding="utf-8")
    run = {name.removeprefix("@aws-sdk/"): version for name, version in node.items()}
    run |= dict(re.findall(r"/(service/\w+) v(\S+)$", modules, re.MULTILINE))
    run |= dict(re.findall(r"<artifactId>(kinesis)</artifactId>\s+<version>(.+?)</version>", poms))
    page = (DOCS / "guides" / "testing.md").read_text(encoding="utf-8")
    table = page.partition("### Which SDKs")[2].partition("\n### ")[0]
    assert dict(re.findall(r"`([\w/-]+)` (\d+\.\d+\.\d+)", table)) == run


@each("json")
def test_json_is_json(block: Block) -> None:
    json.loads(block.text)


@each("yaml")
def test_yaml_is_yaml_and_kubernetes_has_its_kind_and_place(block: Block) -> None:
    for one in yaml.safe_load_all(block.text):
        assert isinstance(one, dict)
        if block.page.stem == "kubernetes":
            assert {"apiVersion", "kind", "metadata"} <= one.keys()
            assert one["metadata"]["namespace"] == "streams"


@each("toml")
def test_toml_is_a_job_or_a_part_of_one(block: Block, tmp_path: Path) -> None:
    tree = tomllib.loads(block.text)
    if "sinks" not in tree:
        assert tree.keys() <= set(Job.__struct_fields__)
        return
    path = tmp_path / "job.toml"
    path.write_text(block.text, encoding="utf-8")
    load_job(path, ENVIRONMENT)


@each("dockerfile")
def test_a_dockerfile_is_one(block: Block) -> None:
    lines = [line for line in block.text.splitlines() if line and not line.startswith("#")]
    assert lines[0].startswith("FROM ")
    for line in lines:
        instruction, _, rest = line.partition(" ")
        assert instruction in INSTRUCTIONS
        if instruction == "RUN":
            bash_takes(rest)
        if instruction == "ENTRYPOINT":
            assert isinstance(json.loads(rest), list)
    stages = [line.split(" AS ")[1] for line in lines if " AS " in line]
    assert {found for line in lines for found in re.findall(r"--from=(\S+)", line)} == set(stages)


@each("ini")
def test_a_unit_of_systemd_stops_the_job_as_the_runner_wants_it(block: Block) -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(block.text)
    service = unit["Service"]
    assert service["KillMode"] == "mixed"
    final = {ExitCode(int(code)) for code in service["RestartPreventExitStatus"].split()}
    assert final == {ExitCode.WRONG_JOB, ExitCode.NOT_READY}


def anchors(page: Path) -> set[str]:
    """The anchors that the headings of a page get."""
    heads = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        if not linked.exists() or (anchor and anchor not in anchors(linked)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_of_prose_are_short(page: Path) -> None:
    """Rows of tables are lines that Markdown does not break, and code breaks as its language wants it."""
    lines = prose(page).splitlines()
    assert [line for line in lines if len(line) > PROSE_LINE_MAX and not line.startswith("|")] == []


def test_the_index_has_every_page() -> None:
    index, decisions = DOCS / "README.md", DOCS / "decisions" / "README.md"
    named = {
        (page.parent / target).resolve()
        for page in (index, decisions)
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    }
    assert [str(page) for page in PAGES if page.is_relative_to(DOCS) and page not in {*named, index}] == []
    policies = set((DOCS / "iam").iterdir())
    assert policies <= named
