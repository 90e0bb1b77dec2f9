"""Builds the distributions as a release has them, checks them, and runs the README's programs from the wheel.

::

    make release-check
    make release-check ARGS="--tag v0.3.0 --out dist"    # what the release does before it publishes
    make release-check ARGS="--no-spark"                 # without the program that needs PySpark and a JVM

The wheel is built from the unpacked source distribution, so that this one is known to be whole. An empty environment
gets the wheel as a user gets it: the newest versions that its ranges allow. The programs run against a local Kinesis
that this environment starts, in a folder that has no file of the checkout.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from email import message_from_bytes
from pathlib import Path

from scripts.package_metadata import PLACEHOLDER, read_addresses
from scripts.readme_programs import Quickstarts

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = "local,cli"
EXTRAS_WITH_SPARK = "local,cli,spark"
_RELATIVE = re.compile(r"\]\((?!https://|#)([^)]+)\)")


class ReleaseError(Exception):
    """Something about the distributions must not be released; the message says what."""


def say(text: str) -> None:
    """Print a line at once, also into a file."""
    print(f"release-check: {text}", flush=True)


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command, and return what it printed; it stands in the error if the command fails."""
    words = [str(one) for one in command]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)  # noqa: S603 - fixed commands
    if done.returncode:
        raise ReleaseError(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def build(out: Path) -> tuple[Path, Path]:
    """Build the source distribution, and from it the wheel; return both."""
    out.mkdir(parents=True, exist_ok=True)
    if left := [path.name for path in out.iterdir()]:
        raise ReleaseError(f"{out} is not empty: {', '.join(sorted(left))}")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", out)
    (sdist,) = out.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(sdist) as packed:
            packed.extractall(scratch, filter="data")
        (unpacked,) = Path(scratch).iterdir()
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out, cwd=unpacked)
    (wheel,) = out.glob("*.whl")
    return sdist, wheel


def check_wheel(wheel: Path, tag: str | None) -> None:
    """Check what no general tool knows: links that lead nowhere from an index, types, the version, the addresses."""
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        message = message_from_bytes(packed.read(metadata))
    if "shardway/py.typed" not in names:
        raise ReleaseError(f"{wheel.name} has no shardway/py.typed: type checkers would ignore its types")
    if tops := {name.split("/")[0] for name in names} - {"shardway", "pyspark_shardway", metadata.split("/")[0]}:
        raise ReleaseError(f"{wheel.name} would install more than our packages: {', '.join(sorted(tops))}")
    readme = str(message.get_payload())
    if relative := _RELATIVE.findall(readme):
        raise ReleaseError(f"the README in {wheel.name} has links that lead nowhere: {', '.join(relative)}")
    if tag is None:
        return
    if tag != f"v{message['Version']}":
        raise ReleaseError(f"the tag is {tag}, and the version in pyproject.toml is {message['Version']}")
    if not read_addresses(ROOT).is_complete:
        raise ReleaseError(
            f"[tool.shardway.addresses] in pyproject.toml still says {PLACEHOLDER}: give it the real addresses, and "
            "run python -m scripts.addresses"
        )
    if f"## [{message['Version']}]" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        raise ReleaseError(f"CHANGELOG.md has no section [{message['Version']}]")


def install(wheel: Path, home: Path, extras: str) -> Path:
    """Install the wheel into an empty environment, and return its programs' folder."""
    run(sys.executable, "-m", "venv", home)
    run(home / "bin" / "pip", "--disable-pip-version-check", "install", "--quiet", f"{wheel}[{extras}]")
    run(home / "bin" / "pip", "--disable-pip-version-check", "check")
    return home / "bin"


def check(out: Path, tag: str | None, *, spark: bool) -> None:
    """Do all steps; raise `ReleaseError` at the first that fails."""
    sdist, wheel = build(out)
    for one in (sdist, wheel):
        say(f"built {one.name}, {one.stat().st_size / 1e6:.1f} MB")
    twine = Path(run(ROOT / "scripts" / "tools", "release").strip()) / "twine"
    run(twine, "check", "--strict", sdist, wheel)
    check_wheel(wheel, tag)
    say("the metadata is right")
    with tempfile.TemporaryDirectory() as scratch:
        programs = install(wheel, Path(scratch) / "environment", EXTRAS_WITH_SPARK if spark else EXTRAS)
        say(f"installed into an empty environment: {run(programs / 'shardway', '--version').strip()}")
        folder = Path(scratch) / "work"
        folder.mkdir()
        with Quickstarts(ROOT / "README.md", programs, folder) as quickstarts:
            for name, program in quickstarts.steps(spark=spark):
                program()
                say(f"README: {name}")


def main() -> int:
    """Return 0 if a release may take the distributions."""
    parser = argparse.ArgumentParser(prog="scripts.release_check", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tag", help="the tag of the release: it has to be that of the version")
    parser.add_argument("--out", type=Path, help="an empty folder for the distributions; left out: none is kept")
    parser.add_argument("--no-spark", action="store_true", help="leave out the program that needs PySpark and a JVM")
    given = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            check(given.out or Path(scratch) / "dist", given.tag, spark=not given.no_spark)
    except (ReleaseError, AssertionError, TimeoutError) as error:
        say(str(error))
        return 1
    say("the distributions may be released")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
