"""Writes the addresses of the project into the files that the repository's host reads as they are.

::

    scripts/run python -m scripts.addresses

``[tool.shardway.addresses]`` in ``pyproject.toml`` is the one place to change. What is built (the package's metadata,
the site) takes the addresses from there by itself.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.package_metadata import Addresses, read_addresses

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[1]
_BEGIN, _END = "<!-- by scripts/addresses.py -->\n", "<!-- end -->\n"


def security_policy(text: str, found: Addresses) -> str:
    """Return the policy with the two ways to report a weakness."""
    ways = (
        "Please report a weakness privately, and not in a public issue:\n\n"
        f"- in the form at <{found.security_report}>,\n"
        f"- or by mail to <{found.security_contact}>.\n\n"
    )
    before, _, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError(f"SECURITY.md has no lines {_BEGIN.strip()} and {_END.strip()} around the addresses")
    return f"{before}{_BEGIN}{ways}{_END}{after}"


def issue_links(text: str, found: Addresses) -> str:
    """Return the chooser of issue forms with its two links."""
    targets = iter((found.security_report, found.site))
    return re.sub(r"(?m)^(    url: ).*$", lambda line: line[1] + next(targets), text)


def image_names(text: str, found: Addresses) -> str:
    """Return a page or program with the name of the image in each of its quoted places."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    made, count = re.subn(r'"[\w-]+/[\w-]+-local:v[\w.]+"', f'"{found.image(version)}"', text)
    if count == 0:
        raise ValueError("no image of the local Kinesis is named here any more; take the file out of FILES")
    return made


FILES: dict[str, Callable[[str, Addresses], str]] = {
    "SECURITY.md": security_policy,
    ".github/ISSUE_TEMPLATE/config.yml": issue_links,
    "docs/guides/testing.md": image_names,
    "interop/clients/containers/go/kinesis_test.go": image_names,
    "interop/clients/containers/java/src/main/java/shardway/interop/LocalKinesis.java": image_names,
    "interop/clients/containers/python/local_kinesis.py": image_names,
}


def written(root: Path, found: Addresses) -> dict[Path, str]:
    """Return the text that each file has with these addresses."""
    return {root / name: write((root / name).read_text(encoding="utf-8"), found) for name, write in FILES.items()}


if __name__ == "__main__":
    for path, text in written(ROOT, read_addresses(ROOT)).items():
        path.write_text(text, encoding="utf-8")
