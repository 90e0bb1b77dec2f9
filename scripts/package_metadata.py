"""The part of the package's metadata that is made from the repository's address: its links, and the README's.

``[tool.shardway.addresses]`` in ``pyproject.toml`` is the one place that has an address. The build calls
``MetadataHook`` (hatchling finds it by ``[tool.hatch.metadata.hooks.custom]``); ``scripts.addresses`` writes the files
that a host reads as they are.

This module imports nothing of the project, because the build loads it alone, from a folder that it unpacked.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.metadata.plugin.interface import MetadataHookInterface

PLACEHOLDER = "OWNER"
"""Stands in the addresses until the owner of the repository is known."""

LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s]+)\)")


class Addresses(NamedTuple):
    """Where the project lives."""

    repository: str
    """The page of the repository, without a slash at its end."""
    security_contact: str
    """The mail address to report a weakness to without an account at the host of the repository."""

    @property
    def site(self) -> str:
        """The documentation, as the repository's host serves it: ``https://OWNER.github.io/NAME/``."""
        host, owner, name = self.repository.removeprefix("https://").split("/")
        return f"https://{owner.lower()}.{host.removesuffix('.com')}.io/{name}/"

    def image(self, version: str) -> str:
        """The image of the local Kinesis, as a tag pushes it, without its registry: names there are in small letters.

        The placeholder stays as it is: no engine takes capitals, so none fetches the image of another account.
        """
        owner, name = self.repository.split("/")[-2:]
        return f"{owner if owner == PLACEHOLDER else owner.lower()}/{name.lower()}-local:v{version}"

    @property
    def security_report(self) -> str:
        """The form for a private report."""
        return f"{self.repository}/security/advisories/new"

    @property
    def is_complete(self) -> bool:
        """Whether a release may carry these addresses: no placeholder is left."""
        return not any(PLACEHOLDER.lower() in one.lower() for one in self)


def read_addresses(root: Path) -> Addresses:
    """Read the addresses from ``pyproject.toml`` below this folder."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return Addresses(**project["tool"]["shardway"]["addresses"])


def links(found: Addresses) -> dict[str, str]:
    """Return the links that the page of the package shows."""
    return {
        "Homepage": found.repository,
        "Documentation": found.site,
        "Source": found.repository,
        "Changelog": f"{found.repository}/blob/main/CHANGELOG.md",
        "Issues": f"{found.repository}/issues",
        "Security": f"{found.repository}/security/policy",
    }


def with_absolute_links(text: str, root: Path, repository: str, version: str, page: str = "README.md") -> str:
    """Return a page whose relative links lead to the repository, at the tag of this version.

    A package index shows the README alone, and the files that it links to are not beside it there.
    """
    folder = posixpath.dirname(page)

    def absolute(found: re.Match[str]) -> str:
        path, mark, anchor = found[1].partition("#")
        target = posixpath.normpath(posixpath.join(folder, path))
        kind = "tree" if (root / target).is_dir() else "blob"
        return f"]({repository}/{kind}/v{version}/{target}{mark}{anchor})"

    return LINK.sub(absolute, text)


class MetadataHook(MetadataHookInterface):
    """Adds the links and the README to the metadata of a build."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Write both into the metadata; ``pyproject.toml`` names them as dynamic."""
        root = Path(self.root)
        found = read_addresses(root)
        text = (root / "README.md").read_text(encoding="utf-8")
        metadata["urls"] = links(found)
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": with_absolute_links(text, root, found.repository, metadata["version"]),
        }
