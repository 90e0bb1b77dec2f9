"""Have Spark fetch a job's packages also where this machine's Maven folder has only parts of them.

Spark looks for a package in the Maven folder of the user (``~/.m2/repository``) first, and takes the jar from the place
that has the description. Maven itself often leaves a description without its jar there. Spark then ends with
``download failed``, though the repository behind has both.

Ivy, which fetches packages for Spark, can look for descriptions and for jars apart: a jar that the Maven folder lacks
comes from the next place then. Ivy takes such settings from a file only, and that file replaces Spark's own list of
places. So it is written only where this module knows all places of the packages.
"""

from __future__ import annotations

import atexit
import os
import pwd
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from shardway.pipeline.job.session.packages import OPTIONS, options_given_here, packages_named

if TYPE_CHECKING:
    from collections.abc import Mapping


IVY_SETTINGS = "spark.jars.ivySettings"
REPOSITORIES = "spark.jars.repositories"
MIRROR = "DEFAULT_ARTIFACT_REPOSITORY"
"""Spark's variable with the address of a repository that stands for the public ones."""
_IVY_FOLDER = "spark.jars.ivy"
_PUBLIC = ("io.delta:", "org.apache.")
"""The groups whose packages are in the repository that Ivy itself asks, which is the first of the two that Spark asks.
"""


def maven_folder(settings: Mapping[str, str]) -> Path:
    """Return the Maven folder of the user, as Spark's Java looks for it: by the user's entry and not by ``HOME``."""
    options = f"{settings.get(OPTIONS, '')} {os.environ.get('JAVA_TOOL_OPTIONS', '')}"
    named = re.search(r"-Duser\.home=(\S+)", options)
    return Path(named[1] if named else pwd.getpwuid(os.getuid()).pw_dir) / ".m2" / "repository"


def with_repositories(settings: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's settings; where packages are fetched and the user has a Maven folder, with a file of settings for
    Ivy.

    They stay as they are where Ivy has a file of settings, and where a package may be in a repository that this module
    cannot name.
    """
    packages = packages_named(settings)
    mirror = os.environ.get(MIRROR, "")
    folder = maven_folder(settings)
    if (
        not packages
        or not folder.is_dir()
        or IVY_SETTINGS in " ".join([*settings, *options_given_here()])
        or not (mirror or all(one.startswith(_PUBLIC) for one in packages))
    ):
        return dict(settings)
    own = Path(settings.get(_IVY_FOLDER) or folder.parents[1] / ".ivy2.5.2") / "local"
    more = [one.strip() for one in settings.get(REPOSITORIES, "").split(",") if one.strip()]
    with tempfile.NamedTemporaryFile(
        "w", prefix="shardway-ivy-", suffix=".xml", encoding="utf-8", delete=False
    ) as file:
        file.write(_ivy_settings(folder, own, mirror, more))
    atexit.register(_remove, file.name)  # Spark reads it again where a query adds a package
    return {**settings, IVY_SETTINGS: file.name}


def _remove(file: str) -> None:
    with suppress(OSError):
        os.unlink(file)


def _ivy_settings(maven: Path, own: Path, mirror: str, more: list[str]) -> str:
    chains = "".join(
        f'<chain name="{kind}">{_maven(f"{kind}-maven", maven.as_uri() + "/")}{_ivy(f"{kind}-ivy", own)}'
        f"{_maven(f'{kind}-public', mirror)}"
        f"{''.join(_maven(f'{kind}-{at}', root) for at, root in enumerate(more))}</chain>"
        for kind in ("descriptions", "jars")
    )
    return (
        '<ivysettings><property name="ivy.maven.lookup.sources" value="false"/>'
        '<property name="ivy.maven.lookup.javadoc" value="false"/><settings defaultResolver="packages"/>'
        f'<resolvers><dual name="packages">{chains}</dual></resolvers></ivysettings>\n'
    )


def _maven(name: str, root: str) -> str:
    """Return a repository of Maven's form. Without a root Ivy asks the public one."""
    address = f" root={quoteattr(root)}" if root else ""
    return f'<ibiblio name="{name}" m2compatible="true"{address}/>'


def _ivy(name: str, folder: Path) -> str:
    """Return the folder of what Ivy itself has published on this machine."""
    pattern = f"{folder}/[organisation]/[module]/[revision]"
    return (
        f'<filesystem name="{name}" local="true"><ivy pattern={quoteattr(f"{pattern}/ivys/ivy.xml")}/>'
        f"<artifact pattern={quoteattr(f'{pattern}/[type]s/[artifact](-[classifier]).[ext]')}/></filesystem>"
    )
