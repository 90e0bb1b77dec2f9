"""What a job sends to executors that have nothing of ours: Shardway and what it needs, as a folder and as an archive.

The same as ``pip install --target`` and ``zip`` make of it, from the packages that are installed here, so that no
package index is asked.
"""

from __future__ import annotations

import os
import re
import zipfile
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

WANTED = ("shardway", "pyarrow", "numpy", "pandas")
SPARK = ("pyspark", "py4j")
"""Comes with the cluster."""
_LEFT_OUT = {"tests", "include"}
"""Folders of which nothing is imported: a third of it all."""


class Packages(NamedTuple):
    """Both forms of the same packages."""

    folder: Path
    """For the driver's PYTHONPATH."""
    archive: Path
    """For ``--archives``. Not compressed: it does not leave this machine."""


def collect(target: Path) -> Packages:
    """Make both in a folder."""
    folder, archive = target / "packages", target / "packages.zip"
    folder.mkdir()
    for name in sorted(_needed()):
        for place in _places(name):
            (folder / place.name).symlink_to(place)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as packed:
        for path, folders, files in os.walk(folder, followlinks=True):
            folders[:] = [one for one in folders if one not in _LEFT_OUT]
            for file in files:
                packed.write(Path(path, file), Path(path, file).relative_to(folder))
    return Packages(folder, archive)


def _needed() -> set[str]:
    """The packages and those that they need."""
    found: set[str] = set()
    left = list(WANTED)
    while left:
        name = left.pop()
        if name not in found and name not in SPARK:
            found.add(name)
            # "name>=1; python_version > '3'": those of extras and of other systems are left out where they are named.
            wanted = [text for text in distribution(name).requires or () if "extra ==" not in text]
            left += [
                match[0].lower() for text in wanted if (match := re.match(r"[\w.-]+", text)) and _is_here(match[0])
            ]
    return found


def _is_here(name: str) -> bool:
    try:
        distribution(name)
    except ImportError:
        return False
    return True


def _places(name: str) -> set[Path]:
    """The folders and modules of a package, wherever they are."""
    if name == "shardway":  # perhaps installed as a link to its source
        specs = [find_spec(one) for one in ("shardway", "pyspark_shardway")]
        return {Path(spec.origin).parent for spec in specs if spec is not None and spec.origin is not None}
    found = distribution(name)
    tops = {Path(str(file)).parts[0] for file in found.files or ()} - {"..", "__pycache__"}
    return {Path(str(found.locate_file(top))) for top in tops}
