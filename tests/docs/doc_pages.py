"""The pages of the documentation, and the blocks of code in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block; ``text`` is what is between the fences."""

    page: Path
    language: str
    text: str
    line: int

    @property
    def name(self) -> str:
        """``docs/guides/testing.md:14``."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file_name(self) -> str | None:
        """What the reader is to save it as: the first line says it, in a comment."""
        found = re.match(r"# ([\w./-]+)\n", self.text)
        return found[1] if found and "." in found[1] else None

    @property
    def commands(self) -> list[str]:
        """Of a ``console`` block: what stands behind each ``$``, with the lines that go on behind a backslash."""
        lines: list[str] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                lines.append(line[2:])
            elif lines and lines[-1].endswith("\\"):
                lines[-1] += "\n" + line
            else:
                raise AssertionError(f"{self.name}: neither a command nor the rest of one: {line}")
        return [line.partition("  # ")[0].rstrip() for line in lines]


def blocks(page: Path, *languages: str) -> list[Block]:
    """The blocks of a page, of these languages or of all."""
    text = page.read_text(encoding="utf-8")
    found = [Block(page, match[1], match[2], text.count("\n", 0, match.start()) + 1) for match in _FENCE.finditer(text)]
    return [block for block in found if not languages or block.language in languages]


def all_blocks(*languages: str) -> list[Block]:
    """The blocks of all pages."""
    return [block for page in PAGES for block in blocks(page, *languages)]


def prose(page: Path) -> str:
    """A page without its blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def section(page: Path, heading: str) -> str:
    """What stands under a heading, up to the next one of any level."""
    text = page.read_text(encoding="utf-8")
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found is not None, f"{page}: there is no heading {heading}"
    return found[1]


def part(page: Path, heading: str) -> str:
    """A part of a page with all its sections: what stands under its heading of the second level, up to the next one."""
    text = page.read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found is not None, f"{page}: there is no part {heading}"
    return found[1]


def programs(text: str) -> list[str]:
    """The blocks of Python in a text."""
    return re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def rows(table: str) -> list[list[str]]:
    """The cells of a table's rows, without its head."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
