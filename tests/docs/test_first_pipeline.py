"""The commands of the guide to a first pipeline, typed as they stand there, into two shells."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.doc_pages import DOCS, blocks
from tests.docs.terminals import Terminal, masked, until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

PAGE = DOCS / "guides" / "first-pipeline.md"
HERE = str(Path(sys.executable).parent)
INSTALLED = ("python3 -m venv", "pip install")
"""What the environment of the tests has already."""


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[tuple[Terminal, Terminal]]:
    environment = {"PATH": f"{HERE}:{os.environ['PATH']}"}
    both = Terminal(tmp_path, environment), Terminal(tmp_path, environment)
    yield both
    for one in both:
        one.close()


def commands(beginning: str) -> list[str]:
    return [command for block in blocks(PAGE, "console") for command in block.commands if command.startswith(beginning)]


def shown(beginning: str) -> str:
    (text,) = [block.text for block in blocks(PAGE, "text") if block.text.startswith(beginning)]
    return text


def served(text: str) -> dict[str, str]:
    return dict(re.findall(r"export (\w+)=(\S+)", text))


def test_from_an_empty_folder_to_a_pipeline_that_was_killed(
    terminals: tuple[Terminal, Terminal], tmp_path: Path
) -> None:
    first, second = terminals
    (make_folder,) = commands("mkdir")
    (local,) = commands("shardway local")
    for terminal in terminals:
        terminal.type(make_folder.replace("mkdir", "mkdir -p"))
    for command in commands("java"):
        first.type(command)
    folder = tmp_path / "first-pipeline"
    for block in blocks(PAGE, "python", "toml"):
        assert block.file_name is not None
        (folder / block.file_name).write_text(block.text, encoding="utf-8")

    exports = served(first.first_lines(f"{local} --port 0", lambda line: "METADATA" in line))
    page = served("\n".join(commands("export")))
    assert exports.keys() == page.keys()
    assert {name for name in page if page[name] != exports[name]} == {"AWS_ENDPOINT_URL"}
    for name, value in exports.items():
        second.type(f"export {name}={value}")

    put, put_more, put_last = commands("python orders.py")
    assert masked(second.type(put)) == masked(shown("orders: "))
    (check,) = commands("shardway run job.toml --check")
    assert second.type(check) == shown("job.toml: ")

    start, start_again = [command for command in commands("shardway run") if command.endswith("&")]
    log = folder / "job.log"
    second.type(start)
    until(lambda: log.exists() and "batch 0: 1,002 records" in log.read_text(), "the first batch")
    until(lambda: log.read_text().endswith("\n"), "the whole line of it")
    told = [line for line in log.read_text().splitlines() if line.startswith(("job orders", "batch "))]
    assert [masked(line) for line in told[:2]] == masked(shown("job orders runs")).splitlines()
    (look,) = commands("python look.py")
    assert second.type(look) == shown("1000 rows")
    (cat,) = commands("cat ")
    (letter,) = [json.loads(line) for line in second.type(cat).splitlines()]
    assert letter["reason"] in PAGE.read_text(encoding="utf-8")
    assert {"data", "partition_key", "sequence_number"} <= letter.keys()

    second.type(put_more)
    (kill,) = commands("kill -9")
    second.type(kill)
    second.type(put_last)
    second.type(start_again)
    until(lambda: second.type(look) == shown("26000 rows"), "all rows")
    until(lambda: len(second.type(cat).splitlines()) == 3, "three dead letters")

    (stop,) = commands("kill -TERM")
    second.type(stop)
    (wait,) = commands("wait")
    second.type(wait)
    assert "stopped by SIGTERM" in log.read_text()


def test_what_is_not_typed_is_what_the_environment_has() -> None:
    typed = ("mkdir", "java", "shardway", "export", "python orders.py", "python look.py", "cat ", "kill", "wait")
    left = [command for command in commands("") if not command.startswith((*typed, *INSTALLED))]
    assert [command for command in left if not command.startswith(("tail -f", "aws kinesis"))] == []
    assert shutil.which("shardway", path=HERE)
