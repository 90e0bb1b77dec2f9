"""What `help`, `inspect.signature` and a notebook show of each public name, in each Python that is there."""

from __future__ import annotations

import importlib
import inspect
import pydoc
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shardway import DeadLetters, GiveUp, LeaseOptions, OutsidePolicy, ProducerOptions, Retry
from shardway.core.options.base import Options
from shardway.core.signatures import default_text, field_defaults, field_kinds, help_of
from shardway.dead_letters import DeadLettersToFile
from shardway.events import BatchFailed, ProducerMetrics
from tests.test_exports import PUBLIC

MODULES = [*PUBLIC, "shardway.errors", "shardway.events", "shardway.model", "shardway.options", "shardway.ports"]


def names_of(module: str) -> list[str]:
    """Return the names that a module has for programs: its list, or the classes and functions that are made in it."""
    found = importlib.import_module(module)
    if listed := getattr(found, "__all__", None):
        return [name for name in listed if name[0] != "_"]
    return [name for name, one in vars(found).items() if name[0] != "_" and getattr(one, "__module__", "") == module]


@pytest.mark.parametrize("module", MODULES)
def test_each_public_name_has_help_and_a_signature(module: str) -> None:
    names = names_of(module)
    assert names
    for name in names:
        one = getattr(importlib.import_module(module), name)
        if isinstance(one, str):
            continue
        assert getattr(one, "__name__", "") in pydoc.plain(pydoc.render_doc(one))
        if callable(one) and not _has_a_constructor_of_c(one):
            assert "*values" not in str(inspect.signature(one))


def _has_a_constructor_of_c(one: Any) -> bool:
    """True for an error or dict that Python itself constructs: before 3.13 it tells no signature of those."""
    return isinstance(one, type) and issubclass(one, BaseException | dict) and not inspect.isfunction(one.__init__)


def every_option_class() -> list[type[Options]]:
    found: list[type[Options]] = []
    waiting = [*Options.__subclasses__()]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith("shardway"):
            found.append(kind)
    return found


def test_the_help_of_options_names_each_field_with_type_default_and_meaning() -> None:
    for module in MODULES:
        importlib.import_module(module)
    kinds = every_option_class()
    assert {Retry, LeaseOptions, ProducerOptions, DeadLettersToFile, GiveUp} <= set(kinds)
    for kind in kinds:
        text = pydoc.plain(pydoc.render_doc(kind))
        for name, default in field_defaults(kind):
            given = "" if default is inspect.Parameter.empty else f" = {default_text(default)}"
            if name[0] != "_":
                assert f" {name}: {field_kinds(kind)[name]}{given}" in text


def test_units_and_meanings_stand_in_the_help() -> None:
    assert " base_s: float = 0.2 (seconds, more than 0)\n" in pydoc.plain(pydoc.render_doc(Retry))
    text = " ".join((ProducerOptions.__doc__ or "").split())
    assert (
        "buffer_bytes_max: int = 16777216 (bytes: 16 MiB, more than 0) The most memory for records that have no outcome"
        in text
    )
    assert "shard_records_per_s: float = 1000 (records/s, more than 0)" in text
    assert (GiveUp.__doc__ or "").startswith("The worker gives the shard up, for another worker to try.\n\nOptions:\n")
    assert GiveUp(cool_down_s=1).__doc__ == "The worker gives the shard up, for another worker to try."


def test_signatures_show_types_without_quotes() -> None:
    shown = str(inspect.signature(Retry))
    assert "failures_max: int | None = 3, base_s: float = 0.2" in shown
    assert "then: LastResort = DeadLetters()" in shown
    assert str(inspect.signature(BatchFailed)).startswith("(stream: str, shard_id: str, ")
    assert "snapshot: ProducerSnapshot" in str(inspect.signature(ProducerMetrics))


def test_defaults_are_shown_as_a_program_writes_them() -> None:
    assert default_text(OutsidePolicy.DROP) == "OutsidePolicy.DROP"
    assert default_text(DeadLetters()) == "DeadLetters()"
    assert default_text(LeaseOptions().strategy) == "EqualCounts()"


def test_a_class_without_source_shows_its_fields_all_the_same() -> None:
    space: dict[str, Any] = {"__name__": "shardway_packed"}
    exec(
        "from __future__ import annotations\n"
        "from shardway.core.options.base import Options\n"
        "class Packed(Options, frozen=True, kw_only=True):\n"
        "    'Options of a packed program.'\n"
        "    wait_s: float = 1.5\n",
        space,
    )
    assert space["Packed"].__doc__ == "Options of a packed program.\n\nOptions:\n\nwait_s: float = 1.5 (seconds)"
    assert help_of(space["Packed"], "Short.", {}).startswith("Short.\n\nOptions:")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: GiveUp(60), r"GiveUp takes its options by name, and was given 60: GiveUp\(cool_down_s=\.\.\.\)"),  # type: ignore[call-arg]
        (lambda: DeadLettersToFile("x"), r"DeadLettersToFile takes its options by name, and was given a str: "),  # type: ignore[call-arg]
        (lambda: ProducerOptions(True, 5), r"was given True, 5: ProducerOptions\(aggregation=\.\.\., aggregate_"),  # type: ignore[call-arg]
    ],
)
def test_options_that_are_given_by_their_places_are_named(make: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        make()


def pythons() -> list[str]:
    """Return the Pythons from 3.11 to 3.13 that are there and start, one of each version."""
    found = []
    for minor in (11, 12, 13):
        path = shutil.which(f"python3.{minor}")
        if path and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            found.append(path)
    return found


@pytest.mark.parametrize("python", pythons())
def test_help_works_in_each_python_that_has_what_the_package_needs(python: str) -> None:
    """A Python without msgspec for its version is left out: nothing of the package runs there."""
    program = (
        "import importlib, inspect, pydoc, sys\n"
        "sys.path[:0] = sys.argv[2:]\n"
        "try:\n    import msgspec, botocore\nexcept ImportError as error:\n    sys.exit(f'left out: {error}')\n"
        "for module in sys.argv[1].split(','):\n"
        "    found = importlib.import_module(module)\n"
        "    for name in getattr(found, '__all__', None) or vars(found):\n"
        "        try:\n            one = getattr(found, name, None)\n"
        "        except ModuleNotFoundError:\n            continue  # an extra that this Python does not have\n"
        "        if inspect.isclass(one) and (hasattr(found, '__all__') or one.__module__ == module):\n"
        "            pydoc.render_doc(one)\n"
        "            if not issubclass(one, (BaseException, dict)):\n                inspect.signature(one)\n"
        "print('shown')\n"
    )
    light = [one for one in MODULES if not one.startswith(("shardway.pipeline", "shardway.inspect", "pyspark"))]
    source = str(Path(inspect.getsourcefile(Options) or "").parents[2])
    packages = [one for one in sys.path if one.endswith("site-packages")]
    same = python == shutil.which(f"python3.{sys.version_info.minor}")
    done = subprocess.run(
        [python, "-c", program, ",".join(light), source, *(packages if same else ())],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.stderr.startswith("left out"):
        pytest.skip(done.stderr.strip())
    assert done.stdout == "shown\n", done.stderr
